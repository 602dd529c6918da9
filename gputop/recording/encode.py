"""Snapshots to lines of a recording.

Floats keep four significant digits, which is more than any of them is measured to; bytes and counters keep every step.
Nothing here opens a file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import isfinite
from operator import attrgetter
from typing import Any

from msgspec import Struct

from gputop import __version__
from gputop.model.snapshot import Event, GpuStatic, Machine, ProcessSample, ProcessStatic, Snapshot
from gputop.model.text import MOST_TEXT
from gputop.recording.format import (
    GPU_COLUMNS,
    GPU_FACTS,
    HOST_COLUMNS,
    MOST_GPUS,
    MOST_PROCESSES,
    PROCESS_COLUMNS,
    PROCESS_FACTS,
    VERSION,
    Column,
    RecordingError,
)
from gputop.recording.step_lines import steps_value

_FACTS_LINE_BYTES = 512 << 10
"""Facts of processes share a line up to this length; a reader refuses lines above ``MOST_LINE_BYTES``."""


def _digits(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _whole(value: Any) -> str:
    return str(round(value))


def _fine(value: Any) -> str:
    """Three decimals: milliseconds, millijoules."""
    return repr(round(value, 3))


_NUMBERS: dict[str, Callable[[Any], str]] = {"digits": _digits, "whole": _whole, "fine": _fine}


def _cells(values: Iterable[Any], column: Column) -> list[str]:
    """One column of a table as JSON texts. Values repeat a lot, so each distinct one is written once a call."""
    given = tuple(values)
    if given.count(None) == len(given):
        return ["null"] * len(given)
    values = given
    if column.check in ("text", "flag"):
        known: dict[Any, str] = {}
        return [known.get(v) or known.setdefault(v, json.dumps(v)) for v in values]
    write = _NUMBERS[column.rounding]
    return [
        "null" if v is None or (v.__class__ is float and not isfinite(v)) else "0" if v == 0 else write(v)
        for v in values
    ]


_GPU_ROW = attrgetter(*(c.key for c in GPU_COLUMNS))
_PROCESS_ROW = attrgetter(*(c.key for c in PROCESS_COLUMNS))
_HOST_ROW = attrgetter(*(c.key for c in HOST_COLUMNS))


def _columns_of(rows: list[tuple[Any, ...]], columns: Sequence[Column]) -> list[list[str]]:
    """A table as JSON texts, column by column."""
    return [_cells(values, column) for values, column in zip(zip(*rows, strict=True), columns, strict=True)]


def _rows(cells: list[list[str]]) -> str:
    """A table of JSON texts as JSON."""
    return "[[" + "],[".join(map(",".join, zip(*cells, strict=True))) + "]]" if cells else "[]"


def _read_back(rows: list[tuple[Any, ...]], cells: list[list[str]], columns: Sequence[Column]) -> list[list[Any]]:
    """The rows that a reader of these cells gets."""
    if not rows:
        return []
    back: list[Iterable[Any]] = []
    for values, texts, column in zip(zip(*rows, strict=True), cells, columns, strict=True):
        if column.check in ("text", "flag"):
            back.append(values)
        elif column.rounding == "whole":
            back.append([None if text == "null" else int(text) for text in texts])
        else:
            back.append(
                [
                    value if value.__class__ is int else None if text == "null" else float(text)
                    for value, text in zip(values, texts, strict=True)
                ]
            )
    return list(map(list, zip(*back, strict=True)))


class FrameTable(Struct, frozen=True):
    """One snapshot in the recording's words: its line, and the object that the line is parsed to."""

    line: bytes
    parsed: dict[str, Any]


def frame_table(snapshot: Snapshot) -> FrameTable:
    """The frame's line, and what a reader parses it to, from one pass over the values."""
    tables = _tables(snapshot)
    rest = _rest(snapshot)
    rows = [_read_back(rows, cells, columns) for rows, cells, columns in tables]
    parsed = {"k": "frame", "t": round(snapshot.t, 3), "host": rows[0][0], "gpus": rows[1], "procs": rows[2], **rest}
    return FrameTable(_frame_line(snapshot, [cells for _, cells, _ in tables], rest), parsed)


def _tables(snapshot: Snapshot) -> list[tuple[list[tuple[Any, ...]], list[list[str]], Sequence[Column]]]:
    """Host, GPUs and processes: the rows, their cells and their columns."""
    rows_of = (
        ([_HOST_ROW(snapshot.host)], HOST_COLUMNS),
        (list(map(_GPU_ROW, snapshot.gpus)), GPU_COLUMNS),
        (list(map(_PROCESS_ROW, snapshot.processes[:MOST_PROCESSES])), PROCESS_COLUMNS),
    )
    return [(rows, _columns_of(rows, columns) if rows else [], columns) for rows, columns in rows_of]


def _rest(snapshot: Snapshot) -> dict[str, Any]:
    """What a frame holds beside its values: reasons, delays, notices. Only what there is."""
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
        f'"host":{_rows(host)[1:-1]}',
        f'"gpus":{_rows(gpus)}',
        f'"procs":{_rows(processes)}',
        *(f'"{key}":{_json(value)}' for key, value in rest.items()),
    ]
    return (",".join(parts) + "}\n").encode("ascii")


class Encoder:
    """Makes the lines of one recording. Remembers which processes it has introduced since the last key line."""

    def __init__(self) -> None:
        self._introduced: dict[tuple[int, int | None], ProcessStatic] = {}
        self._gpus: tuple[GpuStatic, ...] = ()
        self._about: tuple[Machine, float] | None = None

    def fits(self, snapshot: Snapshot) -> bool:
        """Whether the last key line still describes machine and GPUs; if not, a new one must come first."""
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

        ``frame`` is its line where somebody has made it already, see ``frame_table``.
        """
        lines = self.introductions(snapshot)
        lines += [event_line(event) for event in snapshot.events]
        lines += [event_line(event, derived=True) for event in derived]
        if snapshot.steps:
            lines.append(_line(steps_value(snapshot)))
        if frame is None:
            frame = _frame_line(snapshot, [cells for _, cells, _ in _tables(snapshot)], _rest(snapshot))
        lines.append(frame)
        return lines

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
