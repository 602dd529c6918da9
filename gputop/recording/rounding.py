"""Snapshots as a recording will give them back, for a monitor that runs beside the recorder.

A verdict at the edge of a threshold must be the same live and in the replay, so what is recorded is rounded before it
is diagnosed. The values go through the reader's own checks, but not through JSON: the line that they make is kept for
the file and for the memory, so that each value is encoded once.
"""

from __future__ import annotations

from msgspec.structs import replace

from gputop.model.snapshot import Snapshot
from gputop.recording.decode import Decoder
from gputop.recording.encode import Encoder, event_line
from gputop.recording.format import MEMBER_FRAMES, RecordingError


class Rounder:
    """Rounds the snapshots of one run, one after the other."""

    def __init__(self) -> None:
        self._encoder = Encoder()
        self._decoder = Decoder()
        self._frames = 0
        """Frames since encoder and decoder were last replaced: both remember every process they have seen."""

    def take(self, snapshot: Snapshot) -> tuple[Snapshot, bytes]:
        """The snapshot as it would be read back, but of its own machine and with what is only shown live; and its line.

        Raises RecordingError for one that no recording can hold.
        """
        encoder, decoder = self._encoder, self._decoder
        lines: list[bytes] = []
        if self._frames >= MEMBER_FRAMES or not encoder.fits(snapshot):
            lines, self._frames = encoder.key_lines(snapshot), 0
        self._frames += 1
        for line in (*lines, *encoder.introductions(snapshot), *map(event_line, snapshot.events)):
            decoder.feed(line)
        table = encoder.frame_table(snapshot)
        back = decoder.alone(table.read)
        if back is None:
            raise RecordingError("a snapshot outside what can be recorded")
        return _live(back, snapshot), table.line


def _live(back: Snapshot, snapshot: Snapshot) -> Snapshot:
    """What is shown live and not recorded, beside what was read back."""
    ports = snapshot.fabric_ports
    return replace(back, machine=snapshot.machine, own=snapshot.own, steps=snapshot.steps, fabric_ports=ports)
