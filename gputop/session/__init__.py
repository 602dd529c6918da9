"""Watched runs: snapshots become frames, memory, events and recordings."""
