"""The GPU time lost in the last hour, in bins of five minutes, each judged by the same rules as the present.

Bins lie on whole five minutes of Unix time, so that each is read once, whether the screen runs on or goes back.
Nodes that run gputop count their own seconds by state, which survive gaps between scrapes; their counters go before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from math import floor
from typing import NamedTuple, get_args

from gputop.diagnosis.types import State
from gputop.fleet.decode import Identity, Key, in_units
from gputop.fleet.judge import lost_hours, state_of
from gputop.fleet.plan import QUIET_UTIL
from gputop.fleet.reading import HOUR_S, GpuReading, Lost

BIN_S = 300.0
BINS = int(HOUR_S / BIN_S)
AT_ONCE = 4
"""Bins of one query: a whole hour of 8,000 GPUs would take the engine more than a second."""
MOST_KEPT = 60

Bin = dict[tuple[Key, str, str], tuple[State, float]]
"""(GPU, job, user) → its state and the GPU-hours that were no work."""


def bin_ends(t: float) -> list[float]:
    """The ends of the bins of the last hour, oldest first: only whole bins."""
    last = floor(t / BIN_S) * BIN_S
    return [last - i * BIN_S for i in reversed(range(BINS))]


class Owned(NamedTuple):
    """A GPU with the job that it then had, as the labels of one series name it."""

    gpu: Key
    job: str
    user: str


Point = tuple[float, Owned, float]
"""Unix time, GPU, value as exported."""


class Hours:
    """Bins by the time at which they end, and the nodes' own counters by the same."""

    def __init__(self) -> None:
        self._bins: dict[float, Bin] = {}
        self._own: dict[float, dict[Key, dict[State, float]]] = {}

    def missing(self, t: float, *, binned: bool, own: bool) -> tuple[list[float], bool]:
        """The next bins to ask for, oldest first, and whether the counters are to be asked for."""
        ends = bin_ends(t)
        wanted = [end for end in ends if end not in self._bins] if binned else []
        run = wanted[:1]
        for end in wanted[1:AT_ONCE]:
            if end - run[-1] == BIN_S:
                run.append(end)
        return run, own and ends[-1] not in self._own

    def take(self, ends: Sequence[float], points: Mapping[str, Iterable[Point]]) -> None:
        """Judge these bins. ``points`` are those of each metric and of ``quiet``."""
        by_end: dict[float, dict[str, list[tuple[Owned, float]]]] = {end: defaultdict(list) for end in ends}
        for name, found in points.items():
            for t, owned, value in found:
                of_bin = by_end.get(round(t / BIN_S) * BIN_S)
                if of_bin is not None:
                    of_bin[name].append((owned, value))
        for end, of_bin in by_end.items():
            self._bins[end] = _judged(of_bin)
        for old in sorted(self._bins)[: max(0, len(self._bins) - MOST_KEPT)]:
            del self._bins[old]

    def take_own(self, t: float, seconds: Iterable[tuple[tuple[Key, str], float]]) -> None:
        """Add the nodes' own seconds by GPU and state over the hour before the last bin's end."""
        found: dict[Key, dict[State, float]] = defaultdict(dict)
        for (key, state), value in seconds:
            if state in get_args(State):
                found[key][state] = value / 3600.0  # type: ignore[index]
        self._own = {bin_ends(t)[-1]: found}

    def lost(self, t: float, identities: Mapping[Key, Identity], *, binned: bool, own: bool) -> list[Lost] | None:
        """The last hour, summed by GPU, job and state; None until all of it was read."""
        ends = bin_ends(t)
        if (binned and any(end not in self._bins for end in ends)) or (own and ends[-1] not in self._own):
            return None
        sums: dict[tuple[Key, str, str, State], float] = defaultdict(float)
        for end in ends if binned else ():
            for (key, job, user), (state, gpu_h) in self._bins[end].items():
                sums[key, job, user, state] += gpu_h
        for key, seconds in self._own[ends[-1]].items() if own else ():
            who = identities.get(key)
            for state, gpu_h in seconds.items():
                sums[key, who.job if who else "", who.user if who else "", state] += gpu_h
        return [
            Lost(who.host, who.gpu, job, user, state, gpu_h)
            for (key, job, user, state), gpu_h in sums.items()
            if (who := identities.get(key)) is not None
        ]


def _judged(points: Mapping[str, Sequence[tuple[Owned, float]]]) -> Bin:
    util, sm, held = (
        in_units(((owned.gpu, value) for owned, value in points[key]), key)
        for key in ("util_pct", "sm_active_pct", "mem_used_bytes")
    )
    quiet = in_units(((owned.gpu, value) for owned, value in points["quiet"]), "util_pct")
    jobs: dict[Key, tuple[str, str]] = {}
    for owned, _ in points["util_pct"]:
        jobs[owned.gpu] = min((owned.job, owned.user), jobs.get(owned.gpu, ("~", "")))
    found: Bin = {}
    for key, value in util.items():
        job, user = jobs.get(key, ("", ""))
        gpu = GpuReading(
            "",
            "",
            util_pct=value,
            sm_active_pct=sm.get(key),
            mem_used_bytes=held.get(key),
            is_quiet=quiet.get(key, QUIET_UTIL) < QUIET_UTIL,
            job=job,
        )
        state, _ = state_of(gpu)
        if state == "down":
            continue
        gpu_h = lost_hours(state, value, BIN_S / 3600.0)
        if gpu_h > 0.0:
            found[key, job, user] = (state, gpu_h)
    return found
