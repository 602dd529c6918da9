"""Which files this process holds open: those of one place, as other tests' may be closed at any moment."""

from __future__ import annotations

import os
from pathlib import Path


def open_below(place: Path) -> list[str]:
    """The files at or below ``place`` that are open, a deleted one as the kernel names it."""
    found = []
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{descriptor}")
        except OSError:
            continue  # that of the listing itself
        if Path(target).is_relative_to(place):
            found.append(target)
    return found
