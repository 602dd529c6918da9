"""The alerts of the configuration: listed, tried on a recording, or fired by hand. Exit 0: none fired, 1: some."""

from __future__ import annotations

import argparse
import platform
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gputop.commands.alerting import alerts_in, configuration_file, refuse_unsafe
from gputop.commands.needs import Needs
from gputop.commands.once import wait_of
from gputop.commands.recorded_gpus import lens_of
from gputop.commands.shared_arguments import selectable, waiting
from gputop.config import Settings
from gputop.diagnosis.alerts.table import Alert
from gputop.model.source import SourceError, UsageError
from gputop.output.alerts_text import dry_run_data, dry_run_text, list_text
from gputop.output.data import json_text
from gputop.output.messages import say

if TYPE_CHECKING:
    from gputop.session.alerts.firing import Firing

NEEDS = Needs()

FIRED = FAILED = 1


def arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("file", nargs="?", help="a recording: say which alerts would have fired; nothing is run")
    selectable(command)
    waiting(command)
    command.add_argument("--test", metavar="NAME", help="fire this alert now, for the first GPU here")
    command.add_argument("--json", action="store_true", help="one JSON object")


def run(args: argparse.Namespace, settings: Settings) -> int:
    alerts = alerts_in(settings)
    if not alerts:
        file = configuration_file(args)
        raise UsageError(f"no [[alert]] in {file}; `gputop help alerts` shows how to write one")
    if args.test is not None:
        if args.file is not None or args.json:
            raise UsageError("--test fires an alert: it takes no recording and prints no JSON")
        return _test(args, settings, alerts)
    if args.file is not None:
        return _dry_run(args, settings, alerts)
    if args.json:
        raise UsageError("--json prints what would have fired in a recording: gputop alerts --json FILE")
    sys.stdout.write(list_text(alerts))
    return 0


def _dry_run(args: argparse.Namespace, settings: Settings, alerts: Sequence[Alert]) -> int:
    """Judge a recording as a live run is judged."""
    from gputop.recording.reader import read_snapshots
    from gputop.session.alerts.dry_run import dry_run

    tried = dry_run(read_snapshots(args.file, lens_of(args, settings)), alerts)
    sys.stdout.write(json_text(dry_run_data(tried)) if args.json else dry_run_text(tried))
    sys.stdout.flush()
    return FIRED if tried.fired else 0


def _test(args: argparse.Namespace, settings: Settings, alerts: Sequence[Alert]) -> int:
    alert = next((alert for alert in alerts if alert.name == args.test), None)
    if alert is None:
        from gputop.commands.argument_parser import nearest

        names = [alert.name for alert in alerts]
        raise UsageError(f"there is no alert {args.test!r}{nearest(args.test, names)}")
    if not alert.run and not alert.notifies:
        raise UsageError(f"alert {alert.name} has neither run nor notify: there is nothing to fire")
    refuse_unsafe(args, [alert])
    from gputop.session.alerts.runner import UnderWay

    outcome = UnderWay(_firing(args, settings, alert)).outcome()
    say(f"alert {alert.name}: {outcome.words}")
    if outcome.output:
        sys.stdout.write(outcome.output.replace(" ⏎ ", "\n") + "\n")
    return FAILED if outcome.has_failed else 0


def _firing(args: argparse.Namespace, settings: Settings, alert: Alert) -> Firing:
    """What the alert passes on for the first GPU here; where none can be read, what works without one."""
    from gputop.diagnosis.alerts.judge import Change
    from gputop.monitor import Monitor
    from gputop.session.alerts.firing import bare_firing, gpus_firing
    from gputop.sources.machine import open_local

    source = open_local(settings)
    try:
        frame = Monitor(settings.interval).feed(source.read_once(wait_of(args), say).snapshot)
    except SourceError as error:
        return bare_firing(alert, time.time(), platform.node(), str(error))
    finally:
        source.close()
    snapshot = frame.snapshot
    if not snapshot.gpus:
        return bare_firing(alert, snapshot.t, snapshot.machine.hostname, "there is no GPU here")
    static = snapshot.gpus[0].static
    change = Change("fired", snapshot.t, alert, "", (static.index,), (static.uuid,), snapshot.t)
    return gpus_firing(change, frame, [0], test=True)
