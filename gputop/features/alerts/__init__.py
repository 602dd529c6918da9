"""Alerts: conditions, their evaluation, and the commands that they run."""
