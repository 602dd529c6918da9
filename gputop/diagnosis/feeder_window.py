"""What each feeder of one GPU did over the window: sums by feeder, kept up to date sample by sample.

Batches come in order, so the feeder that has most to do decides, not the mean: one waiting worker of four starves the
GPU with a mean of a quarter.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from gputop.model.feeders import NO_SHARES, FeederKind, Feeders, FeederShares, WaitEnd

STATES = 9
DISK, NETWORK, LOCK, SLEEP, POLL = 2, 3, 4, 5, 6
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
PROOFS = ("socket", "connections")
PROVEN_FOR_S = 30.0
"""For so long after its sockets were last seen receiving, polling counts as waiting for the network."""
NEARLY = 0.1
"""A process is preferred to a thread unless the thread's useful share is larger by more than this."""


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


class _Tick(Struct, frozen=True):
    """One sample: its rows, and the share of it that some process spent on disk or network, at most."""

    t: float
    rows: tuple[FeederRow, ...]
    disk: float
    network: float
    ends: tuple[WaitEnd, ...]


class _Sums:
    __slots__ = ("count", "latest", "proven_at", "values")

    def __init__(self) -> None:
        self.proven_at = float("-inf")
        self.values = [0.0] * STATES
        self.count = 0
        self.latest: FeederRow | None = None

    @property
    def does_something(self) -> bool:
        """Whether it ran, or waited for data or a disk, in any sample at all."""
        return sum(self.values[:4]) >= DOES_SOMETHING * self.count

    def shares(self) -> FeederShares:
        return _shares([value / self.count for value in self.values])


class FeederWindow:
    """The rows of the last ``seconds``."""

    __slots__ = ("_any_disk", "_any_network", "_leading", "_named", "_rows", "_seconds", "_sums")

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._rows: deque[_Tick] = deque()
        self._any_disk = self._any_network = 0.0
        self._sums: dict[int, _Sums] = {}
        self._named = Counter[int]()
        """By process, in how many percent of the looks of each sample the main thread waited for it; summed up."""
        self._leading: Literal["cpu", "disk", "network"] = "cpu"

    def __len__(self) -> int:
        return len(self._rows)

    def latest(self, seconds: float) -> list[tuple[float, float]]:
        """How much any process was on disk, and on the network: means of the last ``seconds``, and of before."""
        horizon = self._rows[-1].t - seconds + 0.0005 if self._rows else 0.0
        new = [tick for tick in self._rows if tick.t > horizon]
        count, before = len(new), len(self._rows) - len(new)
        if not count or not before:
            return []
        disk, network = sum(tick.disk for tick in new), sum(tick.network for tick in new)
        return [
            (disk / count, (self._any_disk - disk) / before),
            (network / count, (self._any_network - network) / before),
        ]

    def push(self, t: float, rows: tuple[FeederRow, ...], ends: tuple[WaitEnd, ...] = ()) -> None:
        """Add a sample and drop those older than the window. ``ends`` are what the main thread waited for in it."""
        self._count(ends, 1)
        sums = self._sums
        disk = network = 0.0
        for row in rows:
            feeder = sums.get(row.key)
            if feeder is None:
                feeder = sums[row.key] = _Sums()
            feeder.count += 1
            feeder.latest = row
            if row.by in PROOFS:
                feeder.proven_at = t
            values, added = feeder.values, row.values
            values[0] += added[0]
            values[1] += added[1]
            values[2] += added[2]
            values[3] += added[3]
            values[4] += added[4]
            values[5] += added[5]
            values[6] += added[6]
            values[7] += added[7]
            values[8] += added[8]
            if row.key >= 0:
                disk = added[DISK] if added[DISK] > disk else disk
                network = added[NETWORK] if added[NETWORK] > network else network
        disk, network = disk / 100.0, network / 100.0
        self._rows.append(_Tick(t, rows, disk, network, ends))
        self._any_disk += disk
        self._any_network += network
        self.keep(self._seconds)

    def keep(self, seconds: float) -> None:
        """Drop what is more than ``seconds`` older than the latest sample."""
        horizon = self._rows[-1].t - seconds + 0.0005 if self._rows else 0.0
        sums = self._sums
        while self._rows and self._rows[0].t <= horizon:
            tick = self._rows.popleft()
            self._count(tick.ends, -1)
            self._any_disk -= tick.disk
            self._any_network -= tick.network
            for row in tick.rows:
                feeder = sums[row.key]
                feeder.count -= 1
                if feeder.count == 0:
                    del sums[row.key]
                    continue
                values, gone = feeder.values, row.values
                values[0] -= gone[0]
                values[1] -= gone[1]
                values[2] -= gone[2]
                values[3] -= gone[3]
                values[4] -= gone[4]
                values[5] -= gone[5]
                values[6] -= gone[6]
                values[7] -= gone[7]
                values[8] -= gone[8]

    def clear(self) -> None:
        """Forget everything."""
        self._rows.clear()
        self._sums.clear()
        self._named.clear()
        self._any_disk = self._any_network = 0.0

    def _count(self, ends: tuple[WaitEnd, ...], sign: int) -> None:
        for end in ends:
            for pid in end.pids:
                self._named[pid] += sign * round(end.pct)
                if not self._named[pid]:
                    del self._named[pid]

    def feeds(self, key: int) -> bool:
        """Whether what has this key may be what the main thread waits for: all others are bystanders.

        A line of children has its parent's key, whatever theirs were. Where the main thread was not seen waiting for
        any process, nobody is ruled out.
        """
        named = self._named
        if not named or (key < 0 and not any(pid in self._sums for pid in named)):
            return True
        return named[abs(key)] >= OF_MOST * max(named.values())

    def _are_called_feeders(self) -> bool:
        """Whether most of what the main thread waits for is known by its name alone."""
        shares = Counter[bool]()
        for tick in self._rows:
            for end in tick.ends:
                if end.pids:
                    shares[end.via == "name"] += round(end.pct)
        return shares[True] > shares[False]

    def feeders(self) -> Feeders | None:
        """The feeders, and the busiest of them; None where no sample of the window knows any feeder."""
        sums = {key: feeder_sums for key, feeder_sums in self._sums.items() if self.feeds(key)}
        if not sums:
            return None
        least = min(LEAST_SEEN, max([feeder_sums.count for feeder_sums in sums.values()]))
        ranked = [
            (*_rank(key, feeder_sums), key, feeder_sums)
            for key, feeder_sums in sums.items()
            if feeder_sums.count >= least
        ]
        processes = [row for row in ranked if row[3] >= 0]
        threads = [row for row in ranked if row[3] < 0] if len(processes) < len(ranked) else []
        useful, _, _, best_key, best = max(processes or threads)
        if processes and threads:
            other = max(threads)
            if other[0] > useful + NEARLY and other[0] >= HALF_AS_MUCH:
                useful, best_key, best = other[0], *other[3:]
        latest = best.latest
        if latest is None:
            return None
        kind = latest.kind
        same_kind = [row for row in processes if row[4].latest is not None and row[4].latest.kind == kind]
        # A dataloader's workers share its work even while they idle; others that did nothing are no feeders at all.
        peers = [row for row in same_kind if row[3] == best_key or latest.what == "workers" or row[4].does_something]
        if best_key < 0:
            peers = [row for row in threads if row[3] == best_key]
        busiest = best.shares()
        if self._rows[-1].t - best.proven_at <= PROVEN_FOR_S:
            # What is proven now also held before the proof: the first looks at sockets take a while.
            late = busiest.poll + busiest.unread
            busiest = replace(busiest, network=busiest.network + late, poll=0.0, unread=0.0)
        self._leading = _leading(busiest, self._leading)
        working = sum([row[0] >= HALF_AS_MUCH * useful for row in peers])
        named = self._leading if busiest.useful else "poll"
        active = sum([_share(row[4].shares(), named) >= HALF_AS_MUCH * _share(busiest, named) for row in peers])
        keys = {row[3] for row in peers}
        n = latest.count if best_key < 0 else max(1, sum([row.key in keys for row in self._rows[-1].rows]))
        active = n if best_key < 0 else min(active, n)
        working = n if best_key < 0 else min(working, n)
        return Feeders(
            n=n,
            kind=kind,
            busiest=busiest,
            mean=_mean([row[4] for row in peers]),
            leading=self._leading,
            pid=abs(best_key),
            active=active,
            uneven=best_key >= 0 and n >= 2 and busiest.useful >= UNEVEN_FROM and 2 * working <= n,
            any_disk=max(0.0, self._any_disk / len(self._rows)),
            by=latest.by or (BY_NAME if self._are_called_feeders() else None),
            rx_bytes_per_s=latest.rx_bytes_per_s,
            why_blind=latest.why_blind,
            what=latest.what,
            any_unread=max((row.values[8] for row in self._rows[-1].rows if row.key in keys), default=0.0) / 100.0,
            mount=latest.mount,
        )


def _share(shares: FeederShares, state: Literal["cpu", "disk", "network", "poll"]) -> float:
    return {"cpu": shares.cpu, "disk": shares.disk, "network": shares.network, "poll": shares.poll}[state]


def _leading(shares: FeederShares, before: Literal["cpu", "disk", "network"]) -> Literal["cpu", "disk", "network"]:
    parts: dict[Literal["cpu", "disk", "network"], float] = {
        "cpu": shares.cpu, "disk": shares.disk, "network": shares.network,
    }  # fmt: skip
    best = max(parts, key=lambda name: parts[name])
    return best if parts[best] > parts[before] + CLEARLY_AHEAD else before


def _rank(key: int, feeder_sums: _Sums) -> tuple[float, float, int]:
    """Most useful first; among those that do nothing useful, those that poll; then the lowest key, so that it stays
    put."""
    values, whole = feeder_sums.values, 100.0 * feeder_sums.count
    return round((values[0] + values[1] + values[2] + values[3]) / whole, 2), round(values[6] / whole, 2), -abs(key)


def _mean(peers: list[_Sums]) -> FeederShares:
    n = len(peers)
    columns = zip(*[[value / feeder_sums.count for value in feeder_sums.values] for feeder_sums in peers], strict=True)
    return _shares([sum(column) / n for column in columns]) if n else NO_SHARES


def _shares(percent: list[float]) -> FeederShares:
    """Means in percent as shares: sums of floats may err by a rounding."""
    return FeederShares(*[min(1.0, max(0.0, value / 100.0)) for value in percent])
