"""Reads samples of each GPU through one NVML session."""
