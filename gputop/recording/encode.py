"""Convert snapshots to lines of a recording; opens no file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec.json import Encoder
from msgspec.structs import replace

from gputop import __version__
from gputop.model.snapshot import (
    DEFAULT_INTERVAL_S,
    MOST_GPUS,
    MOST_PROCESSES,
    NOTHING_MISSING,
    UNKNOWN_GPU,
    UNKNOWN_MACHINE,
    UNKNOWN_PROCESS,
    Event,
    GpuSample,
    ProcessSample,
    ProcessStatic,
    Snapshot,
)
from gputop.recording.device_health import health_of, without_health
from gputop.recording.format import (
    MOST_LINE_BYTES,
    VERSION,
    HealthLine,
    Line,
    MachineLine,
    ProcessLine,
    RecordingError,
    cleaned,
)

_ENCODER = Encoder(enc_hook=dict)
"""Read-only mappings become objects."""


def encode_line(line: Line) -> bytes:
    """Encode one line with its line feed."""
    try:
        return _ENCODER.encode(line) + b"\n"
    except UnicodeEncodeError:
        # A lone surrogate in a text that was not cleaned.
        return _ENCODER.encode(cleaned(line)) + b"\n"


def encode_frame(snapshot: Snapshot, *, is_head: bool) -> bytes:
    """Encode a snapshot without the parts that other lines hold.

    Ongoing conditions belong to the first frame of a member alone (``is_head``).
    """
    bare = replace(
        snapshot,
        machine=UNKNOWN_MACHINE,
        interval_s=DEFAULT_INTERVAL_S,
        gpus=tuple(
            replace(without_health(gpu), static=UNKNOWN_GPU, doubts=NOTHING_MISSING)
            for gpu in snapshot.gpus
        ),
        processes=tuple(
            replace(process, static=UNKNOWN_PROCESS)
            for process in snapshot.processes[:MOST_PROCESSES]
        ),
        events=(),
        own=None,
        fabric_ports=(),
        ongoing=snapshot.ongoing if is_head else (),
    )
    line = encode_line(bare)
    while len(line) > MOST_LINE_BYTES:
        bare = replace(bare, processes=bare.processes[: len(bare.processes) // 2])
        line = encode_line(bare)
    return line


def _described(snapshot: Snapshot) -> tuple[object, ...]:
    """Return the parts of a snapshot that a machine line holds."""
    return snapshot.machine, snapshot.interval_s, tuple(gpu.static for gpu in snapshot.gpus)


class LineEncoder:
    """Encodes the lines of one recording.

    Remembers which processes the current member has introduced, and the health that it has told.
    """

    def __init__(self) -> None:
        self._introduced: dict[tuple[int, int | None], ProcessStatic] = {}
        self._described: tuple[object, ...] = ()
        self._health: tuple[GpuSample, ...] = ()
        self._is_head = False

    def fits(self, snapshot: Snapshot) -> bool:
        """Return whether the last machine line still describes a snapshot."""
        return self._described == _described(snapshot)

    def begin_member(
        self, snapshot: Snapshot, *, frames_before: int = 0, clock_set_back: bool = False
    ) -> bytes:
        """Encode the machine line that begins a member.

        Raises RecordingError for more GPUs than a recording holds.
        """
        if len(snapshot.gpus) > MOST_GPUS:
            raise RecordingError(
                f"cannot record more than {MOST_GPUS} GPUs: choose some with --gpus"
            )
        self._introduced.clear()
        self._health = (GpuSample(),) * len(snapshot.gpus)
        self._is_head = True
        self._described = _described(snapshot)
        machine = snapshot.machine
        return encode_line(
            MachineLine(
                VERSION,
                machine.hostname,
                machine.boot_id,
                machine.driver,
                snapshot.interval_s,
                tuple(gpu.static for gpu in snapshot.gpus),
                frames_before,
                clock_set_back,
                f"gputop {__version__}",
            )
        )

    def frame_lines(self, snapshot: Snapshot, derived: Iterable[Event] = ()) -> list[bytes]:
        """Encode new processes, changed health, events, and their frame."""
        lines = [encode_line(cleaned(line)) for line in self._new_processes(snapshot.processes)]
        health = tuple(map(health_of, snapshot.gpus))
        if health != self._health:
            self._health = health
            lines.append(encode_line(HealthLine(health)))
        lines += map(event_line, snapshot.events)
        lines += [event_line(replace(event, derived=True)) for event in derived]
        lines.append(encode_frame(snapshot, is_head=self._is_head))
        self._is_head = False
        return lines

    def _new_processes(self, processes: tuple[ProcessSample, ...]) -> Iterator[ProcessLine]:
        """Yield facts of processes that are new or changed.

        Each member introduces its processes again.
        """
        for process in processes[:MOST_PROCESSES]:
            identity, static = (process.pid, process.starttime), process.static
            last = self._introduced.get(identity)
            if last is not static and last != static:
                self._introduced[identity] = static
                yield ProcessLine(process.pid, process.starttime, static)


def event_line(event: Event) -> bytes:
    """Encode one event."""
    return encode_line(cleaned(replace(event, t=round(event.t, 3))))
