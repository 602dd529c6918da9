"""What one process or thread did since it was last read, as a feeder: shares of its time. Pure.

Run and queued time are counters; a wait is only seen at looks. So the time that was neither goes to what it was seen
waiting for at its latest looks, in proportion: over a window these samples give the shares.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import astuple, replace

from gputop.model.feeders import NO_SHARES, FeederShares, MainLooks, MainWaits, WaitEnd


class FeedReading(Struct, frozen=True):
    """A feeder's shares (0–1) since its last reading. ``by`` says what resolved a wait, None if unneeded."""

    shares: FeederShares = NO_SHARES
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
    inside: FeederShares | None = None
    """What its busiest thread does: it counts once bytes prove that its polling is a fetch."""
    in_socket: float = 0.0
    """The part of ``other`` that is a wait in a socket whose family is not known."""
    mount: str | None = None
    """Where the networked file system is mounted on which it waits."""
    own_cpu: float = 0.0
    """The part of its time in which it was runnable itself; ``shares`` has what its children ran as well."""
    feeds_itself: bool = False
    """Whether ``shares`` are of children that live for a moment each, not of threads."""
    waits_for: tuple[WaitEnd, ...] | None = None
    """Whom or what the main thread waited for at those looks; None where that is not known."""


class Recent:
    """The waits of one thread at its latest looks: the time that it does not run goes to these, in proportion."""

    __slots__ = ("_looks", "_waits")

    def __init__(self, before: Recent | None = None) -> None:
        self._looks: deque[tuple[float, str]] = deque(() if before is None else before._looks, maxlen=MOST_LOOKS)
        self._waits: Mapping[str, float] | None = None
        """What the looks come to; None once one was added."""

    def add(self, now: float, wait: str) -> None:
        """Add the wait of one look; a look at which it ran is none."""
        self._looks.append((now, wait))
        self._waits = None

    def waits(self, now: float) -> Mapping[str, float]:
        """Each wait with its share of the looks of the last seconds; of the latest look where all are older."""
        looks = self._looks
        while len(looks) > 1 and now - looks[0][0] > RECENT_S:
            looks.popleft()
            self._waits = None
        if self._waits is None:
            shares: dict[str, float] = {}
            for _, wait in looks:
                shares[wait] = shares.get(wait, 0.0) + 1.0
            self._waits = {wait: count / len(looks) for wait, count in shares.items()}
        return self._waits

    def __bool__(self) -> bool:
        return bool(self._looks)


def shares_of(run: float, queued: float, waits: Mapping[str, float] | str | None) -> FeederShares:
    """``run`` and ``queued`` in percent of one core; the rest of the time goes to what was waited for.

    ``waits`` are classes of ``wait_look`` with their shares of the rest, or one class for all of it; None is unread.
    """
    run, queued = run / 100.0, queued / 100.0
    runnable = run + queued
    if runnable >= 1.0:
        # Several threads may exceed 1; as a share of time, runnable is capped there.
        return FeederShares(run / runnable, queued / runnable)
    rest = 1.0 - runnable
    if not waits:
        return FeederShares(run, queued, unread=rest)
    if isinstance(waits, str):
        waits = {waits: 1.0}
    values = [run, queued, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    for wait, share in waits.items():
        values[_PLACE_OF.get(wait, _OTHER)] += rest * share
    return FeederShares(*values)


_PLACE = {name: place for place, name in enumerate(FeederShares.__struct_fields__)}
_PLACE_OF = {name: _PLACE[name] for name in ("disk", "network", "lock", "sleep", "run")} | {"queue": _PLACE["poll"]}
"""Where the share of a class of waits stands among those of a feeder; all other classes are ``other``."""
_OTHER = _PLACE["other"]


def main_waits_of(rest: float, waits: Mapping[str, float]) -> MainWaits:
    """The part ``rest`` of a main thread's time by what it waited for."""
    if not waits:
        return MainWaits(unread=rest)
    parts = dict.fromkeys(MainWaits.__struct_fields__, 0.0)
    for wait, share in waits.items():
        name = "poll" if wait == "queue" else wait
        parts[name if name in parts else "other"] += rest * share
    return MainWaits(**parts)


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


class Smoothed:
    """The mean shares of the last ten seconds or so."""

    __slots__ = ("at", "shares")

    def __init__(self) -> None:
        self.at: float | None = None
        self.shares = [0.0] * len(FeederShares.__struct_fields__)

    def add(self, now: float, shares: FeederShares) -> None:
        """Add a reading."""
        last, self.at = self.at, now
        new = astuple(shares)
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
RECENT_S = 5.0
"""For so long a look at a wait counts."""
MOST_LOOKS = 32
