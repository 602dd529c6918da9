"""Alerts as text and as data: those that are configured, and what would have fired in a recording."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any

from msgspec.structs import asdict

from gputop.diagnosis.alerts.report import DryRun, WouldFire
from gputop.diagnosis.alerts.table import Alert
from gputop.model.quantity import count, length, which_gpus
from gputop.model.text import terminal_safe

SCHEMA = 1


def list_text(alerts: Sequence[Alert]) -> str:
    """Each alert with its condition and what it does; neither arguments nor addresses, which may hold secrets."""
    lines = []
    for alert in alerts:
        does = [f"runs {alert.run[0]}"] if alert.run else []
        if alert.notifies:
            places = [f"{len(alert.notify)} by address"] if alert.notify else []
            places += ["those of a file"] if alert.notify_file else []
            does.append(f"notifies {' and '.join(places)}")
        lines += [
            f"{alert.name}",
            f"  when   {alert.when.text}",
            f"  for    {_time(alert.for_s)}, then silent for {_time(alert.again_s)}",
            f"  per    {_per(alert)}",
            f"  does   {' and '.join(does) or 'nothing: it is shown only'}",
        ]
    return _printed(lines)


def dry_run_text(tried: DryRun) -> str:
    """What would have fired: a line each, and below it what would have been run."""
    what = f"{count(len(tried.fired), 'firing')} of {count(len(tried.names), 'alert')}"
    lines = [f"{what} in {length(tried.end - tried.begin)} from {_moment(tried.begin)} UTC; nothing was run"]
    width = max(map(len, tried.names), default=0)
    for one in tried.fired:
        until = "to the end" if one.until is None else f"for {length(one.until - one.since)}"
        held = f"held from {_moment(one.since)[11:]} {until}"
        lines += ["", f"{_moment(one.t)}  {one.alert:<{width}}  {which_gpus(one.gpus):<7}  {held}"]
        lines += [f"  {line}" for line in _does(one)]
    return _printed(lines)


def dry_run_data(tried: DryRun) -> dict[str, Any]:
    """The same for scripts; times are Unix seconds."""
    # The first of the GPUs under its own name as well, for alerts that act for one.
    fired = [{**asdict(one), "gpu": one.gpus[0], "uuid": one.uuids[0]} for one in tried.fired]
    return {"schema": SCHEMA, "begin": tried.begin, "end": tried.end, "alerts": list(tried.names), "fired": fired}


def _does(one: WouldFire) -> list[str]:
    lines = []
    if one.not_run is not None:
        lines.append(f"would not be run: {one.not_run}")
    elif one.command:
        lines.append(f"would run: {shlex.join(one.command)}")
    if one.notifies:
        lines.append("would notify")
    return lines or ["would be shown only"]


def _per(alert: Alert) -> str:
    """``job, where all its GPUs hold``."""
    if alert.per == "gpu":
        return "GPU"
    return f"{alert.per}, where {alert.gpus} of its GPUs {'hold' if alert.gpus == 'all' else 'holds'}"


def _time(seconds: float) -> str:
    return length(seconds).removesuffix(" 0 s").removesuffix(" 0 min")


def _moment(t: float) -> str:
    return f"{datetime.fromtimestamp(t, timezone.utc):%Y-%m-%d %H:%M:%S}"


def _printed(lines: Sequence[str]) -> str:
    return "".join(terminal_safe(line).rstrip() + "\n" for line in lines)
