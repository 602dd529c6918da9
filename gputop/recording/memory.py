"""The last minutes of a live run, kept packed in memory, so that a paused screen can go back in time.

Nothing is written anywhere. What unpacks the blocks again is imported when somebody looks back.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

from gputop.model.snapshot import GAP_INTERVALS, Snapshot
from gputop.recording.blocks import Block, Stretch
from gputop.recording.encode import Encoder

if TYPE_CHECKING:
    from gputop.recording.past import Past

KEPT_S = 660.0
"""Ten minutes of history and a window of diagnosis."""
BLOCK_FRAMES = 20
_FASTEST = 1


class Memory:
    """Takes every snapshot of a run and keeps the last eleven minutes."""

    def __init__(self) -> None:
        self._blocks: deque[Block | Stretch] = deque()
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

    def begin_with(self, earlier: Iterable[Stretch]) -> None:
        """Put stretches before the first frame that is kept, unless something is missing between them and it."""
        if self._last is None:
            return
        begin = self._blocks[0].first_t if self._blocks else self._first_t
        before = [stretch for stretch in earlier if stretch.last_t < begin]
        if before and begin - before[-1].last_t <= GAP_INTERVALS * self._last.interval_s:
            self._blocks.extendleft(reversed(before))

    def past(self) -> Past | None:
        """What is kept now, frozen; None before the first frame."""
        if self._last is None:
            return None
        from gputop.recording.past import Past

        return Past((*self._blocks, self._packed()), self._last)

    def _begin_block(self) -> None:
        self._lines, self._count = [], 0

    def _packed(self) -> Block:
        assert self._last is not None
        # Line by line: all of them in one text would be as much memory again.
        packer = zlib.compressobj(_FASTEST)
        packed = [packer.compress(line) for line in self._lines]
        return Block(self._first_t, self._last.t, b"".join((*packed, packer.flush())))
