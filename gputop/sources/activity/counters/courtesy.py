"""When the counters are left to others: profilers and DCGM, which need the same unit, and a laptop on battery."""

from __future__ import annotations

import os
from pathlib import Path
from time import CLOCK_BOOTTIME, CLOCK_MONOTONIC, clock_gettime

NAMES = frozenset((
    "ncu", "ncu-ui", "nv-nsight-cu-cli", "nsys", "nsys-ui", "nsys-launcher", "nv-hostengine", "dcgm-exporter",
    "dcgmproftester",
))  # fmt: skip
"""Programs that use the profiling unit, by the name that the kernel keeps, of at most 15 characters."""
ALL_AGAIN_S = 30.0
"""How often every process is checked, since one may have become another program; in between only new ones are."""
BATTERY_S = 30.0
SUSPENDED_S = 1.0
_YOUNG_LOOKS = 3


class Others:
    """Who else may want the counters. Each look costs one directory listing."""

    def __init__(self, proc: str = "/proc", power: str = "/sys/class/power_supply") -> None:
        self._proc, self._power = proc, power
        self._looked: dict[str, int] = {}
        self._named: dict[str, str] = {}
        self._all_at = self._battery_at = float("-inf")
        self._on_battery = False
        self._asleep_s = _asleep_s()

    def who(self, now: float) -> str | None:
        """The reason to leave the counters alone now, or None."""
        names = sorted(set(self._programs(now)))
        if names:
            return f"left to {', '.join(names)}, which needs the same counters"
        if now - self._battery_at >= BATTERY_S:
            self._battery_at, self._on_battery = now, _discharges(self._power)
        return "not on battery" if self._on_battery else None

    def slept(self) -> bool:
        """Whether the machine was suspended since the last question."""
        before, self._asleep_s = self._asleep_s, _asleep_s()
        return self._asleep_s - before > SUSPENDED_S

    def _programs(self, now: float) -> list[str]:
        if now - self._all_at >= ALL_AGAIN_S:
            self._all_at = now
            self._looked.clear()
        try:
            pids = [name for name in os.listdir(self._proc) if name.isdigit()]
        except OSError:
            return []
        looked = self._looked
        self._looked = {}
        found: dict[str, str] = {}
        for pid in pids:
            looks = looked.get(pid, 0)
            known = self._named.get(pid)
            # A known one is checked each time: its pid may belong to another process by now.
            if looks < _YOUNG_LOOKS or known is not None:
                looks += 1
                known = name if (name := _name(self._proc, pid)) in NAMES else None
            self._looked[pid] = looks
            if known is not None:
                found[pid] = known
        self._named = found
        return list(found.values())


def _name(proc: str, pid: str) -> str:
    try:
        with open(f"{proc}/{pid}/comm", "rb") as file:
            return file.read(32).decode(errors="replace").strip()
    except OSError:
        return ""


def _discharges(power: str) -> bool:
    try:
        supplies = [*Path(power).iterdir()]
    except OSError:
        return False
    for supply in supplies:
        try:
            # A mouse has a battery, too: the machine's own supply has no device scope.
            if (supply / "scope").exists() or (supply / "type").read_text().strip() != "Battery":
                continue
            if (supply / "status").read_text().strip() == "Discharging":
                return True
        except OSError:
            continue
    return False


def _asleep_s() -> float:
    """For how long the machine has been suspended since it was started."""
    return clock_gettime(CLOCK_BOOTTIME) - clock_gettime(CLOCK_MONOTONIC)
