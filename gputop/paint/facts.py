"""The facts about a GPU: one list for its pane, its line and its page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from msgspec import Struct

from gputop.model.derived import throttle_words
from gputop.model.quantity import NOT_MEASURED, gb_per_s, gib, number, rate
from gputop.model.snapshot import GpuSample
from gputop.paint.gpu_fields import fields
from gputop.paint.line import Span
from gputop.paint.words import Field


class Fact(Struct, frozen=True):
    """A number of a GPU: its key, its name, and how it is written."""

    key: str
    name: str
    write: Callable[[float], str]

    def text(self, value: float | None) -> str:
        """Return name and value."""
        return f"{self.name} {NOT_MEASURED if value is None else self.write(value)}".strip()


def _in(unit: str, width: int) -> Callable[[float], str]:
    return lambda value: f"{number(value, width)} {unit}"


_percent, _traffic = partial(number, width=3), partial(rate, width=9)
FACTS: Mapping[str, Fact] = {
    fact.key: fact
    for fact in (
        Fact("util_pct", "UTIL", _percent),
        Fact("sm_active_pct", "SM", _percent),
        Fact("tensor_active_pct", "TENSOR", _percent),
        Fact("dram_active_pct", "DRAM", _percent),
        Fact("sm_occupancy_pct", "OCC", _percent),
        Fact("power_w", "", _in("W", 3)),
        Fact("sm_clock_mhz", "", _in("MHz", 4)),
        Fact("temp_c", "", _in("°C", 2)),
        Fact("mem_used_bytes", "MEM", lambda value: f"{gib(value, 5)} GiB"),
        Fact("pcie_rx_bytes_per_s", "PCIe ↓", _traffic),
        Fact("pcie_tx_bytes_per_s", "↑", _traffic),
        Fact("nvlink_rx_bytes_per_s", "NVLink ↓", _traffic),
        Fact("nvlink_tx_bytes_per_s", "↑", _traffic),
        Fact("pstate", "", lambda value: f"P{value:.0f}"),
        Fact("fan_pct", "fan", _in("%", 3)),
        Fact("encoder_pct", "ENC", _percent),
        Fact("decoder_pct", "DEC", _percent),
    )
}
"""By key, the most telling first."""
MOMENT = tuple(FACTS)[:13]
"""What history has of a GPU."""
ENGINES = {
    "sm_clock_mhz": "clock",
    "pstate": "P-state",
    "fan_pct": "fan",
    "encoder_pct": "ENC",
    "decoder_pct": "DEC",
}


def counters(gpu: GpuSample) -> list[Field]:
    """Return tensor and DRAM activity as fields.

    Left out together where neither is measured.
    """
    shown = [(key, getattr(gpu, key)) for key in ("tensor_active_pct", "dram_active_pct")]
    return (
        [(FACTS[key].text(value), "text") for key, value in shown]
        if any(v is not None for _, v in shown)
        else []
    )


def board(gpu: GpuSample) -> list[Field]:
    """Return power and temperature as fields.

    The clock where something slows it, and memory errors where there are any.
    """
    limit = "" if gpu.power_limit_w is None else f" / {gpu.power_limit_w:.0f}"
    parts: list[Field] = []
    if gpu.power_w is not None:
        parts.append((f"{number(gpu.power_w, 3)}{limit} W", "text"))
    if gpu.temp_c is not None:
        parts.append((FACTS["temp_c"].text(gpu.temp_c), "text"))
    if slowed := throttle_words(gpu.throttle_reasons or 0):
        clock = "" if gpu.sm_clock_max_mhz is None else f" / {gpu.sm_clock_max_mhz:.0f}"
        parts.append((f"{number(gpu.sm_clock_mhz, 4)}{clock} MHz", "text"))
        parts.append((", ".join(slowed), "level.yellow"))
    lately = gpu.ecc_uncorrected_volatile
    if errors := gpu.ecc_uncorrected if lately is None else lately:
        parts.append((f"ECC {errors}{' in its life' if lately is None else ''}", "level.red"))
    return parts


def engines(gpu: GpuSample, width: int) -> list[Span]:
    """Return clock, P-state, fan, encoder and decoder.

    Those that are not measured follow; the page of the GPU says why.
    """
    shown = [
        (FACTS[key].text(value), "text")
        for key in ENGINES
        if (value := getattr(gpu, key)) is not None
    ]
    missing = [name for key, name in ENGINES.items() if getattr(gpu, key) is None]
    return fields([*shown, (f"{', '.join(missing)} n/a", "dim")] if missing else shown, width, "  ")


def _links(gpu: GpuSample) -> list[tuple[str, int, float | None, float | None]]:
    return [
        ("PCIe", 3, gpu.pcie_rx_bytes_per_s, gpu.pcie_tx_bytes_per_s),
        ("NVLink", 4, gpu.nvlink_rx_bytes_per_s, gpu.nvlink_tx_bytes_per_s),
    ]


def buses(gpu: GpuSample) -> list[Field]:
    """PCIe and, where it exists, NVLink traffic in GB/s."""
    return [
        (f"{name} ↓{gb_per_s(into, width)} ↑{gb_per_s(out, width)} GB/s", "dim")
        for name, width, into, out in _links(gpu)
        if into is not None or out is not None
    ]


LEAST_TRAFFIC = 5e8
"""Bytes a second that would not be shown as 0 GB/s: a bus on which nothing moves says nothing beside the others."""


def busiest_bus(gpu: GpuSample) -> list[Field]:
    """Return the link direction with the most traffic.

    For rows that have room for one only.
    """
    both = [(into, out) for _, _, into, out in _links(gpu)]
    names = ("PCIe ↓", "PCIe ↑", "NVLink ↓", "NVLink ↑")
    value, text = max(
        zip([v or 0.0 for pair in both for v in pair], names, strict=True), key=lambda link: link[0]
    )
    return [(f"{text}{gb_per_s(value, 4)} GB/s", "text")] if value >= LEAST_TRAFFIC else []


def totals(gpus: Sequence[GpuSample]) -> list[Field]:
    """Return power and memory of all GPUs, and the mean use.

    What no GPU measures is left out; a GPU that MIG has split has its power, its instances the rest.
    """
    split = {gpu.static.mig_parent for gpu in gpus}
    units = [gpu for gpu in gpus if gpu.static.uuid not in split and gpu.lost_reason is None]
    power = [
        gpu.power_w for gpu in gpus if gpu.power_w is not None and gpu.static.mig_parent is None
    ]
    memory = [
        (gpu.mem_used_bytes, gpu.mem_total_bytes or 0.0)
        for gpu in units
        if gpu.mem_used_bytes is not None
    ]
    parts = [f"{number(sum(power))} W"] if power else []
    if memory:
        parts.append(
            f"{gib(sum(used for used, _ in memory))} / {gib(sum(total for _, total in memory))} GiB"
        )
    for key in ("util_pct", "sm_active_pct"):
        values = [value for gpu in units if (value := getattr(gpu, key)) is not None]
        parts += [f"mean {FACTS[key].text(sum(values) / len(values))} %"] if values else []
    return [(part, "text") for part in parts]
