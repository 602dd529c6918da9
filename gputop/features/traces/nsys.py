"""Nsight Systems' SQLite export, into columns.

Tables and columns appear only where something was recorded, and change with the version: each is checked for, none is
assumed (Nsight Systems' user guide, "SQLite Schema Reference"). The file is opened read-only, and nothing that it
defines itself (views, triggers, functions) is run.
"""

from __future__ import annotations

import re
import sqlite3
from array import array
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from urllib.parse import quote

from gputop.features.traces.columns import (
    ABSENT,
    ANNOTATION,
    COMM,
    COMPUTE,
    COPY,
    CounterSample,
    PageFaults,
    Trace,
    TraceDevice,
    TraceError,
    is_communication,
)

HEADER = b"SQLite format 3\x00"
_VERSION = re.compile(r"_(v\d+|ptsz|ptds)(?=_|$)")
_SM_ACTIVE = re.compile(r"SMs? Active", re.IGNORECASE)
_RANGES = (59, 60)
"""NVTX event types of a push/pop and of a start/end range."""
_COPIES = {1: "HtoD", 2: "DtoH", 8: "DtoD", 10: "PtoP", 11: "HtoD (unified memory)", 12: "DtoH (unified memory)"}
_MIGRATIONS = (11, 12)
_PAGEABLE, _BATCH = 0, 50_000
_GRAPH = "graph, kernels not recorded"
Row = tuple[Any, ...]
Progress = Callable[[int, int], None]


def read_nsys(path: str, size_bytes: int, progress: Progress | None = None) -> Trace:
    """Read an export. ``progress`` is given the tables read and the tables in all.

    Raises TraceError for another kind of database, a locked or a damaged one.
    """
    trace = Trace(path, size_bytes)
    try:
        database = _opened(path)
    except sqlite3.Error as error:
        raise TraceError(f"{path} cannot be opened: {error}") from None
    try:
        export = _Export(database)
        if not export.holds("CUPTI_ACTIVITY_KIND_RUNTIME") and not export.holds("CUPTI_ACTIVITY_KIND_KERNEL"):
            if not export.holds("META_DATA_EXPORT") and not export.holds("StringIds"):
                raise TraceError(f"{path} is a database of something else, not `nsys export --type sqlite`")
            raise TraceError(f"{path} holds no CUDA: record with `nsys profile --trace cuda,nvtx`")
        _fill(trace, export, progress)
    except sqlite3.Error as error:
        raise TraceError(f"{path} cannot be read: {error}; export it again with `nsys export --type sqlite`") from None
    finally:
        database.close()
    return trace


def _opened(path: str) -> sqlite3.Connection:
    """The database, read-only and without trust in what it defines. ``immutable`` works where no lock can be made."""
    database = sqlite3.connect(f"file:{quote(path)}?mode=ro&immutable=1", uri=True)
    database.execute("PRAGMA query_only = ON")
    database.execute("PRAGMA trusted_schema = OFF")
    database.text_factory = lambda text: text.decode("utf-8", "replace")
    return database


class _Export:
    """The tables and columns that this export has."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        # Tables only: a view of that name could compute anything.
        rows = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        self._tables = {str(name) for (name,) in rows}
        self._columns: dict[str, set[str]] = {}

    def holds(self, table: str) -> bool:
        return table in self._tables

    def has(self, table: str, column: str) -> bool:
        if table not in self._columns:
            rows = self._database.execute(f'PRAGMA table_info("{table}")') if self.holds(table) else ()
            self._columns[table] = {str(row[1]) for row in rows}
        return column in self._columns[table]

    def rows(self, table: str, columns: Iterable[str]) -> Iterator[list[Row]]:
        """Lists of rows; a column that this export lacks is NULL. Without the first column there are none."""
        names = tuple(columns)
        if not self.has(table, names[0]):
            return
        selected = ", ".join(f'"{column}"' if self.has(table, column) else "NULL" for column in names)
        cursor = self._database.execute(f'SELECT {selected} FROM "{table}"')
        while rows := cursor.fetchmany(_BATCH):
            yield rows


def _fill(trace: Trace, export: _Export, progress: Progress | None) -> None:
    strings: dict[int, str] = {}
    for rows in export.rows("StringIds", ("id", "value")):
        strings.update((number, str(value)) for number, value in rows if isinstance(number, int))
    _devices(trace, export)
    steps: tuple[Callable[[], None], ...] = (
        lambda: _kernels(trace, export, strings),
        lambda: _memory(trace, export),
        lambda: _graphs(trace, export),
        lambda: _calls(trace, export, strings),
        lambda: _ranges(trace, export, strings),
        lambda: _metrics(trace, export),
        lambda: _page_faults(trace, export),
    )
    for done, step in enumerate(steps, 1):
        step()
        if progress is not None:
            progress(done, len(steps))
    for rows in export.rows("TARGET_INFO_SESSION_START_TIME", ("utcEpochNs",)):
        begin = rows[0][0]
        trace.begin_unix_s = begin / 1e9 if isinstance(begin, int) and begin > 10**18 else None


def _devices(trace: Trace, export: _Export) -> None:
    counts: dict[int, int] = {}
    for rows in export.rows("TARGET_INFO_CUDA_DEVICE", ("gpuId", "numMultiprocessors")):
        counts.update((gpu, count) for gpu, count in rows if isinstance(gpu, int) and isinstance(count, int))
    columns = ("id", "name", "smCount", "computeMajor", "totalMemory", "uuid")
    for rows in export.rows("TARGET_INFO_GPU", columns):
        for index, name, count, major, memory, uuid in rows:
            if isinstance(index, int):
                trace.devices[index] = TraceDevice(
                    index,
                    name if isinstance(name, str) else None,
                    count if isinstance(count, int) else counts.get(index),
                    major if isinstance(major, int) else None,
                    memory if isinstance(memory, int) else None,
                    uuid if isinstance(uuid, str) else None,
                )


def _append(trace: Trace, row: tuple[int, int, str, int, int, int, int, float]) -> None:
    """One event of a GPU: begin, end, name, kind, device, stream, correlation, blocks per SM."""
    begin, end, name, kind, device, stream, correlation, blocks = row
    if not (isinstance(begin, int) and isinstance(end, int) and begin <= end):
        trace.dropped_events += 1
        return
    gpu = trace.gpu
    gpu.start.append(begin)
    gpu.end.append(end)
    gpu.name.append(trace.names[name])
    gpu.kind.append(kind)
    gpu.device.append(_number(device, 0))
    gpu.stream.append(_number(stream))
    gpu.correlation.append(_number(correlation))
    gpu.grid.append(ABSENT)
    gpu.blocks_per_sm.append(blocks)
    gpu.occupancy.append(ABSENT)


def _number(value: Any, otherwise: int = ABSENT) -> int:
    return value if isinstance(value, int) else otherwise


def _kernels(trace: Trace, export: _Export, strings: dict[int, str]) -> None:
    table = "CUPTI_ACTIVITY_KIND_KERNEL"
    columns = (
        "start", "end", "deviceId", "streamId", "correlationId", "demangledName", "shortName", "gridX", "gridY",
        "gridZ",
    )  # fmt: skip
    kinds: dict[str, int] = {}
    for rows in export.rows(table, columns):
        for begin, end, device, stream, correlation, long, short, x, y, z in rows:
            name = strings.get(long) or strings.get(short) or "a kernel without a name"
            if name not in kinds:
                kinds[name] = COMM if is_communication(name) else COMPUTE
            count = trace.devices[device].sm_count if device in trace.devices else None
            grid = x * y * z if isinstance(x, int) and isinstance(y, int) and isinstance(z, int) else 0
            blocks = grid / count if grid and count else ABSENT
            _append(trace, (begin, end, name, kinds[name], device, stream, correlation, blocks))


def _memory(trace: Trace, export: _Export) -> None:
    columns = ("start", "end", "deviceId", "streamId", "correlationId", "copyKind", "srcKind", "dstKind")
    for rows in export.rows("CUPTI_ACTIVITY_KIND_MEMCPY", columns):
        for begin, end, device, stream, correlation, kind, source, target in rows:
            host = source if kind == 1 else target
            pageable = " (Pageable)" if kind in (1, 2) and host == _PAGEABLE else ""
            name = f"Memcpy {_COPIES.get(kind, '')}{pageable}".strip()
            _append(trace, (begin, end, name, COPY, device, stream, correlation, ABSENT))
    for rows in export.rows("CUPTI_ACTIVITY_KIND_MEMSET", columns[:5]):
        for begin, end, device, stream, correlation in rows:
            _append(trace, (begin, end, "Memset", COPY, device, stream, correlation, ABSENT))


def _graphs(trace: Trace, export: _Export) -> None:
    """Whole graphs, where the kernels in them were not recorded: the GPU was busy with unknown kernels."""
    columns = ("start", "end", "deviceId", "streamId", "correlationId")
    for rows in export.rows("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", columns):
        for begin, end, device, stream, correlation in rows:
            _append(trace, (begin, end, _GRAPH, COMPUTE, device, stream, correlation, ABSENT))


def _calls(trace: Trace, export: _Export, strings: dict[int, str]) -> None:
    calls, names = trace.calls, {number: _VERSION.sub("", text) for number, text in strings.items()}
    for rows in export.rows("CUPTI_ACTIVITY_KIND_RUNTIME", ("start", "end", "nameId", "globalTid", "correlationId")):
        good = [row for row in rows if isinstance(row[0], int) and isinstance(row[1], int) and row[0] <= row[1]]
        trace.dropped_events += len(rows) - len(good)
        calls.start.extend(array("q", [row[0] for row in good]))
        calls.end.extend(array("q", [row[1] for row in good]))
        calls.name.extend(array("i", [trace.names[names.get(row[2], "a CUDA call")] for row in good]))
        calls.thread.extend(array("i", [trace.threads[row[3]] for row in good]))
        calls.correlation.extend(array("q", [_number(row[4]) for row in good]))


def _ranges(trace: Trace, export: _Export, strings: dict[int, str]) -> None:
    spans = trace.spans
    for rows in export.rows("NVTX_EVENTS", ("start", "end", "text", "textId", "globalTid", "eventType")):
        for begin, end, text, number, thread, kind in rows:
            if kind not in _RANGES or not isinstance(begin, int) or not isinstance(end, int) or end < begin:
                continue
            spans.start.append(begin)
            spans.end.append(end)
            spans.name.append(trace.names[str(text) if text is not None else strings.get(number, "")])
            spans.thread.append(trace.threads[thread])
            spans.kind.append(ANNOTATION)


def _metrics(trace: Trace, export: _Export) -> None:
    """Add the sampled SM activity. The device is the low byte of the metrics' type."""
    sm_metrics: set[tuple[int, int]] = set()
    for rows in export.rows("TARGET_INFO_GPU_METRICS", ("metricId", "typeId", "metricName")):
        sm_metrics |= {
            (kind, metric) for metric, kind, name in rows if isinstance(name, str) and _SM_ACTIVE.search(name)
        }
    if not sm_metrics:
        return
    for rows in export.rows("GPU_METRICS", ("timestamp", "typeId", "metricId", "value")):
        for t, kind, metric, value in rows:
            if (kind, metric) in sm_metrics and isinstance(t, int) and isinstance(value, int | float):
                trace.counters.append(CounterSample(t, kind & 0xFF, float(value)))
                trace.counter_source = "nsys"


def _page_faults(trace: Trace, export: _Export) -> None:
    """Unified memory by device: faults are grouped by the driver, each row says how many; the CPU's have no device."""
    faults: dict[int, list[int]] = {}
    columns = ("start", "end", "deviceId", "numberOfPageFaults")
    for rows in export.rows("CUDA_UM_GPU_PAGE_FAULT_EVENTS", columns):
        for begin, end, device, many in rows:
            count_and_time = faults.setdefault(_number(device, 0), [0, 0])
            count_and_time[0] += _number(many, 1)
            count_and_time[1] += (
                max(0, _number(end, 0) - begin) if isinstance(begin, int) and isinstance(end, int) else 0
            )
    on_cpu = sum(len(rows) for rows in export.rows("CUDA_UM_CPU_PAGE_FAULT_EVENTS", ("start",)))
    moved: dict[int, int] = {}
    for rows in export.rows("CUPTI_ACTIVITY_KIND_MEMCPY", ("copyKind", "deviceId", "bytes")):
        for kind, device, size in rows:
            if kind in _MIGRATIONS and isinstance(size, int):
                moved[_number(device, 0)] = moved.get(_number(device, 0), 0) + size
    for device in {*faults, *moved}:
        many, spent = faults.get(device, (0, 0))
        trace.page_faults[device] = PageFaults(many, spent / 1e6, on_cpu, moved.get(device, 0))
