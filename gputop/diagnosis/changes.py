"""When what is remembered says nothing any more: a job that begins to work, and a cause that has changed."""

from __future__ import annotations

from collections import deque

from gputop.diagnosis import window as col
from gputop.diagnosis.feeder_window import FeederWindow
from gputop.diagnosis.window import Window

WORKS_UTIL = 5.0
WORKED_OF_S, WORKED_S = 15.0, 10.0
"""Kernels in ten of the last fifteen seconds: the job trains."""
QUIET_BEFORE_S = 3.0
KNOWN_WITHIN_S = 10.0
"""A process that is not known so long after the first kernels is not waited for [judged]."""
YOUNG_S = 60.0
"""Age of a GPU process below which it may still be starting up [judged]."""
CHANGE_S, BEFORE_S = 8.0, 8.0
"""The last eight seconds against at least so many before."""
COMPARE_S = 3.0
CLEARLY = 0.5
"""Two means of a share this far apart do not come from one cause: at eight samples of a yes or no that is 2.8 times
the standard error."""
_WATCHED = (col.MAIN, col.MAIN_NETWORK, col.MAIN_SLEEP, col.MAIN_LOCK, col.MAIN_POLL, col.WORKERS)


class Startup:
    """Whether a young process trains already: the times of samples with kernels, of the last fifteen seconds."""

    __slots__ = ("_first_kernels_at", "_loud", "_quiet_since")

    def __init__(self) -> None:
        self._loud: deque[float] = deque()
        self._quiet_since: float | None = None
        self._first_kernels_at: float | None = None

    def begins_to_work(self, t: float, util: float, age_s: float | None) -> bool:
        """Take a sample in; True where a young process runs its first kernels after a quiet time.

        What came before was importing and warming up: no part of a window that judges training. A process may be seen
        on the GPU, or known in age, only some samples after its kernels: it is waited for.
        """
        while self._loud and self._loud[0] <= t - WORKED_OF_S:
            self._loud.popleft()
        if util < WORKS_UTIL:
            self._quiet_since = t if self._quiet_since is None else self._quiet_since
        else:
            quiet, self._quiet_since = self._quiet_since, None
            self._loud.append(t)
            if quiet is not None and t - quiet >= QUIET_BEFORE_S:
                self._first_kernels_at = t
        first = self._first_kernels_at
        if first is None or (age_s is None and t - first < KNOWN_WITHIN_S):
            return False
        self._first_kernels_at = None
        return age_s is not None and age_s - (t - first) < YOUNG_S

    def worked(self, t: float, interval_s: float) -> bool:
        """Whether kernels ran in ten of the last fifteen seconds; a sample stands for one interval."""
        loud = sum(1 for at in self._loud if at > t - WORKED_OF_S)
        return loud * interval_s >= WORKED_S - 1e-6


def contradicts(window: Window, feeders: FeederWindow) -> bool:
    """Whether the last seconds contradict what came before: another state fills the main thread's or feeders' time."""
    for means in window.latest(CHANGE_S, _WATCHED):
        if means is not None and abs(means[0] - means[1]) >= CLEARLY:
            return True
    return any(abs(new - old) >= CLEARLY for new, old in feeders.latest(CHANGE_S))
