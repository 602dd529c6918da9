"""CPU use of other programs, outside the GPUs' process trees.

Use is summed by user and program: forty compilers of one user take as much as one program of forty threads.

The scan reads all of /proc. It therefore runs only while a process queues for a core, every few seconds, and less often
on a machine with very many processes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable

from msgspec.structs import replace

from gputop.model.clean_text import clean_text
from gputop.model.feeders import Outsider
from gputop.model.secrets import masked_text
from gputop.sources.procfs import TICKS_PER_S, Stat, stat_of

QUEUED_PCT = 30.0
"""A loader or main thread that queues for this share of time starts the scans, percent."""
SCAN_S = 3.0
MANY = 2000
"""A machine with more processes is scanned five times less often: one scan then takes some 15 ms."""
NAMED = 3
LEAST_PCT = 10.0
MANY_PROGRAMS = 0.5
"""If every program takes a smaller share of its user's CPU time, one row combines all programs of the user."""


class Outsiders:
    """Scans for the largest CPU users on request.

    ``largest`` contains the users of the last two scans; ``sum_pct`` is the CPU use of all outsiders, percent of one
    core. Both are None before two scans.
    """

    def __init__(self, proc: str, user: Callable[[int], str | None]) -> None:
        """Set up; ``user`` returns the name of a process's owner."""
        self._proc = proc
        self._user = user
        self._used: dict[int, Stat] = {}
        self._at: float | None = None
        self.largest: tuple[Outsider, ...] | None = None
        self.sum_pct: float | None = None

    def scan_if_due(
        self, now: float, pids: Iterable[int], inside: Collection[int], *, is_needed: bool
    ) -> None:
        """Scan if a process queues for a core and a scan is due.

        ``inside`` contains the pids of the GPUs' trees.
        """
        if not is_needed:
            self._used.clear()
            self._at = self.largest = self.sum_pct = None
            return
        gap = SCAN_S if len(self._used) <= MANY else 5 * SCAN_S
        if self._at is not None and now - self._at < 0.95 * gap:
            return
        last, self._at, before, self._used = self._at, now, self._used, {}
        for pid in pids:
            stat = None if pid in inside else stat_of(f"{self._proc}/{pid}")
            if stat is not None:
                self._used[pid] = stat
        if last is not None and now > last:
            self._sum_up(self._taken(before), 100.0 / TICKS_PER_S / (now - last))

    def _taken(self, before: dict[int, Stat]) -> dict[int, int]:
        """Return each process's CPU ticks since the previous scan."""
        newest = max((used.starttime for used in before.values()), default=0)
        taken = {}
        for pid, used in self._used.items():
            earlier = before.get(pid)
            if earlier is not None and earlier.starttime == used.starttime:
                taken[pid] = used.cpu_ticks - earlier.cpu_ticks
            else:
                # A process older than the last scan's youngest was no outsider then: its earlier CPU time is not new.
                taken[pid] = used.cpu_ticks if used.starttime > newest else 0
        return taken

    def _sum_up(self, taken: dict[int, int], pct_of_tick: float) -> None:
        users: dict[str, Counter[bytes]] = defaultdict(Counter)
        for pid, ticks in taken.items():
            if ticks:
                users[(self._user(pid) or "?").replace(" ", "_")][self._used[pid].comm] += ticks
        outsiders: list[Outsider] = []
        for user, programs in users.items():
            total = sum(programs.values())
            first = max(programs.values())
            if len(programs) > 1 and first < MANY_PROGRAMS * total:
                outsiders.append(Outsider(user, _together(programs), pct_of_tick * total))
            else:
                outsiders += [
                    Outsider(user, _named(name), pct_of_tick * ticks)
                    for name, ticks in programs.items()
                ]
        largest = sorted(
            (o for o in outsiders if o.cpu_pct >= LEAST_PCT), key=lambda o: -o.cpu_pct
        )[:NAMED]
        # Whole percent: no scan is more exact, and a recording has the same precision.
        self.largest = tuple(replace(o, cpu_pct=float(round(o.cpu_pct))) for o in largest)
        self.sum_pct = pct_of_tick * sum(taken.values())


def _together(programs: Counter[bytes]) -> str:
    """Name many programs by the two largest: ``cc1plus, rustc and 11 others``."""
    first, second = (_named(name) for name, _ in programs.most_common(2))
    others = len(programs) - 2
    return (
        f"{first}, {second} and {others} other{'s' * (others != 1)}"
        if others
        else f"{first} and {second}"
    )


def _named(comm: bytes) -> str:
    return clean_text(masked_text(comm.decode("utf-8", "replace"))).strip() or "?"
