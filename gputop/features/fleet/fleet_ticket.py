"""A row of the fleet's screen as text for a ticket, and the screen as a picture."""

from __future__ import annotations

from datetime import datetime, timezone

from gputop.features.fleet.fleet_frame import FleetFrame
from gputop.features.fleet.fleet_screen import fleet_screen
from gputop.features.fleet.fleet_view import FleetView, groups, position, rows_of
from gputop.features.fleet.gpu_group import GpuGroup
from gputop.features.fleet.judge import WORDS, cause_words, remedy_of
from gputop.model.quantity import count
from gputop.output.document import text_lines
from gputop.paint.line import pct
from gputop.paint.theme import Theme
from gputop.session.record_run import saved_picture


def ticket_text(frame: FleetFrame, view: FleetView) -> str:
    """What somebody who was not there needs: where, when, what, whose, the evidence, the remedy."""
    lines = _lines(frame, view)
    moment = datetime.fromtimestamp(frame.t, timezone.utc)
    lines.insert(1, f"at {moment:%Y-%m-%d %H:%M:%S} UTC, from {frame.read.source}; means over 5 minutes")
    return text_lines(lines)


def _lines(frame: FleetFrame, view: FleetView) -> list[str]:
    rows = rows_of(frame, view) if view.panel != "host" else []
    at = position(rows, view) if rows else 0
    if view.panel == "stragglers" and frame.stragglers:
        straggler = frame.stragglers[at]
        return [f"{straggler.where} holds up {straggler.job} ({straggler.kind}): {straggler.words}, "
                f"{count(straggler.gpus, 'GPU')}"]  # fmt: skip
    if view.panel == "waste" and frame.waste:
        row = frame.waste[at]
        owner = " ".join(part for part in (row.job, row.user) if part) or "nobody's job"
        return [f"{owner}: {row.gpu_h:.1f} GPU-hours of the last hour were no work: {cause_words(row.cause)}, "
                f"{count(row.gpus, 'GPU')}"]  # fmt: skip
    if view.panel == "alerts" and frame.alerts:
        alert = frame.alerts[at]
        return [f"alert {alert.name} fires: " + " ".join(f"{name}={value}" for name, value in alert.labels.items())]
    if view.panel == "host":
        group = next((host for host in frame.hosts if host.name == view.host), None)
    else:
        all_groups = groups(frame, view)
        group = all_groups[position([group.name for group in all_groups], view)] if all_groups else None
    return ["nothing is selected"] if group is None else _group_lines(frame, group)


def _group_lines(frame: FleetFrame, group: GpuGroup) -> list[str]:
    owners = ", ".join((*group.jobs, *group.users)) or "no job known"
    lines = [f"{group.name or 'no job'}: {group.verdict.text}", f"whose: {owners}"]
    for gpu in group.gpus[:16]:
        read = gpu.read
        lines.append(
            f"{read.host} GPU {read.gpu}: {WORDS[gpu.state]} (by {gpu.by}); util {pct(read.util_pct, 1)}, "
            f"SM {pct(read.sm_active_pct, 1)} ({read.names or 'n/a'}); {read.uuid}"
        )
    if len(group.gpus) > 16:
        lines.append(f"and {len(group.gpus) - 16} more GPUs")
    if remedy := remedy_of([(gpu.read, gpu.state) for gpu in group.gpus], group.verdict.state):
        lines.append(f"what helps: {remedy}")
    if (command := frame.ssh(group.name)) is not None and len(group.hosts) == 1 and group.hosts[0] == group.name:
        lines.append(f"look: {command}")
    return lines


def fleet_picture(frame: FleetFrame, view: FleetView, theme: Theme, width: int, height: int) -> str:
    """Write the screen as an SVG. Returns where it is, or why there is none."""
    rows = fleet_screen(frame, view, width, height).rows
    return saved_picture(rows, theme, "gputop-fleet", "gputop fleet", frame.t)
