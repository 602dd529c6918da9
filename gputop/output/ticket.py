"""What is selected, ready for a ticket: the verdict with its evidence and remedy as text, or as one JSON object."""

from __future__ import annotations

import json
from datetime import datetime, timezone

from gputop.model.quantity import length
from gputop.model.snapshot import ProcessSample
from gputop.model.text import terminal_safe
from gputop.monitor import Frame


def ticket_data(frame: Frame, position: int, process: ProcessSample | None = None) -> dict[str, object]:
    """One GPU's verdict as data; command lines are those of the frame, which are masked.

    With a ``process`` only that one is told of, with what it does.
    """
    gpu, d = frame.snapshot.gpus[position], frame.diagnoses[position]
    return {
        "schema": 1,
        "t": frame.snapshot.t,
        "host": frame.snapshot.machine.hostname,
        "gpu": gpu.static.index,
        "uuid": gpu.static.uuid,
        "name": gpu.static.name,
        "verdict": d.verdict,
        "level": d.level,
        "busy_not_working": d.busy_not_working,
        "title": d.title,
        "util_pct": gpu.util_pct,
        "sm_active_pct": gpu.sm_active_pct,
        "sm_source": gpu.sm_source,
        "efficiency_pct": d.efficiency_pct,
        "since": d.since,
        "evidence": list(d.evidence),
        "remedy": d.remedy,
        "badges": [{"id": b.id, "evidence": b.evidence, "remedy": b.remedy} for b in d.badges],
        "processes": [
            {"pid": p.pid, "user": p.static.user, "command": p.static.command or p.static.name, **_facts(p, process)}
            for p in _processes(frame, gpu.static.index, process)
        ],
    }


def ticket_json(frame: Frame, position: int, process: ProcessSample | None = None) -> str:
    """``ticket_data`` as text."""
    return json.dumps(ticket_data(frame, position, process), ensure_ascii=False, indent=2)


def ticket_text(frame: Frame, position: int, process: ProcessSample | None = None) -> str:
    """What somebody who was not there needs: where, what, since when, what proves it, what helps."""
    snapshot, d = frame.snapshot, frame.diagnoses[position]
    gpu = snapshot.gpus[position]
    moment = datetime.fromtimestamp(snapshot.t, timezone.utc)
    title = f"busy, not working: {d.title}" if d.busy_not_working else d.title
    for_s = "" if d.since is None else f", for {length(max(0.0, snapshot.t - d.since))}"
    lines = [
        f"{snapshot.machine.hostname} GPU {gpu.static.index} ({gpu.static.name}): {title}{for_s}",
        f"at {moment:%Y-%m-%d %H:%M:%S} UTC; util {_pct(gpu.util_pct)}, SM {_pct(gpu.sm_active_pct)} ({gpu.sm_source})",
        *(f"evidence: {line}" for line in d.evidence),
    ]
    if d.remedy:
        lines.append(f"what helps: {d.remedy}")
    lines += [f"also: {b.evidence}" + (f"; {b.remedy}" if b.remedy else "") for b in d.badges]
    lines += [
        f"process: pid {p.pid}, {p.static.user or 'user n/a'}: {p.static.command or p.static.name or 'n/a'}"
        for p in _processes(frame, gpu.static.index, process)
    ]
    if process is not None:
        facts = [f"{name} {value}" for name, value in _facts(process, process).items() if value is not None]
        lines.append(f"  {', '.join(facts)}")
    return "\n".join(map(terminal_safe, lines)) + "\n"


def _processes(frame: Frame, index: int, process: ProcessSample | None) -> list[ProcessSample]:
    return (
        [process]
        if process is not None
        else [p for p in frame.snapshot.processes if p.gpu == index and p.role == "gpu"]
    )


def _pct(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.0f} %"


def _facts(process: ProcessSample, chosen: ProcessSample | None) -> dict[str, object]:
    """What a process that was chosen does, by the catalogue's keys; nothing of the others."""
    if process is not chosen:
        return {}
    return {
        "role": process.role,
        "gpu_mem_bytes": process.gpu_mem_bytes,
        "cpu_pct": process.cpu_pct,
        "main_run_pct": process.main_run_pct,
        "state": process.state,
        "waiting_on": process.waiting_on,
        "rss_bytes": process.rss_bytes,
        "job": process.static.job,
    }
