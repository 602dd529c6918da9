"""Use gputop inside a program.

Readings, a watch beside a training loop, recordings and traces as objects.
"""
