"""Why samples are dropped before they are 30 s old: decided here, done in one place of a track.

``reasons_to_restart`` is pure: what the new sample says (``Arrival``) and the window before it give a list of reasons.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from operator import attrgetter
from typing import Any

from msgspec import Struct

from gputop.diagnosis import thresholds
from gputop.diagnosis.host.idle_runs import ZERO_UTIL, Pause
from gputop.diagnosis.window.host_side import HostMeans
from gputop.diagnosis.window.window import EPSILON_S, WINDOW_S, Second, mean
from gputop.model.sm import MEASURED

CHANGE_S, BEFORE_S, COMPARE_S = 8.0, 8.0, 3.0
"""The last eight seconds are compared with at least so many before, so often."""
CLEARLY = 0.5
"""Two means of a share this far apart do not come from one cause: at eight samples of a yes or no that is 2.8 times
the standard error."""
LONG_PAUSE_S = 60.0
"""The first kernel after a longer pause begins a new window [judged]."""


class Restart(Enum):
    """Why samples are dropped before they are 30 s old."""

    UNREADABLE = "the GPU could not be read"
    JOB_CHANGED = "another job, or none"
    UTIL_REFUTED = "util proved wrong"
    FIRST_KERNELS = "the job runs its first kernels"
    GAP = "no sample for longer than the window; conditions stay, a gap is no information"
    PAUSE_ENDED = "the first kernel after a minute without any"
    SM_SOURCE_CHANGED = (
        "two sources of one metric never mix: only the counters' columns are dropped"
    )
    CAUSE_CHANGED = "the last seconds contradict the window: only they are kept"
    TRAINING_BEGAN = "compiling and warming up were a part of the start"


KEEPS_SOME = frozenset((Restart.SM_SOURCE_CHANGED, Restart.CAUSE_CHANGED, Restart.TRAINING_BEGAN))
"""Reasons after which a part of the window stays; all others begin a new one."""


class Arrival(Struct, frozen=True):
    """What a new sample says of the window before it."""

    since_last_s: float
    second: Second
    job_is_over: bool = False
    """The processes that the window describes are gone."""
    refutes_util: bool = False
    """Util was measured before, and this sample proves it wrong."""
    has_first_kernels: bool = False
    busy_pct: float | None = None
    """How much of the sample the GPU was busy; None if not known."""
    sm_source: str = ""
    sm_source_before: str = ""
    trains_since: float | None = None
    """Unix time at which training began, where this sample shows it."""
    is_compared: bool = False
    """It is time to compare the last seconds with those before."""


def reasons_to_restart(
    new: Arrival, seconds: Sequence[Second], pause: Pause | None
) -> list[Restart]:
    """Return why samples of the window do not count any more, in the order in which they go.

    ``seconds`` are the window's, and ``pause`` its present run without a kernel, both before the new sample.
    """
    reasons: list[Restart] = []
    begins_anew = _reason_to_begin_anew(new, pause)
    if begins_anew is not None:
        reasons.append(begins_anew)
    if new.sm_source != new.sm_source_before and new.sm_source_before in MEASURED:
        reasons.append(Restart.SM_SOURCE_CHANGED)
    if begins_anew is None and new.is_compared and has_cause_changed(seconds, new.second):
        reasons.append(Restart.CAUSE_CHANGED)
    if new.trains_since is not None:
        reasons.append(Restart.TRAINING_BEGAN)
    return reasons


def _reason_to_begin_anew(new: Arrival, pause: Pause | None) -> Restart | None:
    """Return why nothing of the window counts any more, the strongest reason first."""
    if new.job_is_over:
        return Restart.JOB_CHANGED
    if new.refutes_util:
        return Restart.UTIL_REFUTED
    if new.has_first_kernels:
        return Restart.FIRST_KERNELS
    if new.since_last_s > WINDOW_S:
        return Restart.GAP
    runs_kernels = new.busy_pct is not None and new.busy_pct >= ZERO_UTIL
    if runs_kernels and pause is not None and pause.length_s > LONG_PAUSE_S:
        return Restart.PAUSE_ENDED
    return None


def is_long_enough(seconds: Sequence[Second], t: float) -> bool:
    """Whether a window at Unix time ``t`` has two parts that can be compared."""
    return bool(seconds) and t - seconds[0].t >= CHANGE_S + BEFORE_S


def has_cause_changed(seconds: Sequence[Second], newest: Second) -> bool:
    """Whether the last seconds of an idle GPU clearly contradict those before."""
    t = newest.t
    compared = [old for old in seconds if old.t > t - WINDOW_S + EPSILON_S]
    compared.append(newest)
    util = mean([second.gpu.util_pct for second in compared], len(compared) / 2.0)
    if util is None or 100.0 - util < thresholds.IDLE_PCT:
        return False
    before = [second for second in compared if second.t <= t - CHANGE_S + EPSILON_S]
    if not before:  # samples so far apart that none is left to compare with
        return False
    return _contradict(before, compared[len(before) :])


_NOTHING_KNOWN = HostMeans()
_SHARES_OF_HOST = (
    attrgetter("main"),
    attrgetter("main_network"),
    attrgetter("main_sleep"),
    attrgetter("main_lock"),
    attrgetter("main_poll"),
    attrgetter("main_disk"),
    attrgetter("workers"),
)
_SHARES_OF_SECOND = (attrgetter("most_disk"), attrgetter("most_network"))


def _contradict(before: Sequence[Second], now: Sequence[Second]) -> bool:
    """Whether a share of the host's time differs clearly between two parts of a window."""
    hosts_before = [second.host or _NOTHING_KNOWN for second in before]
    hosts_now = [second.host or _NOTHING_KNOWN for second in now]
    for share_of in _SHARES_OF_HOST:
        if _differ_clearly(_mean_of(share_of, hosts_before), _mean_of(share_of, hosts_now)):
            return True
    return any(
        _differ_clearly(_mean_of(share_of, before), _mean_of(share_of, now))
        for share_of in _SHARES_OF_SECOND
    )


def _mean_of(share_of: attrgetter[Any], samples: Sequence[Any]) -> float | None:
    """Mean of one share over the samples that know it."""
    return mean(list(map(share_of, samples)), 1)


def _differ_clearly(before: float | None, now: float | None) -> bool:
    if before is None or now is None:
        return False
    return abs(now - before) >= CLEARLY
