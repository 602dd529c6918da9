"""Waiting for what another thread or program does."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path


def until(holds: Callable[[], bool], limit_s: float = 60.0) -> None:
    """Return as soon as ``holds`` does; fails after the limit, which only a hang reaches."""
    end = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.002)


def has_ended(pid: int) -> bool:
    """Whether no such process runs, a zombie counted as ended."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state == "Z"
