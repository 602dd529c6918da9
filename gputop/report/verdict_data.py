"""One GPU's verdict as data, for a ticket or a fired alert."""

from __future__ import annotations

from gputop.diagnosis.diagnosis_data import verdict_data
from gputop.model.snapshot import ProcessSample, value
from gputop.monitor import Frame

_FACTS = ("role", "gpu_mem_bytes", "cpu_pct", "main_run_pct", "state", "waiting_on", "rss_bytes", "job")


def ticket_data(frame: Frame, position: int, process: ProcessSample | None = None) -> dict[str, object]:
    """One GPU's verdict as data; command lines are those of the frame, which are masked.

    With a ``process`` only that one is included, with what it does.
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
            {"pid": p.pid, "user": p.static.user, "command": p.static.command or p.static.name, **facts(p, process)}
            for p in processes_on(frame, gpu.static.index, process)
        ],
    }


def processes_on(frame: Frame, index: int, process: ProcessSample | None) -> list[ProcessSample]:
    """The process that was chosen, or those that hold a context on the GPU of that index."""
    if process is not None:
        return [process]
    return [p for p in frame.snapshot.processes if p.gpu == index and p.role == "gpu"]


def facts(process: ProcessSample, chosen: ProcessSample | None) -> dict[str, object]:
    """What the chosen process does, by the catalogue's keys; empty for any other."""
    return {key: value(process, key) for key in _FACTS} if process is chosen else {}
