"""PyTorch's memory snapshots: what holds a GPU's memory, read from a file without a GPU and without PyTorch."""
