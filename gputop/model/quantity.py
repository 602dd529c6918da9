"""Format quantities, and parse those that people type.

A formatter with a ``width`` right-aligns its text for a column. A missing value is "n/a".
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, TypeGuard, TypeVar

NOT_MEASURED = "n/a"
GIB = 2.0**30
HOUR_S = 3600.0
SECONDS: Mapping[str, float] = {
    "": 1.0,
    "s": 1.0,
    "m": 60.0,
    "min": 60.0,
    "h": HOUR_S,
    "d": 86400.0,
}
"""Seconds in a typed unit of time."""
BINARY: Mapping[str, float] = {"": 1.0, "k": 2.0**10, "m": 2.0**20, "g": 2.0**30, "t": 2.0**40}
"""Bytes in a typed unit of size, as memory is counted."""
DECIMAL: Mapping[str, float] = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}
"""Bytes a second in a typed unit of traffic."""
_PREFIXES = ("", "k", "M", "G", "T")


_T = TypeVar("_T")


def known(values: Iterable[_T | None]) -> list[_T]:
    """The measured values."""
    return [value for value in values if value is not None]


def mean(values: Iterable[float | None]) -> float | None:
    """The mean of the measured values; None without any."""
    measured = known(values)
    return sum(measured) / len(measured) if measured else None


def number(value: float | None, width: int = 0, decimals: int = 0) -> str:
    """A number without its unit."""
    if value is None:
        return NOT_MEASURED.rjust(width)
    return f"{value:>{width}.{decimals}f}" if decimals else f"{round(value):>{width}}"


def pct(value: float | None) -> str:
    """A percentage: ``37 %``, ``0.4 %``."""
    if value is None:
        return NOT_MEASURED
    return f"{value:.1f} %" if 0.0 < value < 1.0 else f"{value:.0f} %"


def share(value: float | None) -> str:
    """A share from 0 to 1 in percent."""
    return NOT_MEASURED if value is None else f"{100.0 * value:.0f} %"


def clamp_pct(value: float | None) -> float | None:
    """A percentage capped at 100 for display.

    Two counters read in a burst may give 115, which data outputs keep.
    """
    return None if value is None else min(100.0, value)


def mfu_words(value: float) -> str:
    """Model FLOPs utilisation: ``MFU 41 %``.

    Above 100 % the FLOPs of a step or the peak are wrong, which is said in its place.
    """
    if value > 100.0:
        return f"MFU n/a ({value:.0f} % is impossible: check the FLOPs of a step)"
    return f"MFU {value:.{0 if value >= 9.5 else 1}f} %"


def numbers(values: Iterable[int]) -> str:
    """Sorted numbers with ranges: ``0, 2-5, 7``."""
    runs: list[list[int]] = []
    for value in sorted(set(values)):
        if runs and value == runs[-1][-1] + 1:
            runs[-1].append(value)
        else:
            runs.append([value])
    parts = [
        [f"{run[0]}-{run[-1]}"] if len(run) > 2 else [str(value) for value in run] for run in runs
    ]
    return ", ".join(part for group in parts for part in group)


def which_gpus(indices: Iterable[int]) -> str:
    """``GPU 3``, ``GPUs 0-7``."""
    distinct = set(indices)
    return f"GPU{'s' * (len(distinct) > 1)} {numbers(distinct)}"


def count(number: int, noun: str) -> str:
    """``1 frame``, ``2 frames``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def kinds(names: Iterable[str]) -> str:
    """``7 × H100, 1 × T4``; empty for none."""
    return ", ".join(f"{times} × {name}" for name, times in Counter(names).items())


def gib(value: float | None, width: int = 0) -> str:
    """Bytes as GiB with one decimal, without the unit."""
    return number(None if value is None else value / GIB, width, 1)


def memory(value: float | None) -> str:
    """Bytes of device memory in GiB: ``58 GiB``, ``1.5 GiB``."""
    return NOT_MEASURED if value is None else f"{value / GIB:.{0 if value >= 10 * GIB else 1}f} GiB"


def memory_size(value: float) -> str:
    """Format bytes of device memory like PyTorch: ``51.0 GiB``."""
    number, prefix = _scaled(value, 1024.0)
    return f"{number:.{1 if prefix in ('G', 'T') else 0}f} {prefix.upper()}{'i' if prefix else ''}B"


_BINARY = ("B", "K", "M", "G", "T", "P")


def size(value: float | None, width: int = 0) -> str:
    """Bytes in htop's form: ``58.1 G``; ``–`` for none."""
    if value is None:
        return f"{'–':>{width}}"
    number, unit = value, 0
    while number >= 999.5 and unit < len(_BINARY) - 1:
        number /= 1024
        unit += 1
    text = f"{number:.0f} B" if unit == 0 else f"{number:.1f} {_BINARY[unit]}"
    return f"{text:>{width}}"


def file_size(size: float) -> str:
    """Format a file's size in decimal units: ``1.2 MB``."""
    number, prefix = _scaled(size, 1000.0)
    return f"{number:.{1 if prefix in ('M', 'G', 'T') and number < 99.95 else 0}f} {prefix}B"


def rate(value: float | None, width: int = 0) -> str:
    """Bytes a second: ``1.1 GB/s``, ``456 MB/s``, ``12 kB/s``."""
    return f"{NOT_MEASURED if value is None else f'{file_size(value)}/s':>{width}}"


def gb_per_s(value: float | None, width: int = 0) -> str:
    """Bytes a second as whole GB/s, without the unit."""
    return number(None if value is None else value / 1e9, width)


def _scaled(value: float, base: float) -> tuple[float, str]:
    """A value in the largest unit that it fills."""
    power = 0
    while abs(value) >= base - 0.5 and power < len(_PREFIXES) - 1:
        value /= base
        power += 1
    return value, _PREFIXES[power]


def is_number(value: object) -> TypeGuard[float]:
    """Return whether a value is a number that fits a float."""
    return (
        isinstance(value, (int, float))
        and not isinstance(value, bool)
        and abs(value) <= sys.float_info.max
    )


def rounded(data: Any, digits: int) -> Any:
    """Round all floats in data for JSON; NaN becomes null."""
    if isinstance(data, float):
        return round(data, digits) if math.isfinite(data) else None
    if isinstance(data, dict):
        return {key: rounded(value, digits) for key, value in data.items()}
    return [rounded(value, digits) for value in data] if isinstance(data, (list, tuple)) else data
