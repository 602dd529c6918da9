"""``gputop alerts``: list alerts, try them on a recording, or fire one.

Exit 0: none fired, 1: some.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gputop.command_line.shared_options import (
    recording_argument,
    recording_filter_of,
    stdout_is_text,
    wait_of,
    waiting,
)
from gputop.config import ConfigError, Settings, default_path
from gputop.features.alerts.alert_table import Alert, alerts_of
from gputop.features.alerts.evaluator import AlertEvaluator, firing
from gputop.model.durations import duration
from gputop.model.expression import nearest
from gputop.model.quantity import count
from gputop.model.source import SourceError, UsageError
from gputop.monitor import Monitor
from gputop.output.messages import say
from gputop.output.snapshot_data import json_text

if TYPE_CHECKING:
    from gputop.features.alerts.node_alerts import NodeAlerts

SCHEMA = 1
FIRED = FAILED = 1
REDACTED = "alerts are not fired while redact is on: a command needs the names that it hides"


def arguments(command: argparse.ArgumentParser) -> None:
    text = "a recording: say which alerts would have fired; nothing is run"
    recording_argument(command, "file", text, nargs="?")
    waiting(command)
    command.add_argument(
        "--test", metavar="NAME", help="fire this alert now, for the first GPU here"
    )
    command.add_argument("--json", action="store_true", help="one JSON object")


def run(args: argparse.Namespace, settings: Settings) -> int:
    alerts = alerts_of(settings.alert)
    if not alerts:
        raise UsageError(_no_alert(args))
    if not args.json:
        stdout_is_text(settings)
    if args.test is not None:
        if args.file is not None or args.json:
            raise UsageError("--test fires an alert: it takes no recording and prints no JSON")
        return _test(args, settings, alerts)
    if args.file is not None:
        return _dry_run(args, settings, alerts)
    if args.json:
        raise UsageError(
            "--json prints what would have fired in a recording: gputop alerts --json FILE"
        )
    for alert in alerts:
        # Arguments may hold secrets.
        does = f"runs {alert.run[0]}" if alert.run else "is only shown"
        times = f"for {duration(alert.for_s)}, then silent for {duration(alert.again_s)}"
        sys.stdout.write(f"{alert.name}: {alert.when.text}\n    {times}; {does}\n")
    return 0


def _dry_run(args: argparse.Namespace, settings: Settings, alerts: Sequence[Alert]) -> int:
    """Print what would have fired in a recording."""
    from gputop.recording.reader import read_snapshots

    evaluator, fired = AlertEvaluator(alerts), []
    monitor: Monitor | None = None
    for snapshot in read_snapshots(args.file, recording_filter_of(args, settings)):
        monitor = monitor or Monitor(snapshot.interval_s, charts=False)
        fired += evaluator.take(monitor.feed(snapshot))
    if args.json:
        rows = [
            {"t": one.t, "uuids": one.uuids, "environment": one.variables, **one.data}
            for one in fired
        ]
        sys.stdout.write(json_text({"schema": SCHEMA, "fired": rows}))
    else:
        for one in fired:
            does = f"would run {one.alert.run[0]}" if one.alert.run else "would be shown"
            held = f"held for {duration(one.t - one.since)}"
            at = f"{datetime.fromtimestamp(one.t, timezone.utc):%Y-%m-%d %H:%M:%S} UTC"
            sys.stdout.write(
                f"{at}  {one.alert.name} on {one.where}: {one.alert.when.text}, {held}; {does}\n"
            )
        say(f"{count(len(fired), 'firing')} of {count(len(alerts), 'alert')}; nothing was run")
    sys.stdout.flush()
    return FIRED if fired else 0


def _test(args: argparse.Namespace, settings: Settings, alerts: Sequence[Alert]) -> int:
    """Run one alert's command now, for the first GPU here."""
    alert = next((alert for alert in alerts if alert.name == args.test and alert.run), None)
    if alert is None:
        names = [alert.name for alert in alerts if alert.run]
        raise UsageError(
            f"there is no alert {args.test!r} with a command{nearest(args.test, names)}"
        )
    refuse_unsafe(args, [alert])
    from gputop.features.alerts.node_alerts import run_command
    from gputop.sources.local import open_local

    source = open_local(settings)
    try:
        frame = Monitor(settings.interval).feed(source.read_once(wait_of(args), say).snapshot)
    finally:
        source.close()
    if not frame.snapshot.gpus:
        raise SourceError("there is no GPU here to fire an alert for")
    outcome = run_command(firing(alert, frame, [0], frame.snapshot.t, test=True))
    say(f"alert {alert.name}: {outcome.words}")
    sys.stdout.write(outcome.output.replace(" ⏎ ", "\n") + "\n" if outcome.output else "")
    return FAILED if outcome.has_failed else 0


def _no_alert(args: Any) -> str:
    return f"no [[alert]] in {configuration_file(args)}; `gputop config --init` writes an example"


def configuration_file(args: Any) -> Path:
    """Return the path of the configuration file, whether it exists or not."""
    return Path(getattr(args, "config", None) or os.environ.get("GPUTOP_CONFIG") or default_path())


def alerts_here(
    args: Any, settings: Settings, *, fire: bool = True, tell: Callable[[str], None] | None = None
) -> NodeAlerts | None:
    """Return the alerts of a watched run, None where none are configured.

    ``tell`` gets one line for each firing, and at once the reason if this process fires none. Raises ConfigError where
    the configuration could have been written by others.
    """
    if not settings.alert:
        return None
    from gputop.features.alerts.node_alerts import FiringLock, NodeAlerts
    from gputop.sources.runtime_directories import login_directories, prepare

    alerts = alerts_of(settings.alert)
    if not fire:
        return NodeAlerts(alerts)
    if settings.redact:
        if tell is not None:
            tell(REDACTED)
        return None
    refuse_unsafe(args, alerts)
    directory = login_directories()[0]
    with suppress(OSError):
        prepare(directory)
    node_alerts = NodeAlerts(alerts, FiringLock(directory), tell)
    if why_not := node_alerts.why_not():
        (tell or node_alerts.messages.append)(f"alerts: {why_not}")
    return node_alerts


def alerts_on_screen(args: Any, settings: Settings) -> NodeAlerts | None:
    """Return the alerts of the live screen; fired with --alerts, else only shown.

    Raises UsageError and ConfigError.
    """
    fire = bool(getattr(args, "alerts", False))
    if fire and not settings.alert:
        raise UsageError(f"--alerts: {_no_alert(args)}")
    if fire and settings.redact:
        raise UsageError(f"--alerts: {REDACTED}")
    return alerts_here(args, settings, fire=fire)


def refuse_unsafe(args: Any, alerts: Sequence[Alert]) -> None:
    """Raise ConfigError where others than this user and root could have written a command.

    Checks the configuration file, its folder, and the target of a link.
    """
    if not any(alert.run for alert in alerts):
        return
    file = configuration_file(args)
    for path in dict.fromkeys(
        (file, file.absolute().parent, file.resolve(), file.resolve().parent)
    ):
        try:
            status = path.stat()
        except OSError as error:
            raise ConfigError(f"alerts with run: cannot read {path}: {error.strerror}") from None
        if status.st_uid not in (os.geteuid(), 0):
            raise ConfigError(
                f"alerts with run need a configuration that is yours or root's, and {path} is not"
            )
        if status.st_mode & 0o022:
            raise ConfigError(
                f"alerts with run need a configuration that only you can write: chmod go-w {path}"
            )
