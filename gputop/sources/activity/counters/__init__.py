"""Measured SM activity by the GPU's own hardware counters, in a child process. Only where the user asked for it."""
