"""What one process did since it was last read, as a feeder: shares of its time. Pure.

Run and queued time are counters; a wait is only seen at looks. So the time that was neither goes to what it was seen
waiting for at its latest looks, in proportion: over a window these samples give the shares.
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
"""The wait for a child to end, among the classes of ``wait_look``."""
EXPLAINS = 0.6
"""A process with this useful share explains itself."""
MEAN_S = 10.0
RECENT_S = 5.0
"""For so long a look at a wait counts."""
MOST_LOOKS = 64
DOES = 0.1
"""What was done at fewer of the looks says nothing of who is waited for [judged]."""
LINE_S = 30.0
"""Children for which a process has waited within this time are one feeder, if it waited for several."""
MOST_ENDS = 8
MOST_OWED_S, MOST_CARRIED_S = 600.0, 10.0
"""CPU time of children: what looks have already counted, and what their end has left to count, at most."""
FETCHED_S = 30.0
"""For so long after data came in a wait in a socket that may not be seen is one for the network."""


class FeedReading(Struct, frozen=True):
    """A feeder's shares (0–1) since its last reading. ``by`` says what resolved a wait, None if unneeded."""

    shares: FeederShares = FeederShares()
    by: str | None = None
    threads: int | None = None
    rx_bytes_per_s: float | None = None
    listens: bool | None = None
    why_blind: str | None = None
    unread: bool = False
    """Threads were not read: something else explains the waiting."""
    main_looks: MainLooks | None = None
    """What the main thread waited for at some random moments; None where that is not known."""
    main: MainWaits | None = None
    """The same as shares; None where it was not looked at."""
    saves: float = 0.0
    """The part of its time in which the main thread waits for a file to be written."""
    mount: str | None = None
    """Where the networked file system is mounted on which it waits."""
    waits_for: tuple[WaitEnd, ...] | None = None
    """Whom or what the main thread waited for at those looks; None where that is not known."""


class _Look(Struct, frozen=True, gc=False):
    """One look: the class of the wait (None while it ran), and of what was done in whose place it waited.

    ``doing`` is None where a thread of its own ran in its place: the process's counters have that.
    """

    own: str | None
    doing: str | None
    by: str | None = None
    saves: bool = False
    inside: str | None = None
    running: int = 0


class _Recent(Struct, frozen=True):
    """What the latest looks come to: each wait with its share of those that found one. ``runs_inside``: the share of
    all at which a thread ran in the process's place. ``running``: how many threads ran where any did."""

    own: Mapping[str, float] = {}
    doing: Mapping[str, float] = {}
    inside: Mapping[str, float] = {}
    saves: float = 0.0
    by: str | None = None
    runs_inside: float = 0.0
    running: float = 0.0


_NONE = _Recent()


class Track:
    """What is remembered of one process between two readings: its latest looks, and what follows from them."""

    def __init__(self) -> None:
        self.holds_gpu = False
        """Of a GPU process the other threads are a feeder by themselves; of another one they stand in for it."""
        self._looks: deque[tuple[float, _Look]] = deque(maxlen=MOST_LOOKS)
        """With the time at which each was taken."""
        self._same: _Look | None = None
        """What all of them saw, if that is one thing."""
        self._looked_at = float("-inf")
        """When it was last looked at between readings: for a while the readings, in step with the job, do not count."""
        self._alone: tuple[Sequence[SeenWait], bool] | None = None
        """The looks that stand for themselves, if these do."""
        self.recent = _NONE
        self.close_at: float | None = None
        """Since when it is watched closely."""
        self.waiting_on: str | None = None
        """The class of its latest wait."""
        self.sees_inside = False
        """Whether its other threads were ever looked at."""
        self.awaited: dict[int, float] = {}
        """The children for which it waited, with the time at which it was last seen doing so."""
        self.fetched_at = float("-inf")
        """When data were last seen to come in over sockets of its own."""
        self.asks: int | None = None
        """A child that polls, for which it waits: its sockets tell what for."""
        self.mount: str | None = None
        self.at: float | None = None
        self.own = FeederShares()
        """Its own shares, waits unresolved."""
        self.useful = self.own_useful = 0.0
        """Mean useful shares over ten seconds or so, with what was done for it and without."""
        self.stat: Stat | None = None
        """Its latest counters: what it and its ended children used, its end adds to its parent."""
        self._owed_s = self._carried_s = 0.0
        self._known = 0.0, 0.0, _NONE, self.own, self.own
        """What the latest account was made of, and what it came to: most processes sleep on."""

    def take(self, now: float, looks: Sequence[SeenWait], *, between: bool, moves: bool) -> None:
        """Add looks. Those in step with the readings stand for themselves, and only where no others are fresh.

        ``moves``: the process reads from or writes to a disk, which settles what state D is.
        """
        if between:
            self._looked_at, self._alone = now, None
        elif self._alone == (looks, moves):
            looks = ()
        elif now - self._looked_at > RECENT_S or looks[0].wait.wait == STOPPED:
            # One that is stopped was not looked at since, and does none of what it did before.
            self._looks.clear()
            self._alone = looks, moves
        else:
            looks = ()
        before = len(self._looks)
        self._looks.extend((now, self._seen(look, moves)) for look in looks)
        while len(self._looks) > 1 and now - self._looks[0][0] > RECENT_S:
            old = self._looks.popleft()
            if old[1].own is not None and all(look.own is None for _, look in self._looks):
                # The latest wait stands until there is another.
                self._looks.appendleft(old)
                break
        if looks or len(self._looks) != before:
            self._sum_up()

    def _sum_up(self) -> None:
        """What the looks come to. Most processes are seen doing one thing, and the same as before."""
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
        # A thread replaces its process's own wait only by doing something: what it waits for says nothing.
        stands_in = wait.wait in INSIDE and not self.holds_gpu
        if stands_in and by in (None, "task queue", "peer") and thread in (RAN, "disk", "network"):
            doing, by = None if thread == RAN else thread, "thread"
        return _Look(own, doing, by, saves, thread, running)

    def account(self, now: float, run: float, queued: float, children_pct: float) -> tuple[FeederShares, str | None]:
        """Its shares since the last reading with what was done in whose place it waited, and what resolved that.

        ``run`` and ``queued`` are percent of one core, ``children_pct`` what children used that have ended.
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
        """A child was followed itself that has ended: what it used is no news when its parent is told of its end."""
        self._owed_s = min(MOST_OWED_S, self._owed_s + used_s)

    def _ended_share(self, elapsed: float, rest: float, children_pct: float) -> float:
        """The share of the time in which children ran that have ended: their time comes in one jump, at their end.

        ``rest`` is the share of the time that is not accounted for.
        """
        came = children_pct / 100.0 * elapsed
        new = max(0.0, came - self._owed_s)
        self._owed_s = max(0.0, self._owed_s - came)
        self._carried_s = min(MOST_CARRIED_S, self._carried_s + new)
        share = min(rest, self._carried_s / elapsed) if elapsed > 0.0 else 0.0
        self._carried_s -= share * elapsed
        return share

    def threads_shares(self, pool_pct: float) -> FeederShares:
        """What its other threads did together; ``pool_pct`` is what they ran, percent of one core.

        Threads that pass a core, a lock or a connection to each other are one feeder. Where more of them can run than
        do, they are queued.
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
        """Whether it does enough to be waited for, and its threads and sockets need not be read to know that."""
        return self.useful >= EXPLAINS and self.recent.by != "thread"

    @property
    def polls_inside(self) -> float:
        """The share of the looks at which one of its threads polled, or was in a socket, and none did more."""
        return self.recent.inside.get("queue", 0.0) + self.recent.inside.get("socket", 0.0)

    @property
    def in_socket(self) -> float:
        """The part of its time that is a wait in a socket whose family is not known, its own or that of a thread."""
        inside = self.recent.inside.get("socket", 0.0)
        if self.holds_gpu:
            return inside
        return max(0.0, 1.0 - self.own.cpu) * max(inside, self.recent.own.get("socket", 0.0))

    def main_waits(self, now: float, rest: float) -> tuple[MainWaits, float]:
        """The part ``rest`` of a main thread's time by what it waited for, and how much of that for writing a file."""
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
        """Whom it waited for at these looks, of these kinds; children that came one after the other are one feeder."""
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
"""CPU time of children that have ended counts from this share of the time on."""


def used_s(stat: Stat) -> float:
    """CPU time of a process and of its children that have ended."""
    return (stat.cpu_ticks + stat.children_ticks) / TICKS_PER_S


def looks_of(looks: Iterable[SeenWait]) -> MainLooks:
    """These looks by state, see ``LookState``."""
    words = ("other" if look.wait.wait in (BLOCKED, "socket", LOCAL) else look.wait.wait for look in looks)
    return main_looks((word, 1) for word in words)


def _class_of(wait: ThreadWait, *, moves: bool) -> str:
    """The class of a wait; ``moves``: the process reads from or writes to a disk, which settles what state D is."""
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
    """``run`` and ``queued`` in percent of one core; the rest of the time goes to what was waited for.

    ``waits`` are classes of ``wait_look`` with their shares of the rest; without any it is unread.
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
"""Where the share of a class of waits stands among those of a feeder; all other classes are ``other``."""
_OTHER = _PLACE["other"]


def partly(feeder: FeederShares, part: float, other: FeederShares) -> FeederShares:
    """A feeder of whose waits ``part`` (of all time) is for another one, and goes as that one's time goes.

    It is taken from what it waits for that is of no class of its own, then from all its waits in proportion.
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
    """Polling while data comes in counts as waiting for the network, and so do waits in a socket of unknown family."""
    in_socket = min(in_socket, shares.other)
    return replace(shares, network=shares.network + shares.poll + in_socket, poll=0.0, other=shares.other - in_socket)
