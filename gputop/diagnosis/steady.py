"""How firmly a cause of starvation stands: what has stood for a minute changes only for something clearly stronger.

Near a threshold two causes win by turns. Which of them is named matters less than that it stays, so the one that is
shown gives way only to one that fills ten points more of the idle time for a quarter of a minute.
"""

from __future__ import annotations

from gputop.diagnosis.attribution import IDLE_PCT, at_least
from gputop.diagnosis.rules.feeding_rules import main_least
from gputop.diagnosis.signals import Signals
from gputop.model.feeders import Cause

Key = tuple[str, str]
"""A verdict, and the group of its cause."""
SETTLED_S = 60.0
HOLDS_S = 15.0
MARGIN = 0.1
RECOVERED_IDLE = IDLE_PCT - 5.0
"""Below this idle time a GPU that starved for long no longer does [judged]."""
_SAME: dict[str | None, str] = {"queued": "cpu", "fetch": "network", "lock": "", "sleep": "", "unknown": ""}


def key_of(verdict: str, cause: Cause | None) -> Key:
    """What is voted on. Causes that differ in detail alone are one: computing and queueing for it, say."""
    return verdict, _SAME.get(cause, cause or "")


def strength(verdict: str, cause: Cause | None, s: Signals) -> float:
    """How much of the idle time a cause fills, 0–1; 0 where that is not measured, or the verdict names no cause."""
    f, idle_s = s.feeders, s.idle / 100.0 * max(1.0, min(s.window_s, s.covered_s))
    if verdict == "worker_restart":
        return min(1.0, s.restart_s / idle_s) if idle_s > 0.0 else 0.0
    if verdict == "checkpoint_pause":
        return min(1.0, max((pause.length_s for pause in s.pauses), default=0.0) / idle_s) if idle_s > 0.0 else 0.0
    if verdict == "main_process":
        if cause in ("cpu", "queued", "unknown", None):
            return main_least(s)
        waits = s.main_waits
        x = 0.0 if waits is None else waits.write if cause == "pipe" else getattr(waits, cause, 0.0)
        return min(1.0, 100.0 * x / s.idle) if s.idle > 0.0 else 0.0
    if f is None or verdict not in ("dataloader_cpu", "dataloader_io"):
        return 0.0
    if verdict == "dataloader_cpu":
        return at_least(f.busiest.cpu, s.u)
    shares = {"disk": max(f.busiest.disk, f.any_disk), "fetch": f.busiest.poll + f.busiest.network}
    return at_least(shares.get(cause or "", f.busiest.network), s.u)


class Steady:
    """The cause that is shown, since when, and who challenges it."""

    __slots__ = ("_challenged_at", "_challenger", "_shown", "_since")

    def __init__(self) -> None:
        self._shown: Key | None = None
        self._since = 0.0
        self._challenger: Key | None = None
        self._challenged_at = 0.0

    def show(self, t: float, key: Key) -> None:
        """Note what is shown."""
        if key != self._shown:
            self._shown, self._since, self._challenger = key, t, None

    def gives_way(self, t: float, offered: Key, margin: float) -> bool:
        """Whether what is shown may change to what is offered, which is stronger by ``margin`` (0–1)."""
        if offered == self._shown or t - self._since < SETTLED_S:
            self._challenger = None
            return True
        if margin < MARGIN:
            self._challenger = None
            return False
        if offered != self._challenger:
            self._challenger, self._challenged_at = offered, t
        return t - self._challenged_at >= HOLDS_S
