"""Nsight Systems' SQLite exports of several versions, built by hand: what each has is used, nothing is assumed."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from pathlib import Path

import pytest

from gputop.cli import main
from gputop.features.traces.columns import TraceError
from gputop.features.traces.trace_analysis import StepChoice, analyse
from gputop.features.traces.trace_ranks import read_trace
from gputop.features.traces.trace_report import TraceGpuReport

STRINGS = {
    1: "void gemm<float>(int)", 2: "gemm", 3: "cudaLaunchKernel_v7000", 4: "cudaStreamSynchronize_v3020", 5: "step",
    6: "cudaMemcpyAsync_v3020", 7: "ncclDevKernel_AllReduce",
}  # fmt: skip
KERNEL = (
    "start INT, end INT, deviceId INT, streamId INT, correlationId INT, gridX INT, gridY INT, "
    "gridZ INT"
)
OLD = {
    "CUPTI_ACTIVITY_KIND_KERNEL": f"{KERNEL}, shortName INT",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start INT, end INT, globalTid INT, correlationId INT, nameId INT",
    "StringIds": "id INT, value TEXT",
    "TARGET_INFO_GPU": "id INT, name TEXT",
    "TARGET_INFO_CUDA_DEVICE": "gpuId INT, cudaId INT, numMultiprocessors INT",
}
NEW = {
    **OLD,
    "CUPTI_ACTIVITY_KIND_KERNEL": f"{KERNEL}, demangledName INT, shortName INT, mangledName INT, graphNodeId INT",
    "CUPTI_ACTIVITY_KIND_MEMCPY": "start INT, end INT, deviceId INT, streamId INT, correlationId INT, bytes INT, "
    "copyKind INT, srcKind INT, dstKind INT",
    "CUPTI_ACTIVITY_KIND_MEMSET": "start INT, end INT, deviceId INT, streamId INT, correlationId INT, bytes INT",
    "NVTX_EVENTS": "start INT, end INT, eventType INT, text TEXT, textId INT, globalTid INT",
    "TARGET_INFO_GPU": "id INT, name TEXT, smCount INT, computeMajor INT, totalMemory INT, uuid TEXT",
    "TARGET_INFO_SESSION_START_TIME": "utcEpochNs INT, utcTime TEXT",
    "META_DATA_EXPORT": "name TEXT, value TEXT",
}
METRICS = {
    **NEW,
    "GPU_METRICS": "timestamp INT, typeId INT, metricId INT, value INT",
    "TARGET_INFO_GPU_METRICS": "typeId INT, metricId INT, metricName TEXT",
}
US = 1000
Rows = Iterable[tuple[object, ...]]


def export(path: Path, tables: dict[str, str], rows: dict[str, Rows]) -> Path:
    """A database with these tables; rows are cut to the columns that a table has."""
    database = sqlite3.connect(path)
    for table, columns in tables.items():
        database.execute(f"CREATE TABLE {table} ({columns})")
        width = columns.count(",") + 1
        for row in rows.get(table, ()):
            database.execute(f"INSERT INTO {table} VALUES ({','.join('?' * width)})", row[:width])
    database.commit()
    database.close()
    return path


def job(tables: dict[str, str]) -> dict[str, Rows]:
    """Ten steps: the host waits for the GPU, thinks for 600 µs, and launches a kernel of 400 µs on half of the chip."""
    kernels, calls, ranges = [], [], []
    demangled = "demangledName" in tables["CUPTI_ACTIVITY_KIND_KERNEL"]
    for n in range(10):
        t = 1000 * n * US
        kernels.append(
            (t + 605 * US, t + 1000 * US, 0, 7, n, 66, 1, 1, 1 if demangled else 2, 2, 2, None)
        )
        calls.append((t + 600 * US, t + 604 * US, 99, n, 3))
        calls.append((t + 610 * US, t + 1001 * US, 99, 1000 + n, 4))
        ranges.append((t + 2 * US, t + 1001 * US, 59, "step", None, 99))
    return {
        "CUPTI_ACTIVITY_KIND_KERNEL": kernels, "CUPTI_ACTIVITY_KIND_RUNTIME": calls,
        "NVTX_EVENTS": [*ranges, (5, None, 59, "open", None, 99), (7, 9, 33, "other", None, 99)],
        "StringIds": list(STRINGS.items()), "TARGET_INFO_GPU": [(0, "NVIDIA H100", 132, 9, 80 << 30, "GPU-1")],
        "TARGET_INFO_CUDA_DEVICE": [(0, 0, 132)], "TARGET_INFO_SESSION_START_TIME": [(1_780_000_000_000_000_000, "")],
        "GPU_METRICS": [(t * 100 * US, 256 << 8 | 0, 12, 20) for t in range(7, 100)] + [(5, 256 << 8, 13, 99)],
        "TARGET_INFO_GPU_METRICS": [(256 << 8, 12, "SMs Active [Throughput %]"), (256 << 8, 13, "Tensor Active")],
    }  # fmt: skip


def judge(path: Path, step: str | None = None) -> TraceGpuReport:
    (report,) = analyse(read_trace(str(path)), StepChoice(step))
    return report


@pytest.mark.parametrize("tables", [OLD, NEW], ids=["old", "new"])
def test_exports_of_several_versions_give_the_same_verdict(
    tables: dict[str, str], tmp_path: Path
) -> None:
    report = judge(export(tmp_path / "x.sqlite", tables, job(tables)))
    m, said = report.measures, report.verdict
    assert (said.id, said.cause) == ("main_process", "sync_points")
    assert (m.name, m.sm_count) == ("NVIDIA H100", 132)
    assert m.kernels[0].name == "gemm" and m.kernels[0].calls == 10
    assert m.sm_high_pct == pytest.approx(m.util_pct / 2.0) and m.sm_source == "bound"
    assert m.syncs[0].op == "cudaStreamSynchronize"
    assert (m.begin_unix_s is not None) == ("TARGET_INFO_SESSION_START_TIME" in tables)


def test_ranges_are_steps_by_their_name(tmp_path: Path) -> None:
    path = export(tmp_path / "x.sqlite", NEW, job(NEW))
    assert judge(path, "step").measures.steps == 10
    with pytest.raises(TraceError, match="it has 'step'"):
        judge(path, "other")


def test_sampled_sm_is_measured(tmp_path: Path) -> None:
    m = judge(export(tmp_path / "x.sqlite", METRICS, job(METRICS))).measures
    assert (m.sm_active_pct, m.sm_high_pct, m.sm_source) == (20.0, None, "nsys")


def test_copies_communication_and_graphs(tmp_path: Path) -> None:
    rows = job(NEW)
    rows["CUPTI_ACTIVITY_KIND_MEMCPY"] = [
        (11_000 * US, 12_000 * US, 0, 7, 500, 10, 1, 0, 2), (12_000 * US, 12_500 * US, 0, 7, 501, 10, 8, 2, 2),
    ]  # fmt: skip
    rows["CUPTI_ACTIVITY_KIND_GRAPH_TRACE"] = [(13_000 * US, 14_000 * US, 0, 7, 502)]
    tables = {
        **NEW,
        "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": "start INT, end INT, deviceId INT, streamId INT, correlationId INT",
    }
    rows["CUPTI_ACTIVITY_KIND_KERNEL"] = [*rows["CUPTI_ACTIVITY_KIND_KERNEL"],
                                          (12_500 * US, 13_000 * US, 0, 7, 503, 1, 1, 1, 7, 7, 7, None)]  # fmt: skip
    m = judge(export(tmp_path / "x.sqlite", tables, rows)).measures
    ms = {share: value / 100.0 * m.window_ms for share, value in m.share_pct.items()}
    assert ms["copy_exposed"] == pytest.approx(1.5)
    assert m.bus_exposed_pct / 100.0 * m.window_ms == pytest.approx(1.0)
    assert ms["comm_exposed"] == pytest.approx(0.5)
    assert m.pageable_copies == 1
    assert any(row.name.startswith("graph") and row.sm_high_pct is None for row in m.kernels)


@pytest.mark.parametrize(
    ("tables", "said"),
    [({"places": "id INT, url TEXT"}, "a database of something else"), ({"StringIds": "id INT, value TEXT"}, "no CUDA"),
     ({"CUPTI_ACTIVITY_KIND_KERNEL": "wrong INT"}, "no events")],
)  # fmt: skip
def test_a_database_of_something_else_is_said(
    tables: dict[str, str], said: str, tmp_path: Path
) -> None:
    path = export(tmp_path / "x.sqlite", tables, {})
    with pytest.raises(TraceError, match=said):
        analyse(read_trace(str(path)))


def test_a_view_in_the_place_of_a_table_is_not_run(tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    database = sqlite3.connect(path)
    database.execute(
        "CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) "
        'SELECT i AS start, i AS "end", 0 AS deviceId, 0 AS streamId, 0 AS correlationId FROM n'
    )
    database.commit()
    database.close()
    with pytest.raises(TraceError, match="something else"):
        read_trace(str(path))


def test_a_torn_file_is_one_line_and_the_file_is_never_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = export(tmp_path / "x.sqlite", NEW, job(NEW)).read_bytes()
    for length in (100, 4096, len(whole) // 2):
        path = tmp_path / f"torn {length}?#%.sqlite"
        path.write_bytes(whole[:length])
        assert main(["trace", str(path)]) in (0, 1, 2)
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err and captured.err.count("\n") <= 1
        assert path.read_bytes() == whole[:length]
    assert not list(tmp_path.glob("*-journal")) and not list(tmp_path.glob("*-wal"))


WARNED = {
    **NEW,
    "DIAGNOSTIC_EVENT": "timestamp INT, timestampType INT, source INT, severity INT, text TEXT",
}
MESSAGES = [
    (1, 0, 0, 1, "Process was launched"),
    (2, 0, 0, 2, "CUDA events\nmay be missing"),
    (3, 0, 0, 3, "driver too new"),
]


def test_warnings_of_nsys_itself_are_quoted_and_lower_the_confidence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = job(WARNED)
    sure = judge(export(tmp_path / "a.sqlite", WARNED, rows), "step").verdict
    warned = judge(
        export(tmp_path / "b.sqlite", WARNED, {**rows, "DIAGNOSTIC_EVENT": MESSAGES}), "step"
    ).verdict
    assert (sure.confidence, warned.confidence) == ("high", "medium")
    assert "the profiler warns: CUDA events may be missing; driver too new" in warned.notes
    rows = {**rows, "CUPTI_ACTIVITY_KIND_KERNEL": [], "DIAGNOSTIC_EVENT": MESSAGES}
    path = export(tmp_path / "c.sqlite", WARNED, rows)
    assert main(["trace", str(path)]) == 2
    assert (
        "the profiler says: CUDA events may be missing; driver too new" in capsys.readouterr().err
    )


def test_page_faults_of_unified_memory_are_said_with_what_they_cost(tmp_path: Path) -> None:
    faults = "start INT, end INT, globalPid INT, deviceId INT, address INT, numberOfPageFaults INT"
    tables = {
        **NEW, "CUDA_UM_GPU_PAGE_FAULT_EVENTS": faults, "CUDA_UM_CPU_PAGE_FAULT_EVENTS": "start INT, address INT",
    }  # fmt: skip
    rows = job(NEW)
    rows["CUPTI_ACTIVITY_KIND_MEMCPY"] = [
        (650 * US, 700 * US, 0, 7, None, 2_000_000, 11, 1, 3), (750 * US, 760 * US, 0, 7, None, 500_000, 12, 3, 1),
    ]  # fmt: skip
    rows["CUDA_UM_GPU_PAGE_FAULT_EVENTS"] = [
        *((t * US, (t + 100) * US, 1, 0, 4096, 40) for t in (650, 1650, 2650)),
        (3650 * US, 3700 * US, 1, 1, 4096, 7), (5, 3, 1, 0, 0, 1), (9, 10, 1, "x", 0, 1),
    ]  # fmt: skip
    rows["CUDA_UM_CPU_PAGE_FAULT_EVENTS"] = [(900 * US, 4096), (1700 * US, 8192), (10**17, 1)]
    report = judge(export(tmp_path / "x.sqlite", tables, rows))
    found = report.measures.page_faults
    assert found is not None
    assert (found.gpu_faults, found.handling_ms, found.cpu_faults, found.moved_bytes) == (
        120,
        0.3,
        2,
        2_500_000,
    )
    (note,) = (note for note in report.verdict.notes if "unified memory" in note)
    assert "120 page faults of the GPU, 0.3 ms to handle them, 2.5 MB moved" in note
    assert "cudaMemPrefetchAsync" in note
    plain = judge(export(tmp_path / "y.sqlite", NEW, job(NEW)))
    assert plain.measures.page_faults is None
    assert not any("unified" in note for note in plain.verdict.notes)
