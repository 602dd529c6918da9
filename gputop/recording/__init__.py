"""Recordings: snapshots as JSON lines, written crash-safe and validated when read."""
