"""Snapshots as data for scripts: JSON and CSV with the catalogue's keys. Unavailable is null, never NaN and never 0."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec.structs import asdict

from gputop.diagnosis.window_row import flag_now
from gputop.model.derived import gap_pct
from gputop.model.fabric import FabricPort
from gputop.model.metrics import (
    GPU_METRICS,
    GPU_STATE,
    GPU_STATIC,
    HOST_METRICS,
    PROCESS_METRICS,
    PROCESS_STATIC,
    SM_PROVENANCE,
)
from gputop.model.snapshot import GpuSample, ProcessSample, Snapshot

SCHEMA = 1
_GPU_MEASURED = (*GPU_METRICS, *SM_PROVENANCE, *GPU_STATE)


def _clean(value: object) -> object:
    """A value as JSON may carry it: no NaN and no infinity, floats without noise digits."""
    if isinstance(value, float):
        return round(value, 6) if math.isfinite(value) else None
    return value


def _fields(source: object, keys: Iterable[str]) -> dict[str, object]:
    return {key: _clean(getattr(source, key)) for key in keys}


def gpu_data(gpu: GpuSample) -> dict[str, object]:
    """Static facts, metrics and provenance of one GPU, with the reason for each that is missing."""
    return {
        **_fields(gpu.static, GPU_STATIC),
        **_fields(gpu, _GPU_MEASURED),
        "unavailable": dict(gpu.unavailable),
    }


def process_data(process: ProcessSample) -> dict[str, object]:
    """Facts and metrics of one process by the catalogue's keys, with the reason for each that is missing."""
    return {
        **_fields(process, PROCESS_METRICS),
        **_fields(process.static, PROCESS_STATIC),
        "unavailable": dict(process.unavailable),
    }


def _port_data(port: FabricPort) -> dict[str, object]:
    return {key: _clean(value) for key, value in asdict(port).items()}


def snapshot_data(snapshot: Snapshot) -> dict[str, Any]:
    """The JSON object of one snapshot, in the published form (schema 1)."""
    return {
        "schema": SCHEMA,
        "t": snapshot.t,
        "host": {
            "hostname": snapshot.machine.hostname,
            "driver": snapshot.machine.driver,
            "source": snapshot.machine.source,
            **_fields(snapshot.host, HOST_METRICS),
            "unavailable": dict(snapshot.host.unavailable),
            "fabric_ports": [_port_data(port) for port in snapshot.fabric_ports],
        },
        "gpus": [gpu_data(gpu) for gpu in snapshot.gpus],
        "processes": [process_data(process) for process in snapshot.processes],
        "notices": list(snapshot.notices),
        "repeats": list(snapshot.repeats),
    }


def once_data(snapshot: Snapshot) -> dict[str, Any]:
    """A snapshot with what one sample shows of each GPU: ``gap_pct``, and A or B where this one sample lies in it.

    ``flag_now`` is not a verdict; ``busy_not_working`` is, and takes half a minute.
    """
    data = snapshot_data(snapshot)
    for given, gpu in zip(data["gpus"], snapshot.gpus, strict=True):
        given["gap_pct"] = _clean(gap_pct(gpu))
        given["flag_now"] = flag_now(gpu)
    return data


def json_text(data: Mapping[str, Any]) -> str:
    """One JSON document; a NaN that got this far is an error, not output."""
    return json.dumps(data, ensure_ascii=False, allow_nan=False) + "\n"


def gpu_csv(snapshot: Snapshot) -> str:
    """One row a GPU under a header of catalogue keys; an empty cell is unavailable."""
    out = io.StringIO()
    keys = ("t", *GPU_STATIC, *_GPU_MEASURED)
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(keys)
    for gpu in snapshot.gpus:
        row = {"t": snapshot.t, **gpu_data(gpu)}
        writer.writerow(["" if row[key] is None else row[key] for key in keys])
    return out.getvalue()
