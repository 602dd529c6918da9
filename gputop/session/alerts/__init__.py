"""Alerts of a run being watched: what the pure judge fires is run here, beside the ticks and never in one."""
