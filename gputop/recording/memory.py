"""The last minutes of a live run, kept packed in memory, so that a paused screen can go back in time.

Speaks as ``index.Recording`` does; a part is a block of frames. Nothing is written anywhere.
"""

from __future__ import annotations

import zlib
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator

from msgspec import Struct

from gputop.model.snapshot import Event, GpuStatic, Snapshot
from gputop.recording.decode import Decoder
from gputop.recording.encode import Encoder
from gputop.recording.reader import frames

KEPT_S = 660.0
"""Ten minutes of history and a window of diagnosis."""
BLOCK_FRAMES = 20
_FASTEST = 1


class _Block(Struct, frozen=True):
    first_t: float
    last_t: float
    data: bytes

    def lines(self) -> Iterable[bytes]:
        return zlib.decompress(self.data).splitlines(keepends=True)


class Past:
    """A frozen stretch of the run: what ``RecordedSource`` plays while the screen is paused."""

    path = "this run"

    def __init__(self, blocks: tuple[_Block, ...], last: Snapshot) -> None:
        self._blocks = blocks
        self._starts = [block.first_t for block in blocks]
        self.begin = blocks[0].first_t
        self.end = last.t
        self.interval_s = last.interval_s
        self.hostname = last.machine.hostname
        self.gpus: tuple[GpuStatic, ...] = tuple(gpu.static for gpu in last.gpus)

    def snapshots(self, begin: float | None = None, end: float | None = None) -> Iterator[Snapshot]:
        """The frames from a time to a time, both included."""
        for snapshot in self.from_part(0 if begin is None else self.part_at(begin)):
            if end is not None and snapshot.t > end:
                return
            if begin is None or snapshot.t >= begin:
                yield snapshot

    def part_at(self, t: float) -> int:
        return max(0, bisect_right(self._starts, t) - 1)

    def part(self, number: int) -> list[Snapshot]:
        decoder = Decoder()
        return list(frames(self._blocks[number].lines(), decoder, self.path))

    def from_part(self, number: int) -> Iterator[Snapshot]:
        decoder = Decoder()
        return frames((line for block in self._blocks[number:] for line in block.lines()), decoder, self.path)

    def events(self) -> Iterator[Event]:
        for snapshot in self.snapshots():
            yield from snapshot.events

    def close(self) -> None:
        """Nothing to close."""


class Memory:
    """Takes every snapshot of a run and keeps the last eleven minutes."""

    def __init__(self) -> None:
        self._blocks: deque[_Block] = deque()
        self._encoder = Encoder()
        self._lines: list[bytes] = []
        self._count = 0
        self._first_t = 0.0
        self._last: Snapshot | None = None

    def add(self, snapshot: Snapshot, frame: bytes | None = None) -> None:
        """Append one frame; ``frame`` is its line, where it was made already.

        A clock that stepped backwards begins the memory afresh.
        """
        if self._last is not None and snapshot.t <= self._last.t:
            self._blocks.clear()
            self._begin_block()
        if self._count >= BLOCK_FRAMES or (self._count and not self._encoder.fits(snapshot)):
            self._blocks.append(self._packed())
            self._begin_block()
        if not self._count:
            self._first_t = snapshot.t
            self._lines += self._encoder.key_lines(snapshot)
        self._lines += self._encoder.frame_lines(snapshot, frame=frame)
        self._count += 1
        self._last = snapshot
        while self._blocks and self._blocks[0].last_t < snapshot.t - KEPT_S:
            self._blocks.popleft()

    def past(self) -> Past | None:
        """What is kept now, frozen; None before the first frame."""
        if self._last is None:
            return None
        return Past((*self._blocks, self._packed()), self._last)

    def _begin_block(self) -> None:
        self._lines, self._count = [], 0

    def _packed(self) -> _Block:
        assert self._last is not None
        return _Block(self._first_t, self._last.t, zlib.compress(b"".join(self._lines), _FASTEST))
