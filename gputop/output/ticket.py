"""What is selected, ready for a ticket: the verdict with its evidence and remedy as text, or as one JSON object."""

from __future__ import annotations

import json
from datetime import datetime, timezone

from gputop.diagnosis.types import full_title
from gputop.model.quantity import length
from gputop.model.snapshot import ProcessSample
from gputop.model.text import terminal_safe
from gputop.monitor import Frame
from gputop.report.ticket import facts, processes_on, ticket_data


def ticket_json(frame: Frame, position: int, process: ProcessSample | None = None) -> str:
    """``ticket_data`` as text."""
    return json.dumps(ticket_data(frame, position, process), ensure_ascii=False, indent=2)


def ticket_text(frame: Frame, position: int, process: ProcessSample | None = None) -> str:
    """What somebody who was not there needs: where, what, since when, the evidence, the remedy."""
    snapshot, d = frame.snapshot, frame.diagnoses[position]
    gpu = snapshot.gpus[position]
    moment = datetime.fromtimestamp(snapshot.t, timezone.utc)
    title = full_title(d.title, d.busy_not_working)
    for_s = "" if d.since is None else f", for {length(max(0.0, snapshot.t - d.since))}"
    simulated = "simulated by gputop demo: " if snapshot.machine.is_simulated else ""
    lines = [
        f"{simulated}{snapshot.machine.hostname} GPU {gpu.static.index} ({gpu.static.name}): {title}{for_s}",
        f"at {moment:%Y-%m-%d %H:%M:%S} UTC; util {_pct(gpu.util_pct)}, SM {_pct(gpu.sm_active_pct)} ({gpu.sm_source})",
        *(f"evidence: {line}" for line in d.evidence),
    ]
    if d.remedy:
        lines.append(f"what helps: {d.remedy}")
    lines += [f"also: {b.evidence}" + (f"; {b.remedy}" if b.remedy else "") for b in d.badges]
    lines += [
        f"process: pid {p.pid}, {p.static.user or 'user n/a'}: {p.static.command or p.static.name or 'n/a'}"
        for p in processes_on(frame, gpu.static.index, process)
    ]
    if process is not None:
        told = [f"{name} {value}" for name, value in facts(process, process).items() if value is not None]
        lines.append(f"  {', '.join(told)}")
    return "\n".join(map(terminal_safe, lines)) + "\n"


def _pct(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.0f} %"
