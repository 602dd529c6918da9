"""What was measured: the metric catalogue, snapshots and history. Imports nothing else of gputop."""
