"""Alerts: their conditions, the table that declares them, and the judge that says when one fires. Pure."""
