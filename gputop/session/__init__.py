"""A run being watched: snapshots become frames, memory, events and recordings. No screen here."""
