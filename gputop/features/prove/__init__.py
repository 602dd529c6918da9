"""`gputop prove`: kernels of known width on the user's own GPU, and what each source says of them.

A wing of its own, reached from the command alone. The pure part (stages, verdict) knows neither CUDA nor a clock.
"""
