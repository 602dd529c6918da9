"""Snapshots to lines of a recording.

Floats keep four significant digits, which is more than any of them is measured to; bytes and counters keep every step.
Nothing here opens a file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from math import isfinite
from operator import attrgetter
from typing import Any

from msgspec import Struct
from msgspec.json import encode

from gputop import __version__
from gputop.model.quantity import MOST_TEXT
from gputop.model.snapshot import Event, ProcessSample, ProcessStatic, Snapshot
from gputop.recording.format import (
    GPU_COLUMNS,
    GPU_FACTS,
    HOST_COLUMNS,
    MOST_GPUS,
    MOST_PROCESSES,
    PROCESS_COLUMNS,
    PROCESS_FACTS,
    ROW_LINES,
    VERSION,
    RecordedColumn,
    RecordingError,
    Rounding,
    RunFacts,
    line_beside,
    run_value,
    written,
)

_HOST, _GPUS, _PROCESSES = map(written, (HOST_COLUMNS, GPU_COLUMNS, PROCESS_COLUMNS))
_FACTS = written(PROCESS_FACTS)
_ROUND: Mapping[Rounding, Callable[[float], float]] = {
    "digits": lambda value: float(f"{value:.4g}"),
    "whole": round,
    "fine": lambda value: round(value, 3),
}
"""Four significant digits, more than any value is measured to; bytes whole; counters and times to milliseconds."""


def _rows(samples: Sequence[Struct], columns: Sequence[RecordedColumn]) -> list[list[Any]]:
    """The recorded fields of samples of one class, a row each."""
    by_column = zip(*map(attrgetter(*[column.path or column.key for column in columns]), samples), strict=True)
    return list(map(list, zip(*map(_cells, by_column, columns), strict=True)))


def _cells(values: Sequence[Any], column: RecordedColumn) -> Sequence[Any]:
    """A column as it is recorded: a whole number without its ``.0``; what is not finite was not measured."""
    if column.typed is not None:
        cell = column.typed.cell
        return [None if value is None else cell(value) for value in values]
    # Most columns of processes hold nothing but zeros, or nothing, and rounding takes longer than all else here.
    if column.check != "number" or values.count(None) == len(values):
        return values
    if values.count(0) == len(values):
        return [0] * len(values)
    rounded = _ROUND[column.rounding]
    return [_number(value, rounded) if value.__class__ is float else value for value in values]


def _number(value: float, rounded: Callable[[float], float]) -> float | None:
    if not isfinite(value):
        return None
    near = rounded(value)
    return int(near) if near == int(near) else near


_FACTS_LINE_BYTES = 512 << 10
"""Facts of processes share a line up to this length; a reader refuses lines above ``MOST_LINE_BYTES``."""


def _rest(snapshot: Snapshot, processes: Sequence[ProcessSample]) -> dict[str, Any]:
    """What a frame holds besides its values: reasons, delays, notices. Empty ones are left out."""
    rest: dict[str, Any] = {}
    missing = {str(row): dict(reasons) for row, gpu in enumerate(snapshot.gpus) if (reasons := gpu.unavailable)}
    if snapshot.host.unavailable:
        missing["host"] = dict(snapshot.host.unavailable)
    if missing:
        rest["na"] = missing
    shared = _shared_reasons(process.unavailable for process in processes)
    if shared:
        rest["na_procs"] = shared
    if snapshot.stale:
        rest["stale"] = {name: round(age, 3) for name, age in snapshot.stale.items()}
    if snapshot.repeats:
        rest["repeats"] = list(snapshot.repeats)
    if snapshot.notices:
        rest["notices"] = list(snapshot.notices)
    return rest


def frame_value(snapshot: Snapshot) -> dict[str, Any]:
    """What the line of the frame itself holds: host, GPUs and processes row by row, and what is missing or late."""
    processes = snapshot.processes[:MOST_PROCESSES]
    return {
        "k": "frame",
        "t": round(snapshot.t, 3),
        "host": _rows((snapshot.host,), _HOST)[0],
        "gpus": _rows(snapshot.gpus, _GPUS),
        "procs": _rows(processes, _PROCESSES),
        **_rest(snapshot, processes),
    }


def _described(snapshot: Snapshot) -> tuple[object, ...]:
    """What a key line describes."""
    return snapshot.machine, snapshot.interval_s, tuple(gpu.static for gpu in snapshot.gpus)


class Encoder:
    """Makes the lines of one recording. Remembers which processes it has introduced since the last key line."""

    def __init__(self) -> None:
        self._introduced: dict[tuple[int, int | None], ProcessStatic] = {}
        self._described: tuple[object, ...] = ()
        self._is_head = False
        """Whether the next frame follows a key line."""

    def fits(self, snapshot: Snapshot) -> bool:
        """Whether the last key line still describes the machine and its GPUs; if not, a new one must come first."""
        return self._described == _described(snapshot)

    def key_lines(self, snapshot: Snapshot, *, back: bool = False) -> list[bytes]:
        """The key line for a snapshot and those that follow it. ``back`` says that the clock was set back before it.

        Raises RecordingError for more GPUs than fit.
        """
        if len(snapshot.gpus) > MOST_GPUS:
            raise RecordingError(f"cannot record more than {MOST_GPUS} GPUs: choose some with --gpus")
        self._introduced.clear()
        self._is_head = True
        self._described = _described(snapshot)
        machine = snapshot.machine
        first, *others = _grouped(self._new_facts(snapshot.processes)) or [[]]
        key = {
            "k": "key",
            "v": VERSION,
            "host": machine.hostname,
            "boot": machine.boot_id,
            "driver": machine.driver,
            "interval": snapshot.interval_s,
            "gpu_cols": [c.key for c in _GPUS],
            "proc_cols": [c.key for c in _PROCESSES],
            "host_cols": [c.key for c in _HOST],
            "gpus": [
                {c.key: v for c in GPU_FACTS if (v := getattr(gpu.static, c.key)) is not None} for gpu in snapshot.gpus
            ],
            "procs": first,
            **({"back": True} if back else {}),
            "made_by": f"gputop {__version__}",
        }
        return [line_of(key), *(line_of({"k": "procs", "procs": group}) for group in others)]

    def frame_lines(self, snapshot: Snapshot, derived: Iterable[Event] = (), frame: bytes | None = None) -> list[bytes]:
        """The lines of one frame: processes not introduced yet, events, those derived from it, steps, servers, what
        has lasted until the first frame behind a key line, and the frame.

        ``frame`` is its line where it was made already.
        """
        lines = self.introductions(snapshot)
        lines += [event_line(event) for event in snapshot.events]
        lines += [event_line(event, derived=True) for event in derived]
        kinds = (kind for kind in ROW_LINES if getattr(snapshot, kind) and (kind != "lasting" or self._is_head))
        lines += [line_of(line_beside(kind, snapshot)) for kind in kinds]
        self._is_head = False
        lines.append(line_of(frame_value(snapshot)) if frame is None else frame)
        return lines

    def introductions(self, snapshot: Snapshot) -> list[bytes]:
        """Lines with the facts of the processes that were not introduced yet."""
        return [line_of({"k": "procs", "procs": group}) for group in _grouped(self._new_facts(snapshot.processes))]

    def _new_facts(self, processes: Sequence[ProcessSample]) -> Iterator[dict[str, Any]]:
        """The facts of the processes that were not introduced yet, or that have changed since."""
        for process in processes[:MOST_PROCESSES]:
            identity, static = (process.pid, process.starttime), process.static
            last = self._introduced.get(identity)
            if last is static or last == static:
                continue
            self._introduced[identity] = static
            facts: dict[str, Any] = {"pid": process.pid, "starttime": process.starttime}
            for column in _FACTS:
                if (value := getattr(static, column.key)) is not None:
                    facts[column.key] = value[:MOST_TEXT] if column.typed is None else column.typed.cell(value)
            yield facts


def event_line(event: Event, derived: bool = False) -> bytes:
    """One event as a line. A derived one was concluded from frames: it is for jumping, a replay does not feed it."""
    values: dict[str, Any] = {"k": "event", "t": round(event.t, 3), "kind": event.kind}
    parts = {"gpu": event.gpu, "xid": event.xid, "verdict": event.verdict, "flag": event.flag}
    values |= {key: value for key, value in parts.items() if value is not None}
    if derived:
        values["derived"] = True
    return line_of({**values, "text": event.text[:MOST_TEXT]})


def run_line(facts: RunFacts) -> bytes:
    """What ran, as the last line."""
    return line_of(run_value(facts))


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
    for values in facts:
        # A character takes at most twelve bytes of escaped JSON.
        texts = chain.from_iterable(
            [v] if isinstance(v, str) else v for v in values.values() if isinstance(v, str | list)
        )
        length = 128 + 12 * sum(map(len, texts))
        if not groups or size + length > _FACTS_LINE_BYTES:
            groups.append([])
            size = 0
        groups[-1].append(values)
        size += length
    return groups


def line_of(value: Mapping[str, Any]) -> bytes:
    """A value as a line in ASCII: no terminal that shows it obeys a character in it."""
    try:
        line = encode(value)
    except UnicodeEncodeError:
        # Half a character, in a text that was not cleaned; the reader cleans it.
        line = b"\x80"
    return (line if line.isascii() else json.dumps(value, separators=(",", ":")).encode("ascii")) + b"\n"
