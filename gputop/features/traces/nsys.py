"""Nsight Systems' SQLite export, into columns.

Tables and columns appear only where something was recorded, and change with the version: each is checked for, none is
assumed (Nsight Systems' user guide, "SQLite Schema Reference"). The file is opened read-only, and nothing that it
defines itself (views, triggers, functions) is run.
"""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote

from gputop.features.traces.columns import (
    ABSENT,
    ANNOTATION,
    COMM,
    COMPUTE,
    COPY,
    DAY_NS,
    FARTHEST_NS,
    MOST_GPUS,
    MOST_SMS,
    OPERATOR,
    CounterSample,
    Trace,
    TraceDevice,
    TraceError,
)
from gputop.features.traces.comm_kernels import is_communication
from gputop.features.traces.time_checks import check_times
from gputop.model.foreign_values import finite_number, text_of, whole_number
from gputop.system.safe_open import open_regular

HEADER = b"SQLite format 3\x00"
_VERSION = re.compile(r"_(v\d+|ptsz|ptds)(?=_|$)")
_SM_ACTIVE = re.compile(r"SMs? Active", re.IGNORECASE)
_OP_ID = re.compile(r", (?:seq|op_id|sizes|input_op_ids) = .*$", re.DOTALL)
_WARNING = 2
"""Severity from which on a message of nsys means that events may be missing."""
_RANGES = (59, 60)
"""NVTX event types of a push/pop and of a start/end range."""
_COPIES = {
    1: "HtoD",
    2: "DtoH",
    8: "DtoD",
    10: "PtoP",
    11: "HtoD (unified memory)",
    12: "DtoH (unified memory)",
}
_PAGEABLE, _BATCH = 0, 50_000
_LEAST_ROW_BYTES = 4
"""A row of a table takes more: a file that gives more rows than it has room for refers to itself."""
_MOST_FAULTS = 10**9
"""Far more page faults than a group has."""
_MOST_MAJOR = 1000
"""Far beyond any compute capability."""
_LOG = "-wal"
_MOST_COPIED = 512 << 20
"""Bytes of an export with a log that are copied to be joined [judged]: a temporary folder may be memory."""
_OF_WORK = ("deviceId", "streamId", "correlationId")
Row = tuple[Any, ...]
Progress = Callable[[int, int], None]


def read_nsys(path: str, size_bytes: int, progress: Progress | None = None) -> Trace:
    """Read an export. ``progress`` is given the tables read and the tables in all.

    Raises TraceError for another kind of database, a locked or a damaged one.
    """
    trace = Trace(path, size_bytes, is_nsys=True)
    try:
        with _readable(trace) as source, closing(sqlite3.connect(source, uri=True)) as database:
            database.execute("PRAGMA query_only = ON")
            database.execute("PRAGMA trusted_schema = OFF")
            database.text_factory = lambda text: text.decode("utf-8", "replace")
            # Tables only: a view of that name could compute anything.
            rows = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            tables = {str(name) for (name,) in rows}
            if not tables & {"CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_KERNEL"}:
                if not tables & {"META_DATA_EXPORT", "StringIds"}:
                    raise TraceError(
                        f"{path} is a database of something else, not `nsys export --type sqlite`"
                    )
                raise TraceError(
                    f"{path} holds no CUDA: record with `nsys profile --trace cuda,nvtx`"
                )
            _Export(trace, database, tables).read(progress)
            check_times(trace, 0)
    except (sqlite3.Error, UnicodeDecodeError) as error:
        # Names of a damaged schema are no UTF-8.
        raise TraceError(
            f"{path} cannot be read: {error}; export it again with `nsys export --type sqlite`"
        ) from None
    return trace


@contextmanager
def _readable(trace: Trace) -> Iterator[str]:
    """Give the address by which SQLite reads an export, without writing beside it.

    What a program wrote last may be in a log beside the file, until it is checkpointed. SQLite joins both only where
    it may write, so it is given copies. The trace gets a note of a log that cannot be copied.
    """
    # Immutable: it works where no lock can be made.
    in_place = f"file:{quote(trace.path)}?mode=ro&immutable=1"
    log_bytes = _size_bytes(f"{trace.path}{_LOG}")
    if not log_bytes:
        yield in_place
        return
    with TemporaryDirectory(prefix="gputop-") as folder:
        copied = os.path.join(folder, "export")
        if log_bytes + trace.size_bytes <= _MOST_COPIED and _copies(trace.path, copied):
            trace.size_bytes += log_bytes
            yield f"file:{quote(copied)}?mode=ro"
            return
    trace.notes.append(
        f"{os.path.basename(trace.path)}{_LOG} is not read, and what it holds is missing here: put it "
        "into the file with `sqlite3 FILE 'PRAGMA wal_checkpoint(TRUNCATE)'`"
    )
    yield in_place


def _size_bytes(path: str) -> int:
    """Size of a file; 0 for none."""
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def _copies(path: str, target: str) -> bool:
    """Copy an export and its log; return whether that succeeded."""
    try:
        for suffix in ("", _LOG):
            with open_regular(path + suffix) as source, open(target + suffix, "xb") as copy:
                shutil.copyfileobj(source, copy)
    except OSError:
        return False
    return True


class _Export:
    """Reads what an export has, table by table, into a trace's columns."""

    def __init__(self, trace: Trace, database: sqlite3.Connection, tables: set[str]) -> None:
        self._trace, self._database = trace, database
        self._columns = {
            table: {str(row[1]) for row in database.execute(f'PRAGMA table_info("{table}")')}
            for table in tables
        }
        self._strings: dict[int, str] = {}

    def read(self, progress: Progress | None) -> None:
        for rows in self._rows("StringIds", "id", "value"):
            self._strings.update(
                (number, str(value)) for number, value in rows if isinstance(number, int)
            )
        steps = (
            self._devices, self._work, self._calls, self._ranges, self._metrics, self._faults, self._warnings,
        )  # fmt: skip
        for done, step in enumerate(steps, 1):
            step()
            if progress is not None:
                progress(done, len(steps))
        for (begin,), *_ in self._rows("TARGET_INFO_SESSION_START_TIME", "utcEpochNs"):
            self._trace.begin_unix_s = (
                begin / 1e9 if isinstance(begin, int) and begin > 10**18 else None
            )

    def _rows(self, table: str, *columns: str) -> Iterator[list[Row]]:
        """Yield lists of rows; a missing column is NULL.

        Without the first column there are none.
        """
        has = self._columns.get(table, set())
        if columns[0] in has:
            selected = ", ".join(f'"{column}"' if column in has else "NULL" for column in columns)
            cursor = self._database.execute(f'SELECT {selected} FROM "{table}"')
            most = self._trace.size_bytes // _LEAST_ROW_BYTES
            while rows := cursor.fetchmany(_BATCH):
                most -= len(rows)
                if most < 0:
                    raise sqlite3.DatabaseError(
                        f"{table} holds more rows than the file has room for"
                    )
                yield rows

    def _timed(self, table: str, *columns: str) -> Iterator[list[Row]]:
        """Lists of rows that begin with two times in their order; others are counted."""
        for rows in self._rows(table, "start", "end", *columns):
            good = [row for row in rows if _is_possible(row[0], row[1])]
            self._trace.dropped_events += len(rows) - len(good)
            yield good

    def _timed_work(self, table: str, *columns: str) -> Iterator[list[Row]]:
        """Rows of GPU work: times, device, stream, correlation; rows with an impossible device are counted."""
        for rows in self._timed(table, *_OF_WORK, *columns):
            good = []
            for row in rows:
                device = 0 if row[2] is None else whole_number(row[2], 0)
                if device is None:
                    self._trace.dropped_events += 1
                elif device >= MOST_GPUS:
                    self._trace.far_gpus += 1
                else:
                    good.append(row)
            yield good

    def _devices(self) -> None:
        counts: dict[int, Any] = {}
        for rows in self._rows("TARGET_INFO_CUDA_DEVICE", "gpuId", "numMultiprocessors"):
            counts.update(rows)
        for rows in self._rows("TARGET_INFO_GPU", "id", "name", "smCount", "computeMajor"):
            for number, name, sms, major in rows:
                index = whole_number(number, 0, MOST_GPUS - 1)
                if index is None:
                    continue
                sm_count = whole_number(sms, 1, MOST_SMS)
                if sm_count is None:
                    sm_count = whole_number(counts.get(index), 1, MOST_SMS)
                self._trace.devices[index] = TraceDevice(
                    index, text_of(name) or None, sm_count, whole_number(major, 1, _MOST_MAJOR)
                )

    def _work(self) -> None:
        """Read kernels, copies and graphs.

        Whole graphs, where the kernels in them were not recorded, are unknown kernels.
        """
        kinds: dict[str, int] = {}
        grid = ("gridX", "gridY", "gridZ")
        for rows in self._timed_work(
            "CUPTI_ACTIVITY_KIND_KERNEL", "demangledName", "shortName", *grid
        ):
            names = [
                self._strings.get(r[5]) or self._strings.get(r[6]) or "a kernel without a name"
                for r in rows
            ]
            for name in {*names} - {*kinds}:
                kinds[name] = COMM if is_communication(name) else COMPUTE
            blocks = [self._blocks_per_sm(row[2], row[7:]) for row in rows]
            self._append(rows, names, [kinds[name] for name in names], blocks)
        for rows in self._timed_work(
            "CUPTI_ACTIVITY_KIND_MEMCPY", "copyKind", "srcKind", "dstKind", "bytes"
        ):
            sizes = [_number(row[8]) for row in rows]
            self._append(rows, [_copy(*row[5:8]) for row in rows], [COPY] * len(rows), sizes=sizes)
        for table, name, kind in (
            ("CUPTI_ACTIVITY_KIND_MEMSET", "Memset", COPY),
            ("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", "graph, kernels not recorded", COMPUTE),
        ):
            for rows in self._timed_work(table):
                self._append(rows, [name] * len(rows), [kind] * len(rows))

    def _blocks_per_sm(self, device: Any, grid: Row) -> float:
        described = self._trace.devices.get(device)
        x, y, z = map(_number, grid)
        return (
            x * y * z / described.sm_count
            if described and described.sm_count and min(x, y, z) > 0
            else ABSENT
        )

    def _append(
        self,
        rows: Sequence[Row],
        names: Sequence[str],
        kinds: Sequence[int],
        blocks: Sequence[float] | None = None,
        sizes: Sequence[int] | None = None,
    ) -> None:
        absent = [ABSENT] * len(rows)
        self._trace.gpu.extend(
            [row[0] for row in rows],
            [row[1] for row in rows],
            [self._trace.names[name] for name in names],
            kinds,
            [max(0, _number(row[2])) for row in rows],
            [_number(row[3]) for row in rows],
            [_number(row[4]) for row in rows],
            sizes or absent,
            blocks or absent,
            absent,
        )

    def _calls(self) -> None:
        names = {number: _VERSION.sub("", text) for number, text in self._strings.items()}
        trace = self._trace
        for rows in self._timed(
            "CUPTI_ACTIVITY_KIND_RUNTIME", "nameId", "globalTid", "correlationId"
        ):
            trace.calls.extend(
                [row[0] for row in rows],
                [row[1] for row in rows],
                [trace.names[names.get(row[2], "a CUDA call")] for row in rows],
                [trace.threads[row[3]] for row in rows],
                [_number(row[4]) for row in rows],
            )

    def _ranges(self) -> None:
        trace = self._trace
        for rows in self._rows(
            "NVTX_EVENTS", "start", "end", "text", "textId", "globalTid", "eventType"
        ):
            for begin, end, text, number, thread, kind in rows:
                # Marks and ranges that never ended are no ranges.
                if kind in _RANGES and _is_possible(begin, end):
                    full = str(text) if text is not None else self._strings.get(number, "")
                    # `--pytorch=autograd-nvtx` appends ", seq = 46738, op_id = 995626" to the operator's name.
                    name = _OP_ID.sub("", full)
                    of_kind = ANNOTATION if name == full else OPERATOR
                    trace.spans.extend(
                        [begin], [end], [trace.names[name]], [trace.threads[thread]], [of_kind]
                    )

    def _metrics(self) -> None:
        """The sampled SM activity. The device is the low byte of the metrics' type."""
        metrics: set[tuple[int, int]] = set()
        for rows in self._rows("TARGET_INFO_GPU_METRICS", "typeId", "metricId", "metricName"):
            metrics |= {
                (kind, metric)
                for kind, metric, name in rows
                if isinstance(kind, int) and _SM_ACTIVE.search(str(name))
            }
        for rows in (
            self._rows("GPU_METRICS", "timestamp", "typeId", "metricId", "value") if metrics else ()
        ):
            for t, kind, metric, value in rows:
                if (kind, metric) not in metrics:
                    continue
                active_pct = finite_number(value, 0.0, 100.0)
                if active_pct is None or not _is_possible(t, t):
                    self._trace.false_samples += 1
                    continue
                self._trace.counters.append(CounterSample(t, kind & 0xFF, active_pct))
                self._trace.counter_source = "nsys"

    def _faults(self) -> None:
        """Read page faults of unified memory; the driver groups a GPU's, and each row says how many."""
        faults = self._trace.faults
        table, columns = "CUDA_UM_GPU_PAGE_FAULT_EVENTS", ("deviceId", "numberOfPageFaults")
        for rows in self._timed(table, *columns):
            for begin, end, device, many in rows:
                index = whole_number(device, 0, MOST_GPUS - 1)
                if index is not None:
                    number = whole_number(many, 1, _MOST_FAULTS) or 1
                    faults.extend([begin], [end], [ABSENT], [index], [number])
        for rows in self._rows("CUDA_UM_CPU_PAGE_FAULT_EVENTS", "start"):
            for (moment,) in rows:
                if _is_possible(moment, moment):
                    faults.extend([moment], [moment], [ABSENT], [ABSENT], [1])

    def _warnings(self) -> None:
        """Messages of nsys itself from the severity of a warning on, each once."""
        texts: dict[str, None] = {}
        for rows in self._rows("DIAGNOSTIC_EVENT", "text", "severity"):
            found = [text for text, level in rows if isinstance(level, int) and level >= _WARNING]
            texts.update((" ".join(str(text).split()), None) for text in found)
        self._trace.warnings = [*filter(None, texts)]


def _is_possible(begin: Any, end: Any) -> bool:
    """Whether these are two times in their order, at most a day apart."""
    if not isinstance(begin, int) or not isinstance(end, int):
        return False
    return abs(begin) < FARTHEST_NS and 0 <= end - begin <= DAY_NS


def _number(value: Any) -> int:
    return value if isinstance(value, int) else ABSENT


def _copy(kind: Any, source: Any, target: Any) -> str:
    """A copy's name, with "Pageable" for unpinned host memory."""
    pageable = (
        " (Pageable)" if kind in (1, 2) and (source if kind == 1 else target) == _PAGEABLE else ""
    )
    return f"Memcpy {_COPIES.get(kind, '')}{pageable}".strip()
