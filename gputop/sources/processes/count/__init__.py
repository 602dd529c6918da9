"""Shares of time by wait state, counted from looks and counters."""
