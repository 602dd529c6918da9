"""Analyses PyTorch's memory snapshots, without GPU and PyTorch."""
