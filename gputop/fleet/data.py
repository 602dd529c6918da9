"""A fleet's frame as data for scripts: one JSON object, or one CSV row a GPU. Unavailable is null, never 0."""

from __future__ import annotations

import csv
import io
import json
import math
from typing import Any

from gputop.fleet.frame import FleetFrame, Gpu, Group, worst_first
from gputop.model.sm import SmSource

SCHEMA = 1
VALUES = (
    "util_pct", "sm_active_pct", "tensor_active_pct", "dram_active_pct", "graphics_active_pct", "power_w", "temp_c",
    "mem_used_bytes",
)  # fmt: skip
"""Keys of the metric catalogue, in its units."""


def gpu_data(gpu: Gpu) -> dict[str, Any]:
    """One GPU with its state and what decided it."""
    read = gpu.read
    return {
        "gpu": read.gpu,
        "uuid": read.uuid or None,
        "name": read.model or None,
        "names": read.names or None,
        **{key: _clean(getattr(read, key)) for key in VALUES},
        "gap_pct": _clean(gpu.gap_pct),
        "sm_source": sm_source(gpu),
        "state": gpu.state,
        "state_by": gpu.by,
        "verdict": read.own_verdict,
        "job": read.job or None,
        "user": read.user or None,
        "step_s": _clean(read.step_s),
        "step_wait_s": _clean(read.step_wait_s),
    }


def sm_source(gpu: Gpu) -> SmSource | str:
    """Where SM activity comes from: the exporter's name, or ``none``."""
    return "none" if gpu.read.sm_active_pct is None else gpu.read.names


def fleet_data(frame: FleetFrame) -> dict[str, Any]:
    """The JSON object of a frame (schema 1); hosts are in the order in which they need attention."""
    read = frame.read
    return {
        "schema": SCHEMA,
        "t": _clean(read.t),
        "source": read.source,
        "names": list(read.names),
        "age_s": _clean(read.age_s),
        "counts": dict(frame.counts),
        "hosts_down": len(read.down),
        "not_work_gpu_h": _clean(frame.not_work_gpu_h),
        "not_work_span_s": None if read.lost is None else _clean(read.lost_s),
        "hosts": [_host(group) for group in sorted(frame.hosts, key=worst_first)],
        "stragglers": [
            {
                "host": one.host, "gpu": one.gpu, "job": one.job, "user": one.user or None, "kind": one.kind,
                "by": one.by, "value": _clean(one.value), "median": _clean(one.median), "gpus": one.gpus,
            }
            for one in frame.stragglers
        ],
        "waste": [
            {"job": row.job or None, "user": row.user or None, "cause": row.cause, "gpu_h": _clean(row.gpu_h)}
            for row in frame.waste
        ],
        "alerts": [
            {"name": one.name, "severity": one.severity or None, "host": one.host or None, "labels": dict(one.labels)}
            for one in frame.alerts
        ],
        "problems": list(frame.problems),
    }  # fmt: skip


def _host(group: Group) -> dict[str, Any]:
    return {
        "host": group.name,
        "state": "up" if group.down is None else "down",
        "age_s": None if group.down is None else _clean(group.down.since_s),
        "verdict": group.verdict.state,
        "says": group.verdict.text,
        "job": ", ".join(group.jobs) or None,
        "user": ", ".join(group.users) or None,
        "waste_gpu_h": _clean(group.waste_gpu_h),
        "gpus": [gpu_data(gpu) for gpu in group.gpus],
    }


def fleet_json(frame: FleetFrame) -> str:
    """``fleet_data`` as one line."""
    return json.dumps(fleet_data(frame), ensure_ascii=False, allow_nan=False) + "\n"


def fleet_csv(frame: FleetFrame) -> str:
    """One row a GPU, hosts in the order in which they need attention; an empty cell is unavailable."""
    out = io.StringIO()
    writer: csv.DictWriter[str] | None = None
    for group in sorted(frame.hosts, key=worst_first):
        for gpu in group.gpus:
            row = {"t": _clean(frame.t), "host": group.name, **gpu_data(gpu)}
            if writer is None:
                writer = csv.DictWriter(out, list(row), lineterminator="\n")
                writer.writeheader()
            writer.writerow({key: _cell(value) for key, value in row.items()})
    return out.getvalue()


def _cell(value: object) -> object:
    """A cell that a spreadsheet reads as data: a text from outside is never a formula."""
    if value is None:
        return ""
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value


def _clean(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else round(value, 4)
