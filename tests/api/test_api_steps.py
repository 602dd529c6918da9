"""Steps of a watched loop: counted, timed, waited in, announced and recorded."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import gputop
from gputop.api.frame_means import FrameMeans
from gputop.api.slow_steps import MachineSigns, machine_signs
from gputop.api.step_clock import EndedSteps, StepClock, row_of
from gputop.api.step_tail import StepTail
from gputop.api.torch_hook import _OPTIMIZERS, TorchHook
from gputop.integrations import shared
from gputop.integrations.shared import BatchWait
from gputop.model.derived import HARDWARE_THERMAL
from gputop.model.snapshot import GpuSample, GpuStatic, HostSample, ProcessSample, ProcessStatic
from tests.support.watched import NOW, Scripted, Watched, snapshot


def test_a_rank_that_does_not_sample_counts_its_steps_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_RANK", "2")
    source = Scripted()
    with gputop.watch(source=source) as w:
        assert not w.available and "local rank 2" in (w.reason or "")
        for _ in range(4):
            w.step()
            time.sleep(0.001)
    assert w.summary().report.steps[0].steps == 3
    assert not source.closed, "it was never opened"


def test_a_step_lasts_from_one_end_to_the_next_and_the_loops_word_counts_alone() -> None:
    clock = StepClock()
    for end in (1.0, 1.5):
        clock.append_hooked((end, None, None))
    assert clock.ended().lengths == [0.5] and clock.total == 2
    clock.append_hooked((1.9, None, None))
    clock.explicit = True
    for end in (2.0, 2.4, 2.8):
        clock.append_end((end, None, None))
    assert clock.ended().lengths == pytest.approx([0.4, 0.4])
    clock.append_end((3.8, None, None))
    assert clock.ended().lengths == pytest.approx([1.0]) and clock.total == 4
    row = row_of(EndedSteps([0.4, 0.4, 0.8]), pid=5, rank=1, name="run")
    assert row is not None and (row.count, row.p50_s, row.max_s, row.sum_s) == (3, 0.4, 0.8, 1.6)
    assert row_of(EndedSteps([0.0]), pid=5, rank=1, name="run") is None
    clock.silence()
    clock.end()
    clock.end(1.0)
    assert clock.total == 4


def test_what_a_step_waited_is_known_only_where_every_step_says_it() -> None:
    clock = StepClock()
    clock.explicit = True

    def waits(*ends: tuple[float, Any, Any]) -> EndedSteps:
        for end in ends:
            clock.append_end(end)
        return clock.ended()

    first = waits((1.0, 9.0, 0.1), (1.5, 0.2, 0.1), (2.0, 0.7, None))
    assert first.wait_s == pytest.approx(0.7), (
        "the first end begins a step, and none is waited in for longer than it"
    )
    assert first.lengths == [0.5, 0.5] and first.data_wait_s is None, (
        "one of the steps does not say it"
    )
    second = waits((2.5, 0.2, 0.1), (3.0, None, 0.2))
    assert second == EndedSteps([0.5, 0.5], None, pytest.approx(0.3))
    assert waits((3.5, 0.2, 0.1), (4.0, None, None)) == EndedSteps([0.5, 0.5])
    for wrong in (float("nan"), -1.0, float("inf")):
        clock.end(wrong, wrong)
    last = clock.ended()
    assert last.lengths and last.wait_s is None and last.data_wait_s is None and clock.total == 10
    row = row_of(EndedSteps([0.5, 0.5], 0.7, second.data_wait_s), pid=5, rank=1, name="run")
    assert row is not None and row.wait_s == 0.7 and row.data_wait_s == pytest.approx(0.3)
    means = FrameMeans("few")
    means.add_steps(row)
    told = means.take()
    assert (told["gputop/step_wait_ms"], told["gputop/step_data_wait_ms"]) == pytest.approx(
        (350.0, 150.0)
    )


def tail_of(*ended: EndedSteps) -> Any:
    tail = StepTail()
    for steps in ended:
        tail.add(steps)
    return tail.summary(sum(len(steps.lengths) for steps in ended))


def test_the_wait_for_batches_is_in_the_summary_with_its_remedy_where_it_is_much() -> None:
    found = tail_of(EndedSteps([0.4, 0.4], None, 0.1), EndedSteps([0.4]))
    assert (found.data_wait_s, found.data_wait_pct) == pytest.approx((0.05, 12.5))
    assert found.data_words.startswith(
        "waits 50.0 ms of each step for its batch (12 %); gputop loader finds"
    )
    little = tail_of(EndedSteps([0.4], None, 0.01))
    assert little.data_words == "waits 10.0 ms of each step for its batch (2 %)"
    assert tail_of(EndedSteps([0.4])).data_words == ""
    waits = tail_of(EndedSteps([0.1, 0.1], 0.08))
    assert (waits.wait_s, waits.wait_pct, waits.data_words) == (0.04, pytest.approx(40.0), "")
    assert waits.wait_words == "waits 40.0 ms of each step for others (40 %)"


def test_a_wait_for_batches_is_the_sum_of_the_fetches_of_a_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [0.0]
    monkeypatch.setattr(shared, "perf_counter", lambda: now[0])
    wait = BatchWait()
    for hook, at in (
        (wait.end, 0.5),
        (wait.begin, 1.0),
        (wait.begin, 3.0),
        (wait.end, 3.25),
        (wait.end, 9.0),
    ):
        now[0] = at
        hook()
    assert wait.take() == 0.25 and wait.take() is None, "the last begin counts, and the first end"
    for hook, at in ((wait.begin, 10.0), (wait.end, 10.5), (wait.begin, 11.0), (wait.end, 11.25)):
        now[0] = at
        hook()
    assert wait.take() == 0.75, "a step of two batches"


def test_torchs_hook_counts_the_first_optimizer_and_is_never_added_under_torchs_hands(
    monkeypatch: Any,
) -> None:
    class Handle:
        removed = False

        def remove(self) -> None:
            self.removed = True

    class Torch:
        _global_optimizer_post_hooks: dict[int, Any]

        def __init__(self) -> None:
            self._global_optimizer_post_hooks, self.hooks = {}, []

        def register_optimizer_step_post_hook(self, hook: Any) -> Handle:
            self.hooks.append(hook)
            return Handle()

    class Optimizer: ...

    ended: list[int] = []
    hook = TorchHook(lambda: ended.append(1))
    monkeypatch.delitem(__import__("sys").modules, _OPTIMIZERS, raising=False)
    assert not hook.register(on_training_thread=True), "torch is not there yet"
    torch = Torch()
    monkeypatch.setitem(__import__("sys").modules, _OPTIMIZERS, torch)
    torch._global_optimizer_post_hooks[1] = object()
    assert not hook.register(on_training_thread=False), "another's hook may be running now"
    torch._global_optimizer_post_hooks.clear()
    assert hook.register(on_training_thread=False) and hook.register(on_training_thread=False)
    assert len(torch.hooks) == 1
    first, second = Optimizer(), Optimizer()
    for optimizer in (first, second, first):
        torch.hooks[0](optimizer, (), {})
    assert len(ended) == 2
    hook.remove()
    assert not hook.registered


def test_slow_steps_are_told() -> None:
    tail = StepTail()
    for i in range(200):
        tail.add(EndedSteps([1.2 if i % 20 == 19 else 0.4]))
    found = tail.summary(201)
    assert found is not None and (found.p50_s, found.p99_s) == (0.4, 1.2)
    assert found.slow_words == "slow steps: the 99th percentile is 1.20 s, 3.0 × the median"
    steady = tail_of(EndedSteps([9.0] + [0.4] * 150))
    assert steady.p99_s == 0.4 and steady.slow_words == "", "the warm-up is no tail"


def _tail(in_slow: MachineSigns, otherwise: MachineSigns) -> str:
    """What is told of a run in which every twentieth step takes three times as long."""
    tail = StepTail()
    for i in range(200):
        is_slow = i % 20 == 19
        tail.add(EndedSteps([1.2 if is_slow else 0.4]), in_slow if is_slow else otherwise)
    found = tail.summary(201)
    assert found is not None
    return found.slow_words


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("disk_wait", "tasks waited for the disk 60 % of the time (1 % otherwise)"),
        ("slowed", "the GPU slowed down for heat or power supply 60 %"),
        ("swapped", "the machine swapped 60 %"),
        ("shared", "another job used the GPU 60 %"),
    ],
)
def test_slow_steps_are_told_with_what_the_machine_did_in_them(key: str, words: str) -> None:
    told = _tail(MachineSigns(**{key: 60.0}), MachineSigns(**{key: 1.0}))
    assert told.startswith("slow steps: the 99th percentile is 1.20 s, 3.0 × the median; in them ")
    assert words in told
    near = _tail(MachineSigns(**{key: 15.9}), MachineSigns(**{key: 1.0}))
    assert near.endswith("; the machine looked no different in them")
    assert _tail(MachineSigns(), MachineSigns()).endswith("3.0 × the median"), (
        "nothing was measured"
    )


def test_signs_of_the_machine_are_those_of_the_jobs_own_gpus() -> None:
    own = ProcessSample(7, 1, gpu=0, gpu_time_pct=80.0, static=ProcessStatic(job_key="own"))
    rank = ProcessSample(8, 1, gpu=0, gpu_time_pct=50.0, static=ProcessStatic(job_key="own"))
    other = ProcessSample(9, 1, gpu=0, gpu_time_pct=40.0, static=ProcessStatic(job_key="other"))
    gpus = (
        GpuSample(GpuStatic(0, "GPU-0", "H100"), throttle_reasons=HARDWARE_THERMAL),
        GpuSample(GpuStatic(1, "GPU-1", "H100"), throttle_reasons=0),
    )
    calm = replace(
        snapshot(NOW), gpus=gpus, processes=(own, rank), host=HostSample(swap_used_bytes=0.0)
    )
    signs = machine_signs(None, calm, (7,))
    assert (signs.slowed, signs.shared, signs.swapped) == (100.0, 0.0, None)
    later = replace(calm, processes=(own, other), host=HostSample(swap_used_bytes=5e6))
    signs = machine_signs(calm, later, (7,))
    assert (signs.shared, signs.swapped) == (100.0, 100.0)
    moved = replace(later, processes=(replace(own, gpu=1), other))
    signs = machine_signs(later, moved, (7,))
    assert (signs.slowed, signs.shared, signs.swapped) == (0.0, 0.0, 0.0)
    assert machine_signs(calm, replace(later, processes=()), (7,)).shared is None


def test_steps_after_the_last_snapshot_are_in_the_recording_as_in_the_summary(
    tmp_path: Path,
) -> None:
    path = tmp_path / "run.gputop.jsonl"
    watched = Watched(record=str(path))
    with watched.watch as w:
        watched.show(snapshot(NOW))
        w._watcher.clock.explicit = True
        for end in range(11):
            w._watcher.clock.append_end((float(end), None, None))
    (steps,) = w.summary().report.steps
    assert steps.steps == 10
    frames = list(gputop.load(path))
    assert sum(row.count for frame in frames for row in frame.snapshot.steps) == steps.steps
    first, last = frames[0].snapshot, frames[-1].snapshot
    assert (
        last.repeats == ("nvml", "proc")
        and last.t >= first.t
        and last.gpus[0].util_pct == first.gpus[0].util_pct
    )
