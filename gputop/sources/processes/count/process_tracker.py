"""State of one process between two readings: its latest observations and means."""

from __future__ import annotations

from collections.abc import Sequence

from gputop.model.wait_shares import WaitShares
from gputop.sources.processes.count.wait_shares import CHILD, WaitCounts, count_waits, shares_of
from gputop.sources.processes.look.wait_observation import WaitObservation
from gputop.sources.processes.look.wait_state import RAN, STOPPED, UNREAD, WaitState
from gputop.sources.procfs import Stat

MEAN_S = 10.0
RECENT_S = 5.0
"""Observations older than this are dropped."""
LEAST_FRESH = 4
"""With so many moments since the last reading, no earlier ones count: each second then has its own shares [judged]."""
LINE_S = 30.0
"""Children awaited one after the other within this time count as one worker."""
FETCHED_S = 30.0
"""For this long after data arrived, a wait in an unidentified socket counts as network."""

NO_CHANNEL = "the kernel names no wait channel"
NOT_SAMPLED = (
    "not sampled yet: waits are sampled between readings, of a GPU process while its GPU waits"
)


class ProcessTracker:
    """Wait observations of one process, and shares by them."""

    def __init__(self) -> None:
        self.fresh: Sequence[WaitObservation] = ()
        """Observations since the reading before the latest one."""
        self.recent: list[WaitObservation] = []
        self.latest: WaitObservation | None = None
        """The latest observation of a wait of the main thread."""
        self.counts = WaitCounts()
        self.own = WaitShares()
        """The process's own shares, waits unresolved."""
        self.useful = self.own_useful = 0.0
        """Ten-second means of the useful share, with and without the wait target's activity."""
        self.close_at: float | None = None
        """Start of close sampling."""
        self.fetched_at = float("-inf")
        """Time at which data last arrived over the process's own sockets."""
        self.stat: Stat | None = None
        """Latest counters."""
        self._awaited: dict[int, float] = {}
        self._counted: tuple[int, float, bool] | None = None
        self._shared_at: float | None = None

    def observe(
        self,
        now: float,
        fresh: Sequence[WaitObservation],
        stat: Stat,
        *,
        moves: bool,
        holds_gpu: bool,
    ) -> None:
        """Add the observations since the last reading, and count.

        ``moves``: the process reads from or writes to a disk, which resolves state D.
        """
        self.stat = stat
        if stat.state in "Tt":
            # A stopped process does nothing of its earlier activity, whoever may read its wait channel.
            self.recent, fresh = [], [WaitObservation(now, 0, 0, WaitState(STOPPED))]
        self.fresh = fresh
        # The latest wait is kept until there is another.
        waits = [
            each for each in fresh if each.pid == each.tid and each.state.kind not in (RAN, UNREAD)
        ]
        self.latest = waits[-1] if waits else self.latest
        self.recent = [each for each in (*self.recent, *fresh) if now - each.t <= RECENT_S]
        if self.latest is not None and now - self.latest.t > RECENT_S:
            self.recent.insert(0, self.latest)
        for each in fresh:
            if each.target is not None and each.target.via == CHILD:
                self._awaited.update(dict.fromkeys(each.target.pids, now))
        is_enough = len({each.t for each in fresh}) >= LEAST_FRESH
        counted = fresh if is_enough else self.recent
        # Counting 64 workers at each reading took as long as all their other values; few of them have new observations.
        key = len(counted), counted[-1].t if counted else 0.0, moves
        if key != self._counted:
            self._counted = key
            self.counts = count_waits(counted, moves=moves, holds_gpu=holds_gpu)

    def shares(self, now: float, run: float, queued: float) -> tuple[WaitShares, str | None]:
        """Return shares since the last reading, and the resolving evidence.

        The shares include the wait target's activity in place of the wait. ``run`` and ``queued`` are percent of one
        core.
        """
        counts = self.counts
        shares = self.own = shares_of(run, queued, counts.own)
        if counts.evidence is not None:
            shares = shares_of(run, max(queued, 100.0 * counts.runs_inside - run), counts.activity)
        self.sleep_on(now, shares.useful)
        return shares, counts.evidence

    def sleep_on(self, now: float, useful: float) -> None:
        """Add the time since the last reading to the means."""
        weight = (
            1.0 if self._shared_at is None else min(1.0, max(0.0, (now - self._shared_at) / MEAN_S))
        )
        self._shared_at = now
        self.useful += weight * (useful - self.useful)
        self.own_useful += weight * (self.own.useful - self.own_useful)

    def has_line(self, now: float) -> bool:
        """Return whether children were awaited one after the other."""
        self._awaited = {child: t for child, t in self._awaited.items() if now - t <= LINE_S}
        return len(self._awaited) > 1

    def in_socket(self, *, holds_gpu: bool) -> float:
        """Share of time spent in a socket of unknown family.

        The wait belongs to the process or to one of its threads.
        """
        inner = self.counts.inner_share("socket")
        return (
            inner
            if holds_gpu
            else max(0.0, 1.0 - self.own.cpu) * max(inner, self.counts.own_share("socket"))
        )

    def why_unseen(self) -> str | None:
        """Return the reason why no wait of a sleeping process is known, or None."""
        if self.stat is None or self.stat.state not in "SD" or self.latest is not None:
            return None
        return NO_CHANNEL if any(each.state.kind == UNREAD for each in self.recent) else NOT_SAMPLED
