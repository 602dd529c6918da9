"""A wait inside a kernel is told where there was a before and is a witness, and nothing that looks like it is."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from msgspec.structs import replace

from gputop.diagnosis.engine import Diagnoser
from gputop.diagnosis.jobs.hang import ALONE_S
from gputop.diagnosis.signals import WAITS_S
from gputop.diagnosis.types import GpuDiagnosis
from gputop.model.snapshot import CgroupName, GpuSample, MainTime, ProcessSample, Snapshot
from gputop.model.steps import StepRow
from tests.support.scenes import gpu, snap, train

WAITING: dict[str, Any] = {
    "util": 100.0, "sm": 12.0, "dram": 1.0, "tensor_active_pct": 0.0, "power_w": 210.0, "nvlink_rx_bytes_per_s": 5e9,
    "nvlink_tx_bytes_per_s": 5e9,
}  # fmt: skip
BEGINS = 60
"""Until then every job works."""
Rank = tuple[GpuSample, ProcessSample]
TickContext = Callable[[int], Iterable[Rank]]


def rank(
    index: int, main: float = 0.0, *, job: str = "8821", nccl: bool = True, **changes: Any
) -> ProcessSample:
    p = train(index, main, nccl=nccl, **changes)
    return replace(p, static=replace(p.static, batch_job=CgroupName("slurm", job)))


def working(index: int, **changes: Any) -> Rank:
    return gpu(index), rank(index, 40.0, **changes)


def waits(index: int, main: float = 0.0, **changes: Any) -> Rank:
    return gpu(index, **WAITING), rank(index, main, **changes)


def told(
    moment: TickContext,
    seconds: int = 210,
    steps: Callable[[int], tuple[StepRow, ...]] = lambda t: (),
) -> Any:
    """The diagnoses of all GPUs at each second."""
    diagnoser = Diagnoser()

    def at(t: int) -> Snapshot:
        ranks = list(moment(t))
        return replace(snap(t, [g for g, _ in ranks], [p for _, p in ranks]), steps=steps(t))

    return [diagnoser.diagnose(at(t)) for t in range(seconds)]


def hangs(said: Iterable[tuple[GpuDiagnosis, ...]]) -> bool:
    return any(d.verdict == "hang" for row in said for d in row)


def rank_3_waits_for_a_disk(t: int) -> Iterable[Rank]:
    for index in range(4):
        if t < BEGINS:
            yield working(index)
        elif index == 3:
            idle = gpu(3, util=0.0, power_w=90.0)
            waiter = replace(
                rank(3, state="D", mount="nas:/data"), main=MainTime(disk=97.0, unread=0.0)
            )
            yield idle, waiter
        else:
            yield waits(index, main=100.0)


def test_gpus_that_spin_for_another_name_it_and_what_it_waits_for() -> None:
    said = told(rank_3_waits_for_a_disk)
    last = said[-1]
    for d in last[:3]:
        assert (d.verdict, d.level, d.cause, d.confidence, d.state) == (
            "hang", "red", "collective", "high", "busy_not_working",
        )  # fmt: skip
        assert d.evidence[0].startswith(
            "3 GPUs wait for GPU 3: the main thread waits on the file system nas:/data"
        )
        assert d.about == 3
        assert "GPU 3" in d.remedy and "py-spy dump --pid 4300" in d.remedy
        assert (
            d.title.startswith("hang: waits inside a kernel for")
            and d.plain_title == "hang: waits inside a kernel"
        )
    assert last[3].verdict != "hang"
    assert not hangs(said[: int(BEGINS + WAITS_S)])


def test_the_rank_that_has_ended_is_named() -> None:
    def moment(t: int) -> Iterable[Rank]:
        for index in range(4):
            yield working(index) if t < BEGINS else waits(index, main=100.0)

    def without_rank_2(t: int) -> Iterable[Rank]:
        for g, p in moment(t):
            gone = t >= BEGINS and g.static.index == 2
            yield (
                (gpu(2, util=0.0, power_w=70.0), replace(p, gpu=None, role="helper"))
                if gone
                else (g, p)
            )

    assert told(without_rank_2)[-1][0].evidence[0] == "3 GPUs wait for GPU 2: its process has ended"
    assert not hangs(told(moment))


def test_alone_a_main_thread_that_sleeps_is_the_witness() -> None:
    said = told(lambda t: [working(0) if t < BEGINS else waits(0)])
    d = said[-1][0]
    assert (d.verdict, d.cause, d.confidence) == ("hang", "collective", "medium")
    assert "its main thread has slept all of" in d.evidence[0]
    assert not hangs(said[: int(BEGINS + ALONE_S)])


def steps(t: int) -> tuple[StepRow, ...]:
    return (StepRow(4000, 0, 0, "train", 2, 1.0, 0.5, 0.5, 0.5, 0.5),) if t < BEGINS else ()


def test_steps_that_have_stopped_are_a_before_and_steps_that_go_on_exclude_a_hang() -> None:
    def always(t: int) -> Iterable[Rank]:
        return [waits(0, nccl=False)]

    assert hangs(told(always, steps=steps))
    assert told(always, steps=steps)[-1][0].cause is None
    assert not hangs(told(always, steps=lambda t: steps(0)))


@pytest.mark.parametrize(
    ("name", "moment"),
    [
        ("no before", lambda t: [waits(0)]),
        ("a loop of tiny kernels, after other work", lambda t: [working(0) if t < BEGINS else waits(0, main=97.0)]),
        ("a main thread that runs now and then",
         lambda t: [working(0) if t < BEGINS else waits(0, main=100.0 if t % 10 == 0 else 0.0)]),
        ("a long kernel of one block, without anybody to wait for",
         lambda t: [working(0, nccl=False) if t < BEGINS else waits(0, nccl=False)]),
        ("all ranks launch tiny kernels", lambda t: [waits(index, main=100.0) for index in range(4)]),
        ("a rank that works while the others wait at a barrier",
         lambda t: [working(0), *(working(i) if t < BEGINS else waits(i) for i in range(1, 4))]),
        ("a rank that evaluates on the CPU for a while",
         lambda t: [(gpu(0, util=0.0), rank(0, 95.0)) if BEGINS <= t < BEGINS + 100 else working(0),
                    *(waits(i, 100.0) if BEGINS <= t < BEGINS + 100 else working(i) for i in range(1, 4))]),
        ("a rank that saves a checkpoint for a while",
         lambda t: [(gpu(0, util=0.0), rank(0, 3.0, write_bytes_per_s=2e8)) if BEGINS <= t < BEGINS + 100
                    else working(0),
                    *(waits(i, 100.0) if BEGINS <= t < BEGINS + 100 else working(i) for i in range(1, 4))]),
        ("another job that is idle",
         lambda t: [working(0) if t < BEGINS else waits(0, main=100.0),
                    (gpu(1, util=0.0, power_w=90.0), rank(1, job="8822"))]),
    ],
)  # fmt: skip
def test_what_only_looks_like_a_hang_is_none(name: str, moment: TickContext) -> None:
    said = told(moment)
    assert not hangs(said), name


@pytest.mark.parametrize(
    "but",
    [
        {"nvlink_rx_bytes_per_s": 60e9}, {"pcie_rx_bytes_per_s": 3e9}, {"dram": 3.0}, {"tensor_active_pct": 3.0},
        {"power_w": 360.0}, {"util": 90.0}, {"sm": 31.0}, {"fp32_active_pct": 4.0}, {"sm": None},
        {"dram": None},
    ],
)  # fmt: skip
def test_anything_that_moves_or_is_not_measured_excludes_a_hang(but: dict[str, Any]) -> None:
    """An all-reduce that goes on, a decoding server, work, and a GPU of which too little is known."""

    def moment(t: int) -> Iterable[Rank]:
        return [working(0) if t < BEGINS else (gpu(0, **{**WAITING, **but}), rank(0))]

    assert not hangs(told(moment))


def test_an_sm_activity_that_moves_is_no_hang() -> None:
    def moment(t: int) -> Iterable[Rank]:
        return [
            working(0)
            if t < BEGINS
            else (gpu(0, **{**WAITING, "sm": 10.0 + 4.0 * (t % 2)}), rank(0))
        ]

    assert not hangs(told(moment))


def test_without_a_before_small_kernels_are_said_with_the_doubt() -> None:
    d = told(lambda t: [waits(0, main=100.0, nccl=False)])[-1][0]
    assert (d.verdict, d.confidence) == ("small_kernels", "low")
    assert "or stuck inside one kernel: `py-spy dump --pid 4000` tells" in d.notes


def test_nobody_is_told_to_dump_a_process_where_there_is_none() -> None:
    diagnoser = Diagnoser()
    *_, said = (diagnoser.diagnose(snap(t, gpu(0, **WAITING))) for t in range(210))
    assert "or stuck inside one kernel" in said[0].notes


def test_a_run_that_ended_before_is_no_rank_of_the_next() -> None:
    """The same command first on two GPUs, then on one."""

    def moment(t: int) -> Iterable[Rank]:
        yield (
            working(0, pid=5000 if t < 60 else 6000)
            if t < BEGINS + 60
            else waits(0, main=100.0, pid=6000)
        )
        one = gpu(1, util=0.0, power_w=70.0)
        yield working(1) if t < 60 else (one, replace(rank(1), gpu=None, role="helper"))

    assert not hangs(told(moment, 300))


def test_a_rank_that_computes_for_too_long_is_named_after_two_minutes() -> None:
    def moment(t: int) -> Iterable[Rank]:
        yield working(0) if t < BEGINS else (gpu(0, util=0.0, power_w=90.0), rank(0, 99.0))
        yield from (working(i) if t < BEGINS else waits(i, 100.0) for i in range(1, 4))

    said = told(moment)
    assert said[-1][1].evidence[0] == "3 GPUs wait for GPU 0: its main thread computes"
    assert not hangs(said[: int(BEGINS + ALONE_S)])


def test_ranks_of_one_run_belong_together_by_the_run_that_they_announce() -> None:
    """Without NCCL's threads to be seen, and with two runs of one command."""

    def moment(t: int) -> Iterable[Rank]:
        for index in range(4):
            still = t >= BEGINS and index in (1, 3)
            g, p = waits(index, 100.0, nccl=False) if t >= BEGINS else working(index, nccl=False)
            yield (gpu(index, util=0.0, power_w=90.0), rank(index, nccl=False)) if still else (g, p)

    def announced(t: int) -> tuple[StepRow, ...]:
        rows = (
            StepRow(4000 + 100 * i, i % 2, i, "train", 2, 1.0, 0.5, 0.5, 0.5, 0.5, run="ab"[i // 2])
            for i in range(4)
        )
        return tuple(rows) if t < BEGINS else ()

    last = told(moment, steps=announced)[-1]
    assert [d.verdict == "hang" for d in last] == [True, False, True, False]
    assert [last[i].evidence[0].split(":")[0] for i in (0, 2)] == [
        "1 GPU waits for rank 1 (GPU 1)", "1 GPU waits for rank 1 (GPU 3)",
    ]  # fmt: skip


def test_whoever_looks_only_after_it_has_happened_is_told_which_rank_differs() -> None:
    d = told(lambda t: rank_3_waits_for_a_disk(BEGINS + t), 90)[-1][0]
    assert (d.verdict, d.confidence) == ("communication", "low")
    assert any(
        "or stuck inside one kernel, for GPU 3: the main thread waits on the file system nas:/data"
        in n
        for n in d.notes
    )


def test_a_wait_of_which_the_job_came_back_is_a_hang_only_once_it_lasts_twice_as_long() -> None:
    """An evaluation on another node."""

    def moment(t: int) -> Iterable[Rank]:
        return [waits(0) if 60 <= t < 160 or t >= 220 else working(0)]

    said = told(moment, 440)
    assert not hangs(said[:420]) and hangs(said[420:])
