"""What a main thread and its feeders have been in without a break: why an idle GPU idles, and since when."""

from __future__ import annotations

from msgspec import Struct

from gputop.diagnosis.host_side import HostTick, is_on_disk
from gputop.model.snapshot import ProcessSample

MOSTLY_PCT = 80.0
"""A state that fills so much of a sample is what the process is in [judged]."""
MOST_BREAK_S = 2.5
"""A break shorter than this is none: one look may miss a wait."""
HALTED = {"T": "stopped", "t": "traced"}
"""States of a process that is held: by a signal, and by a debugger (proc(5))."""
_MAIN = ("disk", "network", "lock", "sleep", "poll", "pipe", "write")


class Stands(Struct, frozen=True):
    """A state, for how many seconds it has been so, and the networked file system on which it is a wait, if any."""

    what: str
    for_s: float
    mount: str | None = None


class Standing:
    """Follows one thread, or the feeders of one GPU as a whole."""

    __slots__ = ("_mount", "_seen_at", "_since", "_what")

    def __init__(self) -> None:
        self._what: str | None = None
        self._mount: str | None = None
        self._since = self._seen_at = 0.0

    def observe(self, t: float, what: str | None, mount: str | None) -> Stands | None:
        """Add a sample; gives what has stood up to now. None where nothing does."""
        if what is not None and what == self._what:
            self._seen_at = t
            self._mount = mount or self._mount
        elif what is not None or t - self._seen_at > MOST_BREAK_S:
            self._what, self._mount, self._since, self._seen_at = what, mount, t, t
        return None if self._what is None else Stands(self._what, t - self._since, self._mount)

    def clear(self) -> None:
        """Forget it, for another job."""
        self._what = self._mount = None


def main_state(p: ProcessSample | None) -> str | None:
    """What the main thread of a process is in for most of a sample: ``stopped``, ``traced``, a wait, or None."""
    if p is None or p.main_state is None:
        return None
    if p.main_state in HALTED:
        return HALTED[p.main_state]
    if p.main_unread_pct is None:
        return None
    return next((name for name in _MAIN if (getattr(p, f"main_{name}_pct") or 0.0) >= MOSTLY_PCT), None)


def feeders_state(tick: HostTick) -> tuple[str | None, str | None]:
    """What most of a GPU's feeders are in for most of a sample, and the file system on which they are."""
    rows = [row for row in tick.feeders if row.key >= 0]
    if not rows:
        return None, None
    for place, name in ((2, "disk"), (3, "network"), (4, "lock")):
        there = [row for row in rows if row.values[place] >= MOSTLY_PCT]
        if 2 * len(there) > len(rows):
            return name, next((row.mount for row in there if row.mount is not None), None)
    return None, None


def saves_pct(p: ProcessSample | None) -> float:
    """How much of a sample the main thread of a process waited for a file to be written, percent.

    Where its system calls may not be seen, how much it waited for a disk while the process wrote to one.
    """
    if p is None:
        return 0.0
    on_disk = p.main_disk_pct if p.main_disk_pct is not None else 100.0 if is_on_disk(p) else 0.0
    return max(p.main_saves_pct or 0.0, on_disk if p.write_bytes_per_s else 0.0)


def runs_pct(p: ProcessSample | None) -> float:
    """How much of a sample the main thread of a process was runnable, percent; 0 where that is not measured."""
    return 0.0 if p is None else (p.main_run_pct or 0.0) + (p.main_wait_pct or 0.0)
