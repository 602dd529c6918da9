"""A recording judged as a live run is: which alerts would have fired, and what they would have run. Runs nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gputop.diagnosis.alerts.judge import Change, Judge, Place
from gputop.diagnosis.alerts.report import DryRun, WouldFire
from gputop.diagnosis.alerts.table import Alert
from gputop.model.secrets import masked_words
from gputop.model.snapshot import Snapshot
from gputop.model.source import SourceError
from gputop.monitor import Monitor
from gputop.session.alerts.firing import Firing, NotHanded, firing_of


def dry_run(snapshots: Iterable[Snapshot], alerts: Sequence[Alert]) -> DryRun:
    """Judge every snapshot. Raises SourceError where there is none."""
    judge = Judge(alerts)
    monitor: Monitor | None = None
    fired: list[WouldFire] = []
    standing: dict[Place, list[WouldFire]] = {}
    begin = end = 0.0
    for snapshot in snapshots:
        if monitor is None:
            monitor, begin = Monitor(snapshot.interval_s), snapshot.t
        frame, end = monitor.feed(snapshot), snapshot.t
        for change in judge.take(frame.snapshot, frame.diagnoses):
            if change.kind == "fired":
                fired.append(_would_fire(firing_of(change, frame), change))
                standing.setdefault(change.place, []).append(fired[-1])
            else:
                for one in standing.pop(change.place, ()):
                    one.until = change.t
    if monitor is None:
        raise SourceError("the recording holds nothing to judge")
    return DryRun(tuple(alert.name for alert in alerts), begin, end, tuple(fired))


def _would_fire(firing: Firing, change: Change) -> WouldFire:
    alert = firing.alert
    one = WouldFire(alert.name, change.gpus, change.uuids, change.t, change.since, notifies=alert.notifies)
    try:
        one.command = tuple(masked_words(firing.argv())) if alert.run else ()
    except NotHanded as error:
        one.not_run = str(error)
    return one
