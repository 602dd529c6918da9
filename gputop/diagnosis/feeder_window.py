"""What each feeder of one GPU did over the window: sums by feeder, kept up to date sample by sample.

Batches come in order, so the feeder that has most to do decides, not the mean: one waiting worker of four starves the
GPU with a mean of a quarter.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from itertools import islice
from operator import add, sub
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from gputop.model.feeders import PIN_MEMORY_THREAD, FeederKind, Feeders, FeederShares, Via, WaitEnd

Leading = Literal["cpu", "disk", "network"]
STATES = 9
DISK, NETWORK, LOCK, SLEEP, POLL, UNREAD = 2, 3, 4, 5, 6, 8
LEAST_SEEN = 5
"""A feeder with fewer samples is not judged while others have more."""
HALF_AS_MUCH = 0.5
UNEVEN_FROM = 0.5
DOES_SOMETHING = 2.0
"""Percent of its time in which a process ran, or waited for data or a disk, from which on it counts [judged]."""
CLEARLY_AHEAD = 0.1
OF_MOST = 0.2
"""A process that was waited for in so much less of the looks than another was a bystander then [judged]."""
BY_NAME = "name"
"""What resolved a wait for which nothing but the name of a process says whom it is for."""
PIN_MEMORY_KIND = "pin_memory threads"
PROOFS = ("socket", "connections")
PROVEN_FOR_S = 30.0
"""For so long after its sockets were last seen receiving, polling counts as waiting for the network."""
NEARLY = 0.1
"""A process is preferred to a thread unless the thread's useful share is larger by more than this."""
LAST_TICKS = 3
"""The most feeders of these samples is how many there are: at its end a job's workers go one after the other."""


class FeederRow(Struct, frozen=True):
    """One feeder in one sample, ``values`` in percent. ``key``: a pid, or its negative for that process's threads."""

    key: int
    kind: str
    values: tuple[float, ...]
    by: str | None = None
    rx_bytes_per_s: float | None = None
    count: int = 1
    why_blind: str | None = None
    what: FeederKind = "workers"
    mount: str | None = None
    address: str = ""


class _Tick(Struct, frozen=True):
    """One sample: its rows, and the percent of it that some process spent on disk or network, at most."""

    t: float
    rows: Sequence[FeederRow]
    disk: float
    network: float
    ends: tuple[WaitEnd, ...]


class _Sums(Struct):
    """One feeder over the window: its states in percent, summed up over ``count`` samples."""

    key: int
    latest: FeederRow
    count: int = 0
    values: tuple[float, ...] = (0.0,) * STATES
    proven_at: float = float("-inf")
    address: str = ""

    @property
    def useful(self) -> float:
        """The share of its time that goes into the next batch."""
        values = self.values
        return (values[0] + values[1] + values[2] + values[3]) / (100.0 * self.count)

    def part(self, state: Leading | Literal["poll"]) -> float:
        """The share of one state."""
        values = self.values
        of = {"cpu": values[0] + values[1], "disk": values[DISK], "network": values[NETWORK], "poll": values[POLL]}
        return of[state] / (100.0 * self.count)


class FeederWindow:
    """The rows of the last ``seconds``."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._ticks: deque[_Tick] = deque()
        self._sums: dict[int, _Sums] = {}
        self._named = Counter[int]()
        """By process, in how many percent of the looks of each sample the main thread waited for it; summed up."""
        self._leading: Leading = "cpu"

    def latest(self, seconds: float) -> list[tuple[float, float]]:
        """How much any process was on disk, and on the network: means of the last ``seconds``, and of before."""
        horizon = self._ticks[-1].t - seconds + 0.0005 if self._ticks else 0.0
        parts = [[tick for tick in self._ticks if (tick.t > horizon) == is_new] for is_new in (True, False)]
        if not all(parts):
            return []
        new, before = [
            (sum([tick.disk for tick in ticks]) / len(ticks), sum([tick.network for tick in ticks]) / len(ticks))
            for ticks in parts
        ]
        return [(now / 100.0, then / 100.0) for now, then in zip(new, before, strict=True)]

    def push(self, t: float, rows: Sequence[FeederRow], ends: tuple[WaitEnd, ...] = ()) -> None:
        """Add a sample and drop those older than the window. ``ends`` are what the main thread waited for in it."""
        self._count(ends, 1)
        for row in rows:
            feeder = self._sums.get(row.key)
            if feeder is None:
                feeder = self._sums[row.key] = _Sums(row.key, row)
            feeder.count += 1
            feeder.latest, feeder.address = row, row.address or feeder.address
            feeder.values = tuple(map(add, feeder.values, row.values))
            if row.by in PROOFS:
                feeder.proven_at = t
        disk = max([row.values[DISK] for row in rows if row.key >= 0], default=0.0)
        network = max([row.values[NETWORK] for row in rows if row.key >= 0], default=0.0)
        self._ticks.append(_Tick(t, rows, disk, network, ends))
        self.keep(self._seconds)

    def keep(self, seconds: float) -> None:
        """Drop what is more than ``seconds`` older than the latest sample."""
        horizon = self._ticks[-1].t - seconds + 0.0005 if self._ticks else 0.0
        while self._ticks and self._ticks[0].t <= horizon:
            tick = self._ticks.popleft()
            self._count(tick.ends, -1)
            for row in tick.rows:
                feeder = self._sums[row.key]
                feeder.count -= 1
                feeder.values = tuple(map(sub, feeder.values, row.values))
                if feeder.count == 0:
                    del self._sums[row.key]

    def _count(self, ends: tuple[WaitEnd, ...], sign: int) -> None:
        for end in ends:
            for pid in end.pids:
                self._named[pid] += sign * round(end.pct)
                if not self._named[pid]:
                    del self._named[pid]

    def feeding(self, rows: Iterable[FeederRow]) -> list[FeederRow]:
        """Those that may be what the main thread waits for: all others are bystanders.

        A line of children has its parent's key, whatever theirs were. Where the main thread was not seen waiting for
        any process, nobody is ruled out.
        """
        named, sums = self._named, self._sums
        if not named:
            return list(rows)
        least, knows = OF_MOST * max(named.values()), not sums.keys().isdisjoint(named)
        return [row for row in rows if (row.key < 0 and not knows) or named.get(abs(row.key), 0) >= least]

    def _via(self) -> tuple[Via | None, bool]:
        """By what the main thread mostly waits for others or threads of its own, and whether that is what it mostly
        waits for at all."""
        shares, elsewhere = Counter[Via](), 0.0
        for tick in self._ticks:
            for end in tick.ends:
                if end.pids:
                    shares[end.via] += round(end.pct)
                elif end.via not in ("timer", "gpu"):
                    elsewhere += end.pct
        return max(shares, key=lambda via: shares[via], default=None), shares.total() > elsewhere

    def _is_pin_memory(self) -> bool:
        """Whether of the main thread's own threads it waits for the one that pins memory."""
        threads = [end for tick in self._ticks for end in tick.ends if end.via == "thread"]
        pins = sum(end.pct for end in threads if end.detail.startswith(PIN_MEMORY_THREAD))
        return 2.0 * pins > sum(end.pct for end in threads)

    @property
    def address(self) -> str:
        """Where the main thread's own connection leads; empty where that was not seen."""
        shares = Counter[str]()
        for tick in self._ticks:
            for end in tick.ends:
                if end.via == "network" and end.detail:
                    shares[end.detail] += round(end.pct)
        return max(shares, key=lambda address: shares[address], default="")

    def feeders(self) -> Feeders | None:
        """The feeders, and the busiest of them; None where no sample of the window knows any feeder."""
        feeding = [self._sums[row.key] for row in self.feeding([feeder.latest for feeder in self._sums.values()])]
        if not feeding:
            return None
        least = min(LEAST_SEEN, max([feeder.count for feeder in feeding]))
        processes = [feeder for feeder in feeding if feeder.count >= least and feeder.key >= 0]
        threads = [feeder for feeder in feeding if feeder.count >= least and feeder.key < 0]
        best = _busiest(processes or threads)
        if processes and threads:
            other = _busiest(threads)
            if other.useful > best.useful + NEARLY and other.useful >= HALF_AS_MUCH:
                best = other
        useful, latest = best.useful, best.latest
        # A dataloader's workers share its work even while they idle; others that did nothing are no feeders at all.
        peers = [best] if best.key < 0 else [
            feeder
            for feeder in processes
            if feeder.latest.kind == latest.kind
            and (feeder is best or latest.what == "workers" or 100.0 * feeder.useful >= DOES_SOMETHING)
        ]  # fmt: skip
        busiest = _mean([best])
        if self._ticks[-1].t - best.proven_at <= PROVEN_FOR_S:
            # What is proven now also held before the proof: the first looks at sockets take a while.
            late = busiest.poll + busiest.unread
            busiest = replace(busiest, network=busiest.network + late, poll=0.0, unread=0.0)
        parts: dict[Leading, float] = {"cpu": busiest.cpu, "disk": busiest.disk, "network": busiest.network}
        leading = max(parts, key=lambda name: parts[name])
        if parts[leading] > parts[self._leading] + CLEARLY_AHEAD:
            self._leading = leading
        most = parts[self._leading] if busiest.useful else busiest.poll
        named: Leading | Literal["poll"] = self._leading if busiest.useful else "poll"
        working = sum([feeder.useful >= HALF_AS_MUCH * useful for feeder in peers])
        active = sum([feeder.part(named) >= HALF_AS_MUCH * most for feeder in peers])
        keys = {feeder.key for feeder in peers}
        latest_ticks = islice(reversed(self._ticks), LAST_TICKS)
        rows = max([[row for row in tick.rows if row.key in keys] for tick in latest_ticks], key=len)
        n, kind = latest.count if best.key < 0 else max(1, len(rows)), latest.kind
        if best.key < 0 and self._is_pin_memory():
            n, kind = 1, PIN_MEMORY_KIND
        via, is_waited_for = self._via()
        return Feeders(
            n=n,
            kind=kind,
            busiest=busiest,
            mean=_mean(peers),
            leading=self._leading,
            pid=abs(best.key),
            active=n if best.key < 0 else min(active, n),
            uneven=best.key >= 0 and n >= 2 and busiest.useful >= UNEVEN_FROM and 2 * min(working, n) <= n,
            any_disk=sum([tick.disk for tick in self._ticks]) / len(self._ticks) / 100.0,
            by=latest.by or (BY_NAME if via == "name" else None),
            rx_bytes_per_s=latest.rx_bytes_per_s,
            why_blind=latest.why_blind,
            what=latest.what,
            any_unread=max([row.values[UNREAD] for row in rows], default=0.0) / 100.0,
            mount=latest.mount,
            address=best.address,
            via=via if is_waited_for and via != "name" else None,
        )


def _busiest(feeders: list[_Sums]) -> _Sums:
    """Most useful first; among those that do nothing useful, those that poll; then the lowest key, so that it stays
    put."""
    nearly = max([feeder.useful for feeder in feeders]) - 0.01
    most = [feeder for feeder in feeders if feeder.useful >= nearly]
    return max(most, key=lambda feeder: (round(feeder.useful, 2), round(feeder.part("poll"), 2), -abs(feeder.key)))


def _mean(peers: Sequence[_Sums]) -> FeederShares:
    """The mean of their shares; sums of floats may err by a rounding."""
    columns = zip(*[[value / feeder.count for value in feeder.values] for feeder in peers], strict=True)
    return FeederShares(*[min(1.0, max(0.0, sum(column) / len(peers) / 100.0)) for column in columns])
