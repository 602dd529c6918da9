"""A simulated fleet: jobs that work or waste, stragglers, absent hosts.

Every value follows from seed, GPU and time alone, so that any moment can be generated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

from msgspec import Struct

from gputop.diagnosis.types import State
from gputop.features.fleet.fleet_reading import (
    HOUR_S,
    MINUTES,
    NO_JOB,
    SIMULATED,
    Down,
    FiringAlert,
    FleetReading,
    FleetSource,
    GpuReading,
    History,
    JobName,
    LastHour,
    Lost,
)
from gputop.features.fleet.gpu_state import judged, lost_hours
from gputop.model.snapshot import POD
from gputop.sources.simulation.noise import chance, drift

GIB = 2.0**30
LIMIT_W = 700.0
STARTED = 1_763_000_100.0
"""The fleet's start, Unix seconds, from which the demo runs on."""


class Fate(Struct, frozen=True):
    """Means of a job's GPUs: percent, GiB, and share of the power limit."""

    util: float
    sm: float
    tensor: float
    dram: float
    power: float
    mem_gib: float
    state: State
    verdict: str


WORKING = Fate(98.0, 91.0, 55.0, 46.0, 0.80, 66.0, "working", "healthy")
SERVING = Fate(99.0, 88.0, 12.0, 84.0, 0.66, 72.0, "working", "memory_bandwidth")
KERNELS = Fate(97.0, 9.0, 1.0, 11.0, 0.30, 24.0, "busy_not_working", "small_kernels")
WAITING = Fate(99.0, 17.0, 4.0, 14.0, 0.44, 60.0, "busy_not_working", "low_sm")
LOADER_CPU = Fate(38.0, 32.0, 16.0, 15.0, 0.40, 38.0, "starved", "dataloader_cpu")
LOADER_IO = Fate(47.0, 39.0, 20.0, 17.0, 0.44, 52.0, "starved", "dataloader_io")
HOLDING = Fate(0.0, 0.0, 0.0, 0.0, 0.12, 76.0, "idle_allocated", "idle_holding_memory")
RESERVED = Fate(0.0, 0.0, 0.0, 0.0, 0.10, 0.4, "idle", "idle")
"""A job that holds GPUs and uses none of them."""
NOBODY = Fate(0.0, 0.0, 0.0, 0.0, 0.10, 0.4, "idle", "idle")
SLOWED = Fate(98.0, 62.0, 30.0, 30.0, 0.62, 68.0, "working", "working")
"""A job that waits for its straggler."""
LATE = Fate(93.0, 62.0, 30.0, 30.0, 0.62, 68.0, "working", "working")
_FATES: tuple[tuple[float, Fate], ...] = (
    (0.56, WORKING), (0.64, SERVING), (0.70, KERNELS), (0.76, WAITING), (0.81, LOADER_CPU), (0.85, LOADER_IO),
    (0.88, HOLDING), (0.92, SLOWED), (0.94, LATE), (1.0, NOBODY),
)  # fmt: skip
"""Cumulative shares of the jobs."""
_SIZES = (1, 1, 1, 2, 2, 4, 4, 8)
_USERS = ("ml", "vision", "rl", "team-a", "anna", "bio", "speech", "ops")
LATE_S = 240.0
"""For how long the driver of the late host has hung."""
STRAGGLER_SM, STRAGGLER_UTIL = 93.0, 58.0
STEP_S, STRAGGLER_STEP_S = 0.84, 1.02
"""Training steps of jobs that announce them, and of the one rank that is slower while no other rank waits for it."""


class SimulatedJob(Struct, frozen=True):
    """A job on whole hosts.

    It began ``begun_s`` before the fleet's start. ``straggler`` is a GPU of it, counted over all its hosts, or None.
    """

    name: JobName
    user: str
    fate: Fate
    first: int
    hosts: int
    begun_s: float
    straggler: int | None = None
    steps: bool = False
    """Whether it announces its steps; its straggler is then one by step alone."""


class SimulatedFleet(FleetSource):
    """A fleet of ``hosts`` with ``gpus`` each. ``ask`` reads it at any time."""

    source = SIMULATED
    interval_s = 5.0
    gpus = 8

    def __init__(self, hosts: int = 125, *, seed: int = 0, clock: Callable[[], float] = lambda: STARTED) -> None:
        self.hosts, self.seed, self._clock = hosts, seed, clock
        self.jobs = self._placed()
        self._job_of = [job for job in self.jobs for _ in range(job.hosts)]

    def _placed(self) -> list[SimulatedJob]:
        """Place jobs on hosts until every host has one."""
        jobs: list[SimulatedJob] = []
        at, number = 0, 0
        while at < self.hosts:
            roll = (number * 0.137 + 0.66 + 0.2 * chance(self.seed, 1, number)) % 1.0
            fate = next(fate for share, fate in _FATES if roll < share)
            if fate is HOLDING and number % 2:
                fate = RESERVED
            wanted_hosts = _SIZES[int(chance(self.seed, 2, number) * len(_SIZES))]
            size = min(self.hosts - at, 1 if fate in (HOLDING, RESERVED, NOBODY) else wanted_hosts)
            late, ranks = fate in (SLOWED, LATE), size * self.gpus
            # The nodes of a job that announces steps run gputop, its first one at least.
            steps = fate is WORKING and self.names_of(at) == "gputop"
            uneven = steps and chance(self.seed, 9, number) < 0.25
            user = _USERS[number % len(_USERS)]
            # As the screen names it: most are of a batch scheduler, those that hold GPUs for later are pods.
            name = JobName(POD, f"{user}/batch-{number}") if fate is RESERVED else JobName("slurm", str(8800 + number))
            jobs.append(SimulatedJob(
                NO_JOB if fate is NOBODY else name, user if fate is not NOBODY else "", fate, at, size,
                300.0 * round(2.0 + 22.0 * chance(self.seed, 3, number)),
                int(chance(self.seed, 4, number) * (ranks if late else self.gpus)) if late or uneven else None, steps,
            ))  # fmt: skip
            at, number = at + size, number + 1
        return jobs

    def host_name(self, host: int) -> str:
        """The name of a host by its position."""
        return f"node-{host + 1:03d}"

    def job_of(self, host: int) -> SimulatedJob:
        """The job that runs on a host."""
        return self._job_of[host]

    def names_of(self, host: int) -> str:
        """The dialect that a host's exporter speaks: clusters are seldom all of one."""
        return ("gputop", "4.9", "legacy")[int(chance(self.seed, 5, host // 8) * 3)]

    def is_down(self, host: int) -> bool:
        """Whether a host does not answer."""
        return chance(self.seed, 7, host) < 0.006 or (self.hosts >= 20 and host == self.hosts * 3 // 5)

    @cached_property
    def late(self) -> int | None:
        """The host whose driver hangs, where there are enough of them."""
        return self._first(lambda host: self.names_of(host) == "gputop" and not self.is_down(host), self.hosts * 2 // 5)

    @cached_property
    def lost_gpu(self) -> tuple[int, int] | None:
        """Host and number of the GPU that cannot be read; None in small fleets."""
        fates = (WORKING, SERVING)
        host = self._first(
            lambda host: not self.is_down(host) and host != self.late and self.job_of(host).fate in fates,
            self.hosts // 5,
        )
        return None if host is None else (host, self.gpus - 1)

    def _first(self, is_one: Callable[[int], bool], begin: int) -> int | None:
        """The first host from ``begin`` on; small fleets are left whole."""
        return next((host for host in range(begin, self.hosts) if is_one(host)), None) if self.hosts >= 20 else None

    def gpu(self, host: int, number: int, t: float) -> GpuReading:
        """One GPU at Unix time ``t``."""
        job, names, series = self._job_of[host], self.names_of(host), host * self.gpus + number
        runs = t >= STARTED - job.begun_s
        fate = job.fate if runs else NOBODY
        util, sm, power = fate.util, fate.sm, fate.power
        step = STEP_S if runs and job.steps and names == "gputop" else None
        if runs and job.straggler == (host - job.first) * self.gpus + number:
            if job.steps:
                step = STRAGGLER_STEP_S
            elif fate is LATE:
                util, sm = STRAGGLER_UTIL, STRAGGLER_UTIL - 10.0
            else:
                sm, power = STRAGGLER_SM, 0.86
        quiet = fate.util == 0.0
        noise = 0.0 if quiet else 2.0 * drift(self.seed, series, t / 15.0)
        util = min(100.0, max(0.0, util + 0.4 * noise))
        sm = min(util, max(0.0, sm + noise))
        has_gputop = names == "gputop"
        # As dcgm-exporter leaves it out by default.
        lacks_sm = names == "legacy" and chance(self.seed, 6, host) < 0.15
        return GpuReading(
            self.host_name(host), str(number), f"GPU-{self.seed:04x}{host:08x}-{number:04x}", "NVIDIA H100 80GB HBM3",
            names, util, None if lacks_sm else sm, max(0.0, fate.tensor + 0.5 * noise * (not quiet)),
            max(0.0, fate.dram + 0.5 * noise * (not quiet)), util, LIMIT_W * power + noise, GIB * fate.mem_gib,
            32.0 + 45.0 * power, quiet, job.name if runs else NO_JOB, job.user * runs,
            fate.state if has_gputop else None, fate.verdict if has_gputop else None, is_lost=(host,
            number) == self.lost_gpu,
            is_allocated=runs and bool(job.name) and (not has_gputop or fate is RESERVED), step_s=step,
        )  # fmt: skip

    def down(self) -> dict[str, Down]:
        """The hosts that do not answer."""
        down = {
            self.host_name(host): Down(100.0 + 400.0 * chance(self.seed, 8, host), "the exporter does not answer")
            for host in range(self.hosts)
            if self.is_down(host)
        }
        if self.late is not None:
            down[self.host_name(self.late)] = Down(LATE_S, "the driver does not answer: it is late or hangs", "late")
        return down

    def lost(self, gpus: Sequence[GpuReading], t: float) -> list[Lost]:
        """Lost hours: as at ``t`` since jobs began, idle before."""
        lost = []
        for position, gpu in enumerate(gpus):
            job = self._job_of[position // self.gpus]
            state, _ = judged(gpu)
            hours = max(0.0, min(1.0, (job.begun_s + t - STARTED) / HOUR_S))
            gpu_h = lost_hours(state, gpu.util_pct, hours)
            if gpu_h > 0.0:
                lost.append(Lost(gpu.host, gpu.gpu, gpu.job, gpu.user, state, gpu_h))
            if hours < 1.0:
                lost.append(Lost(gpu.host, gpu.gpu, NO_JOB, "", "idle", 1.0 - hours))
        return lost

    def ask(self, at: float | None = None) -> FleetReading:
        t = self._clock() if at is None else at
        gpus = [self.gpu(host, number, t) for host in range(self.hosts) for number in range(self.gpus)]
        down = self.down()
        names = tuple(dict.fromkeys(self.names_of(host) for host in range(self.hosts)))
        # What the rules of `gputop fleet deploy` say of a host without values.
        name = {"late": "GpuDriverLate", "down": "GpuExporterDown"}
        alerts = tuple(
            FiringAlert(name[of.kind], "critical", host, {"instance": f"{host}:9400"}) for host, of in down.items()
        )
        return FleetReading(t, self.source, gpus, down, names, 3.0, LastHour(self.lost(gpus, t)), alerts)

    def history(self, host: str, t: float) -> History:
        """Utilisation and SM activity by minute; None before the job began."""
        at = next((i for i in range(self.hosts) if self.host_name(i) == host), None)
        if at is None:
            return {}
        times = [t - HOUR_S + (i + 1) * HOUR_S / MINUTES for i in range(MINUTES)]
        drawn = {}
        for number in range(self.gpus):
            is_silent = at == self.late or (at, number) == self.lost_gpu
            reads = [None if is_silent and moment > t - LATE_S else self.gpu(at, number, moment) for moment in times]
            drawn[str(number)] = (
                [None if read is None else read.util_pct for read in reads],
                [None if read is None else read.sm_active_pct for read in reads],
            )
        return drawn
