"""Job of one GPU, as its processes' window carries it."""

from __future__ import annotations

from msgspec import Struct


class JobOfGpu(Struct, frozen=True):
    """The job of one GPU's main process.

    ``key`` is common to its GPUs; ``loose_key`` also to equal processes that show no sign of talking to each other.
    """

    key: str
    loose_key: str
    rank: int | None = None
    is_announced: bool = False
    """Scheduler or launcher says that it is one."""
