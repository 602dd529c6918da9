"""The selected GPU for a ticket or a fired alert: its verdict with evidence and remedy, as data or text."""

from __future__ import annotations

from datetime import datetime, timezone

from gputop.diagnosis.verdict.diagnosis_data import verdict_data
from gputop.diagnosis.verdict.summary import number_words, since_words, summarize
from gputop.model.json_text import safe_json
from gputop.model.snapshot import ProcessSample, value
from gputop.monitor import Frame
from gputop.output.plain_document import text_lines

_FACTS = (
    "role",
    "gpu_mem_bytes",
    "cpu_pct",
    "main_run_pct",
    "state",
    "waiting_on",
    "rss_bytes",
    "job",
)


def ticket_data(
    frame: Frame, position: int, process: ProcessSample | None = None
) -> dict[str, object]:
    """One GPU's verdict and processes as JSON.

    Command lines are masked, as in the frame. With a ``process`` only that one is included, with its activity.
    """
    gpu, d = frame.snapshot.gpus[position], frame.diagnoses[position]
    return {
        "schema": 1,
        "t": frame.snapshot.t,
        "host": frame.snapshot.machine.hostname,
        "simulated": frame.snapshot.machine.is_simulated,
        "gpu": gpu.static.index,
        "uuid": gpu.static.uuid,
        "name": gpu.static.name,
        **verdict_data(d),
        "util_pct": gpu.util_pct,
        "sm_active_pct": gpu.sm_active_pct,
        "sm_source": gpu.sm_source,
        "processes": [
            {
                "pid": p.pid,
                "user": p.static.user,
                "command": p.static.command or p.static.name,
                **({} if process is None else facts(p)),
            }
            for p in processes_on(frame, gpu.static.index, process)
        ],
    }


def processes_on(frame: Frame, index: int, process: ProcessSample | None) -> list[ProcessSample]:
    """The chosen process, else all processes with a context there."""
    if process is not None:
        return [measured(frame, process)]
    return [p for p in frame.snapshot.processes if p.gpu == index and p.role == "gpu"]


def measured(frame: Frame, process: ProcessSample) -> ProcessSample:
    """Return the measured values of a process, of which a screen shows means."""
    key = (process.pid, process.starttime, process.gpu)
    for p in frame.snapshot.processes:
        if (p.pid, p.starttime, p.gpu) == key:
            return p
    return process


def facts(process: ProcessSample) -> dict[str, object]:
    """Activity of a process by catalogue key."""
    return {key: value(process, key) for key in _FACTS}


def ticket_json(frame: Frame, position: int, process: ProcessSample | None = None) -> str:
    """``ticket_data`` as text."""
    return safe_json(ticket_data(frame, position, process), indent=2)


def ticket_text(frame: Frame, position: int, process: ProcessSample | None = None) -> str:
    """One GPU's verdict as text: place, time, evidence, remedy, processes."""
    snapshot, told = frame.snapshot, summarize(frame.diagnoses[position])
    gpu = snapshot.gpus[position]
    moment = datetime.fromtimestamp(snapshot.t, timezone.utc)
    simulated = "simulated by gputop demo: " if snapshot.machine.is_simulated else ""
    where = f"{simulated}{snapshot.machine.hostname} GPU {gpu.static.index} ({gpu.static.name})"
    lines = [
        ", ".join(
            filter(None, (f"{where}: {told.words}", number_words(told.number), since_words(told)))
        ),
        f"at {moment:%Y-%m-%d %H:%M:%S} UTC; util {_pct(gpu.util_pct)}, SM {_pct(gpu.sm_active_pct)} ({gpu.sm_source})",
        *(f"evidence: {line}" for line in told.evidence),
    ]
    if told.remedy:
        lines.append(f"what helps: {told.remedy}")
    lines += [
        f"also, {b.title}: {b.evidence}" + (f"; {b.remedy}" if b.remedy else "")
        for b in told.other_badges
    ]
    lines += [
        f"process: pid {p.pid}, {p.static.user or 'user n/a'}: {p.static.command or p.static.name or 'n/a'}"
        for p in processes_on(frame, gpu.static.index, process)
    ]
    if process is not None:
        known = facts(measured(frame, process))
        values = [f"{name} {value}" for name, value in known.items() if value is not None]
        lines.append(f"  {', '.join(values)}")
    return text_lines(lines)


def _pct(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.0f} %"
