"""NVIDIA's management library: one session, read into samples of each GPU."""
