"""The diagnoser: from snapshots to one diagnosis per GPU.

Pure: time enters with the snapshots.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from msgspec.structs import replace

from gputop.diagnosis.host.job_steps import StepPeriods
from gputop.diagnosis.jobs.core_takers import takers
from gputop.diagnosis.jobs.hang import Hangs
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
from gputop.model.snapshot import Event, GpuSample, OngoingConditions, Snapshot
from gputop.model.step_pace import StepPeriod

_Read = tuple[GpuSample, GpuState, Signals | None]
LEAST_STEP_S = 0.1
"""Readings that follow sooner are not judged one by one.

gputop reads four times a second at most, so a window then has 120 samples. Other programs' recordings may have hundreds
of readings a second, and the work for each grows with the window.
"""
NO_LANES: Mapping[str, float | None] = MappingProxyType({})


class Diagnoser:
    """Takes snapshots in order of time and gives one diagnosis per GPU.

    It gives one diagnosis per GPU of the snapshot, in the same order.
    """

    def __init__(self, interval_s: float = 1.0) -> None:
        self._interval_s = interval_s
        self._readings = SanityFilter()
        self.believed: Snapshot | None = None
        """The last snapshot without what cannot be: what all outputs show."""
        self._gpus: dict[str, GpuState] = {}
        self._stragglers = StragglerDetector()
        self._turns = TurnDetector()
        self._hangs = Hangs()
        self._owners = Owners()
        self._fabric = FabricWindow()
        self._periods = StepPeriods()
        self._ledger = Ledger()
        self._findings = Findings()
        self._sample_and_tick: dict[str, tuple[GpuSample, GpuHostActivity | None]] = {}
        self._read: list[_Read] = []
        self._last_t: float | None = None
        self._ticks: dict[int, GpuHostActivity] | None = None
        self._passed_over = 0
        """Readings since the last one that was judged, which came too soon after it."""
        self._passed_over_events: list[Event] = []

    def observe(self, snapshot: Snapshot) -> tuple[GpuDiagnosis, ...]:
        """Add a snapshot and return the diagnosis of each GPU."""
        self.take(snapshot)
        return self.diagnoses()

    def take(self, measured: Snapshot) -> None:
        """Add one snapshot.

        Its own interval counts; the constructor's serves snapshots that give none.

        Wording a diagnosis costs as much as reaching it: a whole day is added without, and worded once.
        """
        snapshot = self.believed = self._readings.believed(measured)
        if self.is_repeat(snapshot):
            return
        if self._comes_too_soon(snapshot):
            self._passed_over += 1
            self._passed_over_events += snapshot.events
            return
        events = (*self._passed_over_events, *snapshot.events)
        is_thinned = self._passed_over > 0
        self._passed_over = 0
        self._passed_over_events = []
        t = snapshot.t
        interval = snapshot.interval_s if snapshot.interval_s > 0.0 else self._interval_s
        interval = max(interval, LEAST_STEP_S)
        dt = 0.0 if self._last_t is None else measured_span(t - self._last_t, interval)
        self._last_t = t
        host_is_new = "proc" not in snapshot.repeats or self._ticks is None
        if host_is_new or self._ticks is None:
            self._ticks = read_host(snapshot.processes)
            self._owners.observe(snapshot.processes)
        ticks = self._ticks
        served = {
            gpu: row
            for row in snapshot.servers
            if row.error is None
            for gpu in serving_on(snapshot, row)
        }
        for index, host_tick in ticks.items():
            host_tick.serving = served.get(index)
        moment = TickContext(
            t,
            interval,
            snapshot.host,
            events,
            self._fabric.observe(t, snapshot.host, snapshot.fabric_ports),
            host_is_new,
            snapshot.stale.get("proc", 0.0),
            bool(ticks),
            frozenset(gpu.static.name for gpu in snapshot.gpus if gpu.nvlink_active),
            is_thinned=is_thinned,
        )
        self._periods.observe(snapshot)
        self._sample_and_tick = {
            gpu.static.uuid: (gpu, ticks.get(gpu.static.index)) for gpu in snapshot.gpus
        }
        self._read = self._among_others(
            [self._signals(moment, snapshot, gpu) for gpu in snapshot.gpus], snapshot, dt
        )
        all_lost = all(gpu.lost_reason is not None for gpu in snapshot.gpus)
        parents = {gpu.static.mig_parent for gpu in snapshot.gpus}
        for gpu, state, signals in self._read:
            has_instances = gpu.static.uuid in parents
            state.observe(t, interval, gpu, signals, all_lost=all_lost, has_instances=has_instances)
            lost_s = self._ledger.add(
                gpu.static.uuid,
                state.state,
                dt,
                state.track.util_now,
                sm_now(gpu),
                state.verdict,
                clock_share(gpu),
            )
            state.charge(t, dt, lost_s)
            if state.has_changed():
                self._findings.note(t, self._diagnosis(gpu, state, signals))
        self._ledger.close_tick(t, dt)

    def _signals(self, now: TickContext, snapshot: Snapshot, gpu: GpuSample) -> _Read:
        """One GPU by itself."""
        state = self._gpus.get(gpu.static.uuid)
        if state is None:
            state = self._gpus[gpu.static.uuid] = GpuState(now.t)
            for row in snapshot.ongoing:
                if row.gpu == gpu.static.index:
                    state.track.restore_conditions(now.t, row)
        if gpu.lost_reason is None and not gpu.asleep:
            return (
                gpu,
                state,
                state.track.add_sample(now, gpu, self._sample_and_tick[gpu.static.uuid][1]),
            )
        state.track.skip(now, gpu, self._sample_and_tick[gpu.static.uuid][1])
        return gpu, state, None

    def _among_others(self, read: list[_Read], snapshot: Snapshot, dt: float) -> list[_Read]:
        """Compare the GPUs: stragglers, turns, hangs, cores and steps of jobs."""
        ticks, judged = self._ticks or {}, [s for _, _, s in read if s is not None]
        peers, takers_of_gpu = self._stragglers.observe(judged, ticks), takers(judged, ticks)
        turns = self._turns.observe(snapshot.t, judged, ticks)
        owners = (p.pid for tick in ticks.values() for p in tick.owners)
        spins = self._hangs.observe(snapshot.t, dt, judged, snapshot.steps, owners)
        if not (peers or takers_of_gpu or spins or turns or self._periods.periods):
            return read

        def among(s: Signals) -> Signals:
            host = replace(s.host, outsiders=takers_of_gpu.get(s.index, s.host.outsiders))
            peer, spin = peers.get(s.index), spins.get(s.index)
            return replace(
                s,
                peer=peer,
                spin=spin,
                turns=turns.get(s.index),
                host=host,
                period=self._periods.period_of(s.index),
            )

        return [(gpu, state, None if s is None else among(s)) for gpu, state, s in read]

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
        judged = [gpu.static.uuid for gpu, _, _ in self._read]
        return [gpu.static.uuid for gpu in snapshot.gpus] == judged

    def diagnoses(self) -> tuple[GpuDiagnosis, ...]:
        """The diagnoses after the last snapshot, in the order of its GPUs."""
        return tuple(self._diagnosis(gpu, state, signals) for gpu, state, signals in self._read)

    def _diagnosis(self, gpu: GpuSample, state: GpuState, signals: Signals | None) -> GpuDiagnosis:
        return state.diagnosis(
            self._last_t or 0.0, gpu, signals, self._ledger, self._owners.owner_of(gpu.static.index)
        )

    def forget(self, uuid: str) -> None:
        """Forget one GPU.

        Its time stays in the sums over all GPUs.
        """
        self._gpus.pop(uuid, None)
        self._ledger.forget(uuid)
        self._findings.forget(uuid)

    def lanes(self, uuid: str) -> Mapping[str, float | None]:
        """Host lanes of one GPU at this tick, percent.

        Means over its loaders, and its main thread.
        """
        sample_and_tick = self._sample_and_tick.get(uuid)
        return NO_LANES if sample_and_tick is None else _lanes(*sample_and_tick)

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
        rows = [state.track.ongoing_conditions(gpu.static.index) for gpu, state, _ in self._read]
        return tuple(row for row in rows if row != OngoingConditions(row.gpu))

    def findings(self) -> tuple[Finding, ...]:
        """Every change of a verdict or badge, newest last; bounded."""
        return self._findings.all()

    def acknowledge(self, gpu: int, badge_id: str) -> None:
        """Clear a sticky badge of the GPU with that index.

        Only something new raises it again.
        """
        for state in self._gpus.values():
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
