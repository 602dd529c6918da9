"""The interactive screen on a simulated node, on any machine."""

from __future__ import annotations

import argparse
import sys

from gputop.commands.filtering import filter_of
from gputop.commands.live import screen_terminal, show
from gputop.config import Settings
from gputop.monitor import Monitor

PAST_S = 700.0
"""How much of its past a scenario shows at once: the ten minutes that charts keep, and the window before them."""


def run(args: argparse.Namespace, settings: Settings) -> int:
    from gputop.sources.simulation.scenarios import SCENARIOS
    from gputop.sources.simulation.simulated import SimulatedSource

    if args.list:
        width = max(map(len, SCENARIOS))
        sys.stdout.writelines(f"{name:<{width}}  {scenario.title}\n" for name, scenario in SCENARIOS.items())
        return 0
    source = SimulatedSource(args.scenario, interval_s=settings.interval, seed=args.seed, only=settings.gpus or None)
    if args.once:
        from gputop.commands.once import table

        snapshot = source.poll()
        assert snapshot is not None, "a source that is asked for the first time has a snapshot"
        sys.stdout.write(table(args, settings, snapshot))
        return 0
    passing = filter_of(args)
    terminal = screen_terminal(settings)
    monitor, frame = Monitor(settings.interval), None
    for snapshot in source.past(PAST_S):
        frame = monitor.feed(snapshot)
    return show(args, source, settings, terminal, monitor=monitor, first=frame, passing=passing, demo=True)
