"""What a card can do and what an hour of it costs, by its data sheet and a public list.

Few rows, each with its document. A card that is not listed has no figure and no price, and is never proposed: a guess
would give a guessed utilisation.
"""

from __future__ import annotations

import re
from typing import Literal

from msgspec import Struct

SLICES, OF_FOUR = 7, ("A30", "RTX PRO 6000")
"""Slices of compute that MIG makes of a card, and the cards of which it makes four: NVIDIA MIG User Guide, supported
profiles."""


def mig_share(name: str) -> float | None:
    """The part of its card's slices that a MIG instance has, by product and profile in its name: ``3g.40gb`` is 3 of 7;
    None where its name has no profile."""
    profile = re.search(r"(?:^|\s)(?:\dc\.)?(\d)g\.\d+gb", name)
    return int(profile[1]) / (4 if any(card in name for card in OF_FOUR) else SLICES) if profile else None


# Peak FLOP/s per precision, for model FLOPs utilisation (MFU). Dense figures: where a sheet gives those "with sparsity"
# alone, half of them.

Precision = Literal["fp32", "tf32", "fp16", "bf16", "fp8"]
PRECISIONS: tuple[Precision, ...] = ("fp32", "tf32", "fp16", "bf16", "fp8")
_TERA = 1e12


class Peak(Struct, frozen=True):
    """One product: TFLOPS without sparsity, None where its data sheet gives none. ``fp32`` is without tensor cores."""

    name: str
    fp32: float | None
    tf32: float | None
    fp16: float | None
    bf16: float | None
    fp8: float | None
    source: str


_H100 = "NVIDIA H100 Tensor Core GPU data sheet"
_H200 = "NVIDIA H200 Tensor Core GPU data sheet"
_A100 = "NVIDIA A100 Tensor Core GPU data sheet"
_BLACKWELL = "NVIDIA Blackwell data sheet"
_GH200 = "NVIDIA GH200 Grace Hopper Superchip data sheet"
# fmt: off
PEAKS = (
    #     name as NVML has it              fp32  tf32    fp16    bf16    fp8
    Peak(r"B200(?: \d+GB)?",               75.0, 1100.0, 2250.0, 2250.0, 4500.0, f"{_BLACKWELL}, HGX B200"),
    Peak(r"GB200",                         80.0, 1250.0, 2500.0, 2500.0, 5000.0, f"{_BLACKWELL}, GB200 NVL72"),
    Peak(r"H200 NVL",                      60.0, 417.5,  835.5,  835.5,  1670.5, _H200),
    Peak(r"H200",                          67.0, 494.5,  989.5,  989.5,  1979.0, _H200),
    Peak(r"GH200 (?:480|144)GB(?: HBM3e)?", 67.0, 494.0, 990.0,  990.0,  1979.0, _GH200),
    Peak(r"H100 80GB HBM3",                67.0, 494.5,  989.5,  989.5,  1979.0, _H100),
    Peak(r"H100 PCIe",                     51.0, 378.0,  756.5,  756.5,  1513.0, _H100),
    Peak(r"H100 NVL",                      60.0, 417.5,  835.5,  835.5,  1670.5, _H100),
    Peak(r"A100(?:-SXM4-[48]0GB|-PCIE-40GB| 80GB PCIe)", 19.5, 156.0, 312.0, 312.0, None, _A100),
    Peak(r"A30",                           10.3, 82.0,   165.0,  165.0,  None,   "NVIDIA A30 data sheet"),
    Peak(r"A40",                           37.4, 74.8,   149.7,  149.7,  None,   "NVIDIA A40 data sheet"),
    Peak(r"A10",                           31.2, 62.5,   125.0,  125.0,  None,   "NVIDIA A10 data sheet"),
    Peak(r"L40S",                          91.6, 183.0,  362.05, 362.05, 733.0,  "NVIDIA L40S data sheet"),
    Peak(r"L40",                           90.5, 90.5,   181.05, 181.05, 362.0,  "NVIDIA L40 data sheet"),
    Peak(r"L4",                            30.3, 60.0,   121.0,  121.0,  242.5,  "NVIDIA L4 data sheet"),
    Peak(r"V100-SXM2-(?:16|32)GB(?:-LS)?", 15.7, None,   125.0,  None,   None,   "NVIDIA V100 data sheet"),
    Peak(r"V100-PCIE-(?:16|32)GB",         14.0, None,   112.0,  None,   None,   "NVIDIA V100 data sheet"),
    Peak(r"T4",                            8.1,  None,   65.0,   None,   None,   "NVIDIA T4 data sheet"),
)
# fmt: on


class NoPeak(Exception):
    """Why there is no figure, in words."""


def peak_flops(gpu: str, precision: Precision) -> tuple[float, str]:
    """FLOP/s of one GPU by its NVML name, and the data sheet. Raises NoPeak."""
    product = re.sub(r"^(?:NVIDIA|Tesla)\s+", "", gpu.strip())
    row = next((row for row in PEAKS if re.fullmatch(row.name, product)), None)
    if row is None:
        raise NoPeak(f"no data sheet of {gpu} is known to gputop: give peak_flops")
    tera: float | None = getattr(row, precision)
    if tera is None:
        raise NoPeak(f"the data sheet of {gpu} gives no {precision.upper()} figure")
    return tera * _TERA, row.source


# Cards that a job could run on, and what an hour of one costs by a public list.

Price = float | Literal["list"]
"""The user's price of a GPU-hour, or the list's."""
LIST_PRICE: Literal["list"] = "list"
LIST_SOURCE = "Lambda's on-demand list, lambda.ai/instances, read 2026-09-20, USD without tax"


class Card(Struct, frozen=True):
    """One product. Memory in GB as its sheet has it, bandwidth in GB/s, board power in W, ``source`` the document.

    ``list_usd`` is the price of one GPU-hour in ``LIST_SOURCE``, in instances of the smallest size that has this card.
    """

    name: str
    label: str
    memory_gb: float
    bandwidth_gb_per_s: float
    power_w: float
    source: str
    list_usd: float | None = None
    example: str = ""
    """An NVML name of it, where that is not its label."""


# fmt: off
CARDS = (
    # name as NVML has it, label, GB, GB/s, W, source, list price
    Card(r"T4", "T4", 16.0, 320.0, 70.0, "NVIDIA T4 data sheet"),
    Card(r"V100-SXM2-16GB(?:-LS)?", "V100 16 GB", 16.0, 900.0, 300.0, "NVIDIA V100 data sheet", 0.79, "V100-SXM2-16GB"),
    Card(r"L4", "L4", 24.0, 300.0, 72.0, "NVIDIA L4 data sheet"),
    Card(r"A10", "A10", 24.0, 600.0, 150.0, "NVIDIA A10 data sheet", 1.29),
    Card(r"A100-\w+-40GB", "A100 40 GB", 40.0, 1555.0, 400.0, "NVIDIA A100 data sheet", 1.99, "A100-SXM4-40GB"),
    Card(r"A40", "A40", 48.0, 696.0, 300.0, "NVIDIA A40 data sheet"),
    Card(r"L40S", "L40S", 48.0, 864.0, 350.0, "NVIDIA L40S data sheet"),
    Card(r"A100-SXM4-80GB", "A100 80 GB", 80.0, 2039.0, 400.0, "NVIDIA A100 data sheet", 2.79, "A100-SXM4-80GB"),
    Card(r"H100 PCIe", "H100 PCIe", 80.0, 2000.0, 350.0, "NVIDIA H100 PCIe product brief", 3.29),
    Card(r"H100 80GB HBM3", "H100 SXM", 80.0, 3350.0, 700.0, "NVIDIA H100 data sheet", 4.29, "H100 80GB HBM3"),
    Card(r"H200", "H200", 141.0, 4800.0, 700.0, "NVIDIA H200 data sheet"),
    Card(r"B200(?: \d+GB)?", "B200", 180.0, 8000.0, 1000.0, "NVIDIA HGX B200 data sheet", 6.99),
)
# fmt: on
"""Smallest memory first, then least power."""


def card_of(name: str) -> Card | None:
    """The card with this NVML name; None where it is not listed."""
    product = re.sub(r"^(?:NVIDIA|Tesla)\s+", "", re.sub(r"^(?:NVIDIA|Tesla)\s+", "", name.strip()))
    return next((card for card in CARDS if re.fullmatch(card.name, product)), None)


def own_price(price: Price | None) -> float | None:
    """The user's own price of a GPU-hour; None where there is none, or the list's is asked for."""
    return None if price is None or isinstance(price, str) else price or None


def price_of(price: Price | None, name: str) -> float | None:
    """What a GPU-hour of this card costs; None where no money is asked for, or the list has no such card."""
    if price != LIST_PRICE:
        return own_price(price)
    card = card_of(name)
    return None if card is None else card.list_usd


# What a smaller card would have to hold and do for a job.

LEAST_S = 600.0
"""Below ten minutes nothing is said: a job's memory and load are not yet seen."""
MARGIN = 1.10
"""On the most memory that was held."""
FULL = 0.7
"""A smaller card's bandwidth and arithmetic may be needed to this share on average: bursts need the rest."""
_GB, _GIB = 1e9, 2.0**30


class SmallerCard(Struct, frozen=True):
    """What one GPU of a recording would have needed, and the smallest card that has it.

    ``held_bytes`` is the most that was held, ``wanted_bytes`` that with its margin. ``is_fast`` says whether the card's
    bandwidth and tensor cores would have done the same work in the same time; None where that was not measured, and
    ``why`` says what is known of it. ``list_saving`` is the difference of both cards' list prices of an hour.
    """

    gpu: int
    card: str
    memory_gb: float
    held_bytes: float
    wanted_bytes: float
    is_fast: bool | None
    why: str
    source: str
    list_saving: float | None = None


def smaller_card(
    gpu: int, name: str, held_bytes: float, dram_pct: float | None, tensor_pct: float | None
) -> SmallerCard | None:
    """The smallest card with less memory than this one that would hold the job and, where measured, keep up with it;
    else the smallest that would hold it. None where there is none, or this card is not listed."""
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
    saving = None if present.list_usd is None or card.list_usd is None else present.list_usd - card.list_usd
    return SmallerCard(
        gpu, card.label, card.memory_gb, held_bytes, wanted_bytes, is_fast, why, card.source,
        saving if saving is not None and saving > 0.0 else None,
    )  # fmt: skip


def _keeps_up(
    card: Card, present: Card, name: str, dram_pct: float | None, tensor_pct: float | None
) -> tuple[bool | None, str]:
    """Whether the means of bandwidth and tensor work fit into a card, and in words what they would take of it."""
    if dram_pct is None or tensor_pct is None:
        return None, "how fast it would be is not known: DRAM and tensor activity were not measured"
    bandwidth = dram_pct / 100.0 * present.bandwidth_gb_per_s / card.bandwidth_gb_per_s
    words = f"its memory bandwidth would be needed to {100 * bandwidth:.0f} %"
    try:
        has, of = (peak_flops(card_name, "fp16")[0] for card_name in (name, card.example or card.label))
    except NoPeak:
        return None, f"{words}; its tensor cores are not compared"
    tensor = tensor_pct / 100.0 * has / of
    words += f", its tensor cores to {100 * tensor:.0f} %"
    return (bandwidth <= FULL and tensor <= FULL), words


def card_words(smaller: SmallerCard, price: Price | None = None) -> str:
    """``GPU 3: at most 18.2 GiB held, 20.0 with a margin of 10 %: a GPU with 24 GB would do (L4; …)``."""
    memory_words = (
        f"at most {smaller.held_bytes / _GIB:.1f} GiB held, {smaller.wanted_bytes / _GIB:.1f} with a margin of 10 %"
    )
    would = "would do" if smaller.is_fast else "would hold it"
    slower = ", but be slower" if smaller.is_fast is False else ""
    by_list = price == LIST_PRICE and smaller.list_saving is not None
    saving = f"; {smaller.list_saving:.2f} USD less an hour by list" if by_list else ""
    return (
        f"GPU {smaller.gpu}: {memory_words}: a GPU with {smaller.memory_gb:.0f} GB {would}{slower} "
        f"({smaller.card}, {smaller.source}; {smaller.why}{saving})"
    )
