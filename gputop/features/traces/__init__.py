"""Analyses profiler traces: step time, idle time, remedies."""
