"""Simulated machines for the demo."""
