"""Alerts evaluated on each GPU: firings, and what a command gets. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from gputop.diagnosis.types import GpuDiagnosis
from gputop.diagnosis.verdict.diagnosis_data import verdict_data
from gputop.features.alerts.alert_table import Alert, holds_on
from gputop.model.quantity import which_gpus
from gputop.model.snapshot import GAP_INTERVALS, GpuSample, Snapshot
from gputop.monitor import Frame

Place = tuple[str, str]
"""An alert's name and a GPU's UUID."""
MOST_GONE = 256
"""How many vanished GPUs (recreated MIG instances) are remembered for each alert."""


class Firing(Struct, frozen=True):
    """One alert on the GPUs for which it fires in one tick.

    ``since`` is the first hold, in Unix seconds. ``variables`` and ``data`` are what the command gets: its
    environment, and the JSON object on stdin.
    """

    alert: Alert
    t: float
    since: float
    gpus: tuple[int, ...]
    uuids: tuple[str, ...]
    variables: Mapping[str, str]
    data: Mapping[str, Any]

    @property
    def where(self) -> str:
        """``GPU 3``, ``GPUs 0-7``."""
        return which_gpus(self.gpus)


class AlertState(Struct):
    """The state of one alert on one GPU; times are Unix seconds.

    ``since``: when the condition began to hold. ``seen_t``: when it last held. ``is_active``: it has held for as long
    as the alert asks.
    """

    gpu: int
    since: float
    seen_t: float
    is_active: bool = False


class AlertEvaluator:
    """Evaluates every alert on every GPU, frame by frame."""

    def __init__(self, alerts: Sequence[Alert]) -> None:
        self.alerts = tuple(alerts)
        self._states: dict[Place, AlertState] = {}
        self._fired: dict[Place, float] = {}
        self._last_t: float | None = None

    def take(self, frame: Frame) -> list[Firing]:
        """Return the firings of one more frame, in the order of the alerts.

        A snapshot that repeats the GPUs' values changes nothing. A clock that was set back starts every condition over.
        """
        snapshot = frame.snapshot
        if self._last_t is not None and snapshot.t <= self._last_t:
            self._states.clear()
        self._last_t = snapshot.t
        if "nvml" in snapshot.repeats:
            return []
        longest_gap = GAP_INTERVALS * snapshot.interval_s
        firings = []
        for alert in self.alerts:
            rows = enumerate(zip(snapshot.gpus, frame.diagnoses, strict=False))
            positions = [
                at for at, (gpu, d) in rows if self._fires(alert, gpu, d, snapshot.t, longest_gap)
            ]
            if positions:
                since = min(
                    self._states[alert.name, snapshot.gpus[at].static.uuid].since
                    for at in positions
                )
                firings.append(firing(alert, frame, positions, since))
        self._forget(snapshot)
        return firings

    def states(self, name: str) -> tuple[AlertState, ...]:
        """Return the GPUs on which an alert's condition holds, by index."""
        return tuple(
            sorted(
                (s for (alert, _), s in self._states.items() if alert == name), key=lambda s: s.gpu
            )
        )

    def silent_until(self, alert: Alert) -> float | None:
        """Return when a holding alert may fire again; None where it is not silent."""
        fired = [
            self._fired[place]
            for place in self._states
            if place[0] == alert.name and place in self._fired
        ]
        return min(fired) + alert.again_s if fired else None

    def _fires(
        self, alert: Alert, gpu: GpuSample, diagnosis: GpuDiagnosis, t: float, gap: float
    ) -> bool:
        """Update an alert's state on a GPU; return whether it fires now."""
        place = (alert.name, gpu.static.uuid)
        holds = holds_on(alert.when, gpu, diagnosis)
        if holds is False:
            self._states.pop(place, None)
        if not holds:
            # An unknown value neither fires nor resolves.
            return False
        state = self._states.get(place)
        if state is None or (not state.is_active and t - state.seen_t > gap):
            state = self._states[place] = AlertState(gpu.static.index, t, t)
        state.gpu, state.seen_t = gpu.static.index, t
        state.is_active = state.is_active or t - state.since >= alert.for_s
        last = self._fired.get(place)
        # abs: a clock set back by a second must not fire again, and by a year must not silence.
        if not state.is_active or (last is not None and abs(t - last) < alert.again_s):
            return False
        self._fired[place] = t
        return True

    def _forget(self, snapshot: Snapshot) -> None:
        """Bound the memory of vanished GPUs.

        A recreated MIG instance has another UUID.
        """
        if max(len(self._states), len(self._fired)) > len(self.alerts) * MOST_GONE:
            present = {gpu.static.uuid for gpu in snapshot.gpus}
            self._states = {
                place: state for place, state in self._states.items() if place[1] in present
            }
            self._fired = {place: t for place, t in self._fired.items() if place[1] in present}


def firing(
    alert: Alert, frame: Frame, positions: Sequence[int], since: float, *, test: bool = False
) -> Firing:
    """Build the firing of an alert on some GPUs of a frame."""
    # Imported here: most runs never fire.
    from gputop.output.ticket import ticket_data

    snapshot = frame.snapshot
    rows = [(snapshot.gpus[position].static, frame.diagnoses[position]) for position in positions]
    indices, uuids = (
        tuple(static.index for static, _ in rows),
        tuple(static.uuid for static, _ in rows),
    )
    owners = [
        process
        for process in snapshot.processes
        if process.role == "gpu" and process.gpu in indices
    ]
    jobs = {
        process.static.batch_job.id for process in owners if process.static.batch_job is not None
    }
    job_id = jobs.pop() if len(jobs) == 1 else None
    variables = {
        "GPUTOP_ALERT": alert.name,
        "GPUTOP_WHEN": alert.when.text,
        "GPUTOP_HOST": snapshot.machine.hostname,
        "GPUTOP_GPUS": ",".join(map(str, indices)),
        "GPUTOP_UUIDS": ",".join(uuids),
        "GPUTOP_VERDICT": rows[0][1].verdict,
        "GPUTOP_LEVEL": rows[0][1].level,
        "GPUTOP_JOB_ID": job_id or "",
        "GPUTOP_PIDS": ",".join(map(str, sorted({process.pid for process in owners}))),
    }
    data = {
        **ticket_data(frame, positions[0]),
        "alert": alert.name,
        "when": alert.when.text,
        "alert_since": since,
        "test": test,
        "job_id": job_id,
        "gpus": [
            {
                "gpu": static.index,
                "uuid": static.uuid,
                "pci": static.pci_bus_id,
                **verdict_data(diagnosis),
            }
            for static, diagnosis in rows
        ],
    }
    # The kernel takes no zero byte in a variable.
    kept = {name: text.replace("\0", "") for name, text in variables.items() if text}
    return Firing(alert, snapshot.t, since, indices, uuids, kept, data)
