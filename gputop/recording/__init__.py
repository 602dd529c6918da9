"""The recording format: snapshots as JSON lines, written crash-safe and read with suspicion."""
