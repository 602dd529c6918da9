"""Times in words: seconds, lengths, ages, times of the day; energy and GPU time."""

from __future__ import annotations

from gputop.model.quantity import HOUR_S, NOT_MEASURED


def seconds(value: float) -> str:
    """Format a short time: ``0.25 s``, ``12.3 s``."""
    return f"{value:.1f} s" if value >= 0.995 else f"{value:.2f}".rstrip("0").rstrip(".") + " s"


def step_time(value: float) -> str:
    """A step time: ``0.52 ms``, ``41.2 ms``, ``3.42 s``."""
    scaled, unit = (value, "s") if value >= 0.9995 else (1000.0 * value, "ms")
    return f"{scaled:.{2 if scaled < 9.995 else 1 if scaled < 99.95 else 0}f} {unit}"


def per_second(value: float) -> str:
    """Format a step rate without its unit: ``0.71``, ``124``."""
    return (
        f"{value:.{0 if value >= 99.5 else 1 if value >= 0.995 else 2 if value >= 0.0995 else 3}f}"
    )


def duration(seconds: float, *, whole: bool = False) -> str:
    """Format a duration in one unit: ``90 s``, ``1.5 min``.

    A ``whole`` one has no decimals, so that it seldom changes.
    """
    unit = _unit(seconds)
    return (
        f"{seconds / _SECONDS_IN[unit]:.0f} {unit}"
        if whole
        else f"{_in_unit(seconds, unit, seconds)} {unit}"
    )


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
    text = (
        f"{hours}:{rest // 60:02d}:{rest % 60:02d}"
        if hours < 100
        else f"{hours // 24}d {hours % 24:02d}h"
    )
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
