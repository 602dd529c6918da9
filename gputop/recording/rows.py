"""The rows of a frame to samples: checked columns, the reasons why values are missing, defaults for unknown columns.

Whatever does not follow the format raises Damage, TypeError, ValueError, AttributeError or IndexError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import repeat
from typing import Any, cast

from gputop.model.sm import SM_SOURCES
from gputop.model.snapshot import (
    NOTHING_MISSING,
    ROLES,
    GpuSample,
    GpuStatic,
    HostSample,
    ProcessSample,
    ProcessStatic,
)
from gputop.recording.cells import FrameColumns
from gputop.recording.checks import Layout, Table, words_of
from gputop.recording.format import GPU_COLUMNS, MOST_GPUS, MOST_PROCESSES, PROCESS_COLUMNS, Damage

Facts = Mapping[tuple[int, int | None], ProcessStatic]
"""The facts of each process, by pid and start time."""
Columns = Sequence[Sequence[Any]]
Layouts = tuple[Layout, Layout, Layout]
"""Of host, GPUs and processes."""
_UNKNOWN_PROCESS = ProcessStatic()
_SM_SOURCE = next(i for i, c in enumerate(GPU_COLUMNS) if c.key == "sm_source")
_ROLE = next(i for i, c in enumerate(PROCESS_COLUMNS) if c.key == "role")


class Rows:
    """Remembers which texts are clean and which reasons the last frame gave: most frames say the same again."""

    def __init__(self) -> None:
        self._tables = Table(), Table(), Table()
        self._na: tuple[object, list[Mapping[str, str]], Mapping[str, str]] | None = None

    def columns(self, parsed: Mapping[str, Any], layouts: Layouts, gpus: int) -> list[Columns]:
        """The checked columns of host, GPUs and processes of a frame with so many GPUs at most; none without rows."""
        host, cards, processes = parsed.get("host", []), parsed.get("gpus", []), parsed.get("procs", [])
        # Without pids nothing is known of processes.
        tables = [] if host == [] else [host], cards, [] if layouts[2].sources[0][0] is None else processes
        return [
            [] if rows == [] else table.columns(rows, layout, most)
            for table, rows, layout, most in zip(self._tables, tables, layouts, (1, gpus, MOST_PROCESSES), strict=True)
        ]

    def of_columns(self, read: FrameColumns, layouts: Layouts) -> list[Columns]:
        """The same of columns, of which those are checked that are new objects."""
        given = read.host, read.gpus, read.processes
        return [
            table.of_columns(columns, layout)
            for table, columns, layout in zip(self._tables, given, layouts, strict=True)
        ]

    def reasons(self, given: object, count: int) -> tuple[Iterable[Mapping[str, str]], Mapping[str, str]]:
        """Why values are missing, for each GPU row and for the host. The same text as before is not read again."""
        if given is None:
            return repeat(NOTHING_MISSING, count), NOTHING_MISSING
        if self._na is None or self._na[0] != given or len(self._na[1]) != count:
            if not isinstance(given, dict) or count > MOST_GPUS:
                raise Damage("na is not an object")
            by_row = [words_of(given.get(str(row), {})) for row in range(count)]
            self._na = (given, by_row, words_of(given.get("host", {})))
        return self._na[1], self._na[2]

    def gpus(
        self, columns: Columns, layout: Layout, gpus: Sequence[GpuStatic], missing: Iterable[Mapping[str, str]]
    ) -> tuple[GpuSample, ...]:
        """The samples of a frame's GPUs, one for each of ``gpus``, with the reasons ``missing`` gives."""
        if not columns:
            return ()
        fills = _fills(columns, layout)
        fills[_SM_SOURCE] = [s if s in SM_SOURCES else "none" for s in _first(fills[_SM_SOURCE], columns)]
        return tuple(map(cast("Callable[..., GpuSample]", GpuSample), gpus, *fills, missing))

    def processes(self, columns: Columns, layout: Layout, facts: Facts, given: object) -> tuple[ProcessSample, ...]:
        """The samples of a frame's processes; ``given`` lists reasons with the rows that they hold for."""
        pid, start = layout.sources[0][0], layout.sources[1][0]
        if not columns or pid is None:
            return ()
        if None in columns[pid]:
            raise Damage("a process without a pid")
        fills = _fills(columns, layout)
        fills[_ROLE] = [role if role in ROLES else "helper" for role in _first(fills[_ROLE], columns)]
        starts = columns[start] if start is not None else repeat(None)
        statics = [facts.get(identity, _UNKNOWN_PROCESS) for identity in zip(columns[pid], starts, strict=False)]
        missing: Iterable[Mapping[str, str]] = repeat(NOTHING_MISSING)
        if given:
            by_row = [NOTHING_MISSING] * len(statics)
            for words, places in cast(Any, given):
                reasons = words_of(words)
                for place in places:
                    by_row[place] = reasons
            missing = by_row
        return tuple(map(cast("Callable[..., ProcessSample]", ProcessSample), *fills, statics, missing))

    def host(self, columns: Columns, layout: Layout, missing: Mapping[str, str]) -> HostSample:
        """The sample of a frame's host."""
        if not columns:
            return HostSample(unavailable=missing)
        values = [default if place is None else columns[place][0] for place, default in layout.sources]
        return cast("Callable[..., HostSample]", HostSample)(*values, missing)


def _fills(columns: Sequence[Sequence[Any]], layout: Layout) -> list[Iterable[Any]]:
    """For each field of the class its column, or its default repeated."""
    return [repeat(default) if place is None else columns[place] for place, default in layout.sources]


def _first(fill: Iterable[Any], columns: Sequence[Sequence[Any]]) -> Iterable[Any]:
    """A fill cut to the number of rows: a default repeats without end."""
    return (value for value, _ in zip(fill, columns[0], strict=False))
