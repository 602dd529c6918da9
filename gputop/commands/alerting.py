"""The alerts of the configuration for the commands that fire them: read, and refused where that would not be safe."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gputop.config import ConfigError, Settings, default_path
from gputop.model.extras import install

if TYPE_CHECKING:
    from gputop.diagnosis.alerts.table import Alert
    from gputop.session.alerts.node_alerts import NodeAlerts

REDACTED = "alerts are not fired while redact is on: a command needs the names that it hides"


def configuration_file(args: Any) -> Path:
    """The file that the settings come from, whether it is there or not."""
    named = getattr(args, "config", None) or os.environ.get("GPUTOP_CONFIG")
    return Path(named or default_path())


def alerts_here(
    args: Any, settings: Settings, *, fire: bool = True, tell: Callable[[str], None] | None = None
) -> NodeAlerts | None:
    """The alerts of a run that is being watched, None where none are configured.

    ``tell`` is given one line for each firing, from other threads, and at once the reason if this process fires none.
    Raises ConfigError where alerts are to be fired and must not be.
    """
    if not settings.alert:
        return None
    from gputop.session.alerts.node_alerts import NodeAlerts

    alerts = alerts_in(settings)
    if not fire:
        return NodeAlerts(alerts)
    if settings.redact:
        if tell is not None:
            tell(REDACTED)
        return None
    refuse_unsafe(args, alerts)
    from gputop.session.alerts.lock import FiringLock

    here = NodeAlerts(alerts, FiringLock(_private_directories()), tell)
    if why_not := here.why_not():
        (tell or here.messages.append)(f"alerts: {why_not}")
    return here


def alerts_in(settings: Settings) -> tuple[Alert, ...]:
    """The alerts of the settings, which were checked when they were read."""
    from gputop.diagnosis.alerts.table import alerts_of

    return alerts_of(settings.alert)


def refuse_unsafe(args: Any, alerts: Sequence[Alert]) -> None:
    """Raises ConfigError where others could have written a command, read an address, or apprise is missing."""
    from gputop.session.alerts.addresses import AddressError, addresses

    if any(alert.run for alert in alerts):
        _refuse_written_by_others(configuration_file(args))
    if any(alert.notifies for alert in alerts) and find_spec("apprise") is None:
        raise ConfigError(f"alerts with notify need apprise: {install('notify')}")
    for alert in alerts:
        if alert.notify_file is not None:
            try:
                addresses(alert.notify_file)
            except AddressError as error:
                raise ConfigError(f"alert {alert.name}: {error}") from None


def _refuse_written_by_others(file: Path) -> None:
    """Raises ConfigError unless only this user or root can write the file, its folder, and the target of a link."""
    for path in dict.fromkeys((file, file.absolute().parent, file.resolve(), file.resolve().parent)):
        try:
            status = path.stat()
        except OSError as error:
            raise ConfigError(f"alerts with run: cannot look at {path}: {error.strerror}") from None
        if status.st_uid not in (os.geteuid(), 0):
            raise ConfigError(f"alerts with run need a configuration that is yours or root's, and {path} is not")
        if status.st_mode & 0o022:
            raise ConfigError(f"alerts with run need a configuration that only you can write: chmod go-w {path}")


def alerts_report(args: Any, settings: Settings) -> dict[str, Any]:
    """The alerts for `gputop doctor`, without secrets: who fires them now, or why nobody can."""
    from gputop.session.alerts.lock import holder
    from gputop.sources.runtime_directory import is_ours, login_directories

    alerts, problem = alerts_in(settings), None
    try:
        refuse_unsafe(args, alerts)
    except ConfigError as error:
        problem = str(error)
    names = [{"name": a.name, "when": a.when.text, "runs": bool(a.run), "notifies": a.notifies} for a in alerts]
    return {"configured": names, "fired_by_pid": holder(list(filter(is_ours, login_directories()))), "problem": problem}


def _private_directories() -> list[str]:
    from gputop.sources.runtime_directory import login_directories, prepare

    found = []
    for directory in login_directories():
        try:
            prepare(directory)
        except OSError:
            continue
        found.append(directory)
    return found
