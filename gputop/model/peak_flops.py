"""Peak FLOP/s by card and precision, for model FLOPs utilisation (MFU).

Dense figures: half of the sheet's figures where it gives those with sparsity.
"""

from __future__ import annotations

import re
from typing import Literal, get_args

from msgspec import Struct

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
    product = product_of(gpu)
    row = next((row for row in PEAKS if re.fullmatch(row.name, product)), None)
    if row is None:
        raise NoPeak(f"no data sheet of {gpu} is known to gputop: give peak_flops")
    tera: float | None = getattr(row, precision)
    if tera is None:
        raise NoPeak(f"the data sheet of {gpu} gives no {precision.upper()} figure")
    return tera * 1e12, f"NVIDIA {row.source}"


def product_of(name: str) -> str:
    """NVML's name of a GPU without its maker and line."""
    return re.sub(r"^((?:NVIDIA|Tesla)\s+)+", "", name.strip())
