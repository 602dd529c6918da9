"""Snapshots to lines of a recording.

Floats keep four significant digits, which is more than any of them is measured to; bytes and counters keep every step.
Nothing here opens a file.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from gputop import __version__
from gputop.model.snapshot import Event, GpuStatic, Machine, ProcessSample, ProcessStatic, Snapshot
from gputop.model.text import MOST_TEXT
from gputop.recording.cells import Table, rows_text
from gputop.recording.format import (
    GPU_COLUMNS,
    GPU_FACTS,
    HOST_COLUMNS,
    MOST_GPUS,
    MOST_PROCESSES,
    PROCESS_COLUMNS,
    PROCESS_FACTS,
    VERSION,
    RecordingError,
)
from gputop.recording.step_lines import steps_value

_FACTS_LINE_BYTES = 512 << 10
"""Facts of processes share a line up to this length; a reader refuses lines above ``MOST_LINE_BYTES``."""


class FrameTable(Struct, frozen=True):
    """One snapshot in the recording's words: its line, and the object that the line is parsed to."""

    line: bytes
    parsed: dict[str, Any]


def _rest(snapshot: Snapshot) -> dict[str, Any]:
    """What a frame holds besides its values: reasons, delays, notices. Empty ones are left out."""
    processes = snapshot.processes[:MOST_PROCESSES]
    rest: dict[str, Any] = {}
    missing = {str(row): dict(gpu.unavailable) for row, gpu in enumerate(snapshot.gpus) if gpu.unavailable}
    if snapshot.host.unavailable:
        missing["host"] = dict(snapshot.host.unavailable)
    if missing:
        rest["na"] = missing
    if any(process.unavailable for process in processes):
        rest["na_procs"] = _shared_reasons(processes)
    if snapshot.stale:
        rest["stale"] = {name: round(age, 3) for name, age in snapshot.stale.items()}
    if snapshot.repeats:
        rest["repeats"] = list(snapshot.repeats)
    if snapshot.notices:
        rest["notices"] = list(snapshot.notices)
    return rest


def _frame_line(snapshot: Snapshot, cells: list[list[list[str]]], rest: dict[str, Any]) -> bytes:
    host, gpus, processes = cells
    parts = [
        f'{{"k":"frame","t":{snapshot.t:.3f}',
        f'"host":{rows_text(host)[1:-1]}',
        f'"gpus":{rows_text(gpus)}',
        f'"procs":{rows_text(processes)}',
        *(f'"{key}":{_json(value)}' for key, value in rest.items()),
    ]
    return (",".join(parts) + "}\n").encode("ascii")


class Encoder:
    """Makes the lines of one recording. Remembers which processes it has introduced since the last key line."""

    def __init__(self) -> None:
        self._introduced: dict[tuple[int, int | None], ProcessStatic] = {}
        self._gpus: tuple[GpuStatic, ...] = ()
        self._about: tuple[Machine, float] | None = None
        self._hosts, self._rows_of_gpus = Table(HOST_COLUMNS), Table(GPU_COLUMNS)
        self._processes = Table(PROCESS_COLUMNS)

    def fits(self, snapshot: Snapshot) -> bool:
        """Whether the last key line still describes the machine and its GPUs; if not, a new one must come first."""
        if self._about != (snapshot.machine, snapshot.interval_s):
            return False
        gpus = self._gpus
        return len(gpus) == len(snapshot.gpus) and all(
            gpu.static is known or gpu.static == known for gpu, known in zip(snapshot.gpus, gpus, strict=True)
        )

    def key_lines(self, snapshot: Snapshot, *, back: bool = False) -> list[bytes]:
        """The key line for a snapshot and those that follow it. ``back`` says that the clock was set back before it.

        Raises RecordingError for more GPUs than fit.
        """
        if len(snapshot.gpus) > MOST_GPUS:
            raise RecordingError(f"cannot record more than {MOST_GPUS} GPUs: choose some with --gpus")
        self._introduced.clear()
        self._gpus = tuple(gpu.static for gpu in snapshot.gpus)
        machine = snapshot.machine
        self._about = (machine, snapshot.interval_s)
        first, *others = _grouped(self._new_facts(snapshot.processes)) or [[]]
        key = {
            "k": "key",
            "v": VERSION,
            "host": machine.hostname,
            "boot": machine.boot_id,
            "driver": machine.driver,
            "interval": snapshot.interval_s,
            "gpu_cols": [c.key for c in GPU_COLUMNS],
            "proc_cols": [c.key for c in PROCESS_COLUMNS],
            "host_cols": [c.key for c in HOST_COLUMNS],
            "gpus": [
                {c.key: v for c in GPU_FACTS if (v := getattr(static, c.key)) is not None} for static in self._gpus
            ],
            "procs": first,
            **({"back": True} if back else {}),
            "made_by": f"gputop {__version__}",
        }
        return [_line(key), *(_line({"k": "procs", "procs": group}) for group in others)]

    def frame_lines(self, snapshot: Snapshot, derived: Iterable[Event] = (), frame: bytes | None = None) -> list[bytes]:
        """The lines of one frame: processes not introduced yet, events, those derived from it, steps, the frame itself.

        ``frame`` is its line where ``frame_table`` has made it already.
        """
        lines = self.introductions(snapshot)
        lines += [event_line(event) for event in snapshot.events]
        lines += [event_line(event, derived=True) for event in derived]
        if snapshot.steps:
            lines.append(_line(steps_value(snapshot)))
        if frame is None:
            frame = _frame_line(snapshot, [cells for _, _, cells in self._tables(snapshot)], _rest(snapshot))
        lines.append(frame)
        return lines

    def frame_table(self, snapshot: Snapshot) -> FrameTable:
        """The frame's line and what a reader parses it to, in one pass over the values."""
        tables = self._tables(snapshot)
        rest = _rest(snapshot)
        rows = [table.read_back(columns, cells) for table, columns, cells in tables]
        parsed = {"k": "frame", "t": round(snapshot.t, 3), "host": rows[0][0], "gpus": rows[1], "procs": rows[2]}
        return FrameTable(_frame_line(snapshot, [cells for _, _, cells in tables], rest), {**parsed, **rest})

    def _tables(self, snapshot: Snapshot) -> list[tuple[Table, list[tuple[Any, ...]], list[list[str]]]]:
        """Host, GPUs and processes."""
        samples = (snapshot.host,), snapshot.gpus, snapshot.processes[:MOST_PROCESSES]
        tables = self._hosts, self._rows_of_gpus, self._processes
        return [(table, *table.written(rows)) for table, rows in zip(tables, samples, strict=True)]

    def introductions(self, snapshot: Snapshot) -> list[bytes]:
        """Lines with the facts of the processes that were not introduced yet."""
        return [_line({"k": "procs", "procs": group}) for group in _grouped(self._new_facts(snapshot.processes))]

    def _new_facts(self, processes: Sequence[ProcessSample]) -> list[dict[str, Any]]:
        """The facts of the processes that were not introduced yet, or that have changed since."""
        facts = []
        introduced = self._introduced
        for process in processes[:MOST_PROCESSES]:
            identity = (process.pid, process.starttime)
            known = introduced.get(identity)
            if known is not process.static and known != process.static:
                introduced[identity] = process.static
                facts.append(self._facts(process))
        return facts

    def _facts(self, process: ProcessSample) -> dict[str, Any]:
        static = process.static
        given = {"pid": process.pid, "starttime": process.starttime}
        for column in PROCESS_FACTS:
            value = getattr(static, column.key)
            if value is not None:
                given[column.key] = value[:MOST_TEXT]
        return given


def event_line(event: Event, derived: bool = False) -> bytes:
    """One event as a line. A derived one was concluded from frames: it is for jumping, a replay does not feed it."""
    given: dict[str, Any] = {"k": "event", "t": round(event.t, 3), "kind": event.kind}
    if event.gpu is not None:
        given["gpu"] = event.gpu
    if derived:
        given["derived"] = True
    return _line({**given, "text": event.text[:MOST_TEXT]})


def _shared_reasons(processes: Sequence[ProcessSample]) -> list[tuple[dict[str, str], list[int]]]:
    """Reasons that are missing values of processes, each with the rows that it holds for."""
    shared: dict[tuple[tuple[str, str], ...], list[int]] = {}
    for row, process in enumerate(processes):
        if process.unavailable:
            shared.setdefault(tuple(process.unavailable.items()), []).append(row)
    return [(dict(reasons), rows) for reasons, rows in shared.items()]


def _grouped(facts: Iterable[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Facts in groups that fit into a line each."""
    groups: list[list[dict[str, Any]]] = []
    size = 0
    for given in facts:
        # A character takes at most twelve bytes of escaped JSON.
        length = 128 + 12 * sum(len(value) for value in given.values() if isinstance(value, str))
        if not groups or size + length > _FACTS_LINE_BYTES:
            groups.append([])
            size = 0
        groups[-1].append(given)
        size += length
    return groups


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def _line(value: Mapping[str, Any]) -> bytes:
    return (_json(value) + "\n").encode("ascii")
