"""Samples the processes of a simulated machine: jobs and workers."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import floor
from typing import Any
from zlib import crc32

from msgspec import Struct
from msgspec.structs import replace

from gputop.model.command_facts import server_in
from gputop.model.feeders import MainLooks
from gputop.model.snapshot import FeedTime, MainTime, ProcessSample, ProcessStatic
from gputop.sources.simulation.gpus import FULL_SHARE, GIB, UP_BEFORE_S, GpuPlan, grown_gib
from gputop.sources.simulation.life import Cpu, GpuLife, SimulatedProcess, Workers
from gputop.sources.simulation.noise import chance, ripple

_TICKS_PER_S = 100
_MB = 1e6
_FIRST_SERIES = 1 << 20
_WORKERS_AFTER_S = 4.0
"""Workers are born some seconds after the process that needs them."""
_PID_SPAN = 5000
_IDLE_SHARE = 0.03
"""What a worker does while another one keeps it waiting."""
_MIXED = ("run", "wait", "main", "disk", "read_mb", "write_mb")
"""What a mean of two phases can be taken of."""
_LOOKS = 5
"""Looks at the main thread between two readings."""
_HIDDEN = "not visible in /proc: the process lives in another PID namespace"
_HIDDEN_KEYS = (
    "starttime", "ppid", "cpu_pct", "run_pct", "wait_pct", "main_run_pct", "main_wait_pct", "state", "rss_bytes",
    "age_s",
)  # fmt: skip
_HIDDEN_MISSING: Mapping[str, str] = dict.fromkeys(_HIDDEN_KEYS, _HIDDEN)


class JobPlan(Struct, frozen=True):
    """Constant facts of a job, and its workers' process ids."""

    job: SimulatedProcess
    gpu: GpuPlan
    static: ProcessStatic
    worker_static: ProcessStatic
    first_worker: int
    series: int


def plan_job(job: SimulatedProcess, gpu: GpuPlan, taken: Collection[int]) -> JobPlan:
    """Return a job's facts; workers get the next free process ids."""
    workers = job.workers
    first = job.pid + 8
    if workers is not None:
        while any(first + i in taken for i in range(workers.count)):
            first += 1
    worker_static = ProcessStatic(
        user=job.user,
        command=job.command,
        name=workers.name if workers else None,
        batch_job=job.job,
        contained_in=job.container,
        loader=(workers.kind or None) if workers else None,
        why=workers.rule_text if workers else None,
        server=server_in(job.command.split()),
        job_key=f"{crc32(f'{job.user} {job.command}'.encode()):08x}",
        rule=workers.rule if workers else None,
    )
    static = replace(
        worker_static,
        name=job.command.split(" ", 1)[0],
        loader=None,
        why="holds a GPU context",
        rule=None,
    )
    if not job.visible:
        static = replace(static, user=None, command=None, name=None, server=None, job_key=None)
    return JobPlan(job, gpu, static, worker_static, first, _FIRST_SERIES + job.pid * 64)


def sample_job(
    plan: JobPlan, t: float, started: float, share: float, util_pct: float | None
) -> list[ProcessSample]:
    """Return the job and its workers at ``t``, parents first.

    Empty before the job was started.
    """
    job, gpu = plan.job, plan.gpu
    age = job.age_s + t - started
    if age < 0.0:
        return []
    index = gpu.static.index
    gpu_time = None if util_pct is None else float(round(util_pct * job.util_share))
    gpu_mem = _memory(job, gpu.life, gpu.chip.memory_gib, t, started)
    if not job.visible:
        hidden = ProcessSample(
            job.pid, gpu=index, type="C", static=plan.static, unavailable=_HIDDEN_MISSING
        )
        return [replace(hidden, gpu_mem_bytes=gpu_mem, gpu_time_pct=gpu_time)]
    seed = gpu.seed
    cpu = _mix(job.busy, job.resting, share)
    noise = 1.0 + 0.02 * ripple(seed, plan.series, t)
    main = min(100.0, (cpu.run if cpu.main is None else cpu.main) * noise)
    state = _state(chance(seed, plan.series + 1, floor(4.0 * t)), main, cpu)
    # Where its feeders are measured.
    is_measured = job.workers is not None and job.workers.uneven
    rows = [
        ProcessSample(
            job.pid,
            starttime=floor(_TICKS_PER_S * (UP_BEFORE_S - job.age_s)),
            ppid=1 if job.job is None else job.pid - 1,
            role="gpu",
            gpu=index,
            gpu_mem_bytes=gpu_mem,
            gpu_time_pct=gpu_time,
            type="C",
            **_activity(cpu, cpu.run * noise, main, cpu.wait, state),
            rss_bytes=job.rss_gib * GIB,
            read_bytes_per_s=cpu.read_mb * _MB,
            threads=job.threads,
            throttled_pct=job.workers.throttled_pct if job.workers else 0.0,
            nccl=job.nccl,
            age_s=age,
            pin_memory=job.pin_memory,
            pool_threads=0,
            pool_run_pct=0.0,
            static=plan.static,
            main=_main_time(cpu, main),
            mount=cpu.mount,
            main_looks=MainLooks((("run" if state == "R" else "queue", _LOOKS),))
            if is_measured
            else None,
            feeder_threads=0 if is_measured else None,
            framework="torch"
            if job.pin_memory or (job.workers is not None and job.workers.kind == "torch")
            else None,
        )
    ]
    return rows if job.workers is None else rows + _workers(plan, job.workers, t, started, share)


def _workers(
    plan: JobPlan, workers: Workers, t: float, started: float, share: float
) -> list[ProcessSample]:
    """Return a job's workers at ``t``; none before they are born."""
    job, gpu = plan.job, plan.gpu
    seed, index = gpu.seed, gpu.static.index
    cpu = _mix(workers.busy, workers.resting, share)
    age, first = job.age_s - _WORKERS_AFTER_S + t - started, plan.first_worker
    if workers.reborn_every_s is not None:
        generation, age = _generation(gpu, workers.reborn_every_s, t)
        first = job.pid + 8 + workers.count * (generation % _PID_SPAN)
    if age < 0.0:
        return []
    rows = []
    starttime = floor(_TICKS_PER_S * (t - started + UP_BEFORE_S - age) + 0.5)
    tick = floor(4.0 * t)
    for i in range(workers.count):
        works = 1.0 if i == 0 or not workers.uneven else _IDLE_SHARE
        wait = round(cpu.wait * works, 1)
        series = plan.series + 2 + 2 * i
        draw = chance(seed, series + 1, tick)
        # Slow noise, and a batch that a worker may just have finished: work does not end at sample times.
        noise = 1.0 + 0.05 * ripple(seed, series, t) + 0.1 * (0.5 - draw)
        run = min(100.0 - wait, cpu.run * works * noise)
        state = _state(draw, run, cpu)
        rows.append(
            ProcessSample(
                first + i,
                starttime=starttime + i,
                ppid=job.pid,
                role=workers.role,
                gpu=index,
                **_activity(cpu, run, run, wait, state),
                rss_bytes=workers.rss_gib * GIB,
                read_bytes_per_s=cpu.read_mb * noise * _MB,
                threads=3,
                throttled_pct=workers.throttled_pct,
                nccl=False,
                age_s=age,
                static=plan.worker_static,
                feed=_feed(cpu, round(run, 1), wait),
            )
        )
    return rows


_SHARE_OF_WAIT = {"queue": "poll", "gpu": "other"}
"""Shares of time that are called otherwise than the wait."""
_NO_MAIN_TIME = MainTime(*[0.0] * len(MainTime.__struct_fields__))
_NO_FEED_TIME = FeedTime(*[0.0] * len(FeedTime.__struct_fields__))


def _wait_shares(cpu: Cpu, rest: float, kind: type[FeedTime | MainTime]) -> dict[str, float]:
    """Return the waits that fill ``rest`` percent of the time."""
    disk = min(rest, 100.0 * cpu.disk)
    wait = _SHARE_OF_WAIT.get(cpu.waits, cpu.waits)
    shares = {"disk": round(disk, 1)}
    name = wait if wait in kind.__struct_fields__ else "network"
    shares[name] = round(shares.get(name, 0.0) + rest - disk, 1)
    return shares


def _main_time(cpu: Cpu, main: float) -> MainTime:
    """Return the waits of a main thread."""
    if cpu.mount is not None:
        return MainTime(disk=cpu.disk, unread=0.0)
    return replace(_NO_MAIN_TIME, **_wait_shares(cpu, max(0.0, 100.0 - main - cpu.wait), MainTime))


def _feed(cpu: Cpu, run: float, queued: float) -> FeedTime:
    """Return the times of a worker."""
    return replace(
        _NO_FEED_TIME,
        run=run,
        queued=queued,
        **_wait_shares(cpu, max(0.0, 100.0 - run - queued), FeedTime),
    )


def _generation(gpu: GpuPlan, every_s: float, t: float) -> tuple[int, float]:
    """Return the number and age of the current generation of workers.

    A generation is born when the GPU's busy phase is surely over.
    """
    born = gpu.offset_s + 1.1 * gpu.life.duty * (gpu.life.period_s or every_s)
    generation = floor((t - born) / every_s)
    return generation, t - born - generation * every_s


def _memory(
    job: SimulatedProcess, life: GpuLife, total_gib: float, t: float, started: float
) -> float:
    if not life.growth_mib_per_min:
        return job.memory_gib * GIB
    room = total_gib * FULL_SHARE - life.used_gib
    return (job.memory_gib + min(room, grown_gib(life, t, started))) * GIB


def _mix(busy: Cpu, rest: Cpu | None, share: float) -> Cpu:
    """Return the mean of both phases.

    The wait state comes from the longer phase.
    """
    if rest is None or share in (0.0, 1.0):
        return busy if rest is None or share else rest
    pairs = {key: (getattr(rest, key), getattr(busy, key)) for key in _MIXED}
    mixed = {
        key: low + (high - low) * share
        for key, (low, high) in pairs.items()
        if None not in (low, high)
    }
    return Cpu(waits=busy.waits if share >= 0.5 else rest.waits, **mixed)


def _state(draw: float, run: float, cpu: Cpu) -> str:
    """Draw a state letter by the shares of disk wait and running."""
    if draw < cpu.disk:
        return "D"
    return "R" if draw < cpu.disk + (run + cpu.wait) / 100.0 else "S"


def _activity(cpu: Cpu, run: float, main: float, wait: float, state: str) -> dict[str, Any]:
    """Return the times of a process and its main thread, in percent."""
    return {
        "cpu_pct": round(run, 1),
        "run_pct": round(run, 1),
        "wait_pct": round(wait, 1),
        "main_run_pct": round(main, 1),
        "main_wait_pct": round(min(wait, 100.0 - main), 1),
        "state": state,
        "write_bytes_per_s": cpu.write_mb * _MB,
    }
