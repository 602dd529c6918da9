"""How much memory a process takes. Resident memory counts pages that others share; private memory does not."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Memory:
    """Megabytes (10⁶). ``peak_mb`` is the most that was ever resident, ``pss_mb`` shares shared pages out evenly,
    ``private_mb`` (USS) is what would be free without the process. None: the kernel does not say."""

    peak_mb: float | None
    rss_mb: float | None
    pss_mb: float | None
    private_mb: float | None


def memory_of(pids: Sequence[int], proc: str = "/proc") -> Memory:
    """The memory of some processes together now. Raises OSError when one is gone."""
    status = "".join(Path(proc, str(pid), "status").read_text() for pid in pids)
    try:
        rollup = "".join(Path(proc, str(pid), "smaps_rollup").read_text() for pid in pids)
    except OSError:
        # Linux before 4.14, or another user's process.
        rollup = ""
    return Memory(_sum(status, "VmHWM"), _sum(status, "VmRSS"), _sum(rollup, "Pss"), _sum(rollup, r"Private_\w+"))


def _sum(text: str, name: str) -> float | None:
    found = re.findall(rf"^{name}:\s+(\d+) kB$", text, re.MULTILINE)
    return 1024 * sum(int(kib) for kib in found) / 1e6 if found else None
