"""`gputop demo`: the screen on a simulated node.

Also that node for other commands: its past in place of a recording, a session that can go back, and its remedies.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gputop.command_line.demo_node import PAST_S, SKETCHED, Remedied, session_on
from gputop.command_line.registry import Needs
from gputop.command_line.shared_options import (
    filterable,
    printable,
    redacted_snapshot,
    redacted_source,
)
from gputop.config import Settings
from gputop.model.durations import duration
from gputop.model.source import UsageError
from gputop.monitor import Monitor

if TYPE_CHECKING:
    from gputop.model.inspection import ProcessAccess

NEEDS = Needs("terminal")


def arguments(command: argparse.ArgumentParser) -> None:
    add = command.add_argument
    add("scenario", nargs="?", help="one scenario instead of the whole node")
    printable(command)
    filterable(command)
    add("--tour", action="store_true", help="walk through the node, GPU by GPU, with each remedy")
    add("--list", action="store_true", help="name the scenarios")
    add("--seed", metavar="N", type=int, default=0, help="another run of the same scenario")


def run(args: argparse.Namespace, settings: Settings) -> int:
    from gputop.sources.simulation.scenarios import SCENARIOS
    from gputop.sources.simulation.simulated import SimulatedSource
    from gputop.sources.simulation.simulated_access import SimulatedAccess

    if args.list:
        width = max(map(len, SCENARIOS))
        sys.stdout.writelines(
            f"{name:<{width}}  {scenario.title}\n" for name, scenario in SCENARIOS.items()
        )
        return 0
    whole = args.scenario is None
    if args.tour and not whole:
        raise UsageError("the tour walks through the whole node: leave out the scenario")
    source = SimulatedSource(
        args.scenario, interval_s=settings.interval, seed=args.seed, only=settings.gpus or None
    )
    if getattr(args, "once", False):
        from gputop.commands.once import printed_table

        snapshot = source.begin(0.0)
        assert snapshot is not None, "a source that is asked for the first time has a snapshot"
        sys.stdout.write(printed_table(args, settings, snapshot))
        return 0
    from gputop.command_line.screen import screen_options, show
    from gputop.paint.line import Line, Row, for_terminal
    from gputop.paint.tour_rows import tour_rows
    from gputop.session.preparation import Preparation
    from gputop.sources.redacted import RedactedAccess

    screen = screen_options(args, settings, "gputop demo --once", demo=True, tour=whole)
    redactor = screen.redactor
    session = session_on(source, settings, redactor)
    first = Monitor(settings.interval).sketch(
        redacted_snapshot(snapshot, redactor) for snapshot in source.sketch(settings.span, SKETCHED)
    )
    remedied = Remedied(settings.interval, args.seed)
    # Without the tour nothing of it is judged before it is opened.
    toured = remedied.sketch() if args.tour else first

    def steps() -> Iterator[object]:
        """Judge the past of the node and, for the tour, that after its remedies."""
        for snapshot in source.past(PAST_S):
            yield session.monitor.feed(redacted_snapshot(snapshot, redactor))
        yield from remedied.judging()

    count = source.past_count(PAST_S) + remedied.count
    before = duration(PAST_S, whole=True)
    preparation = Preparation(first, f"the {before} before", steps(), count)

    def tour_page(width: int, height: int) -> list[Row]:
        """Return the tour's first page, as its screen paints it."""
        rows = tour_rows(first, toured, 0, screen.view, width, height - 1)[: height - 1]
        keys_row = Line().row(width, "bar")
        blank = [Line().row(width)] * (height - 1 - len(rows))
        return for_terminal([*rows, *blank, keys_row], screen.view.glyphs, width)

    def access() -> ProcessAccess:
        own = SimulatedAccess(source)
        return own if redactor is None else RedactedAccess(own, redactor)

    return show(
        screen,
        redacted_source(source, redactor),
        session=session,
        access=access,
        preparation=preparation,
        first_rows=tour_page if args.tour else None,
        remedied=remedied.frame if whole else None,
        begins_with="tour" if args.tour else "",
    )
