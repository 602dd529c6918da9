"""What each feeder of one GPU did over the window: sums by feeder, kept up to date sample by sample.

Batches come in order, so the feeder that has most to do decides, not the mean: one waiting worker of four starves the
GPU with a mean of a quarter.
"""

from __future__ import annotations

from collections import deque
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from gputop.model.feeders import NO_SHARES, Feeders, FeederShares

STATES = 7
DISK, NETWORK = 2, 3
LEAST_SEEN = 5
"""Samples below which a feeder is no measure of anything, as long as others have more."""
HALF_AS_MUCH = 0.5
UNEVEN_FROM = 0.5
CLEARLY_AHEAD = 0.1
PROOFS = ("socket", "connections")
PROVEN_FOR_S = 30.0
"""Polling counts as waiting for the network for so long after its sockets were last seen to receive."""
NEARLY = 0.1
"""A process goes before a thread that does hardly more than it."""


class FeederRow(Struct, frozen=True):
    """One feeder in one sample. ``key`` names it: a pid, or its negative for the threads of that process."""

    key: int
    kind: str
    values: tuple[float, ...]
    by: str | None = None
    rx_bytes_per_s: float | None = None
    count: int = 1
    why_blind: str | None = None


class _Sums:
    __slots__ = ("count", "latest", "proven_at", "values")

    def __init__(self) -> None:
        self.proven_at = float("-inf")
        self.values = [0.0] * STATES
        self.count = 0
        self.latest: FeederRow | None = None

    def shares(self) -> FeederShares:
        return FeederShares(*(max(0.0, min(1.0, value / self.count)) for value in self.values))

    @property
    def useful(self) -> float:
        return sum(self.values[:4]) / self.count


class FeederWindow:
    """The rows of the last ``seconds``."""

    __slots__ = ("_leading", "_rows", "_seconds", "_sums")

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._rows: deque[tuple[float, tuple[FeederRow, ...]]] = deque()
        self._sums: dict[int, _Sums] = {}
        self._leading: Literal["cpu", "disk", "network"] = "cpu"

    def __len__(self) -> int:
        return len(self._rows)

    def latest(self, seconds: float) -> tuple[FeederShares, FeederShares] | None:
        """The mean over all feeders in the last ``seconds``, and in the time before them; None without both."""
        if not self._rows:
            return None
        horizon = self._rows[-1][0] - seconds + 0.0005
        sums = [[0.0] * STATES, [0.0] * STATES]
        counts = [0, 0]
        for t, rows in self._rows:
            part = 0 if t > horizon else 1
            for row in rows:
                counts[part] += 1
                sums[part] = [total + value for total, value in zip(sums[part], row.values, strict=True)]
        if not counts[0] or not counts[1]:
            return None
        new, old = (FeederShares(*(v / c for v in values)) for values, c in zip(sums, counts, strict=True))
        return new, old

    def push(self, t: float, rows: tuple[FeederRow, ...]) -> None:
        """Take a sample in and let go of those that are older than the window."""
        self._rows.append((t, rows))
        sums = self._sums
        for row in rows:
            known = sums.get(row.key)
            if known is None:
                known = sums[row.key] = _Sums()
            known.count += 1
            known.latest = row
            if row.by in PROOFS:
                known.proven_at = t
            known.values = [total + value for total, value in zip(known.values, row.values, strict=True)]
        self.keep(self._seconds)

    def keep(self, seconds: float) -> None:
        """Let go of what is older than so many seconds before the latest sample."""
        horizon = self._rows[-1][0] - seconds + 0.0005 if self._rows else 0.0
        sums = self._sums
        while self._rows and self._rows[0][0] <= horizon:
            for row in self._rows.popleft()[1]:
                known = sums[row.key]
                known.count -= 1
                if known.count == 0:
                    del sums[row.key]
                else:
                    known.values = [total - value for total, value in zip(known.values, row.values, strict=True)]

    def clear(self) -> None:
        """Begin afresh."""
        self._rows.clear()
        self._sums.clear()

    def feeders(self) -> Feeders | None:
        """Who feeds, and the busiest of them; None where no sample of the window knows any feeder."""
        sums = self._sums
        if not sums:
            return None
        least = min(LEAST_SEEN, max(known.count for known in sums.values()))
        settled = {key: known for key, known in sums.items() if known.count >= least}
        processes = {key: known for key, known in settled.items() if key >= 0}
        threads = {key: known for key, known in settled.items() if key < 0}
        best_key, best = max((processes or threads).items(), key=_rank)
        if processes and threads:
            key, other = max(threads.items(), key=_rank)
            if other.useful > best.useful + NEARLY and other.useful >= HALF_AS_MUCH:
                best_key, best = key, other
        latest = best.latest
        if latest is None:
            return None
        peers = [best] if best_key < 0 else [k for k in processes.values() if k.latest and k.latest.kind == latest.kind]
        busiest = best.shares()
        if self._rows[-1][0] - best.proven_at <= PROVEN_FOR_S:
            # What is proven now was the same before the proof: the first looks at sockets take a while.
            busiest = replace(busiest, network=busiest.network + busiest.poll, poll=0.0)
        self._leading = _leading(busiest, self._leading)
        active = sum(1 for known in peers if known.useful >= HALF_AS_MUCH * best.useful)
        present = {row.key for row in self._rows[-1][1]} & {k.latest.key for k in peers if k.latest}
        n = latest.count if best_key < 0 else max(1, len(present))
        active = n if best_key < 0 else min(active, n)
        return Feeders(
            n=n,
            kind=latest.kind,
            busiest=busiest,
            mean=_mean(peers),
            leading=self._leading,
            pid=abs(best_key),
            active=active,
            uneven=best_key >= 0 and n >= 2 and busiest.useful >= UNEVEN_FROM and 2 * active <= n,
            any_disk=self._any(DISK),
            any_network=self._any(NETWORK),
            by=latest.by,
            rx_bytes_per_s=latest.rx_bytes_per_s,
            why_blind=latest.why_blind,
        )

    def _any(self, state: int) -> float:
        """Mean over the samples of the most that any process spent in a state."""
        most = [max((row.values[state] for row in rows if row.key >= 0), default=0.0) for _, rows in self._rows]
        return sum(most) / len(most)


def _leading(shares: FeederShares, before: Literal["cpu", "disk", "network"]) -> Literal["cpu", "disk", "network"]:
    parts: dict[Literal["cpu", "disk", "network"], float] = {
        "cpu": shares.cpu, "disk": shares.disk, "network": shares.network,
    }  # fmt: skip
    best = max(parts, key=lambda name: parts[name])
    return best if parts[best] > parts[before] + CLEARLY_AHEAD else before


def _rank(item: tuple[int, _Sums]) -> tuple[float, float, int]:
    """Most useful first; among those that do nothing useful who polls; then the lowest key, so that it stays put."""
    key, known = item
    return round(known.useful, 2), round(known.values[6] / known.count, 2), -abs(key)


def _mean(peers: list[_Sums]) -> FeederShares:
    if not peers:
        return NO_SHARES
    parts = [known.shares() for known in peers]
    return FeederShares(*(sum(getattr(p, name) for p in parts) / len(parts) for name in FeederShares.__struct_fields__))
