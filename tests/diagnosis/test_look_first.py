"""The GPU to look at first is the worst one, and stays so until its trouble ends or another has lost much more."""

from __future__ import annotations

from gputop.diagnosis.look_first import LookFirst
from gputop.diagnosis.types import GpuDiagnosis, Level, State


def gpu(
    index: int, state: State, charged_s: float, *, verdict: str = "small_kernels", about: int | None = None
) -> GpuDiagnosis:
    levels: dict[State, Level] = {"busy_not_working": "red", "starved": "red", "working": "green"}
    flag = "A" if state == "busy_not_working" else None
    return GpuDiagnosis(
        index, f"GPU-{index}", verdict, levels.get(state, "grey"), "t", "t", flag, state=state, charged_s=charged_s,
        about=about,
    )  # fmt: skip


def test_what_does_not_work_comes_before_what_waits_and_healthy_gpus_never() -> None:
    first = LookFirst()
    assert first.observe(0.0, [gpu(0, "working", 0.0)]) is None
    waits = gpu(1, "starved", 900.0, verdict="dataloader_cpu")
    assert first.observe(1.0, [gpu(0, "working", 0.0), waits]) == "GPU-1"
    assert first.observe(2.0, [gpu(0, "busy_not_working", 1.0), waits]) == "GPU-0"


def test_another_gpu_takes_over_only_once_it_has_lost_half_as_much_again_for_half_a_minute() -> None:
    first, mine = LookFirst(), gpu(0, "busy_not_working", 100.0)
    assert first.observe(0.0, [mine, gpu(1, "busy_not_working", 90.0)]) == "GPU-0"
    much, more = gpu(1, "busy_not_working", 149.0), gpu(1, "busy_not_working", 151.0)
    assert {first.observe(float(t), [mine, much]) for t in range(1, 100)} == {"GPU-0"}
    assert {first.observe(float(t), [mine, more]) for t in range(100, 130)} == {"GPU-0"}
    assert first.observe(130.0, [mine, more]) == "GPU-1"


def test_once_its_verdict_has_ended_the_worst_of_the_others_follows_at_once() -> None:
    first = LookFirst()
    others = [gpu(1, "busy_not_working", 50.0), gpu(2, "busy_not_working", 60.0)]
    assert first.observe(0.0, [gpu(0, "busy_not_working", 100.0), *others]) == "GPU-0"
    assert first.observe(1.0, [gpu(0, "working", 0.0), *others]) == "GPU-2"


def test_the_gpu_that_others_hang_for_comes_before_these() -> None:
    first, late = LookFirst(), gpu(2, "idle_allocated", 10.0, verdict="idle_allocated")
    hang = [gpu(i, "busy_not_working", 60.0, verdict="hang", about=2) for i in (0, 1)]
    assert first.observe(0.0, [*hang, late]) == "GPU-2"
    assert first.observe(1.0, [*hang, gpu(2, "idle", 0.0, verdict="idle")]) == "GPU-0"
