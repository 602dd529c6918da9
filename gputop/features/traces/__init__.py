"""A profiler's trace, read and explained: where a step's time went, why the GPU was idle, what would help."""
