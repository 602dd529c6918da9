"""Samples of half a minute, made sane: what the GPUs, the host and the fabric did."""
