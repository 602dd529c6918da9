"""Format quantities, and parse those that people type.

A formatter with a ``width`` right-aligns its text for a column. A missing value is "n/a".
"""

from __future__ import annotations

import math
import re
import sys
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, TypeGuard, TypeVar

from gputop.model.bounds import MOST_TEXT
from gputop.model.metrics import Unit

NOT_MEASURED = "n/a"
GIB = 2.0**30
HOUR_S = 3600.0
SECONDS: Mapping[str, float] = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": HOUR_S, "d": 86400.0}
"""Seconds in a typed unit of time."""
BINARY: Mapping[str, float] = {"": 1.0, "k": 2.0**10, "m": 2.0**20, "g": 2.0**30, "t": 2.0**40}
"""Bytes in a typed unit of size, as memory is counted."""
DECIMAL: Mapping[str, float] = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}
"""Bytes a second in a typed unit of traffic."""
_TYPED = r"(\d{1,18}(?:\.\d{1,9})?|\.\d{1,9})\s*([A-Za-z%/]*)"
"""Compiled when a number is typed: the first frame does not wait for it."""
_TRUTHS: Mapping[str, float] = {"yes": 1.0, "true": 1.0, "1": 1.0, "no": 0.0, "false": 0.0, "0": 0.0}
_PREFIXES = ("", "k", "M", "G", "T")


_T = TypeVar("_T")


def known(values: Iterable[_T | None]) -> list[_T]:
    """The measured values."""
    return [value for value in values if value is not None]


def mean(values: Iterable[float | None]) -> float | None:
    """The mean of the measured values; None without any."""
    measured = known(values)
    return sum(measured) / len(measured) if measured else None


# Plain numbers, percentages and counts.


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

    Above 100 % it is wrong, which is said in its place.
    """
    if value > 100.0:
        return f"MFU n/a ({value:.0f} % cannot be)"
    return f"MFU {value:.{0 if value >= 9.5 else 1}f} %"


def numbers(values: Iterable[int]) -> str:
    """Sorted numbers with ranges: ``0, 2-5, 7``."""
    runs: list[list[int]] = []
    for value in sorted(set(values)):
        if runs and value == runs[-1][-1] + 1:
            runs[-1].append(value)
        else:
            runs.append([value])
    parts = [[f"{run[0]}-{run[-1]}"] if len(run) > 2 else [str(value) for value in run] for run in runs]
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


# Bytes, and bytes a second.


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


# Times.


def seconds(value: float) -> str:
    """Format a short time: ``0.25 s``, ``12.3 s``."""
    return f"{value:.1f} s" if value >= 0.995 else f"{value:.2f}".rstrip("0").rstrip(".") + " s"


def step_time(value: float) -> str:
    """A step time: ``0.52 ms``, ``41.2 ms``, ``3.42 s``."""
    scaled, unit = (value, "s") if value >= 0.9995 else (1000.0 * value, "ms")
    return f"{scaled:.{2 if scaled < 9.995 else 1 if scaled < 99.95 else 0}f} {unit}"


def per_second(value: float) -> str:
    """Format a step rate without its unit: ``0.71``, ``124``."""
    return f"{value:.{0 if value >= 99.5 else 1 if value >= 0.995 else 2 if value >= 0.0995 else 3}f}"


def duration(seconds: float, *, whole: bool = False) -> str:
    """Format a duration in one unit: ``90 s``, ``1.5 min``.

    A ``whole`` one has no decimals, so that it seldom changes.
    """
    unit = _unit(seconds)
    return f"{seconds / _SECONDS_IN[unit]:.0f} {unit}" if whole else f"{_in_unit(seconds, unit, seconds)} {unit}"


def duration_of(part_s: float, whole_s: float, *, whole: bool = False) -> str:
    """Part of a duration: ``8 of 13 min``.

    Both are in the unit of the whole; a part that rounds to 0 is left out.
    """
    unit = _unit(whole_s)
    least_s = min(part_s, whole_s)
    part = f"{least_s / _SECONDS_IN[unit]:.0f}" if whole else _in_unit(least_s, unit, whole_s)
    of_whole = duration(whole_s, whole=whole)
    return of_whole if part == "0" else f"{part} of {of_whole}"


_SECONDS_IN = {"s": 1.0, "min": 60.0, "h": HOUR_S}


def _unit(seconds: float) -> str:
    return "s" if round(seconds) <= 90 else "min" if round(seconds / 60.0) < 120 else "h"


def _in_unit(seconds: float, unit: str, precision_of: float) -> str:
    """Seconds in a unit, with the decimals of ``precision_of``."""
    has_decimal = precision_of < {"s": 0.0, "min": 597.0, "h": 99.95 * HOUR_S}[unit]
    return f"{seconds / _SECONDS_IN[unit]:.{int(has_decimal)}f}".removesuffix(".0")


def length(seconds: float) -> str:
    """Format a duration in two units: ``12 min 3 s``."""
    if 0.0 < seconds < 0.995:
        return f"{seconds:.2f}".rstrip("0").rstrip(".") + " s"
    if (whole := round(seconds)) < 60:
        return f"{whole} s"
    if whole < HOUR_S:
        return f"{whole // 60} min {whole % 60} s"
    minutes = round(seconds / 60.0)
    return f"{minutes // 60} h {minutes % 60} min"


def elapsed(seconds: float | None, width: int = 0) -> str:
    """An age in htop's form: ``0:41:10``, ``12:09:10``, ``5d 02h``."""
    if seconds is None:
        return f"{NOT_MEASURED:>{width}}"
    hours, rest = divmod(max(0, int(seconds)), 3600)
    text = f"{hours}:{rest // 60:02d}:{rest % 60:02d}" if hours < 100 else f"{hours // 24}d {hours % 24:02d}h"
    return f"{text:>{width}}"


def age(seconds: float | None, width: int = 0) -> str:
    """An age in whole minutes: ``41m``, ``3h 12m``, ``5d 02h``."""
    if seconds is None:
        return f"{NOT_MEASURED:>{width}}"
    minutes = max(0, int(seconds)) // 60
    hours = minutes // 60
    text = f"{minutes}m" if hours < 1 else f"{hours}h {minutes % 60:02d}m" if hours < 100 else ""
    return f"{text or f'{hours // 24}d {hours % 24:02d}h':>{width}}"


def clock_time(t: float, utc_offset_s: float) -> str:
    """Unix time as ``12:03:41`` at an offset from UTC."""
    second = int(t + utc_offset_s) % 86400
    return f"{second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}"


# Energy, and time of several GPUs together.

_ENERGY = {"kWh": 1.0, "Wh": 1e-3, "J": 1.0 / 3.6e6}


def energy_words(kwh: float, largest_kwh: float | None = None) -> str:
    """Energy: ``1.23 kWh``, ``45.6 Wh``, ``214 J``.

    The unit suits ``largest_kwh``, the largest of a column.
    """
    largest = kwh if largest_kwh is None else largest_kwh
    unit = "kWh" if largest >= 1.0 else "Wh" if largest >= 1e-3 else "J"
    decimals = {"kWh": 2 if largest < 100.0 else 0, "Wh": 1, "J": 0}[unit]
    return f"{kwh / _ENERGY[unit]:.{decimals}f} {unit}"


LEAST_GPU_H = 0.5
"""GPU time is in seconds where the whole is shorter than this."""


def gpu_time(seconds: float, whole_s: float | None = None) -> str:
    """Time of several GPUs: ``2.25 GPU-h``, ``98 GPU-s``.

    The unit suits the whole.
    """
    in_seconds = (seconds if whole_s is None else whole_s) < LEAST_GPU_H * HOUR_S
    least, amount = (1.0, f"{seconds:.0f}") if in_seconds else (0.01, f"{seconds / HOUR_S:.2f}")
    is_tiny = 0.0 < seconds < least / 2 * (1.0 if in_seconds else HOUR_S)
    return f"{f'< {least:g}' if is_tiny else amount} GPU-{'s' if in_seconds else 'h'}"


def typed_number(text: str, unit: Unit) -> float:
    """Parse a number as typed: ``10G``, ``90s``, ``20%``, ``yes``.

    ``unit`` is the metric's. Raises ValueError with the reason.
    """
    if unit == "bool":
        if text.lower() not in _TRUTHS:
            raise ValueError(f"{text or 'nothing'} is neither yes nor no")
        return _TRUTHS[text.lower()]
    match = re.fullmatch(_TYPED, text)
    if match is None:
        raise ValueError(f"{text or 'nothing'} is not a number")
    number, typed = float(match[1]), match[2].lower()
    factors: Mapping[str, float]
    if unit in ("bytes", "bytes/s"):
        factors = BINARY if unit == "bytes" else DECIMAL
        typed = typed.removesuffix("/s").removesuffix("b").removesuffix("i")
        example = "10G" if unit == "bytes" else "10M"
        if not match[2] and number:
            raise ValueError(f"{text} of what? write {text}G, {text}M, {text}K or {text}B")
    elif unit == "s":
        factors, example = SECONDS, "90s, 10m, 2h or 1d"
    else:
        factors, example = {"": 1.0, **({"%": 1.0} if unit == "pct" else {})}, "50"
    if typed not in factors:
        raise ValueError(f"{match[2]} is not a unit here: write {example}")
    return number * factors[typed]


# Text from outside, made harmless: ``clean_text`` where it enters as data, ``terminal_safe`` before it is shown.
# And prose of our own in lines: ``wrapped``.
#
# Process names, command lines, reasons of a driver and recordings may hold anything. As data they keep every letter of
# every script; a terminal, which needs each cell at its expected position, allows less.

# ``re`` compiles and caches them on first use. Few texts need them, so the start does not wait for compilation.
_SPACES = r"[\t\n\v\f\r]"
_UNPRINTABLE = "[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"


def clean_text(text: str) -> str:
    """Clean a text from outside to one line.

    At most 4096 characters; control, escape, direction and half characters become ``?``.
    """
    if text.isascii() and text.isprintable() and len(text) <= MOST_TEXT:
        return text
    return re.sub(_UNPRINTABLE, "?", re.sub(_SPACES, " ", text[:MOST_TEXT]))


def is_terminal_safe(char: str) -> bool:
    """Whether a character may reach a terminal.

    It is printable, not combining, not right-to-left, not private.
    """
    category = unicodedata.category(char)
    if category[0] in "CM" or (category[0] == "Z" and char != " "):
        return False
    return unicodedata.bidirectional(char) not in ("R", "AL", "AN", "RLE", "RLO", "RLI", "LRE", "LRO", "LRI")


@lru_cache(maxsize=512)
def terminal_safe(text: str) -> str:
    """Make a text safe for a terminal.

    Control, escape, combining and right-to-left characters become ``·``.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(char if is_terminal_safe(char) else " " if char.isspace() else "·" for char in text)


def csv_cell(value: object) -> object:
    """A cell of a CSV file.

    None is empty, and no text is a formula, which a spreadsheet would run.
    """
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r"):
        return f"'{value}"
    return "" if value is None else value


def is_number(value: object) -> TypeGuard[float]:
    """Return whether a value is a number that fits a float."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def error_words(error: BaseException) -> str:
    """Name and first line of a foreign exception."""
    lines = str(error).strip().splitlines()
    return clean_text(f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__)


def wrapped(text: str, width: int, first: str = "", further: str = "", *, whole_words: bool = False) -> list[str]:
    """Wrap prose to lines of ``width`` characters; none if empty.

    Options and names are not broken at their hyphens. The first line begins with ``first``, the others with
    ``further``. ``whole_words`` are longer than a line rather than broken.
    """
    # Imported late: the first frame seldom needs the module.
    from textwrap import wrap

    return wrap(
        text,
        width,
        initial_indent=first,
        subsequent_indent=further,
        break_long_words=not whole_words,
        break_on_hyphens=False,
    )


def rounded(data: Any, digits: int) -> Any:
    """Round all floats in data for JSON; NaN becomes null."""
    if isinstance(data, float):
        return round(data, digits) if math.isfinite(data) else None
    if isinstance(data, dict):
        return {key: rounded(value, digits) for key, value in data.items()}
    return [rounded(value, digits) for value in data] if isinstance(data, (list, tuple)) else data
