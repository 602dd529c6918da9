"""A fleet's frame as JSON or CSV. Unavailable is null, never 0."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Callable
from typing import Any

from msgspec import Struct, to_builtins

from gputop.features.fleet.fleet_reading import FiringAlert, RemovedHost
from gputop.features.fleet.judge.fleet_frame import (
    FleetFrame,
    GpuGroup,
    WastedHours,
    worst_first,
)
from gputop.features.fleet.judge.gpu_state import Gpu
from gputop.features.fleet.judge.straggler import Straggler
from gputop.model.clean_text import csv_cell
from gputop.model.json_text import safe_json
from gputop.model.quantity import rounded

SCHEMA = 1
DIGITS = 4
"""After the point, of every number."""


class GpuColumn(Struct, frozen=True):
    """A value of one GPU, under ``key`` in data.

    With a ``head`` it is also a column of ``width`` cells on a host's page, by ``place``.
    """

    key: str
    head: str = ""
    width: int = 0
    place: int = 0
    read: Callable[[Gpu], Any] | None = None

    def value(self, gpu: Gpu) -> Any:
        """The value; None if unavailable."""
        value = getattr(gpu.read, self.key) if self.read is None else self.read(gpu)
        return None if value == "" else value


GPU_COLUMNS = (
    GpuColumn("gpu"),
    GpuColumn("uuid"),
    GpuColumn("name", read=lambda gpu: gpu.read.model),
    GpuColumn("names"),
    GpuColumn("util_pct", "UTIL", 5, 1),
    GpuColumn("sm_active_pct", "SM", 5, 2),
    GpuColumn("tensor_active_pct", "TENSOR", 8, 4),
    GpuColumn("dram_active_pct", "DRAM", 6, 5),
    GpuColumn("graphics_active_pct"),
    GpuColumn("power_w", "W", 6, 6),
    GpuColumn("temp_c", "°C", 5, 7),
    GpuColumn("mem_used_bytes", "MEM GiB", 9, 8),
    GpuColumn("gap_pct", "GAP", 5, 3, lambda gpu: gpu.gap_pct),
    GpuColumn(
        "sm_source", read=lambda gpu: "none" if gpu.read.sm_active_pct is None else gpu.read.names
    ),
    GpuColumn("state", read=lambda gpu: gpu.state),
    GpuColumn("state_by", read=lambda gpu: gpu.state_by),
    GpuColumn("verdict", read=lambda gpu: gpu.read.own_verdict),
    GpuColumn("job"),
    GpuColumn("user"),
    GpuColumn("process"),
    GpuColumn("step_s", "STEP", 9, 9),
    GpuColumn("step_wait_s"),
)
"""The one table of a GPU's values, in the order of data; values are in the metric catalogue's units."""


def gpu_data(gpu: Gpu) -> dict[str, Any]:
    """One GPU with its state; ``state_by`` says what decided it."""
    return {column.key: column.value(gpu) for column in GPU_COLUMNS}


def fleet_data(frame: FleetFrame) -> dict[str, Any]:
    """The JSON object of a frame, the worst hosts first."""
    read = frame.read
    kinds = Counter(down.kind for down in read.down.values())
    is_read = read.hour.lost is not None
    data = {
        "schema": SCHEMA,
        "t": read.t,
        "source": read.source,
        "names": list(read.names),
        "age_s": read.age_s,
        "counts": dict(frame.counts),
        "hosts_down": kinds["down"],
        "hosts_late": kinds["late"],
        "hosts_pending": kinds["pending"],
        "hosts_gone": [_gone_host(host, gone) for host, gone in read.gone.items()],
        "not_work_gpu_h": frame.not_work_gpu_h,
        "not_work_span_s": read.hour.span_s if is_read else None,
        "not_work_by": read.hour.source if is_read else None,
        "hosts": [_host(group) for group in sorted(frame.hosts, key=worst_first)],
        "stragglers": [_row(entry) for entry in frame.stragglers],
        "waste": [_wasted(row) for row in frame.waste],
        "alerts": [_row(entry) for entry in read.alerts],
        "problems": list(frame.problems),
    }
    rounded_data: dict[str, Any] = rounded(data, DIGITS)
    return rounded_data


def _gone_host(host: str, gone: RemovedHost) -> dict[str, Any]:
    return {"host": host, "gpus": gone.gpus, "age_s": gone.since_s}


def _wasted(row: WastedHours) -> dict[str, Any]:
    return {
        "job": row.job or None,
        "user": row.user or None,
        "cause": row.cause,
        "gpu_h": row.gpu_h,
    }


def _row(entry: Straggler | FiringAlert) -> dict[str, Any]:
    """A struct of the shape that its JSON has; an empty text is null."""
    data: dict[str, Any] = to_builtins(entry, enc_hook=str)
    for key, value in data.items():
        if value == "":
            data[key] = None
    return data


def _host(group: GpuGroup) -> dict[str, Any]:
    state, age_s = "up", None
    if group.down is not None:
        state, age_s = group.down.kind, group.down.since_s
    return {
        "host": group.name,
        "state": state,
        "age_s": age_s,
        "verdict": group.verdict.state,
        "says": group.verdict.text,
        "remedy": group.remedy or None,
        "faults": list(group.faults),
        "job": ", ".join(group.jobs) or None,
        "user": ", ".join(group.users) or None,
        "waste_gpu_h": group.waste_gpu_h,
        "gpu_states": dict(group.counts),
        "gpus": [gpu_data(gpu) for gpu in group.gpus],
    }


def fleet_json(frame: FleetFrame) -> str:
    """``fleet_data`` as one line."""
    return safe_json(fleet_data(frame)) + "\n"


def fleet_csv(frame: FleetFrame) -> str:
    """One row a GPU, the worst hosts first; empty is unavailable."""
    gpus = [
        {"t": frame.t, "host": group.name, **gpu_data(gpu)}
        for group in sorted(frame.hosts, key=worst_first)
        for gpu in group.gpus
    ]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    if gpus:
        writer.writerow(gpus[0].keys())
    writer.writerows([csv_cell(value) for value in rounded(gpu, DIGITS).values()] for gpu in gpus)
    return out.getvalue()
