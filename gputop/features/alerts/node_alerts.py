"""The alerts of one watched run: judged at every frame, fired where this run may, listed for the screen."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from gputop.features.alerts.alert_judge import Judge
from gputop.features.alerts.alert_table import Alert
from gputop.features.alerts.firing import firing_of
from gputop.features.alerts.runner import CommandOutcome, FiringLock, Runner
from gputop.model.alert_board import AlertBoard, AlertRow
from gputop.model.quantity import terminal_safe
from gputop.monitor import Frame

MOST_MESSAGES = 100
SHOWN_ONLY = "shown only: gputop --alerts fires them"


class NodeAlerts:
    """Without a ``lock`` alerts are judged and shown, and nothing is ever run.

    ``tell`` is called with one line for each firing, from other threads; without it the lines wait in ``messages``.
    """

    def __init__(
        self, alerts: Sequence[Alert], lock: FiringLock | None = None, tell: Callable[[str], None] | None = None
    ) -> None:
        self._judge = Judge(alerts)
        self._silenced: set[str] = set()
        self._last: dict[str, CommandOutcome] = {}
        self._failures: dict[str, str] = {}
        self.messages: deque[str] = deque(maxlen=MOST_MESSAGES)
        self._tell = tell or self.messages.append
        self._runner = None if lock is None else Runner(lock, self._ended)

    def take(self, frame: Frame) -> None:
        """Judge one more frame, and hand what fires to its threads. Never waits."""
        if self._runner is not None and (fired := self._runner.adopted()) is not None:
            self._judge.fired = dict(fired)
        for change in self._judge.take(frame.snapshot, frame.diagnoses):
            if change.kind == "resolved" or self._runner is None:
                continue
            if change.alert.name in self._silenced:
                # It has not fired: if it still holds once this run may fire, it does so then.
                del self._judge.fired[change.place]
            else:
                self._runner.offer(firing_of(change, frame))

    def why_not(self) -> str:
        """Why this run fires nothing; empty where it does."""
        return SHOWN_ONLY if self._runner is None else self._runner.why_not()

    def board(self) -> AlertBoard:
        """Every alert as it stands."""
        return AlertBoard(tuple(self._row(alert) for alert in self._judge.alerts), self.why_not())

    def toggle_silence(self, name: str) -> None:
        """Silence an alert until gputop ends, or let it fire again."""
        self._silenced ^= {name}

    def close(self) -> None:
        """End; what has been fired finishes by itself, within its time limit."""
        if self._runner is not None:
            self._runner.close()

    def _row(self, alert: Alert) -> AlertRow:
        last = self._last.get(alert.name)
        return AlertRow(
            alert.name,
            alert.when.text,
            alert.for_s,
            tuple((s.gpu, s.since, s.is_active) for s in self._judge.standing(alert.name) if s.since is not None),
            None if last is None else (last.firing.t, last.firing.where, last.words),
            last is not None and last.has_failed,
            alert.name in self._silenced,
            None if self._runner is None else self._judge.silent_until(alert),
            alert.per,
            alert.gpus,
        )

    def _ended(self, outcome: CommandOutcome) -> None:
        """One firing is over. The same failure of an alert is told once, until it goes well or fails otherwise."""
        name = outcome.firing.alert.name
        self._last[name] = outcome
        if not outcome.has_failed:
            self._failures.pop(name, None)
        elif self._failures.get(name) == outcome.words:
            return
        else:
            self._failures[name] = outcome.words
        printed = f": {outcome.output}" if outcome.has_failed and outcome.output else ""
        self._tell(terminal_safe(f"alert {name} on {outcome.firing.where}: {outcome.words}{printed}"[:500]))
