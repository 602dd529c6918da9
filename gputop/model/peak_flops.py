"""Peak FLOP/s of GPUs per precision, from NVIDIA's data sheets, for model FLOPs utilisation (MFU).

Dense figures: where a sheet gives those "with sparsity" alone, half of them. Each row names the
document that it is from. A GPU that is not listed has no figure: a guess would give a guessed utilisation.
"""

from __future__ import annotations

import re
from typing import Literal

from msgspec import Struct

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
