"""The alerts of the configuration: listed, tried on a recording, or fired by hand. Exit 0: none fired, 1: some."""

from __future__ import annotations

import argparse
import os
import platform
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict

from gputop.commands.shared_options import (
    recording_argument,
    recording_filter_of,
    selectable,
    stdout_is_text,
    wait_of,
    waiting,
)
from gputop.config import ConfigError, Settings, default_path
from gputop.features.alerts.alert_table import Alert, alerts_of
from gputop.model.expression import nearest
from gputop.model.quantity import count, length, which_gpus
from gputop.model.source import SourceError, UsageError
from gputop.output.document import Document, Entries, Table, part, plain
from gputop.output.messages import say
from gputop.output.snapshot_data import json_text

if TYPE_CHECKING:
    from gputop.features.alerts.firing import DryRun, Firing, WouldFire
    from gputop.features.alerts.node_alerts import NodeAlerts


# The alerts of the configuration for the commands that fire them: read, and refused where that would not be safe.

REDACTED = "alerts are not fired while redact is on: a command needs the names that it hides"


def configuration_file(args: Any) -> Path:
    """The file that the settings come from, whether it is there or not."""
    named = getattr(args, "config", None) or os.environ.get("GPUTOP_CONFIG")
    return Path(named or default_path())


def _no_alert(args: Any) -> str:
    return f"no [[alert]] in {configuration_file(args)}; `gputop help alerts` shows how to write one"


def alerts_here(
    args: Any, settings: Settings, *, fire: bool = True, tell: Callable[[str], None] | None = None
) -> NodeAlerts | None:
    """The alerts of a run that is being watched, None where none are configured.

    ``tell`` is given one line for each firing, from other threads, and at once the reason if this process fires none.
    Raises ConfigError where alerts are to be fired and must not be.
    """
    if not settings.alert:
        return None
    from gputop.features.alerts.node_alerts import NodeAlerts

    alerts = alerts_of(settings.alert)
    if not fire:
        return NodeAlerts(alerts)
    for alert in alerts:
        if tell is not None and alert.when.retired:
            tell(f"alert {alert.name}: {alert.when.retired_words}")
    if settings.redact:
        if tell is not None:
            tell(REDACTED)
        return None
    refuse_unsafe(args, alerts)
    from gputop.features.alerts.node_alerts import FiringLock

    node_alerts = NodeAlerts(alerts, FiringLock(_runtime_directory()), tell)
    if why_not := node_alerts.why_not():
        (tell or node_alerts.messages.append)(f"alerts: {why_not}")
    return node_alerts


def alerts_on_screen(args: Any, settings: Settings) -> NodeAlerts | None:
    """The alerts to show on the live screen, and to fire where --alerts asks for it.

    Raises UsageError and ConfigError.
    """
    fire = bool(getattr(args, "alerts", False))
    if fire and not settings.alert:
        raise UsageError(f"--alerts: {_no_alert(args)}")
    if fire and settings.redact:
        raise UsageError(f"--alerts: {REDACTED}")
    return alerts_here(args, settings, fire=fire)


def refuse_unsafe(args: Any, alerts: Sequence[Alert]) -> None:
    """Raises ConfigError for a command unless only this user or root can write the file that it stands in, its folder,
    and the target of a link."""
    if not any(alert.run for alert in alerts):
        return
    file = configuration_file(args)
    for path in dict.fromkeys((file, file.absolute().parent, file.resolve(), file.resolve().parent)):
        try:
            status = path.stat()
        except OSError as error:
            raise ConfigError(f"alerts with run: cannot look at {path}: {error.strerror}") from None
        if status.st_uid not in (os.geteuid(), 0):
            raise ConfigError(f"alerts with run need a configuration that is yours or root's, and {path} is not")
        if status.st_mode & 0o022:
            raise ConfigError(f"alerts with run need a configuration that only you can write: chmod go-w {path}")


def doctor_report(args: Any, settings: Settings) -> dict[str, Any]:
    """The alerts for `gputop doctor`, without secrets: which process fires them now, or why none can."""
    if not settings.alert:
        return {}
    from gputop.features.alerts.node_alerts import holder

    alerts, problem = alerts_of(settings.alert), None
    try:
        refuse_unsafe(args, alerts)
    except ConfigError as error:
        problem = str(error)
    names = [{"name": a.name, "when": a.when.text, "runs": bool(a.run)} for a in alerts]
    report = {"configured": names, "fired_by_pid": holder(_runtime_directory()), "problem": problem}
    return {"alerts": report, "problems": [] if problem is None else [problem]}


def _runtime_directory() -> str:
    """Where all gputops of this user look for the one that fires."""
    from gputop.sources.step_datagrams import login_directories, prepare

    directory = login_directories()[0]
    with suppress(OSError):
        prepare(directory)
    return directory


# Alerts as text and as data: those that are configured, and what would have fired in a recording.

SCHEMA = 1


def list_document(alerts: Sequence[Alert]) -> Document:
    """Each alert with its condition and what it does, without arguments, which may hold secrets."""
    blocks = [block for alert in alerts for block in part(alert.name, Entries(("", ""), tuple(_alert_rows(alert))))]
    return Document("alerts", tuple(blocks), (count(len(alerts), "alert"),))


def _alert_rows(alert: Alert) -> Iterator[tuple[str, str]]:
    yield "when", alert.when.text
    if alert.when.retired:
        yield "note", alert.when.retired_words
    yield "for", f"{_time(alert.for_s)}, then silent for {_time(alert.again_s)}"
    yield "per", _per(alert)
    yield "does", f"runs {alert.run[0]}" if alert.run else "nothing: it is shown only"


def dry_run_document(tried: DryRun) -> Document:
    """What would have fired: a row each, and below it what would have been run."""
    total = f"{count(len(tried.fired), 'firing')} of {count(len(tried.names), 'alert')}"
    lead = f"{total} in {length(tried.end - tried.begin)} from {_moment(tried.begin)} UTC; nothing was run"
    rows = tuple((_moment(firing.t), firing.alert, which_gpus(firing.gpus), _held(firing)) for firing in tried.fired)
    table = Table(("fired (UTC)", "alert", "GPUs", "held"), rows, "<<<<", tuple(map(_does, tried.fired)))
    return Document(lead, (table,))


def _held(firing: WouldFire) -> str:
    until = "to the end" if firing.until is None else f"for {length(firing.until - firing.since)}"
    return f"from {_moment(firing.since)[11:]} {until}"


def dry_run_data(tried: DryRun) -> dict[str, Any]:
    """The same for scripts; times are Unix seconds."""
    # The first of the GPUs under its own name as well, for alerts that act for one.
    fired = [{**asdict(firing), "gpu": firing.gpus[0], "uuid": firing.uuids[0]} for firing in tried.fired]
    return {"schema": SCHEMA, "begin": tried.begin, "end": tried.end, "alerts": list(tried.names), "fired": fired}


def _does(firing: WouldFire) -> str:
    if firing.not_run is not None:
        return f"would not be run: {firing.not_run}"
    return f"would run: {shlex.join(firing.command)}" if firing.command else "would be shown only"


def _per(alert: Alert) -> str:
    """``job, where all its GPUs hold``."""
    if alert.per == "gpu":
        return "GPU"
    return f"{alert.per}, where {alert.gpus} of its GPUs {'hold' if alert.gpus == 'all' else 'holds'}"


def _time(seconds: float) -> str:
    return length(seconds).removesuffix(" 0 s").removesuffix(" 0 min")


def _moment(t: float) -> str:
    return f"{datetime.fromtimestamp(t, timezone.utc):%Y-%m-%d %H:%M:%S}"


FIRED = FAILED = 1


def arguments(command: argparse.ArgumentParser) -> None:
    text = "a recording: say which alerts would have fired; nothing is run"
    recording_argument(command, "file", text, nargs="?")
    selectable(command)
    waiting(command)
    command.add_argument("--test", metavar="NAME", help="fire this alert now, for the first GPU here")
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
        raise UsageError("--json prints what would have fired in a recording: gputop alerts --json FILE")
    sys.stdout.write(plain(list_document(alerts)))
    return 0


def _dry_run(args: argparse.Namespace, settings: Settings, alerts: Sequence[Alert]) -> int:
    """Judge a recording as a live run is judged."""
    from gputop.features.alerts.firing import dry_run
    from gputop.recording.reader import read_snapshots

    tried = dry_run(read_snapshots(args.file, recording_filter_of(args, settings)), alerts)
    sys.stdout.write(json_text(dry_run_data(tried)) if args.json else plain(dry_run_document(tried)))
    sys.stdout.flush()
    return FIRED if tried.fired else 0


def _test(args: argparse.Namespace, settings: Settings, alerts: Sequence[Alert]) -> int:
    alert = next((alert for alert in alerts if alert.name == args.test), None)
    if alert is None:
        raise UsageError(f"there is no alert {args.test!r}{nearest(args.test, [alert.name for alert in alerts])}")
    if not alert.run:
        raise UsageError(f"alert {alert.name} has no run: there is nothing to fire")
    refuse_unsafe(args, [alert])
    from gputop.features.alerts.node_alerts import outcome_of

    outcome = outcome_of(_firing(args, settings, alert))
    say(f"alert {alert.name}: {outcome.words}")
    if outcome.output:
        sys.stdout.write(outcome.output.replace(" ⏎ ", "\n") + "\n")
    return FAILED if outcome.has_failed else 0


def _firing(args: argparse.Namespace, settings: Settings, alert: Alert) -> Firing:
    """What the alert passes on for the first GPU here; where none can be read, what works without one."""
    from gputop.features.alerts.firing import AlertChange, bare_firing, gpus_firing
    from gputop.monitor import Monitor
    from gputop.sources.local import open_local

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
    change = AlertChange("fired", snapshot.t, alert, "", (static.index,), (static.uuid,), snapshot.t)
    return gpus_firing(change, frame, [0], test=True)
