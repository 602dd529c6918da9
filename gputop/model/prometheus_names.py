"""Convert the metric catalogue to Prometheus series.

One rule derives a series in base units from a key and its unit: ``power_w`` is ``gputop_gpu_power_watts``, ``util_pct``
is ``gputop_gpu_utilization_ratio`` (0–1). The exporter and the queries both take their names from here, so that they
cannot disagree.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Literal

from msgspec import Struct

from gputop.model.metrics import (
    GPU_METRICS,
    HOST_METRICS,
    PROCESS_METRICS,
    SM_PROVENANCE,
    Metric,
    Unit,
)

Subject = Literal["gpu", "host", "process"]

_UNITS: Mapping[Unit, tuple[str, str, float]] = {
    "pct": ("_pct", "_ratio", 100.0),
    "bytes": ("_bytes", "_bytes", 1.0),
    "bytes/s": ("_bytes_per_s", "_bytes_per_second", 1.0),
    "1/s": ("_per_s", "_per_second", 1.0),
    "W": ("_w", "_watts", 1.0),
    "J": ("_j", "_joules", 1.0),
    "C": ("_c", "_celsius", 1.0),
    "MHz": ("_mhz", "_hertz", 1e-6),
    "s": ("_s", "_seconds", 1.0),
    "count": ("", "", 1.0),
    "id": ("", "", 1.0),
    "bool": ("", "", 1.0),
}
"""Unit → suffix of the key, suffix of the series, and the divisor of the value."""
_WORDS = {"util": "utilization", "mem": "memory", "temp": "temperature", "gpu": "device"}
_ECC = re.compile(r"ecc_(corrected|uncorrected)(_volatile)?")
_CLOCK = re.compile(r"(sm|memory)_(clock.*)")
FIXED = ("pcie_gen_max", "pcie_width_max", "sm_clock_max_mhz", "temp_slowdown_c", "mem_temp_max_c")
"""Capabilities of a GPU and its slot.

They are constant, so they are labels of ``gputop_gpu_info``.
"""
_ELSEWHERE = frozenset(("xid", "throttle_reasons", "pid", "starttime", "ppid", "gpu", *FIXED))
"""Numbers that are not quantities: exported as counters by reason or as labels, or not at all."""
_PROCESS_KEYS = ("gpu_mem_bytes", "gpu_time_pct", "cpu_pct", "rss_bytes", "read_bytes_per_s")


class Series(Struct, frozen=True):
    """Prometheus series of a metric.

    The exported value is the catalogue's divided by ``divisor``. ``labels`` are added to the subject's labels. ``kind``
    is Prometheus' type.
    """

    key: str
    name: str
    kind: Literal["gauge", "counter"]
    labels: tuple[tuple[str, str], ...]
    divisor: float
    help: str


def series_of(metric: Metric, subject: Subject = "gpu") -> Series | None:
    """Return the series of a metric.

    None for texts and for numbers that are not quantities.
    """
    if metric.unit not in _UNITS or metric.key in _ELSEWHERE:
        return None
    key_end, name_end, divisor = _UNITS[metric.unit]
    words = re.sub("_count$", "s", metric.key.removesuffix(key_end))
    name = "_".join(_WORDS.get(word, word) for word in words.split("_")) + name_end
    labels: tuple[tuple[str, str], ...] = ()
    text = metric.definition.replace("percent of one core", "as a share of one core")
    kind: Literal["gauge", "counter"] = "counter" if metric.kind == "counter" else "gauge"
    if (clock := _CLOCK.fullmatch(name)) is not None:
        labels, name, text = (
            (("domain", clock[1]),),
            clock[2],
            f"clock{' limit' * ('max' in name)} by domain",
        )
    elif (ecc := _ECC.fullmatch(metric.key)) is not None:
        labels = (("kind", ecc[1]), ("counter", "volatile" if ecc[2] else "aggregate"))
        name, text = (
            "ecc_errors",
            "memory errors: volatile since the driver was loaded, aggregate over the GPU's life",
        )
    if kind == "counter":
        name += "_total"
    return Series(
        metric.key, f"gputop_{subject}_{name}", kind, labels, divisor, text[0].upper() + text[1:]
    )


@lru_cache(maxsize=1)
def gpu_series() -> tuple[Series, ...]:
    """Return all GPU series in the catalogue's order.

    Series with the same name are adjacent.
    """
    series_by_name: dict[str, list[Series]] = {}
    for metric in (*GPU_METRICS.values(), *SM_PROVENANCE.values()):
        if (series := series_of(metric)) is not None:
            series_by_name.setdefault(series.name, []).append(series)
    return tuple(series for group in series_by_name.values() for series in group)


@lru_cache(maxsize=1)
def host_series() -> tuple[Series, ...]:
    """The series of the host."""
    return tuple(s for m in HOST_METRICS.values() if (s := series_of(m, "host")) is not None)


@lru_cache(maxsize=1)
def process_series() -> tuple[Series, ...]:
    """Return the series of a process on a GPU.

    They cover its resource usage, not all known facts.
    """
    all_series = (series_of(PROCESS_METRICS[key], "process") for key in _PROCESS_KEYS)
    return tuple(series for series in all_series if series is not None)
