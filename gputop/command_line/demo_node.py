"""The simulated node for other commands: its past, session and remedies."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from gputop.command_line.shared_options import redacted_snapshot, redactor_of
from gputop.config import Settings
from gputop.model.source import UsageError
from gputop.monitor import Frame, Monitor
from gputop.session.session import Session

if TYPE_CHECKING:
    from gputop.model.redaction import Redactor
    from gputop.model.snapshot import Snapshot
    from gputop.recording.recent_past import OlderFrames
    from gputop.sources.simulation.simulated import SimulatedSource

DEMO = "demo"
PAST_S = 700.0
"""How much of its past a scenario shows at once: the ten minutes that charts keep, and the window before them."""
FORGOTTEN_S, SHORT_PAST_S = 5.0, 130.0
"""After a gap longer than this the charts of the tour, which show two minutes, are restarted."""
SKETCHED = 40
"""Moments that a first picture's charts are drawn from: enough for a shape, computed in a tenth of a second."""
STRETCH_FRAMES = 20
"""Frames from before its start that a paused demo generates at a time, when the user goes back to them."""


def scenario_arguments(command: argparse.ArgumentParser) -> None:
    """Add the options that choose the simulated node."""
    command.add_argument(
        "scenario", nargs="?", help="with demo: one scenario instead of the whole node"
    )
    command.add_argument(
        "--seed", metavar="N", type=int, help="with demo: another run of the same scenario"
    )


def wants_demo(args: argparse.Namespace) -> bool:
    """Whether ``args.file`` asks for the simulated node.

    Raises UsageError for options that would do nothing.
    """
    subject = (
        "the demo" if args.file == DEMO else "this machine" if args.file is None else "a recording"
    )
    if args.file is not None and "server_url" in vars(args):
        raise UsageError(
            f"--server-url asks the servers of this machine; {subject} has its own: leave it out"
        )
    if args.file == DEMO:
        return True
    if args.seed is not None:
        raise UsageError(
            f"--seed is another run of the simulated node; {subject} has none: `gputop {args.command} demo --seed N`"
        )
    if args.scenario is not None:
        raise UsageError(f"a scenario belongs to `{args.command} demo`, not to {args.file!r}")
    return False


def simulated_past(args: argparse.Namespace, settings: Settings) -> Iterator[Snapshot]:
    """Yield a simulated node's past, oldest first, as recorded.

    Raises UsageError for an unknown scenario.
    """
    from gputop.sources.simulation.simulated import SimulatedSource

    source = SimulatedSource(
        args.scenario,
        interval_s=settings.interval,
        seed=args.seed or 0,
        only=settings.gpus or None,
        events_past=True,
    )
    redactor = redactor_of(settings)
    return (redacted_snapshot(snapshot, redactor) for snapshot in source.recent(PAST_S))


def session_on(source: SimulatedSource, settings: Settings, redactor: Redactor | None) -> Session:
    """Return a session that can go back to before its start."""

    def earlier() -> Iterator[OlderFrames]:
        from gputop.recording.recent_past import OlderFrames

        for first_t, last_t, made in source.past_chunks(PAST_S, STRETCH_FRAMES):
            yield OlderFrames(first_t, last_t, partial(_redacted, made, redactor))

    return Session(Monitor(settings.interval), earlier)


def _redacted(
    made: Callable[[], Iterator[Snapshot]], redactor: Redactor | None
) -> Iterator[Snapshot]:
    return (redacted_snapshot(snapshot, redactor) for snapshot in made())


class Remedied:
    """The demo's node after every remedy, simulated on request."""

    def __init__(
        self, interval_s: float, seed: int, clock: Callable[[], float] = time.time
    ) -> None:
        self._interval_s = interval_s
        self._seed = seed
        self._clock = clock
        self._source: SimulatedSource | None = None
        self._monitor = Monitor(interval_s)
        self._sketch: Frame | None = None
        """What shows while the past is judged; None otherwise."""

    def frame(self) -> Frame:
        """Return its newest frame; starts again after a pause.

        So charts have no hole.
        """
        if self._sketch is not None:
            return self._sketch
        latest = self._monitor.latest
        if (
            self._source is None
            or latest is None
            or self._clock() - latest.snapshot.t > FORGOTTEN_S
        ):
            self._monitor = Monitor(self._interval_s)
            self._source = self._begun()
            for _ in self.judging():
                pass
        while (newest := self._source.next_due()) is not None:
            self._monitor.feed(newest)
        assert self._monitor.latest is not None, (
            "a source that is asked for the first time has a snapshot"
        )
        return self._monitor.latest

    def sketch(self) -> Frame:
        """Return a first picture of it, which shows until ``judging`` has ended."""
        self._source = self._begun()
        self._sketch = Monitor(self._interval_s).sketch(self._source.sketch(SHORT_PAST_S, SKETCHED))
        return self._sketch

    @property
    def count(self) -> int:
        """Return the number of snapshots that ``judging`` takes."""
        return 0 if self._source is None else self._source.past_count(SHORT_PAST_S)

    def judging(self) -> Iterator[object]:
        """Judge its past, a snapshot at a time."""
        if self._source is not None:
            for snapshot in self._source.past(SHORT_PAST_S):
                yield self._monitor.feed(snapshot)
        self._sketch = None

    def _begun(self) -> SimulatedSource:
        from gputop.sources.simulation.simulated import SimulatedSource

        return SimulatedSource(
            "remedied", interval_s=self._interval_s, seed=self._seed, clock=self._clock
        )
