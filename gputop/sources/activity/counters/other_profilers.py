"""Finds programs that need the hardware counters, and laptops on battery."""

from __future__ import annotations

from time import CLOCK_BOOTTIME, CLOCK_MONOTONIC, clock_gettime

from gputop.sources.procfs import names_in, text_of

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
    """Finds programs that need the counters: profilers and DCGM.

    Also reports a laptop on battery. Each look costs one directory listing.
    """

    def __init__(self, proc: str = "/proc", power: str = "/sys/class/power_supply") -> None:
        self._proc, self._power = proc, power
        self._looked: dict[str, int] = {}
        self._named: dict[str, str] = {}
        self._all_at = self._battery_at = float("-inf")
        self._on_battery = False
        self._asleep_s = _asleep_s()

    def reason_to_wait(self, now: float) -> str | None:
        """Return why to leave the counters alone now, or None."""
        names = sorted(set(self._programs(now)))
        if names:
            return f"left to {', '.join(names)}, which needs the same counters"
        if now - self._battery_at >= BATTERY_S:
            self._battery_at, self._on_battery = now, _discharges(self._power)
        return "not on battery" if self._on_battery else None

    def slept(self) -> bool:
        """Whether the machine was suspended since the last call."""
        before, self._asleep_s = self._asleep_s, _asleep_s()
        return self._asleep_s - before > SUSPENDED_S

    def _programs(self, now: float) -> list[str]:
        if now - self._all_at >= ALL_AGAIN_S:
            self._all_at = now
            self._looked.clear()
        pids = [name for name in names_in(self._proc) if name.isdigit()]
        looked = self._looked
        self._looked = {}
        program_of_pid: dict[str, str] = {}
        for pid in pids:
            looks = looked.get(pid, 0)
            program = self._named.get(pid)
            # A known one is checked each time: its pid may belong to another process by now.
            if looks < _YOUNG_LOOKS or program is not None:
                looks += 1
                program = name if (name := text_of(f"{self._proc}/{pid}/comm")) in NAMES else None
            self._looked[pid] = looks
            if program is not None:
                program_of_pid[pid] = program
        self._named = program_of_pid
        return list(program_of_pid.values())


def _discharges(power: str) -> bool:
    for name in names_in(power):
        # A mouse has a battery, too: the machine's own supply has no device scope.
        scope, kind, status = (text_of(f"{power}/{name}/{what}") for what in ("scope", "type", "status"))
        if (scope, kind, status) == ("", "Battery", "Discharging"):
            return True
    return False


def _asleep_s() -> float:
    """Return how long the machine has been suspended since boot."""
    return clock_gettime(CLOCK_BOOTTIME) - clock_gettime(CLOCK_MONOTONIC)
