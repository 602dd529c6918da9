"""gputop inside a program: what a watch gives, and that it never hurts what it watches."""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import gputop
from gputop.api import batch_wait
from gputop.api.batch_wait import BatchWait
from gputop.api.means import Means
from gputop.api.members import FOREIGN_FRAMES, JobGpus
from gputop.api.ranks import role_of
from gputop.api.step_clock import StepClock, row_of
from gputop.api.step_tail import StepTail
from gputop.api.torch_hook import _MODULE, TorchHook
from gputop.api.watch import Watch
from gputop.model.snapshot import GpuSample, GpuStatic, HostSample, Machine, ProcessSample, Snapshot
from gputop.model.source import CLOSE_S, SourceError
from gputop.monitor import Monitor

NOW = 1_780_000_000.0
GIB = 2.0**30


def snapshot(t: float, *, util: float = 90.0, pid: int | None = None, gpus: int = 1, **more: Any) -> Snapshot:
    made = tuple(
        GpuSample(
            GpuStatic(i, f"GPU-{i}", "H100"), util_pct=util, sm_active_pct=25.0, sm_source="gpm", sm_window_s=1.0,
            mem_used_bytes=20 * GIB, mem_total_bytes=80 * GIB, power_w=300.0,
        )
        for i in range(gpus)
    )  # fmt: skip
    holders = () if pid is None else (ProcessSample(pid, starttime=7, role="gpu", gpu=0),)
    return Snapshot(t, Machine("host"), made, holders, HostSample(cpu_pct=50.0), **more)


class Scripted:
    """A source that hands out what it is given, when it is given."""

    interval_s = 1.0

    def __init__(self, failure: Exception | None = None) -> None:
        self.failure = failure
        self.waiting: list[Snapshot] = []
        self.notify: Callable[[], None] = lambda: None
        self.closed = False
        self.started = threading.Event()

    def start(self, notify: Callable[[], None]) -> None:
        if self.failure is not None:
            raise self.failure
        self.notify = notify
        self.started.set()

    def poll(self) -> Snapshot | None:
        return self.waiting.pop(0) if self.waiting else None

    def close(self) -> None:
        self.closed = True


class Watched:
    """A watch on a scripted source; ``show`` returns when the watch has taken a snapshot in."""

    def __init__(self, **given: Any) -> None:
        self.source = Scripted()
        self._seen = threading.Semaphore(0)
        given.setdefault("gpus", "all")
        self.watch = gputop.watch(source=self.source, on_frame=lambda _: self._seen.release(), **given)

    def show(self, *snapshots: Snapshot) -> None:
        assert self.source.started.wait(10.0)
        self.source.waiting += snapshots
        self.source.notify()
        for _ in snapshots:
            assert self._seen.acquire(timeout=60.0)


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("RANK", "LOCAL_RANK", "SLURM_LOCALID", "SLURM_PROCID", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    yield
    from gputop.api.watch import _ONE

    _ONE.end()


def test_the_public_names_and_their_arguments_stay() -> None:
    found = {name: str(inspect.signature(getattr(gputop, name))).partition(" ->")[0] for name in gputop._HOMES}
    assert {"frames", "load", "mark", "snapshot", "trace", "watch"} <= set(found)
    assert set(gputop.__all__) == {*found, "__version__"}
    names = [p.replace("'", "") for p in inspect.signature(gputop.watch).parameters]
    assert names == [
        "interval", "gpus", "record", "log", "log_every", "metrics", "steps", "ranks", "strict", "price", "name",
        "on_frame", "on_finding", "source", "log_thread", "redact",
    ]  # fmt: skip
    public = {name for name in vars(Watch) if not name.startswith("_")}
    assert public == {
        "start", "stop", "step", "work", "mark", "metrics", "verdicts", "summary", "latest", "available", "reason",
        "cost",
    }  # fmt: skip
    with pytest.raises(AttributeError, match="gputop"):
        _ = gputop.nothing


def test_a_watch_gives_means_verdicts_and_a_summary_in_three_forms(tmp_path: Path) -> None:
    watched = Watched(record=str(tmp_path / "run.gputop.jsonl.gz"), name="train <b>", price=2.0)
    with watched.watch as w:
        watched.show(snapshot(NOW), snapshot(NOW + 1, util=70.0), snapshot(NOW + 2, util=70.0, repeats=("nvml",)))
        found = w.metrics()
        assert found["gputop/gpu0/util_pct"] == 80.0, "what is repeated is no sample"
        assert found["gputop/cpu_pct"] == 50.0
        assert "gputop/gpu0/temp_c" not in found and w.metrics() == {}
        assert w.available and w.reason is None
        w.mark("epoch 1")
        watched.show(snapshot(NOW + 3))
        assert [d.index for d in w.verdicts()] == [0]
    assert watched.source.closed
    summary = w.summary()
    assert "train <b>" in summary.text and str(summary) == summary.text
    assert "GPU 0: 20 GiB of 80 GiB at most, 60 GiB free; the batch could grow to about 3.8 ×" in summary.text
    data = summary.to_dict()
    assert (data["schema"], data["frames"], data["memory"][0]["headroom_bytes"]) == (1, 4, 60 * GIB)
    page = summary._repr_html_()
    assert page.startswith("<iframe srcdoc=") and "sandbox" in page and "<b>" not in page and "<script" not in page
    frames = list(gputop.load(tmp_path / "run.gputop.jsonl.gz"))
    assert [frame.snapshot.t for frame in frames] == [NOW, NOW + 1, NOW + 2, NOW + 3]


def test_without_a_driver_the_loop_goes_on_and_one_line_says_why(caplog: pytest.LogCaptureFixture) -> None:
    source = Scripted(SourceError("no NVIDIA driver found: install it"))
    with caplog.at_level(logging.WARNING, "gputop"), gputop.watch(source=source) as w:
        w._watcher._told.wait(10.0)
        for i in range(3):
            w.step(i, loss=0.5)
            time.sleep(0.002)
        assert (w.available, w.metrics(), w.verdicts(), w.latest) == (False, {}, [], None)
        assert w.reason == "no NVIDIA driver found: install it"
    assert [record.getMessage() for record in caplog.records] == [
        "gputop: the GPUs are not watched: no NVIDIA driver found: install it"
    ]
    summary = w.summary()
    assert "no NVIDIA driver found" in summary.text and "): 2 of " in summary.text
    assert summary.to_dict()["reason"] == w.reason and "no NVIDIA driver" in summary.html
    with pytest.raises(SourceError):
        gputop.watch(source=Scripted(SourceError("none")), strict=True).start()


def test_bad_words_are_told_at_once_and_a_bad_interval_is_not_worth_a_training(caplog: Any) -> None:
    for given in ({"metrics": "some"}, {"ranks": "2"}, {"log_thread": "mine"}, {"interval": 0.0, "strict": True}):
        with pytest.raises(ValueError, match="must be"):
            gputop.watch(**given)
    with pytest.raises(TypeError, match="cannot log to int"):
        gputop.watch(log=3)
    assert gputop.watch(0)._options.interval == 1.0
    assert gputop.watch(1e9)._options.interval == 3600.0
    assert "interval must be" in caplog.text


def test_loggers_run_on_the_training_thread_at_a_step() -> None:
    threads: list[str] = []
    got: list[dict[str, float]] = []

    def log(numbers: dict[str, float], _step: int | None) -> None:
        threads.append(threading.current_thread().name)
        got.append(numbers)

    watched = Watched(log=log, log_every=0.0)
    with watched.watch as w:
        w.step(1)
        watched.show(snapshot(NOW))
        deadline = time.monotonic() + 10.0
        while not got and time.monotonic() < deadline:
            w.step(2, loss=0.25)
            time.sleep(0.005)
    assert set(threads) == {threading.current_thread().name}
    assert got[-1]["loss"] == 0.25
    assert len([key for key in got[0] if "/gpu0/" in key]) <= 8


def test_nested_watches_share_one_thread_and_a_new_cell_takes_the_place(caplog: pytest.LogCaptureFixture) -> None:
    outer, inner = Watched(), Watched()
    # One of a test before may still be ending.
    others = set(threading.enumerate())
    with outer.watch as a:
        with inner.watch as b:
            assert b._watcher is a._watcher
            assert [t.name for t in set(threading.enumerate()) - others].count("gputop-watch") == 1
        assert a._watcher.alive
    assert not a._watcher.alive
    first, second = Watched().watch.start(), Watched().watch.start()
    assert not first._watcher.alive and second._watcher.alive
    assert "takes the place" in caplog.text
    second.stop()
    second.stop()


def test_one_process_of_a_node_samples_and_the_others_say_who_does() -> None:
    assert role_of("node", {}).samples
    assert role_of("node", {"LOCAL_RANK": "0", "RANK": "8"}).samples
    third = role_of("node", {"SLURM_LOCALID": "3", "SLURM_PROCID": "11"})
    assert (third.samples, third.rank) == (False, 11) and "local rank 0" in (third.why or "")
    assert not role_of("0", {"RANK": "8", "LOCAL_RANK": "0"}).samples
    assert role_of("all", {"RANK": "8", "LOCAL_RANK": "3"}).samples
    assert role_of("node", {"LOCAL_RANK": "-1"}).samples, "transformers' way to say that there is none"
    with pytest.raises(ValueError):
        role_of("some", {})  # type: ignore[arg-type]


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


def test_mine_are_the_gpus_on_which_this_job_holds_a_context() -> None:
    import os

    gpus = JobGpus()
    assert gpus.take(snapshot(NOW, gpus=2)) == []
    held_and_now = gpus.take(snapshot(NOW + 1, gpus=2, pid=os.getpid()))
    assert [[g.static.index for g in s.gpus] for s in held_and_now] == [[0], [0]]
    # In a container the driver tells pids of another namespace.
    foreign = JobGpus()
    unknown = replace(snapshot(NOW, gpus=2), processes=(ProcessSample(9, role="gpu", gpu=0),))
    taken = [foreign.take(replace(unknown, t=NOW + i)) for i in range(FOREIGN_FRAMES)]
    assert [len(found) for found in taken] == [0] * (FOREIGN_FRAMES - 1) + [1]
    assert len(taken[-1][0].gpus) == 2


def test_steps_are_counted_before_the_job_has_a_gpu_and_the_summary_says_that_it_has_none() -> None:
    source = Scripted()
    with gputop.watch(source=source) as w:
        # The scripted GPUs are nobody's: `mine` waits for a context.
        w._watcher._measuring._gpus = JobGpus()  # type: ignore[union-attr]
        assert source.started.wait(10.0)
        for i in range(4):
            source.waiting.append(snapshot(NOW + i))
            w.step()
            time.sleep(0.001)
    summary = w.summary()
    assert summary.report.steps[0].steps == 3 and w.latest is None
    assert "no process of this job has used a GPU" in summary.text


def test_a_step_lasts_from_one_end_to_the_next_and_the_loops_word_counts_alone() -> None:
    clock = StepClock()
    for end in (1.0, 1.5):
        clock.append_hooked(end)
    assert clock.lengths() == [0.5] and clock.total == 2
    clock.append_hooked(1.9)
    clock.explicit = True
    for end in (2.0, 2.4, 2.8):
        clock.append_end(end)
    assert clock.lengths() == pytest.approx([0.4, 0.4])
    clock.append_end(3.8)
    assert clock.lengths() == pytest.approx([1.0]) and clock.total == 4
    row = row_of([0.4, 0.4, 0.8], 5, 1, "run")
    assert row is not None and (row.count, row.p50_s, row.max_s, row.sum_s) == (3, 0.4, 0.8, 1.6)
    assert row_of([0.0], 5, 1, "run") is None
    clock.silence()
    clock.end()
    clock.end_with_waits(1.0, None)
    assert clock.total == 4


def test_what_a_step_waited_is_known_only_where_every_step_says_it() -> None:
    clock = StepClock()
    for end, wait_s in ((1.0, 9.0), (1.5, 0.2), (2.0, 0.7)):
        clock.append_end((end, wait_s, None if end == 2.0 else 0.1))
    clock.explicit = True
    assert clock.lengths() == [0.5, 0.5]
    assert clock.wait_s == pytest.approx(0.7), "the first end begins a step, and none is waited in for longer than it"
    assert clock.data_wait_s is None, "one of the steps does not say it"
    clock.append_end((2.5, 0.2, 0.1))
    clock.append_end((3.0, None, 0.2))
    assert clock.lengths() == [0.5, 0.5] and clock.wait_s is None
    row = row_of([0.5, 0.5], 5, 1, "run", None, 0.7, clock.data_wait_s)
    assert row is not None and row.wait_s == 0.7 and row.data_wait_s == pytest.approx(0.3)
    clock.append_end((3.5, 0.2, 0.1))
    clock.append_end(4.0)
    assert clock.lengths() == [0.5, 0.5] and clock.wait_s is None and clock.data_wait_s is None
    for wrong in (float("nan"), -1.0, float("inf")):
        clock.end_with_waits(wrong, wrong)
    assert clock.lengths() and clock.wait_s is None and clock.data_wait_s is None and clock.total == 10
    means = Means("few")
    means.add_steps([row])
    told = means.take()
    assert (told["gputop/step_wait_ms"], told["gputop/step_data_wait_ms"]) == pytest.approx((350.0, 150.0))


def test_the_wait_for_batches_is_in_the_summary_with_its_remedy_where_it_is_much() -> None:
    tail = StepTail()
    tail.add([0.4, 0.4], None, 0.1)
    tail.add([0.4], None)
    found = tail.summary(4)
    assert found is not None and (found.data_wait_s, found.data_wait_pct) == pytest.approx((0.05, 12.5))
    assert found.data_words.startswith("waits 50.0 ms of each step for its batch (12 %); gputop loader finds")
    little = StepTail()
    little.add([0.4], None, 0.01)
    assert little.summary(1).data_words == "waits 10.0 ms of each step for its batch (2 %)"  # type: ignore[union-attr]
    unknown = StepTail()
    unknown.add([0.4], None)
    assert unknown.summary(1).data_words == ""  # type: ignore[union-attr]


def test_a_callback_s_wait_runs_from_the_last_hook_before_the_batch_and_is_told_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [0.0]
    monkeypatch.setattr(batch_wait, "perf_counter", lambda: now[0])
    wait = BatchWait()
    for hook, at in ((wait.end, 0.5), (wait.begin, 1.0), (wait.begin, 3.0), (wait.end, 3.25)):
        now[0] = at
        hook()
    assert wait.take() == 0.25 and wait.take() is None, "after a validation the time begins anew"
    wait.begin()
    wait.forget()
    wait.end()
    assert wait.take() is None, "what a checkpoint takes is not told apart"


def test_torchs_hook_counts_the_first_optimizer_and_is_never_added_under_torchs_hands(monkeypatch: Any) -> None:
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
    monkeypatch.delitem(__import__("sys").modules, _MODULE, raising=False)
    assert not hook.register(on_training_thread=True), "torch is not there yet"
    torch = Torch()
    monkeypatch.setitem(__import__("sys").modules, _MODULE, torch)
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


def test_slow_steps_are_told_with_what_the_machine_did_in_them() -> None:
    tail = StepTail()
    for i in range(200):
        slow = i % 20 == 19
        tail.add([1.2 if slow else 0.4], HostSample(psi_io_pct=60.0 if slow else 1.0, cpu_pct=40.0))
    found = tail.summary(201)
    assert found is not None and (found.p50_s, found.p99_s) == (0.4, 1.2)
    assert found.slow_words == (
        "slow steps: the 99th percentile is 1.20 s, 3.0 × the median; in them tasks waited for the disk 60 % "
        "(1 % otherwise)"
    )
    even = StepTail()
    even.add([9.0] + [0.4] * 150, None)
    steady = even.summary(152)
    assert steady is not None and steady.p99_s == 0.4 and steady.slow_words == "", "the warm-up is no tail"


def test_users_own_calls_that_raise_are_left_out_and_the_watch_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    source = Scripted()

    def fails(_frame: object) -> None:
        raise RuntimeError("mine")

    with gputop.watch(source=source, gpus="all", on_frame=fails) as w:
        deadline = time.monotonic() + 10.0
        t = NOW
        while (w.latest is None or w.latest.snapshot.t < NOW + 2) and time.monotonic() < deadline:
            source.waiting.append(snapshot(t := t + 1))
            source.notify()
            time.sleep(0.002)
        assert w.available
    assert caplog.text.count("on_frame raised RuntimeError: mine") == 1


def test_frames_come_in_a_loop_and_in_an_async_loop_until_they_are_closed() -> None:
    source = Scripted()
    source.waiting = [snapshot(NOW), snapshot(NOW + 1)]
    with gputop.frames(source=source) as frames:
        assert [next(frames).snapshot.t, next(frames).snapshot.t] == [NOW, NOW + 1]
    assert source.closed and list(frames) == []
    again = Scripted()
    again.waiting = [snapshot(NOW), snapshot(NOW + 1)]

    async def read() -> list[float]:
        found = []
        async for frame in gputop.frames(source=again):
            found.append(frame.snapshot.t)
            if len(found) == 2:
                return found
        return found

    assert asyncio.run(read()) == [NOW, NOW + 1]


def test_means_of_everything_are_asked_for_by_name() -> None:
    frame = Monitor().feed(snapshot(NOW))
    few, everything = Means("few"), Means("all")
    few.add(frame)
    everything.add(frame)
    assert set(few.take()) < set(everything.take())


def test_a_watch_does_not_announce_its_steps_to_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gputop.sources import marks

    monkeypatch.setattr(marks, "runtime_directories", lambda: [str(tmp_path / "private")])
    other = marks.MarkListener()
    watched = Watched()
    with watched.watch as w:
        w._watcher.clock.explicit = True
        for end in (0.0, 1.0, 2.0):
            w._watcher.clock.append_end(end)
        assert watched.source.started.wait(10.0)
        assert len(marks.listeners()) == 2
        sender, reached = w._watcher._sender, []
        send = sender.send
        sender.send = lambda *given: reached.append(send(*given)) or reached[-1]  # type: ignore[method-assign]
    assert reached == [1]
    other.drain()
    assert [row.count for row in other.steps()] == [2]
    other.close()


def test_steps_after_the_last_snapshot_are_in_the_recording_as_in_the_summary(tmp_path: Path) -> None:
    path = tmp_path / "run.gputop.jsonl"
    watched = Watched(record=str(path))
    with watched.watch as w:
        watched.show(snapshot(NOW))
        w._watcher.clock.explicit = True
        for end in range(11):
            w._watcher.clock.append_end(float(end))
    (steps,) = w.summary().report.steps
    assert steps.steps == 10
    frames = list(gputop.load(path))
    assert sum(row.count for frame in frames for row in frame.snapshot.steps) == steps.steps
    first, last = frames[0].snapshot, frames[-1].snapshot
    assert last.repeats == ("nvml", "proc") and last.t >= first.t and last.gpus[0].util_pct == first.gpus[0].util_pct


def test_the_end_of_a_program_waits_for_a_hung_driver_no_longer_than_promised(monkeypatch: pytest.MonkeyPatch) -> None:
    from gputop.api.watch import _ONE

    watched, hung = Watched(), threading.Event()
    watched.source.close = hung.wait  # type: ignore[method-assign, assignment]
    w = watched.watch.start()
    watched.show(snapshot(NOW))
    thread, waits = w._watcher._thread, []
    assert thread is not None
    monkeypatch.setattr(thread, "join", waits.append)
    _ONE.end()
    assert waits == [CLOSE_S] and CLOSE_S <= 0.2 and thread.is_alive(), "one wait, and then the program ends"
    hung.set()


def test_steps_from_many_threads_are_all_counted() -> None:
    watched = Watched()
    with watched.watch as w:
        threads = [threading.Thread(target=lambda: [w.step() for _ in range(500)]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert w._watcher.clock.total == 2000
