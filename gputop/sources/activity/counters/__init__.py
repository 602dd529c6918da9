"""SM activity by hardware counters in a child process, only on request."""
