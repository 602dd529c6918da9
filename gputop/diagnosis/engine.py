"""Joins signals, rules, badges and waste: one diagnosis per GPU and snapshot. Pure: time enters with the snapshots."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from gputop.diagnosis.types import STATES, Finding, Flag, GpuDiagnosis, Level, State, Waste
from gputop.model.snapshot import GpuSample, Snapshot

WINDOW_S = 30.0
LEAST_SAMPLES = 10


class _Window:
    """The samples of one GPU over the last 30 s."""

    def __init__(self) -> None:
        self.samples: deque[tuple[float, float | None, float | None]] = deque()

    def push(self, t: float, gpu: GpuSample) -> None:
        measured = gpu.sm_source in ("gpm", "dcgm-exporter", "dcgmi")
        self.samples.append((t, gpu.util_pct, gpu.sm_active_pct if measured else None))
        while self.samples[0][0] <= t - WINDOW_S:
            self.samples.popleft()

    def mean(self, column: int) -> float | None:
        values = [value for sample in self.samples if (value := sample[column]) is not None]
        return sum(values) / len(values) if values else None


class Diagnoser:
    """Feed it snapshots in order of time; it gives one diagnosis per GPU of the snapshot, in the same order."""

    def __init__(self, interval_s: float = 1.0) -> None:
        self._interval_s = interval_s
        self._windows: dict[str, _Window] = {}
        self._lanes: dict[str, Mapping[str, float | None]] = {}

    def observe(self, snapshot: Snapshot) -> tuple[GpuDiagnosis, ...]:
        return tuple(self._diagnose(snapshot.t, gpu) for gpu in snapshot.gpus)

    def lanes(self, uuid: str) -> Mapping[str, float | None]:
        return self._lanes.get(uuid, {})

    def findings(self) -> tuple[Finding, ...]:
        return ()

    def acknowledge(self, gpu: int, badge_id: str) -> None:
        """Clear a sticky badge."""

    def waste(self) -> Waste:
        return Waste(dict.fromkeys(STATES, 0.0))

    def _diagnose(self, t: float, gpu: GpuSample) -> GpuDiagnosis:
        window = self._windows.setdefault(gpu.static.uuid, _Window())
        window.push(t, gpu)
        util, sm = window.mean(1), window.mean(2)
        self._lanes[gpu.static.uuid] = {"idle_pct": None if gpu.util_pct is None else 100.0 - gpu.util_pct}
        verdict, level, state = _verdict(len(window.samples), util, sm)
        efficiency = sm / util * 100.0 if sm is not None and util is not None and util >= 10.0 else None
        return GpuDiagnosis(
            index=gpu.static.index,
            uuid=gpu.static.uuid,
            verdict=verdict,
            level=level,
            title=verdict.replace("_", " "),
            short=verdict.replace("_", " "),
            busy_not_working=_flag(util, sm),
            efficiency_pct=efficiency,
            efficiency_reason=None if efficiency is not None else "no SM counter",
            window_s=WINDOW_S,
            n=len(window.samples),
            state=state,
        )


def _verdict(n: int, util: float | None, sm: float | None) -> tuple[str, Level, State]:
    if n < LEAST_SAMPLES or util is None:
        return "collecting", "grey", "unmeasured"
    if util < 5.0:
        return "idle", "grey", "idle"
    if util <= 80.0:
        return "starved_unattributed", "yellow", "starved"
    if _flag(util, sm) is not None:
        return "low_sm", "red", "busy_not_working"
    return ("no_bottleneck_seen", "grey-green", "unmeasured") if sm is None else ("working", "green", "working")


def _flag(util: float | None, sm: float | None) -> Flag | None:
    if util is None or sm is None:
        return None
    if util >= 80.0 and sm < 30.0:
        return "A"
    return "B" if util >= 50.0 and sm / util < 0.3 else None
