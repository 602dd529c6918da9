"""A fleet's frame as JSON or CSV. Unavailable is null, never 0."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

from msgspec import to_builtins

from gputop.features.fleet.fleet_frame import FleetFrame, Gpu, GpuGroup, worst_first
from gputop.features.fleet.fleet_reading import FiringAlert
from gputop.features.fleet.straggler import Straggler
from gputop.model.quantity import csv_cell, rounded

SCHEMA = 1
VALUES = (
    "util_pct", "sm_active_pct", "tensor_active_pct", "dram_active_pct", "graphics_active_pct", "power_w", "temp_c",
    "mem_used_bytes",
)  # fmt: skip
"""Keys of the metric catalogue, in its units."""
DIGITS = 4
"""After the point, of every number."""


def gpu_data(gpu: Gpu) -> dict[str, Any]:
    """One GPU with its state; ``state_by`` says what decided it."""
    read = gpu.read
    return {
        "gpu": read.gpu,
        "uuid": read.uuid or None,
        "name": read.model or None,
        "names": read.names or None,
        **{key: getattr(read, key) for key in VALUES},
        "gap_pct": gpu.gap_pct,
        "sm_source": "none" if read.sm_active_pct is None else read.names,
        "state": gpu.state,
        "state_by": gpu.state_by,
        "verdict": read.own_verdict,
        "job": read.job or None,
        "user": read.user or None,
        "step_s": read.step_s,
        "step_wait_s": read.step_wait_s,
    }


def fleet_data(frame: FleetFrame) -> dict[str, Any]:
    """The JSON object of a frame, the worst hosts first."""
    read = frame.read
    data = {
        "schema": SCHEMA,
        "t": read.t,
        "source": read.source,
        "names": list(read.names),
        "age_s": read.age_s,
        "counts": dict(frame.counts),
        "hosts_down": sum(down.kind == "down" for down in read.down.values()),
        "hosts_late": sum(down.kind == "late" for down in read.down.values()),
        "hosts_pending": sum(down.kind == "pending" for down in read.down.values()),
        "hosts_gone": [{"host": host, "gpus": gone.gpus, "age_s": gone.since_s} for host, gone in read.gone.items()],
        "not_work_gpu_h": frame.not_work_gpu_h,
        "not_work_span_s": None if read.hour.lost is None else read.hour.span_s,
        "not_work_by": None if read.hour.lost is None else read.hour.source,
        "hosts": [_host(group) for group in sorted(frame.hosts, key=worst_first)],
        "stragglers": [_row(entry) for entry in frame.stragglers],
        "waste": [
            {"job": row.job or None, "user": row.user or None, "cause": row.cause, "gpu_h": row.gpu_h}
            for row in frame.waste
        ],
        "alerts": [_row(entry) for entry in frame.read.alerts],
        "problems": list(frame.problems),
    }
    rounded_data: dict[str, Any] = rounded(data, DIGITS)
    return rounded_data


def _row(entry: Straggler | FiringAlert) -> dict[str, Any]:
    """A struct of the shape that its JSON has; an empty text is null."""
    return {key: None if value == "" else value for key, value in to_builtins(entry, enc_hook=str).items()}


def _host(group: GpuGroup) -> dict[str, Any]:
    return {
        "host": group.name,
        "state": "up" if group.down is None else group.down.kind,
        "age_s": None if group.down is None else group.down.since_s,
        "verdict": group.verdict.state,
        "says": group.verdict.text,
        "remedy": group.remedy or None,
        "job": ", ".join(group.jobs) or None,
        "user": ", ".join(group.users) or None,
        "waste_gpu_h": group.waste_gpu_h,
        "gpu_states": dict(group.counts),
        "gpus": [gpu_data(gpu) for gpu in group.gpus],
    }


def fleet_json(frame: FleetFrame) -> str:
    """``fleet_data`` as one line."""
    return json.dumps(fleet_data(frame), ensure_ascii=False, allow_nan=False) + "\n"


def fleet_csv(frame: FleetFrame) -> str:
    """One row a GPU, the worst hosts first; empty is unavailable."""
    rows = [
        rounded({"t": frame.t, "host": group.name, **gpu_data(gpu)}, DIGITS)
        for group in sorted(frame.hosts, key=worst_first)
        for gpu in group.gpus
    ]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerows([*([list(rows[0])] if rows else []), *(map(csv_cell, row.values()) for row in rows)])
    return out.getvalue()
