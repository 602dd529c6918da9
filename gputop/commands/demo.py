"""The interactive screen on a simulated node, on any machine."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from gputop.commands.argument_parser import filterable, printable, selectable
from gputop.commands.needs import Needs
from gputop.commands.screen import screen_terminal, show
from gputop.commands.shared_options import filter_of, redacted_snapshot, redacted_source, redactor_of
from gputop.commands.simulated_node import PAST_S
from gputop.config import Settings
from gputop.model.source import UsageError
from gputop.monitor import Frame, Monitor
from gputop.session.session import Session

if TYPE_CHECKING:
    from gputop.model.inspection import ProcessAccess
    from gputop.model.redaction import Redactor
    from gputop.model.snapshot import Snapshot
    from gputop.recording.recent_past import Stretch
    from gputop.sources.simulation.simulated import SimulatedSource

NEEDS = Needs("terminal")

FORGOTTEN_S, SHORT_PAST_S = 5.0, 130.0
"""After a gap longer than this the charts of the tour, which show two minutes, are restarted."""
STRETCH_FRAMES = 20
"""Frames before its start that a paused demo generates at a time, when somebody goes back to them."""


def arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("scenario", nargs="?", help="one scenario instead of the whole node")
    printable(command)
    selectable(command)
    filterable(command)
    command.add_argument("--tour", action="store_true", help="walk through the node, GPU by GPU, with each remedy")
    command.add_argument("--list", action="store_true", help="name the scenarios")
    command.add_argument("--seed", type=int, default=0, metavar="N", help="another run of the same scenario")


def run(args: argparse.Namespace, settings: Settings) -> int:
    from gputop.sources.simulation.scenarios import SCENARIOS
    from gputop.sources.simulation.simulated import SimulatedSource

    if args.list:
        width = max(map(len, SCENARIOS))
        sys.stdout.writelines(f"{name:<{width}}  {scenario.title}\n" for name, scenario in SCENARIOS.items())
        return 0
    if args.tour and args.scenario is not None:
        raise UsageError("the tour walks through the whole node: leave out the scenario")
    source = SimulatedSource(args.scenario, interval_s=settings.interval, seed=args.seed, only=settings.gpus or None)
    if getattr(args, "once", False):
        from gputop.commands.once import table

        snapshot = source.poll()
        assert snapshot is not None, "a source that is asked for the first time has a snapshot"
        sys.stdout.write(table(args, settings, snapshot))
        return 0
    redactor = redactor_of(settings)
    passing = filter_of(args, redactor)
    terminal = screen_terminal(settings, "gputop demo --once")
    session = session_on(source, settings, redactor)
    for snapshot in source.past(PAST_S):
        session.take(redacted_snapshot(snapshot, redactor))
    return show(
        args,
        redacted_source(source, redactor),
        settings,
        terminal,
        session=session,
        access=lambda: _access(source, redactor),
        passing=passing,
        demo=True,
        remedied=Remedied(settings.interval, args.seed).frame if args.scenario is None else None,
        begins_with="tour" if args.tour else "",
    )


def session_on(source: SimulatedSource, settings: Settings, redactor: Redactor | None) -> Session:
    """A session that can go back to before its start."""

    def earlier() -> Iterator[Stretch]:
        from gputop.recording.recent_past import Stretch

        for first_t, last_t, made in source.past_stretches(PAST_S, STRETCH_FRAMES):
            yield Stretch(first_t, last_t, partial(_redacted, made, redactor))

    return Session(Monitor(settings.interval), earlier)


def _redacted(made: Callable[[], Iterator[Snapshot]], redactor: Redactor | None) -> Iterator[Snapshot]:
    return (redacted_snapshot(snapshot, redactor) for snapshot in made())


def _access(source: SimulatedSource, redactor: Redactor | None) -> ProcessAccess:
    from gputop.sources.simulation.simulated import SimulatedAccess

    access = SimulatedAccess(source)
    if redactor is None:
        return access
    from gputop.sources.redacted import RedactedAccess

    return RedactedAccess(access, redactor)


class Remedied:
    """The node of the demo after every remedy; simulated only while somebody looks at it."""

    def __init__(self, interval_s: float, seed: int, clock: Callable[[], float] = time.time) -> None:
        self._interval_s = interval_s
        self._seed = seed
        self._clock = clock
        self._source: SimulatedSource | None = None
        self._monitor = Monitor(interval_s)

    def frame(self) -> Frame:
        """Its newest frame. After a pause it starts again, so that charts have no hole."""
        latest = self._monitor.latest
        if self._source is None or latest is None or self._clock() - latest.snapshot.t > FORGOTTEN_S:
            from gputop.sources.simulation.simulated import SimulatedSource

            self._monitor = Monitor(self._interval_s)
            self._source = SimulatedSource("remedied", interval_s=self._interval_s, seed=self._seed, clock=self._clock)
            for snapshot in self._source.past(SHORT_PAST_S):
                self._monitor.feed(snapshot)
        if (newest := self._source.poll()) is not None:
            self._monitor.feed(newest)
        assert self._monitor.latest is not None, "a source that is asked for the first time has a snapshot"
        return self._monitor.latest
