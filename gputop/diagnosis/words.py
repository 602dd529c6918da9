"""Numbers in words, for evidence: one way to write a share, a rate, an amount and a time."""

from __future__ import annotations


def share(value: float | None) -> str:
    """A share 0–1 in percent."""
    return "n/a" if value is None else f"{100.0 * value:.0f} %"


def pct(value: float | None) -> str:
    """A percentage."""
    if value is None:
        return "n/a"
    return f"{value:.1f} %" if 0.0 < value < 1.0 else f"{value:.0f} %"


def rate(value: float | None) -> str:
    """Bytes per second."""
    if value is None:
        return "n/a"
    return f"{value / 1e9:.1f} GB/s" if value >= 1e9 else f"{value / 1e6:.0f} MB/s"


def amount(value: float) -> str:
    """Bytes of device memory, in GiB as the drivers' tools count them."""
    return f"{value / 2**30:.0f} GiB" if value >= 10 * 2**30 else f"{value / 2**30:.1f} GiB"


def duration(seconds: float) -> str:
    """A time span: seconds up to a minute and a half, then minutes, then hours."""
    if seconds < 90.0:
        return f"{seconds:.0f} s"
    if seconds < 120 * 60.0:
        return f"{int(seconds / 60.0)} min"
    return f"{seconds / 3600.0:.1f} h"
