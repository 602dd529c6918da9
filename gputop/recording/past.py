"""The last minutes of a live run, unpacked again: what is played while the screen is paused.

Has the interface of ``index.Recording``; a part is a block of frames.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gputop.model.snapshot import Event, Snapshot
from gputop.recording.blocks import Block, Stretch
from gputop.recording.decode import Decoder
from gputop.recording.reader import placed_frames
from gputop.recording.timeline import Segment, Timeline


class Past(Timeline):
    """A frozen stretch of the run: what ``RecordedSource`` plays while the screen is paused."""

    path = "this run"

    def __init__(self, blocks: tuple[Block | Stretch, ...], last: Snapshot) -> None:
        self._blocks = blocks
        self.interval_s = last.interval_s
        self.hostname = last.machine.hostname
        self.gpus = tuple(gpu.static for gpu in last.gpus)
        # A clock that was set back has begun the memory afresh.
        whole = Segment(blocks[0].first_t, last.t, 0, len(blocks) - 1)
        self._lay_out([block.first_t for block in blocks], [whole])

    def walk(self, numbers: Iterable[int]) -> Iterator[tuple[int, Snapshot]]:
        wanted = list(numbers)
        packed = []
        for number in wanted:
            block = self._blocks[number]
            # Stretches stand before all blocks.
            if isinstance(block, Stretch):
                yield from ((number, snapshot) for snapshot in block.frames())
            else:
                packed.append(number)
        yield from self._unpacked(packed)

    def _unpacked(self, numbers: Iterable[int]) -> Iterator[tuple[int, Snapshot]]:
        decoder = Decoder()
        here = [0]

        def lines() -> Iterator[bytes]:
            for number in numbers:
                here[0] = number
                block = self._blocks[number]
                if isinstance(block, Block):
                    yield from block.lines()

        return placed_frames(lines(), decoder, self.path, lambda: here[0])

    def events(self) -> Iterator[Event]:
        for snapshot in self.snapshots():
            yield from snapshot.events

    def close(self) -> None:
        """Nothing to close."""
