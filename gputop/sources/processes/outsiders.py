"""Who else uses the cores: the largest CPU users outside the GPUs' process trees.

All of /proc is read for it, so only while somebody queues for a core, every few seconds, and less often on a
machine with very many processes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable

from gputop.model.feeders import Outsider, outsiders_text
from gputop.model.quantity import clean_text
from gputop.model.secrets import masked_text
from gputop.sources.procfs import parse_stat, read_small

QUEUED_PCT = 30.0
"""From this share of time that a loader or a main thread queues for a core on, outsiders are looked for."""
SCAN_S = 3.0
MANY = 2000
"""With more processes than this the scans are five times as far apart: one then takes some 15 ms."""
NAMED = 3
LEAST_PCT = 10.0
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class Outsiders:
    """Scans when asked to. ``text`` is the result of the last two scans, None before there were two."""

    def __init__(self, proc: str, user: Callable[[int], str | None]) -> None:
        """``user`` gives the name of a process's owner."""
        self._proc = proc
        self._user = user
        self._ticks: dict[int, tuple[int, int]] = {}
        self._at: float | None = None
        self.text: str | None = None

    def read(self, now: float, pids: Iterable[int], inside: Collection[int], *, wanted: bool) -> None:
        """Scan if somebody queues for a core and a scan is due. ``inside``: pids that belong to the GPUs' trees."""
        if not wanted:
            self._ticks.clear()
            self._at = self.text = None
            return
        gap = SCAN_S if len(self._ticks) <= MANY else 5 * SCAN_S
        if self._at is not None and now - self._at < 0.95 * gap:
            return
        last, self._at, before, self._ticks = self._at, now, self._ticks, {}
        used: list[tuple[float, int, bytes]] = []
        for pid in pids:
            if pid in inside:
                continue
            try:
                stat = parse_stat(read_small(f"{self._proc}/{pid}/stat"))
            except OSError:
                continue
            if stat is None:
                continue
            self._ticks[pid] = stat.starttime, stat.cpu_ticks
            known = before.get(pid)
            if last is not None and known is not None and known[0] == stat.starttime and now > last:
                used.append((100.0 * (stat.cpu_ticks - known[1]) / _TICKS_PER_S / (now - last), pid, stat.comm))
        if last is None:
            return
        largest = sorted((row for row in used if row[0] >= LEAST_PCT), reverse=True)[:NAMED]
        self.text = outsiders_text(tuple(self._outsider(*row) for row in largest))

    def _outsider(self, cpu_pct: float, pid: int, comm: bytes) -> Outsider:
        name = clean_text(masked_text(comm.decode("utf-8", "replace"))).strip() or "?"
        return Outsider((self._user(pid) or "?").replace(" ", "_"), name, cpu_pct)
