"""The diagnosis of a machine's GPUs: what happens to one snapshot, from the measurement to the verdict.

::

    Snapshot (measured)
       |  SanityFilter: values that cannot be become None, with the reason
    Snapshot (believed)
       |  GpuTrack, one per GPU: the job, reasons to restart, then one more Second
    Window (the last 30 s)
       |  GpuTrack: means, conditions with hysteresis, attribution of idle time
    Signals, each GPU by itself
       |  jobs/: stragglers, turns, hangs, takers of cores, steps
    Signals, each GPU among the others
       |  GpuState: the rule that holds, votes over ten seconds, badges
    Verdict
       |  Ledger and Findings: wasted seconds, changes
    GpuDiagnosis

``Diagnoser.add_snapshot`` is that drawing as code. It is pure: time enters with the snapshots.

A worked example. A GPU is busy 30 % of the time. The main thread of its process runs 95 % of the time, so of the 0.7 s
a second in which the GPU idles it must have run for at least 0.95 + 0.7 - 1 = 0.65 s: that explains 93 % of the idle
time, and more than half names the cause.

>>> from gputop.model.snapshot import GpuSample, GpuStatic, Machine, ProcessSample, ProcessStatic
>>> gpu = GpuSample(GpuStatic(0, "GPU-0", "H100"), util_pct=30.0, sm_source="none")
>>> static = ProcessStatic(user="ml", command="python train.py", name="python")
>>> process = ProcessSample(
...     pid=4711, starttime=1, role="gpu", gpu=0, state="R", age_s=3600.0, cpu_pct=95.0,
...     main_run_pct=95.0, main_wait_pct=0.0, static=static)
>>> diagnoser = Diagnoser()
>>> for t in range(31):
...     diagnoser.add_snapshot(Snapshot(float(t), Machine("node-17"), (gpu,), (process,), interval_s=1.0))
>>> signals = diagnoser.judged[0].signals
>>> signals.samples, signals.util_pct, signals.idle, signals.host.mean.main
(30, 30.0, 70.0, 0.95)
>>> round(signals.host.attribution.main_run, 2), "main_run" in signals.host.named
(0.93, True)
>>> diagnosis = diagnoser.diagnoses()[0]
>>> diagnosis.verdict, diagnosis.figure
('main_process', ('idle', 70.0))
>>> diagnosis.evidence[0]
'the main thread is busy at least 93 % of the idle time, without workers; the GPU is idle 70 % of the time'
>>> diagnosis.lasted_s, round(diagnosis.charged_s, 1)  # 70 % of the time for which it has been shown
(12.0, 8.4)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from msgspec import Struct
from msgspec.structs import replace

from gputop.diagnosis.host.job_steps import StepPeriods
from gputop.diagnosis.jobs.core_takers import takers
from gputop.diagnosis.jobs.hang import Hangs
from gputop.diagnosis.jobs.job_demand import demand_of_jobs, holds_up
from gputop.diagnosis.jobs.job_keys import JobBook
from gputop.diagnosis.jobs.stragglers import StragglerDetector
from gputop.diagnosis.jobs.turn_taking import TurnDetector
from gputop.diagnosis.signals import Signals
from gputop.diagnosis.track_state import TickContext
from gputop.diagnosis.types import Finding, GpuDiagnosis, Waste
from gputop.diagnosis.verdict.gpu_owners import Owners
from gputop.diagnosis.verdict.time_ledger import Ledger, measured_span
from gputop.diagnosis.verdict.verdict_log import Findings
from gputop.diagnosis.verdict.verdict_state import GpuState
from gputop.diagnosis.window.fabric_window import FabricSignals, FabricWindow
from gputop.diagnosis.window.host_activity import GpuHostActivity, read_host, serving_on
from gputop.diagnosis.window.host_side import loading_of
from gputop.diagnosis.window.sample_facts import clock_share, sm_now
from gputop.diagnosis.window.sanity import SanityFilter
from gputop.diagnosis.window.window import EPSILON_S
from gputop.model.serving import ServerRow
from gputop.model.snapshot import Event, GpuSample, OngoingConditions, Snapshot
from gputop.model.step_pace import StepPeriod

LEAST_STEP_S = 0.1
"""Readings that follow sooner are not judged one by one.

gputop reads four times a second at most, so a window then has 120 samples. Other programs' recordings may have hundreds
of readings a second, and the work for each grows with the window.
"""
NO_LANES: Mapping[str, float | None] = MappingProxyType({})


class JudgedGpu(Struct, frozen=True):
    """One GPU of the last snapshot."""

    gpu: GpuSample
    """The believed sample."""
    state: GpuState
    signals: Signals | None
    """None where the GPU cannot be judged: lost, asleep, or without util."""


class PassedOver(Struct):
    """Readings since the last judged one, which came too soon after it."""

    count: int = 0
    events: list[Event] = []

    def add_reading(self, events: Iterable[Event]) -> None:
        """Count a reading, and keep its events for the next one that is judged."""
        self.count += 1
        self.events.extend(events)


class Diagnoser:
    """Takes snapshots in order of time and gives one diagnosis per GPU.

    It gives one diagnosis per GPU of the snapshot, in the same order.
    """

    def __init__(self, interval_s: float = 1.0) -> None:
        self._interval_s = interval_s
        self._sanity = SanityFilter()
        self.believed: Snapshot | None = None
        """The last snapshot without what cannot be: what all outputs show."""
        self.judged: list[JudgedGpu] = []
        """The GPUs of the last snapshot that was no repeat, in its order."""
        self._states: dict[str, GpuState] = {}
        self._jobs = JobBook()
        self._stragglers = StragglerDetector()
        self._turns = TurnDetector()
        self._hangs = Hangs()
        self._owners = Owners()
        self._fabric = FabricWindow()
        self._periods = StepPeriods()
        self._ledger = Ledger()
        self._findings = Findings()
        self._last_t: float | None = None
        self._host_activity: dict[int, GpuHostActivity] | None = None
        """By GPU index, of the last snapshot that had the processes."""
        self._passed_over = PassedOver()

    def diagnose(self, snapshot: Snapshot) -> tuple[GpuDiagnosis, ...]:
        """Add a snapshot and return the diagnosis of each GPU."""
        self.add_snapshot(snapshot)
        return self.diagnoses()

    def add_snapshot(self, measured: Snapshot) -> None:
        """Add one snapshot.

        Its own interval counts; the constructor's serves snapshots that give none.

        Wording a diagnosis costs as much as reaching it: a whole day is added without, and worded once.
        """
        snapshot = self.believed = self._sanity.believed(measured)
        if self.is_repeat(snapshot):
            return
        if self._comes_too_soon(snapshot):
            self._passed_over.add_reading(snapshot.events)
            return
        interval_s = snapshot.interval_s if snapshot.interval_s > 0.0 else self._interval_s
        interval_s = max(interval_s, LEAST_STEP_S)
        dt = self._pass_time(snapshot.t, interval_s)
        host_is_new = self._read_processes(snapshot)
        now = self._context(snapshot, interval_s, host_is_new=host_is_new)
        self._periods.observe(snapshot)
        self._passed_over = PassedOver()
        alone = [self._judge_alone(now, snapshot, gpu) for gpu in snapshot.gpus]
        self.judged = self._compare(alone, snapshot, dt)
        all_lost = all(gpu.lost_reason is not None for gpu in snapshot.gpus)
        mig_parents = {gpu.static.mig_parent for gpu in snapshot.gpus}
        for judged in self.judged:
            judged.state.add_signals(
                snapshot.t,
                interval_s,
                judged.gpu,
                judged.signals,
                all_lost=all_lost,
                has_instances=judged.gpu.static.uuid in mig_parents,
            )
            self._charge(judged, snapshot.t, dt)
        self._ledger.close_tick(snapshot.t, dt)

    def _pass_time(self, t: float, interval_s: float) -> float:
        """Return the seconds that a snapshot at Unix time ``t`` covers."""
        dt = 0.0 if self._last_t is None else measured_span(t - self._last_t, interval_s)
        self._last_t = t
        return dt

    def _read_processes(self, snapshot: Snapshot) -> bool:
        """Sort the processes by GPU; True if they were measured again."""
        is_new = "proc" not in snapshot.repeats or self._host_activity is None
        if is_new:
            self._host_activity = read_host(snapshot.processes)
            self._jobs.assign(snapshot.t, self._host_activity)
            self._owners.observe(snapshot.processes)
        served: dict[int, ServerRow] = {}
        for row in snapshot.servers:
            if row.error is None:
                served.update(dict.fromkeys(serving_on(snapshot, row), row))
        for index, activity in self._activity_by_gpu().items():
            activity.serving = served.get(index)
        return is_new

    def _activity_by_gpu(self) -> dict[int, GpuHostActivity]:
        return self._host_activity or {}

    def _context(self, snapshot: Snapshot, interval_s: float, *, host_is_new: bool) -> TickContext:
        """Return what all GPUs of a snapshot share."""
        return TickContext(
            t=snapshot.t,
            interval_s=interval_s,
            host=snapshot.host,
            events=(*self._passed_over.events, *snapshot.events),
            fabric=self._fabric.observe(snapshot.t, snapshot.host, snapshot.fabric_ports),
            host_is_new=host_is_new,
            host_age_s=snapshot.stale.get("proc", 0.0),
            listed=bool(self._host_activity),
            linked_models=frozenset(gpu.static.name for gpu in snapshot.gpus if gpu.nvlink_active),
            is_thinned=self._passed_over.count > 0,
        )

    def _judge_alone(self, now: TickContext, snapshot: Snapshot, gpu: GpuSample) -> JudgedGpu:
        """Add a GPU's sample to its window, and return its signals by itself."""
        state = self._states.get(gpu.static.uuid)
        if state is None:
            state = self._states[gpu.static.uuid] = GpuState(now.t)
            for row in snapshot.ongoing:
                if row.gpu == gpu.static.index:
                    state.track.restore_conditions(now.t, row)
        activity = self._activity_by_gpu().get(gpu.static.index)
        if gpu.lost_reason is not None or gpu.asleep:
            state.track.skip_sample(now, gpu, activity)
            return JudgedGpu(gpu, state, None)
        return JudgedGpu(gpu, state, state.track.add_sample(now, gpu, activity))

    def _compare(self, alone: list[JudgedGpu], snapshot: Snapshot, dt: float) -> list[JudgedGpu]:
        """Compare the GPUs: stragglers, turns, hangs, cores and steps of jobs."""
        activity = self._activity_by_gpu()
        signals = [judged.signals for judged in alone if judged.signals is not None]
        peers = self._stragglers.observe(signals, activity)
        takers_of_gpu = takers(signals, activity)
        turns = self._turns.observe(snapshot.t, signals, activity)
        owners = (p.pid for each in activity.values() for p in each.owners)
        spins = self._hangs.observe(snapshot.t, dt, signals, snapshot.steps, owners)
        demand = demand_of_jobs(signals, spins)
        held_up = holds_up(spins)
        nothing_seen = not (peers or takers_of_gpu or spins or turns or demand)
        if nothing_seen and not self._periods.periods:
            return alone
        compared = []
        for judged in alone:
            s = judged.signals
            if s is None:
                compared.append(judged)
                continue
            outsiders = takers_of_gpu.get(s.index, s.host.outsiders)
            among_others = replace(
                s,
                peer=peers.get(s.index),
                spin=spins.get(s.index),
                demand=demand.get(s.index, ""),
                holds_up=held_up.get(s.index, 0),
                turns=turns.get(s.index),
                host=replace(s.host, outsiders=outsiders),
                period=self._periods.period_of(s.index),
            )
            compared.append(JudgedGpu(judged.gpu, judged.state, among_others))
        return compared

    def _charge(self, judged: JudgedGpu, t: float, dt: float) -> None:
        """Count the sample's time for the verdict that is shown, and note a change of it."""
        gpu, state = judged.gpu, judged.state
        wasted_s = self._ledger.add(
            gpu.static.uuid,
            state.state,
            dt,
            state.track.util_now,
            sm_now(gpu),
            state.verdict,
            clock_share(gpu),
        )
        state.charge(t, dt, wasted_s)
        if state.has_changed():
            self._findings.note(t, self._worded(judged))

    def is_repeat(self, snapshot: Snapshot) -> bool:
        """True if a snapshot only repeats GPU values already added.

        It adds no sample, no vote and no time.
        """
        if "nvml" not in snapshot.repeats:
            return False
        return self._has_the_same_gpus(snapshot)

    def _comes_too_soon(self, snapshot: Snapshot) -> bool:
        """True if a reading of the same GPUs was judged just before."""
        if self._last_t is None or snapshot.t - self._last_t >= LEAST_STEP_S - EPSILON_S:
            return False
        return self._has_the_same_gpus(snapshot)

    def _has_the_same_gpus(self, snapshot: Snapshot) -> bool:
        """True if a snapshot has the GPUs of the one that was judged last, in their order."""
        judged = [each.gpu.static.uuid for each in self.judged]
        return [gpu.static.uuid for gpu in snapshot.gpus] == judged

    def diagnoses(self) -> tuple[GpuDiagnosis, ...]:
        """The diagnoses after the last snapshot, in the order of its GPUs."""
        return tuple(map(self._worded, self.judged))

    def _worded(self, judged: JudgedGpu) -> GpuDiagnosis:
        """Put the verdict shown of a GPU into words."""
        return judged.state.diagnosis(
            self._last_t or 0.0,
            judged.gpu,
            judged.signals,
            self._ledger,
            self._owners.owner_of(judged.gpu.static.index),
        )

    def forget(self, uuid: str) -> None:
        """Forget one GPU.

        Its time stays in the sums over all GPUs.
        """
        self._states.pop(uuid, None)
        self._ledger.forget(uuid)
        self._findings.forget(uuid)

    def lanes(self, uuid: str) -> Mapping[str, float | None]:
        """Host lanes of one GPU at this tick, percent.

        Means over its loaders, and its main thread.
        """
        for judged in self.judged:
            if judged.gpu.static.uuid == uuid:
                return _lanes(judged.gpu, self._activity_by_gpu().get(judged.gpu.static.index))
        return NO_LANES

    @property
    def fabric(self) -> FabricSignals | None:
        """State of the fabric over the window; None without a fabric."""
        return self._fabric.signals

    @property
    def periods(self) -> tuple[StepPeriod, ...]:
        """The steps of jobs, as their GPUs' rhythm shows them."""
        return self._periods.periods

    def ongoing_conditions(self) -> tuple[OngoingConditions, ...]:
        """Start times of present conditions on each GPU of the last snapshot.

        Those on which nothing does are left out.
        """
        rows = [
            judged.state.track.ongoing_conditions(judged.gpu.static.index) for judged in self.judged
        ]
        return tuple(row for row in rows if row != OngoingConditions(row.gpu))

    def findings(self) -> tuple[Finding, ...]:
        """Every change of a verdict or badge, newest last; bounded."""
        return self._findings.all()

    def acknowledge(self, gpu: int, badge_id: str) -> None:
        """Clear a sticky badge of the GPU with that index.

        Only something new raises it again.
        """
        for state in self._states.values():
            if state.index == gpu:
                state.acknowledge(badge_id)

    def waste(self) -> Waste:
        """Measured GPU time by state, over all GPUs."""
        return self._ledger.waste()


def _lanes(gpu: GpuSample, tick: GpuHostActivity | None) -> Mapping[str, float | None]:
    lanes: dict[str, float | None] = {
        "idle_pct": None if gpu.util_pct is None else 100.0 - gpu.util_pct
    }
    if tick is None:
        return lanes
    if tick.primary is not None and tick.primary.main_pct is not None:
        lanes["main_pct"] = tick.primary.main_pct
    if tick.loaders:
        shares = zip(("run", "wait", "disk", "network"), loading_of(tick)[1:], strict=True)
        lanes |= {
            f"loader_{name}_pct": 100.0 * share for name, share in shares if share is not None
        }
    return lanes
