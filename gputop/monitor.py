"""Turns snapshots into frames with history and diagnosis.

A pure function of its snapshots: the same snapshots give the same frames, live or replayed. Nothing here reads a
clock, a file or a device.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from copy import deepcopy
from functools import cached_property
from operator import attrgetter
from types import MappingProxyType, SimpleNamespace
from typing import Any, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from gputop.diagnosis.engine import Diagnoser
from gputop.diagnosis.phase_growth import grown
from gputop.diagnosis.types import Finding, GpuDiagnosis, Waste
from gputop.diagnosis.verdict.shown import Shown, settled
from gputop.diagnosis.verdict.summary import WorstGpuSelector
from gputop.diagnosis.window.fabric_window import FabricSignals
from gputop.model.derived import slowed
from gputop.model.history import History
from gputop.model.metrics import ACTIVITY_KEYS, HISTORY_KEYS
from gputop.model.process_history import ProcessHistory
from gputop.model.sm import MEASURED
from gputop.model.snapshot import GpuSample, OngoingConditions, Snapshot
from gputop.model.step_pace import StepHistory, StepPace, StepPeriod
from gputop.model.steps import StepRow

MOST_GPUS = 64
"""GPUs that are remembered; of more, those go that were not seen for the longest, never one that is there."""
SM_SERIES = frozenset(HISTORY_KEYS).intersection(ACTIVITY_KEYS)
"""The series that come from the source of SM activity: two sources never mix in one of them."""


_HISTORY_OF = attrgetter(*HISTORY_KEYS)
HOST = "host"
"""Key of the host's own series in the history."""
STEP_SERIES = "step_s"
"""Seconds a step, in the history of each GPU on which a job announces its steps."""


class Frame(Struct, frozen=True, dict=True):
    """A snapshot with its diagnosis and history; every output shows frames.

    ``snapshot`` has the measured values, ``shown`` the means that screens show of them.
    """

    snapshot: Snapshot
    diagnoses: tuple[GpuDiagnosis, ...]
    history: History
    process_history: ProcessHistory
    findings: tuple[Finding, ...]
    waste: Waste
    steps: tuple[StepPace, ...] = ()
    """How fast each process that announces its steps is stepping."""
    fabric: FabricSignals | None = None
    periods: tuple[StepPeriod, ...] = ()
    """The steps of jobs as their GPUs' rhythm shows them, whether or not the jobs announce them."""
    look_first: str | None = None
    """The UUID of the GPU that is worst off; None where none is in trouble."""

    @cached_property
    def shown(self) -> Shown:
        """The means that screens show, settled once: outputs that paint nothing never ask for them."""
        return settled(self.snapshot, self.diagnoses, self.history, self.process_history)


def stepping_on(snapshot: Snapshot, process: StepPace | StepRow) -> frozenset[int]:
    """Return the GPUs on which a process steps.

    Those it holds a context on, else the one that it has named.
    """
    held_gpus = frozenset(
        p.gpu
        for p in snapshot.processes
        if p.pid == process.pid and p.role == "gpu" and p.gpu is not None
    )
    return held_gpus or (frozenset() if process.gpu is None else frozenset({process.gpu}))


def _step_times(snapshot: Snapshot) -> dict[int, float]:
    """Return seconds per step by GPU index, of the slowest process."""
    times: dict[int, float] = {}
    for row in snapshot.steps:
        for gpu in stepping_on(snapshot, row):
            times[gpu] = max(times.get(gpu, 0.0), row.sum_s / row.count)
    return times


class SmSources:
    """Remembers the last source of SM activity of each GPU."""

    def __init__(self) -> None:
        self._last: dict[str, str | None] = {}

    def switch(self, gpu: GpuSample) -> str | None:
        """Describe a change of source with this sample, else None.

        A lost GPU is ignored, and so is a first sample before slower sources have answered.
        """
        if gpu.lost_reason is not None:
            return None
        uuid, now = gpu.static.uuid, gpu.sm_source
        if uuid not in self._last:
            self._last[uuid] = now if now in MEASURED else None
            return None
        before, self._last[uuid] = self._last[uuid], now
        return None if before is None or before == now else f"SM source: {before} → {now}"

    def forget(self, uuid: str) -> None:
        """Forget a GPU."""
        self._last.pop(uuid, None)


Judgement: TypeAlias = bytes
"""What verdicts rest on at one moment: all that a monitor remembers, but for the charts, packed.

A monitor that goes on from it says what the one that it was taken from would have said. It never leaves the process.
"""


def _packed_view(view: Mapping[str, Any]) -> tuple[type, tuple[dict[str, Any]]]:
    """Tell a pickle to hold a read-only view of a mapping as a mapping."""
    return dict, (dict(view),)


class Monitor:
    """Keeps history and diagnosis."""

    def __init__(
        self, interval_s: float = 1.0, *, charts: bool = True, after: Judgement | None = None
    ) -> None:
        """History stays empty without ``charts``: a third less work.

        ``after`` is the state of another monitor to go on from.
        """
        self._charts = charts
        self.interval_s = interval_s
        self.latest: Frame | None = None
        self._begin(after)

    def _begin(self, after: Judgement | None = None) -> None:
        """Start with an empty history and an optional saved state."""
        self._history = History(self.interval_s)
        self._processes = ProcessHistory(self.interval_s)
        self._sources = SmSources()
        self._diagnoser, self._steps, self._first = (
            Diagnoser(self.interval_s),
            StepHistory(),
            WorstGpuSelector(),
        )
        self._seen_uuids: dict[str, None] = {}
        self._last_t: float | None = None
        if after is not None:
            import pickle

            known = pickle.loads(zlib.decompress(after))  # noqa: S301 # made by this process
            self._diagnoser, self._steps, self._first, self._seen_uuids, self._last_t = known

    def judgement(self) -> Judgement:
        """Return the state of the diagnosis, to go on from later.

        Takes some milliseconds for eight GPUs.
        """
        # Not at the start: the first frame is not to wait for it.
        import pickle

        deflater, parts = zlib.compressobj(1), list[bytes]()
        to_parts = SimpleNamespace(write=lambda data: parts.append(deflater.compress(data)))
        packer = pickle.Pickler(to_parts, pickle.HIGHEST_PROTOCOL)
        packer.dispatch_table = {MappingProxyType: _packed_view}
        packer.dump((self._diagnoser, self._steps, self._first, self._seen_uuids, self._last_t))
        return b"".join((*parts, deflater.flush()))

    def acknowledge(self, gpu: int, badge_id: str) -> None:
        """Clear a sticky badge of a GPU, by its index."""
        self._diagnoser.acknowledge(gpu, badge_id)

    def feed(self, snapshot: Snapshot) -> Frame:
        """Take a snapshot and return its frame, without implausible values.

        When the clock has stepped backwards, history and diagnosis start over: a chart must not fold time.
        """
        if self._last_t is not None and snapshot.t <= self._last_t:
            self._begin()
        self._last_t = snapshot.t
        is_repeat = self._diagnoser.is_repeat(snapshot)
        diagnoses = self._diagnoser.diagnose(snapshot)
        snapshot = self._diagnoser.believed or snapshot
        for gpu in () if is_repeat else snapshot.gpus:
            # Taken out and put in again: the order is that in which they were last seen.
            self._seen_uuids.pop(gpu.static.uuid, None)
            self._seen_uuids[gpu.static.uuid] = None
        if self._charts:
            self._remember(snapshot, is_repeat=is_repeat)
        while len(self._seen_uuids) > max(MOST_GPUS, len(snapshot.gpus)):
            self._forget(next(iter(self._seen_uuids)))
        findings, waste = self._diagnoser.findings(), self._diagnoser.waste()
        self._steps.observe(snapshot.t, snapshot.steps)
        paces, fabric = (
            tuple(map(self._with_growth, self._steps.paces(snapshot.t))),
            self._diagnoser.fabric,
        )
        first = self._first.observe(snapshot.t, diagnoses)
        self.latest = Frame(
            snapshot,
            diagnoses,
            self._history,
            self._processes,
            findings,
            waste,
            paces,
            fabric,
            self._diagnoser.periods,
            first,
        )
        return self.latest

    def sketch(self, snapshots: Iterable[Snapshot]) -> Frame:
        """Return a frame with charts of all snapshots, and no verdict.

        It is the last one's, for a first picture: its GPUs are "collecting", without a word of evidence. At least one
        snapshot is needed.
        """
        moments = list(snapshots)
        latest = moments.pop()
        for snapshot in moments:
            self._remember(snapshot, is_repeat=False)
        frame = self.feed(replace(latest, interval_s=self.interval_s))
        unjudged = tuple(replace(d, evidence=()) for d in frame.diagnoses)
        return replace(frame, diagnoses=unjudged)

    def _with_growth(self, pace: StepPace) -> StepPace:
        """Add the phase that has grown since the process was first heard."""
        return replace(pace, growth=grown(self._steps.looked_at(pace))) if pace.phases else pace

    def _remember(self, snapshot: Snapshot, *, is_repeat: bool) -> None:
        """Add a snapshot to the history that charts show."""
        history, t, interval_s = self._history, snapshot.t, snapshot.interval_s
        step_times = _step_times(snapshot) if snapshot.steps else {}
        history.pass_time(t)
        if "proc" not in snapshot.repeats:
            history.add(t, HOST, {"cpu_pct": snapshot.host.cpu_pct}, interval_s)
        for gpu in () if is_repeat else snapshot.gpus:
            uuid = gpu.static.uuid
            values: dict[str, float | None] = dict(zip(HISTORY_KEYS, _HISTORY_OF(gpu), strict=True))
            values.update(slowed(gpu))
            if (step_s := step_times.get(gpu.static.index)) is not None:
                values[STEP_SERIES] = step_s
            values.update(self._diagnoser.lanes(uuid))
            switch = self._sources.switch(gpu)
            history.add(t, uuid, values, interval_s, frozenset() if switch is None else SM_SERIES)
            if switch is not None:
                history.mark(t, uuid, switch)
        if "proc" not in snapshot.repeats or self._processes.latest_t is None:
            self._processes.observe(t, snapshot.processes, interval_s)
        for event in snapshot.events:
            key = next((g.static.uuid for g in snapshot.gpus if g.static.index == event.gpu), None)
            history.mark(event.t, key, event.text)

    def lanes(self, uuid: str) -> Mapping[str, float | None]:
        """Return the host's activity for one GPU, see ``Diagnoser.lanes``."""
        return self._diagnoser.lanes(uuid)

    def ongoing_conditions(self) -> tuple[OngoingConditions, ...]:
        """Return each GPU's ongoing conditions, for a new recording."""
        return self._diagnoser.ongoing_conditions()

    def frozen(self) -> Frame | None:
        """Return the latest frame with a copy of its history.

        Takes about 20 ms.
        """
        if self.latest is None:
            return None
        histories = deepcopy((self.latest.history, self.latest.process_history))
        return replace(self.latest, history=histories[0], process_history=histories[1])

    def _forget(self, uuid: str) -> None:
        """Forget a GPU.

        A recreated MIG instance has another UUID: otherwise memory would grow for ever.
        """
        del self._seen_uuids[uuid]
        self._sources.forget(uuid)
        self._history.forget(uuid)
        self._diagnoser.forget(uuid)
