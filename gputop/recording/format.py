"""The words of the recording format, version 1: columns and limits.

Columns derive from the metric catalogue and the snapshot's fields, so a new metric is recorded by being declared.
Nothing here opens a file.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from gputop.model.metrics import GPU_METRICS, GPU_STATE, HOST_METRICS, PROCESS_METRICS, SM_PROVENANCE
from gputop.model.snapshot import GpuSample, GpuStatic, HostSample, ProcessSample, ProcessStatic

VERSION = 1
MEMBER_FRAMES = 60
"""Frames in one gzip member: what a flipped byte can cost at most."""
MOST_LINE_BYTES = 2 << 20
"""A longer line is damage: parsed JSON takes up to 21 times its text, and reading must stay below 200 MB."""
MOST_GPUS = 256
MOST_PROCESSES = 4096
SUFFIXES = (".jsonl.gz", ".jsonl")

Rounding = Literal["digits", "whole", "fine"]
Check = Literal["number", "whole", "flag", "text"]


class RecordingError(Exception):
    """A recording cannot be read or written. One line of text: which file, what is wrong, how to fix it."""


class Damage(Exception):
    """A line that does not follow the format. The reader counts it and goes on."""


class Column(Struct, frozen=True):
    """One column of a row: the snapshot's field, what its values must be, how floats are rounded, what absence is."""

    key: str
    check: Check
    rounding: Rounding
    default: Any


_CHECKS: dict[str, Check] = {
    "float | None": "number",
    "int": "whole",
    "int | None": "whole",
    "bool | None": "flag",
    "str": "text",
    "str | None": "text",
    "Role": "text",
    "SmSource": "text",
}
_METRICS = {**GPU_METRICS, **SM_PROVENANCE, **GPU_STATE, **HOST_METRICS, **PROCESS_METRICS}


def _rounding(key: str) -> Rounding:
    """Four digits would erase single bytes of memory, and the steps of counters and times."""
    metric = _METRICS.get(key)
    if metric is not None and metric.unit == "bytes":
        return "whole"
    return "fine" if key == "lost_since" or (metric is not None and metric.kind == "counter") else "digits"


def columns_of(kind: type[Any]) -> tuple[Column, ...]:
    """The recorded fields of a class of the snapshot, in the order in which it declares them."""
    # Defaults belong to the last fields. Asking for the fields' types would resolve every annotation at each start.
    defaults = dict(zip(reversed(kind.__struct_fields__), reversed(kind.__struct_defaults__), strict=False))
    return tuple(
        Column(name, _CHECKS[kind.__annotations__[name]], _rounding(name), defaults.get(name))
        for name in kind.__struct_fields__
        if name not in ("static", "unavailable")
    )


GPU_COLUMNS = columns_of(GpuSample)
PROCESS_COLUMNS = columns_of(ProcessSample)
HOST_COLUMNS = columns_of(HostSample)
GPU_FACTS = columns_of(GpuStatic)
PROCESS_FACTS = columns_of(ProcessStatic)
