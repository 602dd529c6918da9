"""A selected row as text for a ticket."""

from __future__ import annotations

from datetime import datetime, timezone

from gputop.features.fleet.fleet_frame import FleetFrame, GpuGroup
from gputop.features.fleet.fleet_view import FleetView, groups, position, rows_of
from gputop.features.fleet.gpu_state import WORDS
from gputop.features.fleet.group_verdict import cause_words
from gputop.model.quantity import count, number
from gputop.output.document import text_lines


def ticket_text(frame: FleetFrame, view: FleetView) -> str:
    """A selected row for a ticket: place, time, owner, evidence, remedy."""
    lines = _lines(frame, view)
    moment = datetime.fromtimestamp(frame.t, timezone.utc)
    lines.insert(1, f"at {moment:%Y-%m-%d %H:%M:%S} UTC, from {frame.read.source}; means over 5 minutes")
    return text_lines(lines)


def _lines(frame: FleetFrame, view: FleetView) -> list[str]:
    at = position(rows_of(frame, view), view)
    if view.panel == "host":
        group = frame.host(view.host)
        return ["nothing is selected"] if group is None else _group_lines(frame, group)
    if not rows_of(frame, view):
        return ["nothing is selected"]
    if view.panel == "stragglers":
        late = frame.stragglers[at]
        return [f"{late.where} holds up {late.job} ({late.kind}): {late.words}, {count(late.gpus, 'GPU')}"]
    if view.panel == "waste":
        row = frame.waste[at]
        owner = " ".join(part for part in (row.job, row.user) if part) or "nobody's job"
        cause = f"{cause_words(row.cause)}, {count(row.gpus, 'GPU')}"
        return [f"{owner}: {row.gpu_h:.1f} GPU-hours of the last hour were no work: {cause}"]
    if view.panel == "alerts":
        alert = frame.read.alerts[at]
        return [f"alert {alert.name} fires: " + " ".join(f"{name}={value}" for name, value in alert.labels.items())]
    return _group_lines(frame, groups(frame, view)[at])


def _group_lines(frame: FleetFrame, group: GpuGroup) -> list[str]:
    owners = ", ".join((*group.jobs, *group.users)) or "no job known"
    lines = [f"{group.title or 'no job'}: {group.verdict.text}", f"whose: {owners}"]
    for gpu in group.gpus[:16]:
        read = gpu.read
        lines.append(
            f"{read.host} GPU {read.gpu}: {WORDS[gpu.state]} (by {gpu.state_by}); util {number(read.util_pct)}, "
            f"SM {number(read.sm_active_pct)} ({read.names or 'n/a'}); {read.uuid}"
        )
    if len(group.gpus) > 16:
        lines.append(f"and {len(group.gpus) - 16} more GPUs")
    if group.remedy:
        lines.append(f"what helps: {group.remedy}")
    if (command := frame.ssh(group.name)) is not None and len(group.hosts) == 1 and group.hosts[0] == group.name:
        lines.append(f"look: {command}")
    return lines
