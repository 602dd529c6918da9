"""What one process or thread did since it was last read, as a feeder: seven shares of time. Pure.

Run and queued time are counters; a wait is only seen at the moment of the reading. So the time that was neither goes
to what was waited for when last seen waiting: over a window these samples give the shares.
"""

from __future__ import annotations

from msgspec import Struct

from gputop.model.feeders import NO_SHARES, FeederShares


class Feed(Struct, frozen=True):
    """A feeder's shares (0–1) since its last reading. ``by`` says what resolved a wait, None if unneeded."""

    shares: FeederShares = NO_SHARES
    by: str | None = None
    threads: int | None = None
    rx_bytes_per_s: float | None = None
    listens: bool | None = None
    why_blind: str | None = None
    unread: bool = False
    """Threads were not read: something else explains the waiting."""
    main_waits: str | None = None
    """What the main thread waited for at some random moments; None where that is not known."""


def shares_of(run: float, queued: float, waiting_on: str | None) -> FeederShares:
    """``run`` and ``queued`` in percent of one core; the rest of the time goes to what was waited for."""
    run, queued = run / 100.0, queued / 100.0
    runnable = run + queued
    if runnable >= 1.0:
        # Several threads may exceed 1; as a share of time, runnable is capped there.
        return FeederShares(run / runnable, queued / runnable)
    rest = 1.0 - runnable
    if waiting_on == "queue":
        return FeederShares(run, queued, 0.0, 0.0, 0.0, 0.0, rest)
    if waiting_on == "lock":
        return FeederShares(run, queued, 0.0, 0.0, rest)
    if waiting_on == "network":
        return FeederShares(run, queued, 0.0, rest)
    if waiting_on == "disk":
        return FeederShares(run, queued, rest)
    if waiting_on == "sleep":
        return FeederShares(run, queued, 0.0, 0.0, 0.0, rest)
    return FeederShares(run, queued)


def inherited(own: FeederShares, other: FeederShares) -> FeederShares:
    """Own runnable time, and the rest as another feeder spent its time, because the wait is for that one."""
    rest = max(0.0, 1.0 - own.run - own.queued)
    return FeederShares(
        own.run + rest * other.run,
        own.queued + rest * other.queued,
        rest * other.disk,
        rest * other.network,
        rest * other.lock,
        rest * other.sleep,
        rest * other.poll,
    )


def received(shares: FeederShares) -> FeederShares:
    """Polling while data comes in counts as waiting for the network."""
    return FeederShares(
        shares.run, shares.queued, shares.disk, shares.network + shares.poll, shares.lock, shares.sleep, 0.0
    )


class Smoothed:
    """The mean shares of the last ten seconds or so."""

    __slots__ = ("at", "shares")

    def __init__(self) -> None:
        self.at: float | None = None
        self.shares = [0.0] * len(FeederShares.__struct_fields__)

    def add(self, now: float, shares: FeederShares) -> None:
        """Add a reading."""
        last, self.at = self.at, now
        new = (shares.run, shares.queued, shares.disk, shares.network, shares.lock, shares.sleep, shares.poll)
        if last is None:
            self.shares = list(new)
            return
        weight = min(1.0, max(0.0, (now - last) / MEAN_S))
        self.shares = [old + weight * (value - old) for old, value in zip(self.shares, new, strict=True)]

    @property
    def useful(self) -> float:
        """Runnable, on disk or on the network."""
        return sum(self.shares[:4])


MEAN_S = 10.0
