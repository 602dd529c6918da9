"""Data model: metric catalogue, snapshots and history.

Imports nothing else of gputop.
"""
