"""What has held on a GPU without a break since before a recording, or one of its files, began."""

from __future__ import annotations

from msgspec import Struct


class Lasting(Struct, frozen=True):
    """Since when, Unix seconds, the GPU with this index has hardly run a kernel, has hardly used its tensor cores, and
    has had a link below its best; None where that does not hold."""

    gpu: int
    quiet_since: float | None = None
    little_tensor_since: float | None = None
    degraded_since: float | None = None
