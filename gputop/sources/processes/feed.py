"""Time shares of one worker process since its last reading. Pure.

Run time and queued time are counters; waits are only sampled. The rest of the time is divided among the wait states of
the latest samples, in proportion. Over a window these shares are accurate.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import astuple, replace

from gputop.model.feeders import FeederShares, MainLooks, MainWaits, WaitEnd, main_looks
from gputop.sources.processes.wait_graph import INSIDE, ITS_CHILDREN, End, SeenWait
from gputop.sources.processes.wait_look import BLOCKED, LOCAL, RAN, STOPPED, ThreadWait, waits_for_child
from gputop.sources.procfs import TICKS_PER_S, Stat

CHILD = "child"
"""Wait class for the end of a child, in addition to the classes of ``wait_look``."""
EXPLAINS = 0.6
"""A process with at least this useful share needs no other explanation."""
MEAN_S = 10.0
RECENT_S = 5.0
"""Samples older than this are dropped."""
MOST_LOOKS = 64
DOES = 0.1
"""A resolution seen in a smaller share of the samples is ignored [judged]."""
LINE_S = 30.0
"""Children awaited one after the other within this time count as one worker."""
MOST_ENDS = 8
MOST_OWED_S, MOST_CARRIED_S = 600.0, 10.0
"""Limits for the CPU time of children: already counted from samples, and still to be counted after an exit."""
FETCHED_S = 30.0
"""For this long after data arrived, a wait in an unidentified socket counts as network."""


class FeedReading(Struct, frozen=True):
    """Shares (0–1) of a worker's time since its last reading.

    ``by`` names the evidence that resolved a wait; None if none was needed.
    """

    shares: FeederShares = FeederShares()
    by: str | None = None
    threads: int | None = None
    rx_bytes_per_s: float | None = None
    listens: bool | None = None
    why_blind: str | None = None
    unread: bool = False
    """Shares are unknown: threads were not read because another cause explains the waiting, or are not settled yet."""
    main_looks: MainLooks | None = None
    """Counts of the main thread's states in random samples; None if unknown."""
    main: MainWaits | None = None
    """The main thread's wait states as shares; None if the main thread was not sampled."""
    saves: float = 0.0
    """Share of the time in which the main thread waits for a file to be written."""
    mount: str | None = None
    """Mount point of the networked file system on which the process waits."""
    waits_for: tuple[WaitEnd, ...] | None = None
    """Wait targets of the main thread in these samples; None if unknown."""


class _Look(Struct, frozen=True, gc=False):
    """One sample: the thread's wait class and its target's activity.

    ``own`` is None while the thread ran. ``doing`` is None while another thread of the process ran in its place: the
    process's counters contain that time.
    """

    own: str | None
    doing: str | None
    by: str | None = None
    saves: bool = False
    inside: str | None = None
    running: int = 0


class _Recent(Struct, frozen=True):
    """Summary of the latest samples: each wait class with its share.

    ``own``, ``doing`` and ``inside`` are shares of the samples that found a wait. ``runs_inside`` is the share of all
    samples in which another thread ran in the main thread's place. ``running`` is the mean number of running threads,
    where any ran.
    """

    own: Mapping[str, float] = {}
    doing: Mapping[str, float] = {}
    inside: Mapping[str, float] = {}
    saves: float = 0.0
    by: str | None = None
    runs_inside: float = 0.0
    running: float = 0.0


_NONE = _Recent()


class Track:
    """State of one process between two readings: recent samples and results."""

    def __init__(self) -> None:
        self.holds_gpu = False
        """Threads of a GPU process are a separate worker; those of any other process stand in for its main thread."""
        self._looks: deque[tuple[float, _Look]] = deque(maxlen=MOST_LOOKS)
        """Samples with their times."""
        self._same: _Look | None = None
        """The common content of all samples, if they are equal."""
        self._looked_at = float("-inf")
        """Time of the latest random sample. For a while readings, which are in step with the job, do not count."""
        self._alone: tuple[Sequence[SeenWait], bool] | None = None
        """Samples of a reading that is used in place of random samples."""
        self.recent = _NONE
        self.close_at: float | None = None
        """Start of close sampling."""
        self.waiting_on: str | None = None
        """The class of its latest wait."""
        self.sees_inside = False
        """Whether other threads of the process were ever sampled."""
        self.awaited: dict[int, float] = {}
        """Awaited children, with the time of the latest sample that showed the wait."""
        self.fetched_at = float("-inf")
        """Time at which data last arrived over the process's own sockets."""
        self.asks: int | None = None
        """An awaited child that polls: its sockets show the reason."""
        self.mount: str | None = None
        self.at: float | None = None
        self.own = FeederShares()
        """The process's own shares, waits unresolved."""
        self.useful = self.own_useful = 0.0
        """Ten-second means of the useful share, with and without the wait target's activity."""
        self.stat: Stat | None = None
        """Latest counters. When the process exits, its CPU time is added to its parent's counter."""
        self._owed_s = self._carried_s = 0.0
        self._known = 0.0, 0.0, _NONE, self.own, self.own
        """Cache of the latest input and result: most processes stay asleep."""

    def take(self, now: float, looks: Sequence[SeenWait], *, between: bool, moves: bool) -> None:
        """Add samples; a reading's own sample counts only without fresh ones.

        ``between`` marks samples taken at random moments between readings. ``moves``: the process reads from or writes
        to a disk, which resolves state D.
        """
        if between:
            self._looked_at, self._alone = now, None
        elif self._alone == (looks, moves):
            looks = ()
        elif now - self._looked_at > RECENT_S or looks[0].wait.wait == STOPPED:
            # A stopped process is not sampled between readings, and does nothing of its earlier activity.
            self._looks.clear()
            self._alone = looks, moves
        else:
            looks = ()
        before = len(self._looks)
        self._looks.extend((now, self._seen(look, moves)) for look in looks)
        while len(self._looks) > 1 and now - self._looks[0][0] > RECENT_S:
            old = self._looks.popleft()
            if old[1].own is not None and all(look.own is None for _, look in self._looks):
                # Keep the latest wait until there is another.
                self._looks.appendleft(old)
                break
        if looks or len(self._looks) != before:
            self._sum_up()

    def _sum_up(self) -> None:
        """Summarise the samples, unless they are all equal and unchanged."""
        first = self._looks[0][1]
        same = first if all(look == first for _, look in self._looks) else None
        if same is None or same != self._same:
            self.recent = _recent([look for _, look in self._looks])
        self._same = same

    def _seen(self, seen: SeenWait, moves: bool) -> _Look:
        wait, instead, inside = seen.wait, seen.instead, seen.inside
        thread = None if inside is None else _class_of(inside.wait, moves=moves)
        running = 0 if inside is None else inside.running
        self.sees_inside = self.sees_inside or inside is not None
        if wait.wait == RAN:
            return _Look(None, None, inside=thread, running=running)
        self.waiting_on = wait.wait
        own, saves, by = _class_of(wait, moves=moves), False, None
        doing: str | None = own
        if instead is not None:
            self.asks = instead.pid if instead.wait in ("queue", "socket") else self.asks
            own, doing, by = instead.instead_of, _class_of(instead, moves=moves), instead.by
        else:
            self.mount, saves = wait.mount, wait.saves
        # A thread replaces its process's wait only by activity: its own wait is no evidence.
        stands_in = wait.wait in INSIDE and not self.holds_gpu
        if stands_in and by in (None, "task queue", "peer") and thread in (RAN, "disk", "network"):
            doing, by = None if thread == RAN else thread, "thread"
        return _Look(own, doing, by, saves, thread, running)

    def account(self, now: float, run: float, queued: float, children_pct: float) -> tuple[FeederShares, str | None]:
        """Return shares since the last reading, and the resolving evidence.

        The shares include the wait target's activity in place of the wait. ``run`` and ``queued`` are percent of one
        core; ``children_pct`` is the CPU time of exited children.
        """
        recent = self.recent
        if (run, queued, recent) != self._known[:3]:
            own = shares_of(run, queued, recent.own)
            inside = max(queued, 100.0 * recent.runs_inside - run)
            shares = own if recent.by is None else shares_of(run, inside, recent.doing)
            self._known = run, queued, recent, own, shares
        *_, own, shares = self._known
        self.own = own
        by_children = max(0.0, shares.run - own.run)
        elapsed = 0.0 if self.at is None else max(0.0, now - self.at)
        self.at = now
        self._owed_s = min(MOST_OWED_S, self._owed_s + by_children * elapsed)
        weight = min(1.0, elapsed / MEAN_S) if elapsed else 1.0
        self.useful += weight * (shares.useful - self.useful)
        self.own_useful += weight * (own.useful - self.own_useful)
        if children_pct or self._carried_s:
            ended = self._ended_share(elapsed, max(0.0, 1.0 - own.cpu - by_children), children_pct)
            if ended >= LEAST_PART:
                return partly(shares, ended, FeederShares(run=1.0)), CHILD
        return shares, recent.by

    def owes(self, used_s: float) -> None:
        """Subtract CPU time of an exited child that was already counted.

        The child was tracked itself, so its time is not new when the parent's counter receives it.
        """
        self._owed_s = min(MOST_OWED_S, self._owed_s + used_s)

    def _ended_share(self, elapsed: float, rest: float, children_pct: float) -> float:
        """Return the share of time in which exited children ran.

        Their CPU time arrives at once, when they exit. ``rest`` is the share of the time that is not accounted for.
        """
        came = children_pct / 100.0 * elapsed
        new = max(0.0, came - self._owed_s)
        self._owed_s = max(0.0, self._owed_s - came)
        self._carried_s = min(MOST_CARRIED_S, self._carried_s + new)
        share = min(rest, self._carried_s / elapsed) if elapsed > 0.0 else 0.0
        self._carried_s -= share * elapsed
        return share

    def threads_shares(self, pool_pct: float) -> FeederShares:
        """Return the shares of the process's other threads together.

        ``pool_pct`` is their CPU time, percent of one core. Threads that pass a core, a lock or a connection to each
        other count as one worker. If more of them are runnable than run, the difference is queued.
        """
        waits = dict(self.recent.inside)
        if not waits:
            return FeederShares()
        runnable = waits.pop(RAN, 0.0)
        run = runnable * min(1.0, pool_pct / 100.0 / max(1e-9, runnable * self.recent.running)) if runnable else 0.0
        rest = {wait: share / (1.0 - runnable) for wait, share in waits.items()}
        return shares_of(100.0 * run, 100.0 * (runnable - run), rest)

    @property
    def explains(self) -> bool:
        """Whether the useful share suffices without threads and sockets."""
        return self.useful >= EXPLAINS and self.recent.by != "thread"

    @property
    def polls_inside(self) -> float:
        """Share of samples whose most active thread polled or used a socket."""
        return self.recent.inside.get("queue", 0.0) + self.recent.inside.get("socket", 0.0)

    @property
    def in_socket(self) -> float:
        """Share of time spent in a socket of unknown family.

        The wait belongs to the process or to one of its threads.
        """
        inside = self.recent.inside.get("socket", 0.0)
        if self.holds_gpu:
            return inside
        return max(0.0, 1.0 - self.own.cpu) * max(inside, self.recent.own.get("socket", 0.0))

    def main_waits(self, now: float, rest: float) -> tuple[MainWaits, float]:
        """Divide a main thread's waiting time by wait class.

        ``rest`` is the waiting share of its time. The second value is the part spent on writing a file.
        """
        waits = dict(self.recent.own)
        if now - self.fetched_at <= FETCHED_S and "socket" in waits:
            waits["network"] = waits.get("network", 0.0) + waits.pop("socket")
        if not waits:
            return MainWaits(unread=rest), 0.0
        parts = dict.fromkeys(MainWaits.__struct_fields__, 0.0)
        for wait, share in waits.items():
            name = "poll" if wait == "queue" else wait
            parts[name if name in parts else "other"] += rest * share
        return MainWaits(**parts), rest * self.recent.saves

    def ended_at(
        self, now: float, looks: Sequence[SeenWait], vias: Collection[str] | None = None
    ) -> tuple[WaitEnd, ...]:
        """Return the wait targets in these samples.

        ``vias`` limits the kinds of targets. Children that came one after the other are one worker.
        """
        ends = [look.end for look in looks if look.end is not None and (vias is None or look.end.via in vias)]
        if not ends:
            return ()
        for end in ends:
            if end.via == CHILD:
                self.awaited.update(dict.fromkeys(end.pids, now))
        self.awaited = {child: at for child, at in self.awaited.items() if now - at <= LINE_S}
        is_a_line = len(self.awaited) > 1
        counts = Counter(
            End(CHILD, detail=ITS_CHILDREN)
            if is_a_line and end.via == CHILD
            else replace(end, written=False, is_only=False)
            for end in ends
        )
        return tuple(
            WaitEnd(end.via, 100.0 * count / len(looks), end.pids, end.detail)
            for end, count in counts.most_common(MOST_ENDS)
        )


LEAST_PART = 0.05
"""CPU time of exited children counts from this share of the time on."""


def used_s(stat: Stat) -> float:
    """CPU time of a process and its exited children, in seconds."""
    return (stat.cpu_ticks + stat.children_ticks) / TICKS_PER_S


def looks_of(looks: Iterable[SeenWait]) -> MainLooks:
    """Count samples by state, see ``LookState``."""
    words = ("other" if look.wait.wait in (BLOCKED, "socket", LOCAL) else look.wait.wait for look in looks)
    return main_looks((word, 1) for word in words)


def _class_of(wait: ThreadWait, *, moves: bool) -> str:
    """Return the class of a wait.

    ``moves``: the process reads from or writes to a disk, which resolves state D.
    """
    if wait.wait == BLOCKED:
        return "disk" if moves else "other"
    return CHILD if waits_for_child(wait.channel) else wait.wait


def _recent(looks: Collection[_Look]) -> _Recent:
    columns = zip(*[(look.own, look.doing, look.inside, look.by) for look in looks], strict=True)
    own, doing, inside, by = (Counter(filter(None, column)) for column in columns)
    resolved = [name for name, count in by.most_common(1) if count >= DOES * len(looks)]
    running = [look.running for look in looks if look.running]
    return _Recent(
        _parts(own),
        _parts(doing),
        _parts(inside),
        sum([look.saves for look in looks]) / max(1, own.total()),
        resolved[0] if resolved else None,
        sum([look.by == "thread" and look.doing is None for look in looks]) / len(looks),
        sum(running) / max(1, len(running)),
    )


def _parts(counts: Counter[str]) -> dict[str, float]:
    return {kind: count / counts.total() for kind, count in counts.items()}


def shares_of(run: float, queued: float, waits: Mapping[str, float]) -> FeederShares:
    """Return shares of run, queued and waiting time.

    ``run`` and ``queued`` are percent of one core. ``waits`` maps classes of ``wait_look`` to their shares of the
    remaining time; if it is empty, the rest is unread.
    """
    run, queued = run / 100.0, queued / 100.0
    runnable = run + queued
    if runnable >= 1.0:
        # Several threads may exceed 1; as a share of time, runnable is capped there.
        return FeederShares(run / runnable, queued / runnable)
    rest = 1.0 - runnable
    if not waits:
        return FeederShares(run, queued, unread=rest)
    values = [run, queued, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    for wait, share in waits.items():
        values[_PLACE_OF.get(wait, _OTHER)] += rest * share
    return FeederShares(*values)


_PLACE = {name: place for place, name in enumerate(FeederShares.__struct_fields__)}
_PLACE_OF = {name: _PLACE[name] for name in ("disk", "network", "lock", "sleep", "run", "unread")} | {
    "queue": _PLACE["poll"]
}
"""Index of each wait class among a worker's shares; all other classes are ``other``."""
_OTHER = _PLACE["other"]


def partly(feeder: FeederShares, part: float, other: FeederShares) -> FeederShares:
    """Replace ``part`` of a worker's waiting time by another's shares.

    ``part`` is a share of all time. It is taken from ``other`` first, then from all waits in proportion.
    """
    rest = max(0.0, 1.0 - feeder.run - feeder.queued)
    if rest <= 0.0:
        return feeder
    part = min(part, rest)
    first = min(part, feeder.other)
    non_other = rest - feeder.other
    scale = 1.0 - (part - first) / non_other if non_other > 0.0 else 1.0
    waits = replace(feeder, run=0.0, queued=0.0, other=feeder.other - first)
    values = [
        mine * (1.0 if name == "other" else scale) + part * theirs
        for name, mine, theirs in zip(FeederShares.__struct_fields__, astuple(waits), astuple(other), strict=True)
    ]
    values[0] += feeder.run
    values[1] += feeder.queued
    return FeederShares(*values)


def received(shares: FeederShares, in_socket: float = 0.0) -> FeederShares:
    """Count polling, and waits in unidentified sockets, as network.

    Call it for a process that receives data.
    """
    in_socket = min(in_socket, shares.other)
    return replace(shares, network=shares.network + shares.poll + in_socket, poll=0.0, other=shares.other - in_socket)
