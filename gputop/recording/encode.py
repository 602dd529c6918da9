"""Snapshots to lines of a recording.

Floats keep four significant digits, which is more than any of them is measured to; bytes and counters keep every step.
Nothing here opens a file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import isfinite
from typing import Any

from msgspec import Struct
from msgspec.structs import astuple

from gputop import __version__
from gputop.model.quantity import MOST_TEXT
from gputop.model.snapshot import Event, GpuStatic, Machine, ProcessSample, ProcessStatic, Snapshot
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
    steps_value,
)
from gputop.recording.period_lines import periods_value
from gputop.recording.server_lines import servers_value

# Tables of values as JSON texts, column by column, rounded as a recording keeps them.
#
# Floats keep four significant digits, which is more than any of them is measured to; bytes and counters keep every
# step.


def _digits(values: Iterable[Any]) -> list[str]:
    return ["null" if v is None else "0" if not v else f"{v:.4g}" if v.__class__ is float else str(v) for v in values]


def _whole(values: Iterable[Any]) -> list[str]:
    return ["null" if v is None else "0" if not v else str(round(v)) for v in values]


def _fine(values: Iterable[Any]) -> list[str]:
    """Three decimals: milliseconds, millijoules."""
    return ["null" if v is None else "0" if not v else repr(round(v, 3)) for v in values]


_NUMBERS: dict[str, Callable[[Iterable[Any]], list[str]]] = {"digits": _digits, "whole": _whole, "fine": _fine}


def _cells(values: tuple[Any, ...], column: Column) -> list[str]:
    """One column of a table as JSON texts. Words repeat a lot, so each distinct one is encoded once per call."""
    if values[0] is None and values.count(None) == len(values):
        return ["null"] * len(values)
    if column.check in ("text", "flag"):
        known: dict[Any, str] = {}
        return [known.get(v) or known.setdefault(v, json.dumps(v)) for v in values]
    write = _NUMBERS[column.rounding]
    try:
        texts = write(values)
        if _NO_NUMBERS.isdisjoint(texts):
            return texts
    except (ValueError, OverflowError):
        # A whole number cannot be made of what is not finite.
        pass
    return write([v if v is not None and isfinite(v) else None for v in values])


_NO_NUMBERS = frozenset(("nan", "inf", "-inf"))


_SHORT = 10_000
"""Numbers below it are written alike whether they are integers or floats."""


def _types(values: tuple[Any, ...], column: Column) -> list[type] | None:
    """The types of numbers that are not written alike: integers keep every digit."""
    if column.rounding != "digits" or column.check not in ("number", "whole"):
        return None
    if all(v is None or -_SHORT < v < _SHORT for v in values):
        return None
    return list(map(type, values))


class Table:
    """One table of a frame, column by column. What has not changed since the frame before is not written again."""

    __slots__ = ("_back", "_columns", "_kept")

    def __init__(self, columns: Sequence[Column]) -> None:
        self._columns = columns
        self._kept: list[tuple[tuple[Any, ...], list[type] | None, list[str] | None]]
        """The previous frame's values by column, see ``_types``, and the texts where those had not changed either."""
        self._kept = [((), None, None)] * len(columns)
        self._back: list[tuple[object, Sequence[Any]]] = [(None, ())] * len(columns)
        """What was last read back by column: the texts or values from which, and the values."""

    def written(self, columns: Sequence[tuple[Any, ...]]) -> tuple[list[tuple[Any, ...]], list[list[str]]]:
        """The values column by column, and the same as JSON texts. No columns where there are no rows.

        Where a column is as it was, its values and, from then on, its texts are the very objects of the frame before.
        """
        values: list[tuple[Any, ...]] = []
        cells: list[list[str]] = []
        kept = self._kept
        for place, (given, column) in enumerate(zip(columns, self._columns if columns else (), strict=True)):
            before, types, texts = kept[place]
            if before == given and (types is None or types == list(map(type, given))):
                given = before
                if texts is None:
                    texts = _cells(given, column)
                    kept[place] = given, types, texts
            else:
                texts = _cells(given, column)
                kept[place] = given, _types(given, column), None
            values.append(given)
            cells.append(texts)
        return values, cells

    def read_back(self, columns: list[tuple[Any, ...]], cells: list[list[str]]) -> list[Sequence[Any]]:
        """The columns that a reader of these cells gets, from what ``written`` gave.

        One that is as it was is the very object of the frame before.
        """
        back: list[Sequence[Any]] = []
        for place, (values, texts, column) in enumerate(
            zip(columns, cells, self._columns if columns else (), strict=True)
        ):
            # What is no number is read as it was written.
            source: Sequence[Any] = values if column.check in ("text", "flag") else texts
            known, read = self._back[place]
            if known is not source:
                read = values if source is values else _read(values, texts, column)
                self._back[place] = source, read
            back.append(read)
        return back


def _read(values: tuple[Any, ...], texts: list[str], column: Column) -> Sequence[Any]:
    """One column of numbers as a reader gets it."""
    if column.rounding == "whole":
        return [None if text == "null" else int(text) for text in texts]
    return [
        value if value.__class__ is int else None if text == "null" else float(text)
        for value, text in zip(values, texts, strict=True)
    ]


class FrameColumns(Struct, frozen=True):
    """One frame as a reader gets it: the columns of host, GPUs and processes, and what else its line says."""

    host: list[Sequence[Any]]
    gpus: list[Sequence[Any]]
    processes: list[Sequence[Any]]
    rest: dict[str, Any]


def columns_of_rows(samples: Iterable[Struct]) -> list[tuple[Any, ...]]:
    """The fields of samples of one class, field by field; nothing where there is no sample."""
    return list(zip(*map(astuple, samples), strict=True))


def rows_text(cells: list[list[str]]) -> str:
    """A table of JSON texts as JSON."""
    return "[[" + "],[".join(map(",".join, zip(*cells, strict=True))) + "]]" if cells else "[]"


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
        """The lines of one frame: processes not introduced yet, events, those derived from it, steps, servers, frame.

        ``frame`` is its line where ``frame_table`` has made it already.
        """
        lines = self.introductions(snapshot)
        lines += [event_line(event) for event in snapshot.events]
        lines += [event_line(event, derived=True) for event in derived]
        if snapshot.steps:
            lines.append(_line(steps_value(snapshot)))
        if snapshot.servers:
            lines.append(_line(servers_value(snapshot)))
        if snapshot.periods:
            lines.append(_line(periods_value(snapshot)))
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
