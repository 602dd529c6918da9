"""gputop inside a program: readings, a watch beside a training loop, recordings and traces as objects.

The names that programs use are those of ``gputop`` itself. Nothing here imports a framework, touches CUDA or paints.
"""
