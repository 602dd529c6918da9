"""A trace report as JSON."""

from __future__ import annotations

from typing import Any

from msgspec import to_builtins

from gputop.diagnosis.types import full_title
from gputop.features.traces.trace_ranks import TraceReport
from gputop.features.traces.trace_report import (
    RankReport,
    TraceGpuReport,
)
from gputop.model.quantity import rounded

TRACE_DATA_SCHEMA = 1
_DIGITS = 3
_MEASURES = (
    "index", "name", "sm_count", "begin", "end", "window_ms", "steps", "step_ms", "share_pct", "comm_pct",
    "overlap_pct", "idle_cause_pct", "under", "util_pct", "sm_active_pct", "sm_high_pct", "sm_source",
    "occupancy_pct", "queue_empty_pct", "launch_delay_us", "median_kernel_us",
)  # fmt: skip
"""In the order of the object; what follows is the verdict, and then ``_ROWS``."""
_ROWS = (
    "range_hint", "at_work", "once", "steps_table", "kernels", "categories", "unknown_comm",
    "stream_waits", "syncs", "gaps", "page_faults",
)  # fmt: skip


def trace_data(report: TraceReport) -> dict[str, Any]:
    """The JSON object of one report."""
    return {
        "schema": TRACE_DATA_SCHEMA,
        "kind": "trace",
        "files": [rank.path for rank in report.ranks],
        "truncated": any(rank.truncated for rank in report.ranks),
        "dropped_events": sum(rank.dropped_events for rank in report.ranks),
        "ranks": [_rank_data(rank) for rank in report.ranks],
        "straggler": rounded(to_builtins(report.straggler), _DIGITS),
        "notes": list(report.notes),
    }


def _rank_data(rank: RankReport) -> dict[str, Any]:
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


def gpu_data(gpu: TraceGpuReport) -> dict[str, Any]:
    """One GPU: its numbers and its verdict."""
    m, verdict = gpu.measures, gpu.verdict
    values = {
        **to_builtins(m),
        "begin": None,
        "end": None,
        "steps": m.steps if m.named_steps else 0,
        "step_ms": {"median": m.step_median_ms, "p95": m.step_p95_ms} if m.named_steps else None,
    }
    told = {
        "verdict": verdict.id,
        "title": full_title(verdict.title, verdict.flag),
        "level": verdict.level,
        "cause": verdict.cause,
        "busy_not_working": verdict.flag,
        "headline": verdict.headline,
        "confidence": verdict.confidence,
        "evidence": list(verdict.evidence),
        "remedy": verdict.remedy,
        "notes": list(verdict.notes),
        "best_case_step_ms": gpu.best_case_step_ms,
    }
    chosen = {key: values[key] for key in _MEASURES} | told | {key: values[key] for key in _ROWS}
    data: dict[str, Any] = rounded(chosen, _DIGITS)
    # A moment keeps all its digits.
    data["begin"], data["end"] = m.begin_unix_s, m.end_unix_s
    return data
