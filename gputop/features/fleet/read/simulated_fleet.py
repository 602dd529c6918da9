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
    LATE_DRIVER,
    MINUTES,
    NO_ANSWER,
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
from gputop.features.fleet.judge.gpu_state import judged, lost_hours
from gputop.model.snapshot import POD
from gputop.sources.simulation.noise import chance, drift

GIB = 2.0**30
LIMIT_W = 700.0
STARTED = 1_763_000_100.0
"""The fleet's start, Unix seconds, from which the demo runs on."""


class Fate(Struct, frozen=True):
    """Means of a job's GPUs: percent, GiB, and share of the power limit; ``share`` of jobs, cumulative."""

    state: State
    verdict: str
    share: float
    util: float
    sm: float
    tensor: float
    dram: float
    power: float
    mem_gib: float


_FATES = {
    "working": Fate("working", "healthy", 0.56, 98.0, 91.0, 55.0, 46.0, 0.8, 66.0),
    "serving": Fate("working", "memory_bandwidth", 0.64, 99.0, 88.0, 12.0, 84.0, 0.66, 72.0),
    "kernels": Fate("busy_not_working", "small_kernels", 0.7, 97.0, 9.0, 1.0, 11.0, 0.3, 24.0),
    "waiting": Fate("busy_not_working", "low_sm", 0.76, 99.0, 17.0, 4.0, 14.0, 0.44, 60.0),
    "loader_cpu": Fate("starved", "dataloader_cpu", 0.81, 38.0, 32.0, 16.0, 15.0, 0.4, 38.0),
    "loader_io": Fate("starved", "dataloader_io", 0.85, 47.0, 39.0, 20.0, 17.0, 0.44, 52.0),
    "holding": Fate("idle_allocated", "idle_holding_memory", 0.88, 0.0, 0.0, 0.0, 0.0, 0.12, 76.0),
    "slowed": Fate("working", "working", 0.92, 98.0, 62.0, 30.0, 30.0, 0.62, 68.0),
    "late": Fate("working", "working", 0.94, 93.0, 62.0, 30.0, 30.0, 0.62, 68.0),
    "nobody": Fate("idle", "idle", 1.0, 0.0, 0.0, 0.0, 0.0, 0.1, 0.4),
    "reserved": Fate("idle", "idle", 2.0, 0.0, 0.0, 0.0, 0.0, 0.1, 0.4),
}
"""``slowed`` waits for a straggler that does more, ``late`` for one that starves; ``reserved`` jobs use no GPU."""
WORKING, HOLDING, SLOWED, LATE, NOBODY, RESERVED = (
    _FATES[name] for name in ("working", "holding", "slowed", "late", "nobody", "reserved")
)
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
    Of a job that announces ``steps`` the straggler is one by step alone.
    """

    name: JobName
    user: str
    fate: Fate
    first: int
    hosts: int
    begun_s: float
    straggler: int | None = None
    steps: bool = False


class SimulatedFleet(FleetSource):
    """A fleet of ``hosts`` with ``gpus`` each. ``ask`` reads it at any time."""

    source = SIMULATED
    interval_s = 5.0
    gpus = 8

    def __init__(
        self, hosts: int = 125, *, seed: int = 0, clock: Callable[[], float] = lambda: STARTED
    ) -> None:
        self.hosts, self.seed, self._clock = hosts, seed, clock
        self.jobs: list[SimulatedJob] = []
        while (first := sum(job.hosts for job in self.jobs)) < hosts:
            self.jobs.append(self._job(len(self.jobs), first))
        self._job_of = [job for job in self.jobs for _ in range(job.hosts)]

    def _job(self, number: int, first: int) -> SimulatedJob:
        """The next job, from a host on."""
        roll = (number * 0.137 + 0.66 + 0.2 * chance(self.seed, 1, number)) % 1.0
        fate = next(fate for fate in _FATES.values() if roll < fate.share)
        if fate is HOLDING and number % 2:
            fate = RESERVED
        wanted_hosts = _SIZES[int(chance(self.seed, 2, number) * len(_SIZES))]
        size = min(self.hosts - first, 1 if fate in (HOLDING, RESERVED, NOBODY) else wanted_hosts)
        # The nodes of a job that announces steps run gputop, its first one at least.
        late, steps = fate in (SLOWED, LATE), fate is WORKING and self.names_of(first) == "gputop"
        user, ranks = _USERS[number % len(_USERS)], (size if late else 1) * self.gpus
        uneven = steps and chance(self.seed, 9, number) < 0.25
        # As the screen names it: most are of a batch scheduler, those that hold GPUs for later are pods.
        name = (
            JobName(POD, f"{user}/batch-{number}")
            if fate is RESERVED
            else JobName("slurm", str(8800 + number))
        )
        return SimulatedJob(
            NO_JOB if fate is NOBODY else name,
            user if fate is not NOBODY else "",
            fate,
            first,
            size,
            300.0 * round(2.0 + 22.0 * chance(self.seed, 3, number)),
            int(chance(self.seed, 4, number) * ranks) if late or uneven else None,
            steps,
        )

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
        return chance(self.seed, 7, host) < 0.006 or (
            self.hosts >= 20 and host == self.hosts * 3 // 5
        )

    @cached_property
    def late(self) -> int | None:
        """The host whose driver hangs; None in small fleets."""
        return self._first(self.hosts * 2 // 5, lambda host: self.names_of(host) == "gputop")

    @cached_property
    def lost_gpu(self) -> tuple[int, int] | None:
        """Host and number of the GPU that cannot be read; None in small fleets."""
        fates = (WORKING, _FATES["serving"])
        host = self._first(
            self.hosts // 5, lambda host: host != self.late and self.job_of(host).fate in fates
        )
        return None if host is None else (host, self.gpus - 1)

    def _first(self, begin: int, is_one: Callable[[int], bool]) -> int | None:
        """The first such host from ``begin`` on that answers; small fleets are left whole."""
        hosts = range(begin, self.hosts) if self.hosts >= 20 else ()
        return next((host for host in hosts if not self.is_down(host) and is_one(host)), None)

    def gpu(self, host: int, number: int, t: float) -> GpuReading:
        """One GPU at Unix time ``t``."""
        job, names = self._job_of[host], self.names_of(host)
        runs, has_gputop = t >= STARTED - job.begun_s, names == "gputop"
        fate = job.fate if runs else NOBODY
        util, sm, power, step = (
            fate.util,
            fate.sm,
            fate.power,
            STEP_S if runs and job.steps and has_gputop else None,
        )
        if runs and job.straggler == (host - job.first) * self.gpus + number:
            if job.steps:
                step = STRAGGLER_STEP_S
            elif fate is LATE:
                util, sm = STRAGGLER_UTIL, STRAGGLER_UTIL - 10.0
            else:
                sm, power = STRAGGLER_SM, 0.86
        quiet = fate.util == 0.0
        noise = 0.0 if quiet else 2.0 * drift(self.seed, host * self.gpus + number, t / 15.0)
        util = min(100.0, max(0.0, util + 0.4 * noise))
        # As dcgm-exporter leaves it out by default.
        lacks_sm = names == "legacy" and chance(self.seed, 6, host) < 0.15
        return GpuReading(
            self.host_name(host),
            str(number),
            f"GPU-{self.seed:04x}{host:08x}-{number:04x}",
            "NVIDIA H100 80GB HBM3",
            names,
            util,
            None if lacks_sm else min(util, max(0.0, sm + noise)),
            max(0.0, fate.tensor + 0.5 * noise),
            max(0.0, fate.dram + 0.5 * noise),
            util,
            LIMIT_W * power + noise,
            GIB * fate.mem_gib,
            32.0 + 45.0 * power,
            quiet,
            job.name if runs else NO_JOB,
            job.user * runs,
            fate.state if has_gputop else None,
            fate.verdict if has_gputop else None,
            (host, number) == self.lost_gpu,
            runs and bool(job.name) and (not has_gputop or fate is RESERVED),
            step,
        )

    def down(self) -> dict[str, Down]:
        """The hosts that do not answer."""
        down = {
            self.host_name(host): Down(100.0 + 400.0 * chance(self.seed, 8, host), NO_ANSWER)
            for host in range(self.hosts)
            if self.is_down(host)
        }
        return (
            down
            if self.late is None
            else {**down, self.host_name(self.late): Down(LATE_S, LATE_DRIVER, "late")}
        )

    def lost(self, gpus: Sequence[GpuReading], t: float) -> list[Lost]:
        """Hours without work: as at ``t`` since jobs began, idle before."""
        lost = []
        for position, gpu in enumerate(gpus):
            state, _ = judged(gpu)
            hours = max(
                0.0, min(1.0, (self._job_of[position // self.gpus].begun_s + t - STARTED) / HOUR_S)
            )
            lost.append(
                Lost(
                    gpu.host,
                    gpu.gpu,
                    gpu.job,
                    gpu.user,
                    state,
                    lost_hours(state, gpu.util_pct, hours),
                )
            )
            lost.append(Lost(gpu.host, gpu.gpu, NO_JOB, "", "idle", 1.0 - hours))
        return [row for row in lost if row.gpu_h > 0.0]

    def ask(self, at: float | None = None) -> FleetReading:
        t = self._clock() if at is None else at
        gpus = [
            self.gpu(host, number, t) for host in range(self.hosts) for number in range(self.gpus)
        ]
        down, names = (
            self.down(),
            tuple(dict.fromkeys(self.names_of(host) for host in range(self.hosts))),
        )
        # What the rules of `gputop fleet deploy` say of a host without values.
        alerts = tuple(
            FiringAlert(
                f"Gpu{'DriverLate' if absent.kind == 'late' else 'ExporterDown'}",
                "critical",
                host,
                {"instance": f"{host}:9400"},
            )
            for host, absent in down.items()
        )
        return FleetReading(
            t, self.source, gpus, down, names, 3.0, LastHour(self.lost(gpus, t)), alerts
        )

    def history(self, host: str, t: float) -> History:
        """Utilisation and SM activity by minute; None before the job began."""
        drawn = {}
        for at in (i for i in range(self.hosts) if self.host_name(i) == host):
            for number in range(self.gpus):
                ends = t - LATE_S if at == self.late or (at, number) == self.lost_gpu else t
                times = [t - HOUR_S + (i + 1) * HOUR_S / MINUTES for i in range(MINUTES)]
                reads = [
                    self.gpu(at, number, moment) if moment <= ends else None for moment in times
                ]
                drawn[str(number)] = (
                    [None if read is None else read.util_pct for read in reads],
                    [None if read is None else read.sm_active_pct for read in reads],
                )
        return drawn
