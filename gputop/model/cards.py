"""GPU products: peak performance, MIG shares, and smaller replacements.

Few rows, each with its document. A card that is not listed has no figure and is never proposed: a guess would give a
guessed utilisation.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Literal, get_args

from msgspec import Struct

from gputop.model.snapshot import GpuStatic

SLICES, OF_FOUR = 7, ("A30", "RTX PRO 6000")
"""Compute slices of a MIG card, and cards with four slices.

NVIDIA MIG User Guide, supported profiles.
"""


def mig_share(name: str) -> float | None:
    """Share of the card's slices by a MIG instance's name.

    ``3g.40gb`` is 3 of 7; None for a name without a profile.
    """
    profile = re.search(r"(?:^|\s)(?:\dc\.)?(\d)g\.\d+gb", name)
    return int(profile[1]) / (4 if any(card in name for card in OF_FOUR) else SLICES) if profile else None


def card_shares(gpus: Iterable[GpuStatic]) -> dict[str, float]:
    """Share of the card of each GPU by UUID.

    1 for a whole GPU, 0 for one that MIG has split, and its slices for an instance. Without a profile in their names
    the instances of a card have equal shares.
    """
    gpus = list(gpus)
    parts = Counter(gpu.mig_parent for gpu in gpus if gpu.mig_parent is not None)
    return {
        gpu.uuid: float(not parts[gpu.uuid])
        if gpu.mig_parent is None
        else mig_share(gpu.name) or 1.0 / parts[gpu.mig_parent]
        for gpu in gpus
    }


# Peak FLOP/s per precision, for model FLOPs utilisation (MFU). Dense figures: half of the
# sheet's figures if it gives only figures "with sparsity".

Precision = Literal["fp32", "tf32", "fp16", "bf16", "fp8"]
PRECISIONS: tuple[Precision, ...] = get_args(Precision)


class Peak(Struct, frozen=True):
    """Peak TFLOPS of a product without sparsity.

    ``name`` is a pattern for NVML's. None where the data sheet, a document of NVIDIA, gives no figure. ``fp32`` is
    without tensor cores.
    """

    name: str
    fp32: float
    tf32: float | None
    fp16: float
    bf16: float | None
    fp8: float | None
    source: str


# fmt: off
PEAKS = (
    Peak(r"B200(?: \d+GB)?", 75, 1100, 2250, 2250, 4500, "Blackwell data sheet, HGX B200"),
    Peak(r"GB200", 80, 1250, 2500, 2500, 5000, "Blackwell data sheet, GB200 NVL72"),
    Peak(r"H200 NVL", 60, 417.5, 835.5, 835.5, 1670.5, "H200 Tensor Core GPU data sheet"),
    Peak(r"H200", 67, 494.5, 989.5, 989.5, 1979, "H200 Tensor Core GPU data sheet"),
    Peak(r"GH200 (?:480|144)GB(?: HBM3e)?", 67, 494, 990, 990, 1979, "GH200 Grace Hopper Superchip data sheet"),
    Peak(r"H100 80GB HBM3", 67, 494.5, 989.5, 989.5, 1979, "H100 Tensor Core GPU data sheet"),
    Peak(r"H100 PCIe", 51, 378, 756.5, 756.5, 1513, "H100 Tensor Core GPU data sheet"),
    Peak(r"H100 NVL", 60, 417.5, 835.5, 835.5, 1670.5, "H100 Tensor Core GPU data sheet"),
    Peak(r"A100(-SXM4-[48]0GB|-PCIE-40GB| 80GB PCIe)", 19.5, 156, 312, 312, None, "A100 Tensor Core GPU data sheet"),
    Peak(r"A30", 10.3, 82, 165, 165, None, "A30 data sheet"),
    Peak(r"A40", 37.4, 74.8, 149.7, 149.7, None, "A40 data sheet"),
    Peak(r"A10", 31.2, 62.5, 125, 125, None, "A10 data sheet"),
    Peak(r"L40S", 91.6, 183, 362.05, 362.05, 733, "L40S data sheet"),
    Peak(r"L40", 90.5, 90.5, 181.05, 181.05, 362, "L40 data sheet"),
    Peak(r"L4", 30.3, 60, 121, 121, 242.5, "L4 data sheet"),
    Peak(r"V100-SXM2-(?:16|32)GB(?:-LS)?", 15.7, None, 125, None, None, "V100 data sheet"),
    Peak(r"V100-PCIE-(?:16|32)GB", 14, None, 112, None, None, "V100 data sheet"),
    Peak(r"T4", 8.1, None, 65, None, None, "T4 data sheet"),
)
# fmt: on


class NoPeak(Exception):
    """Why there is no figure, in words."""


def peak_flops(gpu: str, precision: Precision) -> tuple[float, str]:
    """Return peak FLOP/s of a GPU and the data sheet.

    ``gpu`` is the NVML name. Raises NoPeak.
    """
    product = _product(gpu)
    row = next((row for row in PEAKS if re.fullmatch(row.name, product)), None)
    if row is None:
        raise NoPeak(f"no data sheet of {gpu} is known to gputop: give peak_flops")
    tera: float | None = getattr(row, precision)
    if tera is None:
        raise NoPeak(f"the data sheet of {gpu} gives no {precision.upper()} figure")
    return tera * 1e12, f"NVIDIA {row.source}"


# Cards that a job could run on.


class Card(Struct, frozen=True):
    """GPU product by its data sheet, a document of NVIDIA.

    ``name`` is a pattern for NVML's. Memory in GB, bandwidth in GB/s, power in W.
    """

    name: str
    label: str
    memory_gb: float
    gb_per_s: float
    power_w: float
    source: str
    example: str = ""
    """NVML name of the card, if different from the label."""


# fmt: off
CARDS = (
    Card(r"T4", "T4", 16.0, 320, 70, "T4 data sheet"),
    Card(r"V100-SXM2-16GB(?:-LS)?", "V100 16 GB", 16.0, 900, 300, "V100 data sheet", "V100-SXM2-16GB"),
    Card(r"L4", "L4", 24.0, 300, 72, "L4 data sheet"),
    Card(r"A10", "A10", 24.0, 600, 150, "A10 data sheet"),
    Card(r"A100-\w+-40GB", "A100 40 GB", 40.0, 1555, 400, "A100 data sheet", "A100-SXM4-40GB"),
    Card(r"A40", "A40", 48.0, 696, 300, "A40 data sheet"),
    Card(r"L40S", "L40S", 48.0, 864, 350, "L40S data sheet"),
    Card(r"A100-SXM4-80GB", "A100 80 GB", 80.0, 2039, 400, "A100 data sheet", "A100-SXM4-80GB"),
    Card(r"H100 PCIe", "H100 PCIe", 80.0, 2000, 350, "H100 PCIe product brief"),
    Card(r"H100 80GB HBM3", "H100 SXM", 80.0, 3350, 700, "H100 data sheet", "H100 80GB HBM3"),
    Card(r"H200", "H200", 141.0, 4800, 700, "H200 data sheet"),
    Card(r"B200(?: \d+GB)?", "B200", 180.0, 8000, 1000, "HGX B200 data sheet"),
)
# fmt: on
"""Smallest memory first, then least power."""


def _product(name: str) -> str:
    """NVML's name of a GPU without its maker and line."""
    return re.sub(r"^((?:NVIDIA|Tesla)\s+)+", "", name.strip())


def card_of(name: str) -> Card | None:
    """The card with this NVML name, or None."""
    product = _product(name)
    return next((card for card in CARDS if re.fullmatch(card.name, product)), None)


# Requirements of a job on a smaller card.

LEAST_S = 600.0
"""Minimum time for a proposal.

Before ten minutes a job's memory and load are not yet known.
"""
MARGIN = 1.10
"""Factor on the peak of held memory."""
FULL = 0.7
"""Highest mean share of a smaller card's bandwidth and arithmetic.

Bursts need the rest.
"""
_GB, _GIB = 1e9, 2.0**30


class SmallerCard(Struct, frozen=True):
    """Needs of one GPU's job, and the smallest sufficient card.

    ``held_bytes`` is the peak of the memory that was held, ``wanted_bytes`` adds its margin. ``is_fast`` says whether
    the card's bandwidth and tensor cores suffice for the same work in the same time; None if that was not measured.
    ``why`` gives the figures.
    """

    gpu: int
    card: str
    memory_gb: float
    held_bytes: float
    wanted_bytes: float
    is_fast: bool | None
    why: str
    source: str


def smaller_card(
    gpu: int, name: str, held_bytes: float, dram_pct: float | None, tensor_pct: float | None
) -> SmallerCard | None:
    """The smallest card with less memory that fits the job.

    One that keeps up with it, where that was measured; else the smallest that would hold it. None without one, or for a
    card that is not listed.
    """
    present = card_of(name)
    if present is None or held_bytes <= 0.0:
        return None
    wanted_bytes = MARGIN * held_bytes
    holding = [c for c in CARDS if c.memory_gb < present.memory_gb and c.memory_gb * _GB >= wanted_bytes]
    judged = [(card, *_keeps_up(card, present, name, dram_pct, tensor_pct)) for card in holding]
    chosen = next((row for row in judged if row[1]), None) or next(iter(judged), None)
    if chosen is None:
        return None
    card, is_fast, why = chosen
    return SmallerCard(gpu, card.label, card.memory_gb, held_bytes, wanted_bytes, is_fast, why, f"NVIDIA {card.source}")


def _keeps_up(
    card: Card, present: Card, name: str, dram_pct: float | None, tensor_pct: float | None
) -> tuple[bool | None, str]:
    """Return whether a card has enough bandwidth and tensor cores.

    The second value gives the figures in words.
    """
    if dram_pct is None or tensor_pct is None:
        return None, "how fast it would be is not known: DRAM and tensor activity were not measured"
    bandwidth = dram_pct / 100.0 * present.gb_per_s / card.gb_per_s
    words = f"its memory bandwidth would be needed to {100 * bandwidth:.0f} %"
    try:
        has, of = (peak_flops(card_name, "fp16")[0] for card_name in (name, card.example or card.label))
    except NoPeak:
        return None, f"{words}; its tensor cores are not compared"
    tensor = tensor_pct / 100.0 * has / of
    words += f", its tensor cores to {100 * tensor:.0f} %"
    return (bandwidth <= FULL and tensor <= FULL), words


def card_words(smaller: SmallerCard) -> str:
    """A smaller card in words.

    ``GPU 3: at most 18.2 GiB held, 20.0 with a margin of 10 %: a GPU with 24 GB would do (L4; …)``.
    """
    memory_words = (
        f"at most {smaller.held_bytes / _GIB:.1f} GiB held, {smaller.wanted_bytes / _GIB:.1f} with a margin of 10 %"
    )
    would = "would do" if smaller.is_fast else "would hold it"
    slower = ", but be slower" if smaller.is_fast is False else ""
    return (
        f"GPU {smaller.gpu}: {memory_words}: a GPU with {smaller.memory_gb:.0f} GB {would}{slower} "
        f"({smaller.card}, {smaller.source}; {smaller.why})"
    )
