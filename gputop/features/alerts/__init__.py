"""Alerts: their conditions, the judge that says when one fires, and what is run then."""

from __future__ import annotations
