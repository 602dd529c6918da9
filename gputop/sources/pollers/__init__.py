"""Pollers of this machine: coroutines that await blocking calls on daemon threads."""
