"""Simulates machines for the demo, pictures and tests.

A machine is a pure function of seed and time. Nothing is remembered between two snapshots, so the past that charts and
verdicts need is simply computed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from math import floor
from typing import Any, cast

from msgspec import Struct
from msgspec.structs import replace

from gputop.model.serving import ServerRow
from gputop.model.snapshot import (
    SIMULATED_BOOT,
    Event,
    FabricPort,
    HostSample,
    Machine,
    ProcessSample,
    Snapshot,
)
from gputop.model.steps import StepRow
from gputop.sources.fabric import NO_FABRIC, FabricReading, without
from gputop.sources.fabric_port import DEGRADED, DOWN, DROPS, LINK_ERRORS, PEAK, RETRANSMITS, RX, TX
from gputop.sources.own_process import OwnCostMeter
from gputop.sources.selection import choose, with_gpus
from gputop.sources.simulation.eight_gpu_node import FREED, node
from gputop.sources.simulation.gpus import (
    DRIVER,
    GIB,
    LOST_REASON,
    XID_CONTAINED_ECC,
    GpuPlan,
    plan_gpu,
    sample_gpu,
)
from gputop.sources.simulation.life import FabricLife, GpuLife, NodeLife
from gputop.sources.simulation.noise import drift, ripple
from gputop.sources.simulation.scenarios import DEFAULT, find
from gputop.sources.simulation.simulated_processes import JobPlan, plan_job, sample_job
from gputop.system.awaited import News

FULL_RATE_PAST_S, NEAR_PAST_S = 130.0, 700.0
NEAR_STEP_S, NEAR_STEP_SMALL_S, FAR_STEP_S = 5.0, 1.0, 25.0
SMALL_GPUS = 2
"""The past at full rate, then every 5 s (every second on a small machine, which costs little), then every 25 s.

The default chart and most rules look back two minutes, the leak ten; only how long a GPU has been idle is older. The
coarsest step stays below the diagnosis window of 30 s, so that the past has no gaps.
"""
MOST_WAITING = 60
"""Intervals that are made up for when a reader was late; after more of them the machine was asleep."""
SETTLED_S = 60.0
"""How long ago the last event of a scenario was, for those who see the past only: longer than the diagnosis window."""
_MB = 1e6
_HOST_SERIES = 3
UP_BEFORE_S = 11 * 86400.0
"""How long a simulated machine ran before the program began."""
_STEP_SERIES, _SERVER_SERIES = 900, 950


class _Plan(Struct, frozen=True):
    machine: Machine
    life: NodeLife
    gpus: tuple[GpuPlan, ...]
    jobs: tuple[tuple[JobPlan, ...], ...]
    seed: int

    def last_event_s(self) -> float | None:
        """Return seconds from the start to the machine's last event, if any."""
        gpus = [after for gpu in self.life.gpus for after in (gpu.lost_after_s, gpu.ecc_after_s)]
        fabric = None if self.life.fabric is None else self.life.fabric.down_after_s
        return max((after for after in (*gpus, fabric) if after is not None), default=None)


@lru_cache(maxsize=8)
def _plan(scenario: str | None, seed: int, gpus: int, ended: frozenset[int] = frozenset()) -> _Plan:
    """Return everything that does not change with time.

    ``ended`` are the process ids of ended jobs.
    """
    row = find(scenario)
    life = node(gpus) if row.name == DEFAULT else row.machine
    plans: list[GpuPlan] = []
    for index, gpu in enumerate(life.gpus):
        parent = None if gpu.mig_parent is None else plans[gpu.mig_parent].static.uuid
        plans.append(plan_gpu(_without(gpu, ended), life.chip, index, seed, parent))
    taken = {job.pid for gpu in life.gpus for job in gpu.jobs}
    jobs: list[tuple[JobPlan, ...]] = []
    for plan in plans:
        mine = []
        for job in plan.life.jobs:
            mine.append(plan_job(job, plan, taken))
            first, count = mine[-1].first_worker, 0 if job.workers is None else job.workers.count
            taken.update(range(first, first + count))
        jobs.append(tuple(mine))
    machine = Machine(life.hostname, f"{SIMULATED_BOOT}{seed}", DRIVER, "simulated")
    return _Plan(machine, life, tuple(plans), tuple(jobs), seed)


def _without(life: GpuLife, ended: frozenset[int]) -> GpuLife:
    """Return a GPU's life without its ended jobs."""
    jobs = tuple(job for job in life.jobs if job.pid not in ended)
    if len(jobs) == len(life.jobs):
        return life
    if not jobs:
        return FREED
    return replace(
        life,
        jobs=jobs,
        used_gib=life.used_gib - sum(j.memory_gib for j in life.jobs if j.pid in ended),
    )


def snapshot_at(
    t: float,
    *,
    scenario: str | None = None,
    seed: int = 0,
    gpus: int = 8,
    started: float,
    interval_s: float = 1.0,
    ended: frozenset[int] = frozenset(),
) -> Snapshot:
    """Return the machine at Unix time ``t``, a pure function.

    ``started`` is the Unix time at which the program began; ages and events count from it. ``gpus`` sizes the default
    machine; the other scenarios bring their own number. ``ended`` are the process ids of jobs that have ended before.
    Raises UsageError for a scenario that does not exist.
    """
    plan = _plan(scenario, seed, gpus, ended)
    shares = [gpu.share(t, interval_s, started) for gpu in plan.gpus]
    samples = tuple(
        [
            sample_gpu(gpu, t, interval_s, started, share)
            for gpu, share in zip(plan.gpus, shares, strict=True)
        ]
    )
    processes: list[ProcessSample] = []
    for gpu, jobs, share in zip(samples, plan.jobs, shares, strict=True):
        # The driver lists no processes of a GPU that it cannot reach.
        if gpu.lost_reason is None:
            for job in jobs:
                processes += sample_job(job, t, started, share, gpu.util_pct)
    fabric = _fabric(plan.life.fabric, plan.seed, t, started)
    return Snapshot(
        t,
        plan.machine,
        samples,
        tuple(processes),
        _host(plan, t, fabric, started),
        interval_s,
        _events(plan, t - interval_s, t, started),
        fabric_ports=fabric.ports,
        steps=_steps(plan, t, interval_s),
        servers=_servers(plan, t),
    )


def _steps(plan: _Plan, t: float, interval_s: float) -> tuple[StepRow, ...]:
    """Return the steps that jobs announced in the last interval."""
    rows = []
    for place, jobs in enumerate(plan.jobs):
        for planned in jobs:
            announced = planned.job.announced
            count = (
                0
                if announced is None
                else floor(t / announced.step_s) - floor((t - interval_s) / announced.step_s)
            )
            if announced is None or count <= 0:
                continue
            step_s = announced.step_s * (1.0 + 0.02 * drift(plan.seed, _STEP_SERIES + place, t))
            rows.append(
                StepRow(
                    planned.job.pid,
                    0,
                    plan.gpus[place].static.index,
                    "train",
                    count,
                    count * step_s,
                    0.97 * step_s,
                    1.05 * step_s,
                    step_s,
                    1.04 * step_s,
                    count * announced.samples,
                    None,
                    None,
                    count * announced.tokens,
                    announced.mfu_pct * announced.step_s / step_s,
                )
            )
    return tuple(rows)


def _servers(plan: _Plan, t: float) -> tuple[ServerRow, ...]:
    """Return the rows of the inference servers."""
    rows = []
    for place, served in enumerate(plan.life.served):
        load = 1.0 + 0.12 * drift(plan.seed, _SERVER_SERIES + place, t)
        rows.append(
            ServerRow(
                served.place,
                served.kind,
                30.0,
                served.requests_per_s * load,
                served.tokens_per_s * load,
                served.prompt_tokens_per_s * load,
                float(round(served.queue * load)),
                float(round(served.running * load)),
                *served.first_token_s,
                None,
                None,
                *served.between_tokens_s,
            )
        )
    return tuple(rows)


def _host(plan: _Plan, t: float, fabric: FabricReading, started: float) -> HostSample:
    host, seed = plan.life.host, plan.seed
    wobble, traffic = drift(seed, _HOST_SERIES, t), 1.0 + 0.15 * drift(seed, _HOST_SERIES + 1, t)
    cpu = min(100.0, max(0.0, host.cpu + wobble * (0.5 + 0.03 * host.cpu)))
    load_pct = host.cpu + 0.4 * host.psi_cpu + 2.0 * ripple(seed, _HOST_SERIES, t, 30.0)
    usual_load = round(max(0.1, host.cores * host.cpu / 100.0), 2)
    return HostSample(
        cpu_pct=round(cpu, 1),
        cpu_count=float(host.cores),
        load1=round(host.cores * load_pct / 100.0, 2) if host.cpu >= 2.0 else 0.1,
        load5=usual_load,
        load15=usual_load,
        mem_used_bytes=(host.memory_gib + 0.4 * wobble) * GIB,
        mem_total_bytes=host.total_gib * GIB,
        swap_used_bytes=0.0,
        swap_total_bytes=8.0 * GIB,
        uptime_s=UP_BEFORE_S + max(0.0, t - started),
        disk_read_bytes_per_s=host.disk_read_mb * traffic * _MB,
        disk_write_bytes_per_s=host.disk_write_mb * traffic * _MB,
        net_rx_bytes_per_s=host.net_rx_mb * traffic * _MB,
        net_tx_bytes_per_s=host.net_tx_mb * traffic * _MB,
        psi_cpu_pct=round(host.psi_cpu * (1.0 + 0.08 * wobble), 2),
        psi_io_pct=round(host.psi_io * (1.0 - 0.1 * wobble), 2),
        psi_mem_pct=0.0,
        tcp_retransmits=int(0.1 * t),
        unavailable=fabric.missing,
        **cast("dict[str, Any]", fabric.values),
    )


_FABRIC_SERIES = 7
_COUNTED_SINCE_S = 86400.0
"""How long before the start the counters began."""


def _fabric(life: FabricLife | None, seed: int, t: float, started: float) -> FabricReading:
    """Return the fabric at Unix time ``t``, a pure function of its arguments."""
    if life is None:
        return without(NO_FABRIC)
    ports = tuple(_port(life, number, seed, t, started) for number in range(life.ports))
    up = [port for port in ports if port.up]
    return FabricReading(
        {
            RX: sum(port.rx_bytes_per_s or 0.0 for port in ports),
            TX: sum(port.tx_bytes_per_s or 0.0 for port in ports),
            PEAK: sum(port.peak_bytes_per_s or 0.0 for port in ports) or None,
            DROPS: sum(port.drops or 0 for port in ports),
            RETRANSMITS: sum(port.retransmits or 0 for port in ports),
            LINK_ERRORS: sum(port.link_errors or 0 for port in ports),
            DOWN: len(ports) - len(up),
            DEGRADED: 0,
        },
        ports=ports,
    )


def _port(life: FabricLife, number: int, seed: int, t: float, started: float) -> FabricPort:
    last = number == life.ports - 1
    up = not (last and life.down_after_s is not None and t >= started + life.down_after_s)
    peak = life.gigabits * 1e9 / 8.0
    wobble = 1.0 + 0.1 * drift(seed, _FABRIC_SERIES + number, t)
    counted = max(0.0, t - started + _COUNTED_SINCE_S) / life.ports
    return FabricPort(
        name=f"mlx5_{number}/1",
        kind="InfiniBand",
        state="active" if up else "down",
        up=up,
        width=life.width if up else "",
        peak_bytes_per_s=peak if up else None,
        rx_bytes_per_s=peak * life.rx / 100.0 * wobble if up else 0.0,
        tx_bytes_per_s=peak * life.tx / 100.0 * wobble if up else 0.0,
        drops=int(life.drops_per_s * counted),
        retransmits=int(life.retransmits_per_s * counted),
        link_errors=0,
        trouble="" if up else "link down",
    )


def _events(plan: _Plan, after: float, t: float, started: float) -> tuple[Event, ...]:
    """Return the events since the snapshot before."""
    events = []
    for gpu in plan.gpus:
        index, life = gpu.static.index, gpu.life
        if life.lost_after_s is not None:
            events.append(Event(started + life.lost_after_s, "gpu_lost", LOST_REASON, index))
        if life.ecc_after_s is not None:
            text, xid = f"Xid {XID_CONTAINED_ECC}", XID_CONTAINED_ECC
            events.append(Event(started + life.ecc_after_s, "xid", text, index, xid=xid))
    return tuple(event for event in events if after < event.t <= t)


class SimulatedSource:
    """A source that simulates a machine.

    Its snapshots lie on whole intervals from the start on.
    """

    def __init__(
        self,
        scenario: str | None = None,
        *,
        interval_s: float = 1.0,
        seed: int = 0,
        gpus: int = 8,
        only: str | None = None,
        hostname: str | None = None,
        events_past: bool = False,
        clock: Callable[[], float] | None = None,
    ) -> None:
        """``clock`` gives Unix time, by default independent of clock steps.

        ``only`` names the GPUs to watch, as ``--gpus`` does; ``hostname`` replaces the machine's own. With
        ``events_past``, for commands that show the past only, the scenario's events have happened already. Raises
        UsageError for unknown names.
        """
        self.interval_s = interval_s
        self._moment = partial(snapshot_at, scenario=scenario, seed=seed, gpus=gpus)
        plan = _plan(scenario, seed, gpus)
        self._is_small = len(plan.gpus) <= SMALL_GPUS
        self._only: frozenset[str] | None = None
        if only is not None:
            statics = [gpu.static for gpu in plan.gpus]
            self._only = frozenset(statics[i].uuid for i in choose(statics, only, None))
        self._hostname = hostname
        offset_s = time.time() - time.monotonic()
        self._clock = clock or (lambda: offset_s + time.monotonic())
        self._started = self._begun = self._clock()
        last_event_s = plan.last_event_s() if events_past else None
        if last_event_s is not None:
            self._begun -= last_event_s + SETTLED_S
        self._last_tick = -1
        self._news, self._is_closed = News(), False
        self._own_cost = OwnCostMeter()
        self._ended: frozenset[int] = frozenset()
        self.now: Snapshot | None = None
        """The snapshot that was handed out last."""

    def end_job(self, pid: int) -> None:
        """End a job and its loaders from the next snapshot on."""
        self._ended |= {pid}

    def past(self, seconds: float) -> Iterator[Snapshot]:
        """Yield snapshots before the start, oldest first.

        The first frame has charts and verdicts by these. They become coarser with their age, with a longer
        ``interval_s``: see NEAR_STEP_S.
        """
        return self._made(self._past_steps(seconds))

    def recent(self, seconds: float) -> Iterator[Snapshot]:
        """Yield snapshots before the start at full rate."""
        count = floor(seconds / self.interval_s)
        return self._made(
            [(self._started - self.interval_s * i, self.interval_s) for i in range(count, -1, -1)]
        )

    def sketch(self, seconds: float, columns: int) -> Iterator[Snapshot]:
        """Yield few snapshots up to the start, as a first picture's charts need them."""
        every = max(self.interval_s, seconds / columns)
        count = floor(seconds / every)
        return self._made([(self._started - every * i, every) for i in range(count, -1, -1)])

    def past_chunks(
        self, seconds: float, frames: int
    ) -> Iterator[tuple[float, float, Callable[[], Iterator[Snapshot]]]]:
        """Yield the past in parts of ``frames`` frames, without the newest.

        Each is (first time, last time, function that yields the frames).
        """
        steps = self._past_steps(seconds)[:-1]
        for begin in range(0, len(steps), frames):
            part = steps[begin : begin + frames]
            yield part[0][0], part[-1][0], partial(self._made, part)

    def past_count(self, seconds: float) -> int:
        """Return how many snapshots ``past`` yields."""
        return len(self._past_steps(seconds))

    def _made(self, steps: list[tuple[float, float]]) -> Iterator[Snapshot]:
        return (self._snapshot(t, every) for t, every in steps)

    def _past_steps(self, seconds: float) -> list[tuple[float, float]]:
        """Return (time, interval) of the past snapshots, oldest first."""
        near_step = NEAR_STEP_SMALL_S if self._is_small else NEAR_STEP_S
        tiers = ((FULL_RATE_PAST_S, 0.0), (NEAR_PAST_S, near_step), (seconds, FAR_STEP_S))
        steps: list[tuple[float, float]] = []
        newer = 0.0
        for until, step in tiers:
            every = max(step, self.interval_s)
            count = floor((min(until, seconds) - newer) / every)
            if steps and count > 0:
                # The oldest of the finer steps stands for the time since the newest of the coarser ones.
                steps[-1] = (steps[-1][0], every)
            steps += [(newer + every * i, every) for i in range(1, count + 1)]
            newer += every * max(count, 0)
        return [(self._started - ago, every) for ago, every in reversed(steps)]

    def begin(self, wait_s: float) -> Snapshot | None:
        """Return the first snapshot, which is there at once."""
        return self.next_due()

    async def run(self, deliver: Callable[[Snapshot], object]) -> None:
        """Deliver a snapshot at each whole interval, until closed."""
        while not self._is_closed:
            # Until the next whole interval, not for one interval: so the ticks do not drift.
            passed_s = (self._clock() - self._started) % self.interval_s
            await self._news.wait(self.interval_s - passed_s)
            while not self._is_closed and (snapshot := self.next_due()) is not None:
                deliver(snapshot)

    def next_due(self) -> Snapshot | None:
        """Return the oldest recent snapshot not handed out yet, or None."""
        newest = floor((self._clock() - self._started) / self.interval_s + 1e-6)
        if newest <= self._last_tick:
            return None
        self._last_tick = tick = max(self._last_tick + 1, newest - MOST_WAITING + 1)
        snapshot = self._snapshot(self._started + tick * self.interval_s, self.interval_s)
        self.now = snapshot = replace(snapshot, own=self._own_cost.read())
        return snapshot

    def close(self) -> None:
        self._is_closed = True
        self._news.set()

    def _snapshot(self, t: float, interval_s: float) -> Snapshot:
        snapshot = self._moment(t, started=self._begun, interval_s=interval_s, ended=self._ended)
        if self._hostname is not None:
            snapshot = replace(snapshot, machine=replace(snapshot.machine, hostname=self._hostname))
        return snapshot if self._only is None else with_gpus(snapshot, self._only)
