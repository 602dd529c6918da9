"""A trace's report as data: the dictionary behind ``gputop trace --json``, schema 1. Absent is null."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gputop.report.meanwhile import Meanwhile
from gputop.traces.ranks import TraceReport
from gputop.traces.report import GpuReport, Measures, RankReport

SCHEMA = 1


def trace_data(report: TraceReport, meanwhile: Sequence[Meanwhile] = ()) -> dict[str, Any]:
    """The JSON object of one report."""
    straggler = report.straggler
    data: dict[str, Any] = {
        "schema": SCHEMA,
        "kind": "trace",
        "files": [rank.path for rank in report.ranks],
        "truncated": any(rank.truncated for rank in report.ranks),
        "dropped_events": sum(rank.dropped_events for rank in report.ranks),
        "ranks": [_rank(rank) for rank in report.ranks],
        "straggler": None
        if straggler is None
        else {
            "rank": straggler.rank,
            "kind": straggler.kind,
            "late_pct": _round(straggler.late_pct),
            "last_in_pct": _round(straggler.last_in_pct),
            "more": straggler.more,
            "more_ms": _round(straggler.more_ms),
        },
        "notes": list(report.notes),
    }
    if meanwhile:
        data["recordings"] = [_meanwhile(found) for found in meanwhile]
    return data


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def _rounded(values: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value, 3) for name, value in values.items()}


def _rank(rank: RankReport) -> dict[str, Any]:
    return {
        "rank": rank.rank,
        "rank_from": rank.rank_from,
        "world_size": rank.world_size,
        "file": rank.path,
        "truncated": rank.truncated,
        "dropped_events": rank.dropped_events,
        "notes": list(rank.notes),
        "gpus": [gpu_data(gpu) for gpu in rank.gpus],
    }


def gpu_data(gpu: GpuReport) -> dict[str, Any]:
    """One GPU: its numbers and its verdict."""
    m, said = gpu.measures, gpu.said
    return {
        "index": m.index,
        "name": m.name,
        "sm_count": m.sm_count,
        "begin": m.begin_unix_s,
        "end": m.end_unix_s,
        "window_ms": _round(m.window_ms),
        "steps": m.steps if m.named_steps else 0,
        "step_ms": {"median": _round(m.step_median_ms), "p95": _round(m.step_p95_ms)} if m.named_steps else None,
        "share_pct": _rounded(m.share_pct),
        "comm_pct": _round(m.comm_pct),
        "overlap_pct": _round(m.overlap_pct),
        "idle_cause_pct": _rounded(m.idle_cause_pct),
        "under": [{"name": row.name, "pct": _round(row.pct)} for row in m.under],
        "util_pct": _round(m.util_pct),
        "sm_active_pct": _round(m.sm_active_pct),
        "sm_high_pct": _round(m.sm_high_pct),
        "sm_source": m.sm_source,
        "occupancy_pct": _round(m.occupancy_pct),
        "queue_empty_pct": None if m.queue is None else _round(m.queue.empty_pct),
        "launch_delay_us": None if m.queue is None else _round(m.queue.delay_us),
        "median_kernel_us": _round(m.median_kernel_us),
        "verdict": said.verdict,
        "level": said.level,
        "cause": said.cause,
        "busy_not_working": said.flag,
        "headline": said.headline,
        "confidence": said.confidence,
        "evidence": list(said.evidence),
        "remedy": said.remedy,
        "notes": list(said.notes),
        "best_case_step_ms": _round(gpu.best_case_step_ms),
        **_tables(m),
    }


def _meanwhile(found: Meanwhile) -> dict[str, Any]:
    return {
        "reason": found.reason,
        "samples": found.samples,
        "seconds": _round(found.seconds),
        "gpus": [
            {
                "index": gpu.index, "util_pct": _round(gpu.util_pct), "sm_active_pct": _round(gpu.sm_active_pct),
                "verdict": gpu.verdict,
            }
            for gpu in found.gpus
        ],
    }  # fmt: skip


def _tables(m: Measures) -> dict[str, Any]:
    """Steps, kernels and waits for the GPU, row by row."""
    return {
        "steps_table": [
            {
                "step": row.name, "ms": _round(row.ms), "compute": _round(row.compute), "comm": _round(row.comm),
                "copy": _round(row.copy), "idle": _round(row.idle), "data": _round(row.data), "flag": row.flag or None,
            }
            for row in m.steps_table
        ],
        "kernels": [
            {
                "name": row.name,
                "share_pct": _round(row.share_pct),
                "calls": row.calls,
                "mean_us": _round(row.mean_us),
                "occupancy_pct": _round(row.occupancy_pct),
                "sm_high_pct": _round(row.sm_high_pct),
                "comm": row.comm,
            }
            for row in m.kernels
        ],
        "syncs": [
            {
                "op": row.op, "calls": row.calls, "host_ms": _round(row.host_ms),
                "idle_after_ms": _round(row.idle_after_ms),
            }
            for row in m.syncs
        ],
    }  # fmt: skip
