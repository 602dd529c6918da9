"""Keep the last minutes of a live run in memory.

They are packed; a paused screen can go back in time.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from msgspec import Struct

from gputop.model.snapshot import GAP_INTERVALS, Snapshot
from gputop.recording.decode import LineDecoder
from gputop.recording.encode import LineEncoder
from gputop.recording.reader import placed_frames
from gputop.recording.recorded_times import RecordedTimeline, TimeSegment


class PackedFrames(Struct, frozen=True):
    """Packed block of frames from ``first_t`` to ``last_t``.

    Times are Unix seconds. ``judged`` is the state of the diagnosis before them, once a minute: the rest can be judged
    from there.
    """

    first_t: float
    last_t: float
    data: bytes
    judged: bytes | None


class OlderFrames(Struct, frozen=True):
    """Frames before the first block, generated when first needed.

    Bounds are in Unix seconds.
    """

    first_t: float
    last_t: float
    frames: Callable[[], Iterable[Snapshot]]


class Past(RecordedTimeline):
    """Frozen part of the run that ``RecordedSource`` can play.

    Each block is a part.
    """

    path = "this run"

    def __init__(
        self, earlier: Iterable[OlderFrames], packed: Sequence[PackedFrames], last: Snapshot
    ) -> None:
        blocks: tuple[PackedFrames | OlderFrames, ...] = (*earlier, *packed)
        self._blocks = blocks
        self.judged = [
            (block.first_t, block.judged) for block in packed if block.judged is not None
        ]
        """Times of frames, oldest first, each with the state of the diagnosis before it."""
        self.interval_s = last.interval_s
        self.hostname = last.machine.hostname
        self.gpus = tuple(gpu.static for gpu in last.gpus)
        # Memory starts over when the clock is set back, so one segment is enough.
        whole = TimeSegment(blocks[0].first_t, last.t, 0, len(blocks) - 1)
        self._lay_out([block.first_t for block in blocks], [whole])

    def walk(self, numbers: Iterable[int]) -> Iterator[tuple[int, Snapshot]]:
        parts = [(number, self._blocks[number]) for number in numbers]
        # Older frames come before all blocks.
        for number, block in parts:
            if isinstance(block, OlderFrames):
                yield from ((number, snapshot) for snapshot in block.frames())
        packed = ((number, block) for number, block in parts if isinstance(block, PackedFrames))
        lines = (
            (number, line)
            for number, block in packed
            for line in zlib.decompress(block.data).splitlines()
        )
        yield from placed_frames(lines, LineDecoder(), self.path)


KEPT_S = 660.0
"""Seconds kept: ten minutes of history and a window of diagnosis."""
JUDGED_S = 60.0
"""Seconds between two kept states of the diagnosis."""
BLOCK_FRAMES = 20


class Memory:
    """Keeps the last eleven to twelve minutes of a run."""

    def __init__(self) -> None:
        self._earlier: tuple[OlderFrames, ...] = ()
        """Older frames, kept whole or not at all: the diagnosis must start at their first frame."""
        self._blocks: deque[PackedFrames] = deque()
        self._judged: bytes | None = None
        self._judged_t = float("-inf")
        """Time of the newest kept state of the diagnosis."""
        self._encoder = LineEncoder()
        self._packer: Any = None
        """The compressor of the block that is being filled."""
        self._data: list[bytes] = []
        self._count = 0
        self._first_t = 0.0
        self._last: Snapshot | None = None

    def add(self, snapshot: Snapshot, judged: Callable[[], bytes | None]) -> None:
        """Append one frame.

        ``judged`` gives the state of the diagnosis before it, and is called once a minute. After a step of the clock
        backwards the memory starts over.
        """
        if self._last is not None and snapshot.t <= self._last.t:
            self._blocks.clear()
            self._earlier, self._count, self._judged_t = (), 0, float("-inf")
        if self._count >= BLOCK_FRAMES or (self._count and not self._encoder.fits(snapshot)):
            self._blocks.append(self._packed())
            self._forget(snapshot.t - KEPT_S)
            self._count = 0
        lines: list[bytes] = []
        if not self._count:
            # Rounded like the recorded time.
            self._first_t = round(snapshot.t, 3)
            self._packer, self._data, self._judged = zlib.compressobj(), [], None
            lines = [self._encoder.begin_member(snapshot)]
            if self._first_t - self._judged_t >= JUDGED_S:
                self._judged, self._judged_t = judged(), self._first_t
        lines += self._encoder.frame_lines(snapshot)
        self._data += map(self._packer.compress, lines)
        self._count += 1
        self._last = snapshot

    def _forget(self, oldest: float) -> None:
        """Drop blocks that a diagnosis no longer needs.

        Keeps a state of the diagnosis from which frames at ``oldest`` can be judged.
        """
        if self._earlier and self._earlier[-1].last_t < oldest:
            self._earlier = ()
        blocks = self._blocks
        while not self._earlier and any(
            b.judged is not None and b.first_t <= oldest for b in islice(blocks, 1, None)
        ):
            blocks.popleft()

    def begin_with(self, earlier: Iterable[OlderFrames]) -> None:
        """Put older frames before the first block.

        Does nothing if a gap lies between.
        """
        if self._last is None:
            return
        begin = self._blocks[0].first_t if self._blocks else self._first_t
        before = [frames for frames in earlier if frames.last_t < begin]
        if before and begin - before[-1].last_t <= GAP_INTERVALS * self._last.interval_s:
            self._earlier = tuple(before)

    def past(self) -> Past | None:
        """Freeze the kept frames; None before the first frame."""
        if self._last is None:
            return None
        return Past(self._earlier, [*self._blocks, self._packed()], self._last)

    def _packed(self) -> PackedFrames:
        assert self._last is not None
        data = b"".join((*self._data, self._packer.copy().flush()))
        return PackedFrames(self._first_t, self._last.t, data, self._judged)
