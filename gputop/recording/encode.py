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
from gputop.recording.cells import FrameColumns, Table, columns_of_rows, rows_text
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
    """One snapshot in the recording's words: its line, and what a reader makes of the line."""

    line: bytes
    read: FrameColumns


class _Written(Struct, frozen=True):
    """A frame in parts: values and texts by column, of host, GPUs and processes; what else it holds, also as JSON."""

    values: list[list[tuple[Any, ...]]]
    cells: list[list[list[str]]]
    rest: dict[str, Any]
    rest_text: str


def _rest(
    snapshot: Snapshot, gpu_reasons: Iterable[Mapping[str, str]], process_reasons: Iterable[Mapping[str, str]]
) -> dict[str, Any]:
    """What a frame holds besides its values: reasons, delays, notices. Empty ones are left out."""
    rest: dict[str, Any] = {}
    missing = {str(row): dict(reasons) for row, reasons in enumerate(gpu_reasons) if reasons}
    if snapshot.host.unavailable:
        missing["host"] = dict(snapshot.host.unavailable)
    if missing:
        rest["na"] = missing
    shared = _shared_reasons(process_reasons)
    if shared:
        rest["na_procs"] = shared
    if snapshot.stale:
        rest["stale"] = {name: round(age, 3) for name, age in snapshot.stale.items()}
    if snapshot.repeats:
        rest["repeats"] = list(snapshot.repeats)
    if snapshot.notices:
        rest["notices"] = list(snapshot.notices)
    return rest


def _frame_line(snapshot: Snapshot, written: _Written) -> bytes:
    host, gpus, processes = written.cells
    line = (
        f'{{"k":"frame","t":{snapshot.t:.3f},"host":{rows_text(host)[1:-1]},"gpus":{rows_text(gpus)}'
        f',"procs":{rows_text(processes)}{written.rest_text}}}\n'
    )
    return line.encode("ascii")


class Encoder:
    """Makes the lines of one recording. Remembers which processes it has introduced since the last key line."""

    def __init__(self) -> None:
        self._introduced: dict[tuple[int, int | None], ProcessStatic] = {}
        self._gpus: tuple[GpuStatic, ...] = ()
        self._about: tuple[Machine, float] | None = None
        self._hosts, self._rows_of_gpus = Table(HOST_COLUMNS), Table(GPU_COLUMNS)
        self._processes = Table(PROCESS_COLUMNS)
        self._here: list[tuple[int, int | None, ProcessStatic]] = []
        """The processes of the last frame. All of them are introduced."""
        self._rest: tuple[tuple[object, ...], dict[str, Any], str] = ((), {}, "")
        """What the last frame held besides its values, drawn from what, and as JSON."""

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
        self._here.clear()
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
            frame = _frame_line(snapshot, self._written(snapshot))
        lines.append(frame)
        return lines

    def frame_table(self, snapshot: Snapshot) -> FrameTable:
        """The frame's line and what a reader makes of it, in one pass over the values."""
        written = self._written(snapshot)
        tables = self._hosts, self._rows_of_gpus, self._processes
        host, gpus, processes = (
            table.read_back(values, cells)
            for table, values, cells in zip(tables, written.values, written.cells, strict=True)
        )
        read = FrameColumns(host, gpus, processes, {"t": round(snapshot.t, 3), **written.rest})
        return FrameTable(_frame_line(snapshot, written), read)

    def _written(self, snapshot: Snapshot) -> _Written:
        """The columns are the fields of the samples, in their order, but for the facts and the reasons."""
        *host, _ = columns_of_rows((snapshot.host,))
        _, *gpus, gpu_reasons = columns_of_rows(snapshot.gpus) or [(), ()]
        *processes, _, process_reasons = columns_of_rows(snapshot.processes[:MOST_PROCESSES]) or [(), ()]
        drawn_from = (
            gpu_reasons, process_reasons, snapshot.host.unavailable, snapshot.stale, snapshot.repeats, snapshot.notices
        )  # fmt: skip
        if drawn_from != self._rest[0]:
            rest = _rest(snapshot, gpu_reasons, process_reasons)
            text = "".join([f',"{key}":{_json(value)}' for key, value in rest.items()])
            self._rest = drawn_from, rest, text
        _, rest, text = self._rest
        tables = (self._hosts, host), (self._rows_of_gpus, gpus), (self._processes, processes)
        values, cells = zip(*[table.written(columns) for table, columns in tables], strict=True)
        return _Written(list(values), list(cells), rest, text)

    def introductions(self, snapshot: Snapshot) -> list[bytes]:
        """Lines with the facts of the processes that were not introduced yet."""
        return [_line({"k": "procs", "procs": group}) for group in _grouped(self._new_facts(snapshot.processes))]

    def _new_facts(self, processes: Sequence[ProcessSample]) -> list[dict[str, Any]]:
        """The facts of the processes that were not introduced yet, or that have changed since."""
        facts: list[dict[str, Any]] = []
        processes = processes[:MOST_PROCESSES]
        here = [(process.pid, process.starttime, process.static) for process in processes]
        if here == self._here:
            return facts
        self._here = here
        introduced = self._introduced
        for process in processes:
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


def _shared_reasons(by_process: Iterable[Mapping[str, str]]) -> list[tuple[dict[str, str], list[int]]]:
    """Reasons that are missing values of processes, each with the rows that it holds for."""
    shared: dict[tuple[tuple[str, str], ...], list[int]] = {}
    for row, reasons in enumerate(by_process):
        if reasons:
            shared.setdefault(tuple(reasons.items()), []).append(row)
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
