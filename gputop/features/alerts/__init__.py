"""Alerts: conditions, their evaluation, and the commands that they run."""

from __future__ import annotations
