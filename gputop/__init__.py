"""gputop: top for GPUs that shows how much of a busy GPU works, and says why the rest does not."""

__version__ = "0.1.0"
