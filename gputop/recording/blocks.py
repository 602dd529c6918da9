"""Parts of a run's past in memory: frames that are packed, and frames that are made when somebody looks at them."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable

from msgspec import Struct

from gputop.model.snapshot import Snapshot


class Block(Struct, frozen=True):
    """Packed frames; ``first_t`` and ``last_t`` are the times of the first and the last, Unix seconds."""

    first_t: float
    last_t: float
    data: bytes

    def lines(self) -> Iterable[bytes]:
        return zlib.decompress(self.data).splitlines(keepends=True)


class Stretch(Struct, frozen=True):
    """Frames from before the first one kept, generated when they are first needed. ``first_t`` and ``last_t`` bound
    them, Unix seconds."""

    first_t: float
    last_t: float
    frames: Callable[[], Iterable[Snapshot]]
