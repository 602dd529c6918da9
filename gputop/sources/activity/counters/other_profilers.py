"""Finds programs that need the hardware counters."""

from __future__ import annotations

from gputop.sources.procfs import names_in, text_of

NAMES = frozenset((
    "ncu", "ncu-ui", "nv-nsight-cu-cli", "nsys", "nsys-ui", "nsys-launcher", "nv-hostengine", "dcgm-exporter",
    "dcgmproftester",
))  # fmt: skip
"""Programs that use the profiling unit, by the name that the kernel keeps, of at most 15 characters."""
ALL_AGAIN_S = 30.0
"""How often every process is checked, since one may have become another program; in between only new ones are."""
_YOUNG_LOOKS = 3


class Others:
    """Finds programs that need the counters: profilers and DCGM.

    Each look costs one directory listing.
    """

    def __init__(self, proc: str = "/proc") -> None:
        self._proc = proc
        self._looked: dict[str, int] = {}
        self._named: dict[str, str] = {}
        self._all_at = float("-inf")

    def reason_to_wait(self, now: float) -> str | None:
        """Return why to leave the counters alone now, or None."""
        names = sorted(set(self._programs(now)))
        return f"left to {', '.join(names)}, which needs the same counters" if names else None

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
