"""The smallest card that holds a job and keeps up with it, by NVIDIA's published figures.

A card that is not listed is never proposed, and a job on one gets no proposal.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from msgspec import Struct

from gputop.model.peak_flops import NoPeak, peak_flops, product_of
from gputop.model.quantity import GIB

FIGURES_AS_OF = "2026-11"
"""Month whose data sheets the figures follow."""


class Card(Struct, frozen=True):
    """GPU product by its data sheet, a document of NVIDIA.

    ``name`` is a pattern for NVML's, ``example`` such a name. Memory in GB, bandwidth in GB/s, power in W.
    """

    name: str
    label: str
    example: str
    memory_gb: float
    gb_per_s: float
    power_w: float
    source: str


# fmt: off
CARDS = (
    Card(r"T4", "T4", "T4", 16.0, 320, 70, "T4 data sheet"),
    Card(r"V100-SXM2-16GB(?:-LS)?", "V100 16 GB", "V100-SXM2-16GB", 16.0, 900, 300, "V100 data sheet"),
    Card(r"L4", "L4", "L4", 24.0, 300, 72, "L4 data sheet"),
    Card(r"A10", "A10", "A10", 24.0, 600, 150, "A10 data sheet"),
    Card(r"A100-\w+-40GB", "A100 40 GB", "A100-SXM4-40GB", 40.0, 1555, 400, "A100 data sheet"),
    Card(r"A40", "A40", "A40", 48.0, 696, 300, "A40 data sheet"),
    Card(r"L40S", "L40S", "L40S", 48.0, 864, 350, "L40S data sheet"),
    Card(r"A100-SXM4-80GB", "A100 80 GB", "A100-SXM4-80GB", 80.0, 2039, 400, "A100 data sheet"),
    Card(r"H100 PCIe", "H100 PCIe", "H100 PCIe", 80.0, 2000, 350, "H100 PCIe product brief"),
    Card(r"H100 80GB HBM3", "H100 SXM", "H100 80GB HBM3", 80.0, 3350, 700, "H100 data sheet"),
    Card(r"H200", "H200", "H200", 141.0, 4800, 700, "H200 data sheet"),
    Card(r"B200(?: \d+GB)?", "B200", "B200", 180.0, 8000, 1000, "HGX B200 data sheet"),
)
# fmt: on
"""Smallest memory first, then least power."""
LEAST_S = 600.0
"""Before ten minutes a job's memory and load are not yet known [judged]."""
LEAST_UTIL_PCT = 1.0
"""Utilisation below which nothing is known of what a GPU's job needs [judged]."""
MARGIN = 1.10
"""Factor on the peak of held memory [judged]."""
FULL = 0.7
"""Highest mean share of a smaller card's bandwidth and arithmetic: bursts need the rest [judged]."""
_GB = 1e9


class Load(Struct, frozen=True):
    """What a job needs of its card: peak memory, and means of what was active in percent."""

    held_bytes: float
    sm_pct: float | None
    tensor_pct: float | None
    dram_pct: float | None


class SmallerCard(Struct, frozen=True):
    """The smallest sufficient card for one GPU's job.

    ``keeps_up`` says whether its bandwidth and arithmetic suffice for the same work in the same time; None where that
    cannot be told. ``figures`` says by how much.
    """

    gpu: int
    card: str
    memory_gb: float
    held_bytes: float
    keeps_up: bool | None
    figures: str
    source: str


def smaller_card(gpu: int, name: str, load: Load) -> SmallerCard | None:
    """The smallest card with less memory that holds the job.

    One that keeps up, where one does; else the smallest that holds it. None without one, or for a card that is not
    listed.
    """
    present = _listed(name)
    if present is None or load.held_bytes <= 0.0:
        return None
    rows = [_judged(gpu, card, present, load) for card in _holding(present, load)]
    fast = next((row for row in rows if row.keeps_up), None)
    return fast if fast is not None else next(iter(rows), None)


def _listed(name: str) -> Card | None:
    product = product_of(name)
    return next((card for card in CARDS if re.fullmatch(card.name, product)), None)


def _holding(present: Card, load: Load) -> Iterable[Card]:
    """Cards with less memory than the present one, and enough of it."""
    for card in CARDS:
        is_smaller = card.memory_gb < present.memory_gb
        if is_smaller and card.memory_gb * _GB >= MARGIN * load.held_bytes:
            yield card


def _judged(gpu: int, card: Card, present: Card, load: Load) -> SmallerCard:
    """A card with the answer whether it keeps up."""
    keeps_up, figures = _keeps_up(card, present, load)
    source = f"NVIDIA {card.source}, {FIGURES_AS_OF}"
    return SmallerCard(gpu, card.label, card.memory_gb, load.held_bytes, keeps_up, figures, source)


def _keeps_up(card: Card, present: Card, load: Load) -> tuple[bool | None, str]:
    """Return whether a card is fast enough, and the figures in words.

    SM activity is compared by FP32 arithmetic, which bounds what the job needs outside tensor cores.
    """
    parts = {"SM": load.sm_pct, "tensor": load.tensor_pct, "DRAM": load.dram_pct}
    missing = [name for name, value in parts.items() if value is None]
    if load.sm_pct is None or load.tensor_pct is None or load.dram_pct is None:
        return None, f"cannot tell whether it keeps up: {' and '.join(missing)} not measured"
    try:
        arithmetic = peak_flops(present.example, "fp32")[0] / peak_flops(card.example, "fp32")[0]
        tensor = peak_flops(present.example, "fp16")[0] / peak_flops(card.example, "fp16")[0]
    except NoPeak as error:
        return None, f"cannot tell whether it keeps up: {error}"
    needs = {
        "arithmetic": load.sm_pct / 100.0 * arithmetic,
        "tensor cores": load.tensor_pct / 100.0 * tensor,
        "memory bandwidth": load.dram_pct / 100.0 * present.gb_per_s / card.gb_per_s,
    }
    words = ", ".join(f"{name} {100.0 * need:.0f} %" for name, need in needs.items())
    return max(needs.values()) <= FULL, f"needed of it: {words}"


def card_words(row: SmallerCard) -> str:
    """A smaller card in words: ``GPU 3: at most 18.2 GiB held: an L4 (24 GB) would do; …``."""
    would = "would hold it"
    if row.keeps_up is not None:
        would = "would do" if row.keeps_up else "would hold it, but be slower"
    return (
        f"GPU {row.gpu}: at most {row.held_bytes / GIB:.1f} GiB held: {row.card} ({row.memory_gb:.0f} GB) {would}; "
        f"{row.figures} ({row.source})"
    )
