"""Snapshots for tests of the diagnosis: a GPU, its process and its workers, second by second, with explicit time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from gputop.diagnosis.engine import Diagnoser
from gputop.diagnosis.types import GpuDiagnosis
from gputop.model.command_facts import NEVER, NOT_A_LOADER, not_a_loader, server_in, why_words
from gputop.model.feeders import MainLooks
from gputop.model.inspection import ThreadList, ThreadSample
from gputop.model.snapshot import (
    FeedTime,
    GpuSample,
    GpuStatic,
    HostSample,
    Machine,
    MainTime,
    ProcessSample,
    ProcessStatic,
    Snapshot,
)

T0 = 1_780_000_000.0
GIB = 2.0**30
MACHINE = Machine("node-17")
HOST = HostSample(
    cpu_pct=40.0,
    cpu_count=32,
    mem_used_bytes=100 * GIB,
    mem_total_bytes=512 * GIB,
    swap_used_bytes=0.0,
    psi_cpu_pct=1.0,
    psi_io_pct=1.0,
    psi_mem_pct=0.0,
)
SOME_THREADS = ThreadList(
    1.0,
    (
        ThreadSample(4711, "python", "S", 3.0, 0.0, "lock"),
        ThreadSample(4712, "cuda-EvtHandlr", "R", 80.0, 15.0),
        ThreadSample(4713, "pt_data_pin", "D", 1.0, 0.0, "disk"),
    ),
    3,
)
"""Of a GPU process: its main thread, CUDA's and a DataLoader's."""


def gpu(index: int = 0, **changes: Any) -> GpuSample:
    """A healthy H100 at full load; ``util``, ``sm`` and ``dram`` are short. Counters not given stay below util."""
    static = GpuStatic(
        index,
        f"GPU-{index}",
        "NVIDIA H100 80GB HBM3",
        nvlink_peak_bytes_per_s=450e9,
        mig_enabled=False,
    )
    for short, key in (("util", "util_pct"), ("sm", "sm_active_pct"), ("dram", "dram_active_pct")):
        if short in changes:
            changes[key] = changes.pop(short)
    most = changes.get("util_pct")
    most = most if most is not None and 0.0 <= most <= 100.0 else 100.0
    sample = GpuSample(
        static=static,
        util_pct=98.0,
        sm_active_pct=min(90.0, most),
        tensor_active_pct=min(45.0, most),
        dram_active_pct=min(40.0, most),
        mem_used_bytes=20 * GIB,
        mem_total_bytes=80 * GIB,
        power_w=420.0,
        power_limit_w=700.0,
        sm_clock_mhz=1980.0,
        sm_clock_max_mhz=1980.0,
        pcie_rx_bytes_per_s=0.0,
        pcie_tx_bytes_per_s=0.0,
        pcie_gen=4,
        pcie_gen_max=4,
        pcie_width=16,
        pcie_width_max=16,
        nvlink_rx_bytes_per_s=0.0,
        nvlink_tx_bytes_per_s=0.0,
        throttle_reasons=0,
        ecc_uncorrected=0,
        remap_pending=False,
        remap_failed=False,
        sm_source="gpm",
        sm_window_s=1.0,
    )
    return replace(sample, **changes)


def _rule_in(why: str) -> str | None:
    """The rule at the beginning of the words that a scene gives."""
    return (
        NEVER if why.startswith(NOT_A_LOADER) else why.split()[0] if why.startswith("R") else None
    )


def told(process: ProcessSample) -> ProcessSample:
    """With the facts that a source draws from the command line."""
    static = process.static
    if static.command is None or static.job_key is not None:
        return process
    never = not_a_loader(static.command)
    why = static.why or (never and why_words("never", never))
    return replace(
        process,
        static=replace(
            static,
            server=server_in(static.command.split()),
            job_key=f"{static.user} {static.command}",
            why=why,
            rule=static.rule or _rule_in(why or ""),
        ),
    )


def train(
    index: int = 0, main: float = 10.0, main_looks: MainLooks | None = None, **changes: Any
) -> ProcessSample:
    """The training process of a GPU, its main thread on a core ``main`` percent of the time.

    ``main_looks`` are the states in which it was seen: they share the rest of its time.
    """
    static = ProcessStatic(user="ml", command="python train.py", name="python")
    sample = ProcessSample(
        pid=4000 + 100 * index,
        starttime=7000,
        ppid=1,
        role="gpu",
        gpu=index,
        gpu_mem_bytes=20 * GIB,
        cpu_pct=main,
        run_pct=main,
        wait_pct=0.0,
        main_run_pct=main,
        main_wait_pct=0.0,
        state="S",
        main_looks=main_looks,
        read_bytes_per_s=0.0,
        write_bytes_per_s=0.0,
        throttled_pct=0.0,
        nccl=False,
        age_s=3600.0,
        static=static,
    )
    sample = replace(sample, **changes)
    if main_looks is not None:
        sample = replace(sample, main=_main_time(main_looks, 100.0 - (sample.main_pct or 0.0)))
    return told(sample)


def _main_time(looks: MainLooks, rest: float) -> MainTime:
    """The waits of a main thread that was seen in these states, over the time in which it did not run."""
    seen = {
        "poll" if state == "queue" else state: count
        for state, count in looks.counts
        if state != "run"
    }
    shares = {state: rest * count / looks.waiting for state, count in seen.items()}
    return replace(MainTime(*[0.0] * len(MainTime.__struct_fields__)), **shares)


def _feed_time(run: float, queued: float, wait: str | None) -> FeedTime:
    """The time of a worker in one wait; None is a wait that may not be seen."""
    rest = max(0.0, 100.0 - run - queued)
    if wait is None:
        return FeedTime(run, queued, unread=rest)
    return replace(
        FeedTime(*[0.0] * len(FeedTime.__struct_fields__)), run=run, queued=queued, **{wait: rest}
    )


def workers(
    count: int,
    run: float,
    wait: float = 0.0,
    parent: int = 4000,
    waiting_on: str | None = "poll",
    **changes: Any,
) -> list[ProcessSample]:
    """Dataloader workers, each on a core ``run`` and queued ``wait`` percent of the time, else in one wait."""
    static = ProcessStatic(
        user="ml",
        command="python train.py",
        name="python",
        loader="torch",
        why="R1 comm",
        rule="R1",
    )
    sample = ProcessSample(
        pid=0,
        starttime=7100,
        ppid=parent,
        role="loader",
        gpu=(parent - 4000) // 100,
        cpu_pct=run,
        run_pct=run,
        wait_pct=wait,
        state="S",
        feed=_feed_time(run, wait, waiting_on),
        read_bytes_per_s=0.0,
        write_bytes_per_s=0.0,
        throttled_pct=0.0,
        age_s=3500.0,
        static=static,
    )
    return [replace(sample, pid=parent + 1 + number, **changes) for number in range(count)]


def snap(
    tick: float,
    gpus: GpuSample | Iterable[GpuSample],
    processes: Iterable[ProcessSample] = (),
    host: HostSample = HOST,
    interval_s: float = 1.0,
) -> Snapshot:
    """A snapshot ``tick`` seconds after the beginning."""
    all_gpus = (gpus,) if isinstance(gpus, GpuSample) else tuple(gpus)
    return Snapshot(
        t=T0 + tick,
        machine=MACHINE,
        gpus=all_gpus,
        processes=tuple(processes),
        host=host,
        interval_s=interval_s,
    )


class Watch:
    """A diagnoser with what it said, tick by tick."""

    def __init__(self) -> None:
        self.diagnoser = Diagnoser()
        self.said: list[tuple[float, GpuDiagnosis]] = []

    def feed(self, snapshots: Iterable[Snapshot]) -> GpuDiagnosis:
        """Feed all; gives the last diagnosis of the first GPU."""
        for snapshot in snapshots:
            self.said.append((snapshot.t - T0, self.diagnoser.diagnose(snapshot)[0]))
        return self.said[-1][1]

    def first(self, wanted: Callable[[GpuDiagnosis], bool], after: float = 0.0) -> float | None:
        """The tick at which something was first said, from ``after`` on."""
        return next((t for t, said in self.said if t >= after and wanted(said)), None)


def steady(
    seconds: int,
    sample: GpuSample,
    processes: Iterable[ProcessSample] = (),
    host: HostSample = HOST,
) -> GpuDiagnosis:
    """What stands after so many equal seconds."""
    rows = tuple(processes)
    return Watch().feed(snap(tick, sample, rows, host) for tick in range(seconds))


def badges(diagnosis: GpuDiagnosis) -> dict[str, str]:
    """Badge ids with their levels."""
    return {badge.id: badge.level for badge in diagnosis.badges}


def assert_told(d: GpuDiagnosis, wanted: Mapping[str, Any] | str) -> None:
    """A diagnosis is as wanted: its verdict, or fields by name.

    ``says`` stand in title, evidence, notes or remedy and ``never`` do not, ``has`` are among the badges and ``lacks``
    are not; ``badges`` are all of them with their levels.
    """
    fields = {"verdict": wanted} if isinstance(wanted, str) else wanted
    text = " | ".join((d.title, *d.evidence, *d.notes, d.remedy))
    for key, value in fields.items():
        words = (value,) if isinstance(value, str) else value
        if key == "says":
            assert all(word in text for word in words), f"{words} in {text}"
        elif key == "never":
            assert not any(word in text for word in words), f"{words} in {text}"
        elif key == "has":
            assert badges(d).keys() >= set(words), d.badges
        elif key == "lacks":
            assert not badges(d).keys() & set(words), d.badges
        else:
            found = badges(d) if key == "badges" else getattr(d, key)
            assert found == value, f"{key} {found!r}, {d.verdict}: {text}"
