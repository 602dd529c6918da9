"""A snapshot as JSON, CSV, lines or a table.

Unavailable is null, never NaN and never 0.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from typing import Any

from gputop.diagnosis.verdict.summary import in_sample
from gputop.model.clean_text import csv_cell
from gputop.model.derived import gap_pct
from gputop.model.json_keys import DIGITS, json_keys, keys_of
from gputop.model.json_text import safe_json
from gputop.model.metrics import GPU_METRICS, GPU_STATE, GPU_STATIC, SM_PROVENANCE
from gputop.model.quantity import rounded
from gputop.model.snapshot import GpuSample, HostSample, Snapshot, value

SCHEMA = 1
_GPU_MEASURED = (*GPU_METRICS, *SM_PROVENANCE, *GPU_STATE)


def snapshot_data(snapshot: Snapshot) -> dict[str, Any]:
    """A snapshot as JSON in the published form, schema 1."""
    return {
        "schema": SCHEMA,
        "t": snapshot.t,
        "host": {
            "hostname": snapshot.machine.hostname,
            "driver": snapshot.machine.driver,
            "source": snapshot.machine.source,
            **json_keys(snapshot.host),
            "fabric_ports": list(map(json_keys, snapshot.fabric_ports)),
        },
        "gpus": list(map(json_keys, snapshot.gpus)),
        "processes": list(map(json_keys, snapshot.processes)),
        "step_periods": list(map(json_keys, snapshot.periods)),
        "steps": list(map(json_keys, snapshot.steps)),
        "servers": list(map(json_keys, snapshot.servers)),
        "notices": list(snapshot.notices),
        "repeats": list(snapshot.repeats),
        "stale": rounded(dict(snapshot.stale), DIGITS),
    }


def once_data(snapshot: Snapshot) -> dict[str, Any]:
    """A snapshot as JSON, with GAP and state of each GPU.

    The state in this one sample is no verdict.
    """
    data = snapshot_data(snapshot)
    for row, gpu in zip(data["gpus"], snapshot.gpus, strict=True):
        row["gap_pct"] = rounded(gap_pct(gpu), DIGITS)
        row["in_sample"], _ = in_sample(gpu, snapshot.processes, snapshot.host)
    return data


def line_values(data: Mapping[str, Any]) -> list[dict[str, object]]:
    """Values for ``--format``, a dictionary for each GPU.

    It has the keys of the GPU, of the whole, and of the host as ``host.x``.
    """
    host = {f"host.{key}": value for key, value in data["host"].items()}
    whole = {key: value for key, value in data.items() if key not in ("host", "gpus")}
    return [{**host, **whole, **gpu} for gpu in data["gpus"]]


LINE_KEYS = (
    "schema", "t", *keys_of(GpuSample), "gap_pct", "in_sample",
    "processes", "step_periods", "steps", "servers", "notices", "repeats", "stale", "complete", "missing_gpus",
    *(f"host.{key}" for key in ("hostname", "driver", "source", *keys_of(HostSample), "fabric_ports")),
)  # fmt: skip
"""The keys of ``line_values`` for what ``gputop once --json`` prints."""


def json_text(data: Mapping[str, Any]) -> str:
    """JSON on one line.

    Raises ValueError for NaN, which is no JSON.
    """
    return safe_json(data) + "\n"


def gpu_csv(snapshot: Snapshot) -> str:
    """CSV with a row for each GPU; unavailable cells are empty."""
    out = io.StringIO()
    keys = ("t", *GPU_STATIC, *_GPU_MEASURED)
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(keys)
    for gpu in snapshot.gpus:
        cells = (snapshot.t, *(rounded(value(gpu, key), DIGITS) for key in keys[1:]))
        writer.writerow(map(csv_cell, cells))
    return out.getvalue()
