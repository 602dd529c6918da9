"""What a watch is given, and what it finds, cannot end the training: whatever is raised, and whatever is missing."""

from __future__ import annotations

import time
from typing import Any

import pytest

import gputop
from gputop.api.process_role import LOADER_WORKER, NO_RANK, role_of, unwatched_child
from gputop.system.awaited import News
from tests.support.waiting import until
from tests.support.watched import NOW, Scripted, Watched, snapshot


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), pytest.fail.Exception("no")])
def test_whatever_is_raised_on_the_watchs_own_thread_stays_there(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    source, calls = Scripted(), []

    def fails(frame: Any) -> None:
        calls.append(frame)
        raise error

    with gputop.watch(
        source=source, gpus="all", on_frame=fails, log=fails, log_every=0.0, log_thread="own"
    ) as w:
        assert source.started.wait(10.0)
        for i in range(3):
            source.waiting.append(snapshot(NOW + i))
            until(lambda i=i: w.latest is not None and w.latest.snapshot.t >= NOW + i)  # type: ignore[misc]
        assert w.available and w.reason is None
    assert caplog.text.count("on_frame raised") == 1


def test_a_watch_that_is_used_twice_begins_anew() -> None:
    watched, logged = Watched(name="train"), []
    w = watched.watch
    w.work(samples=4)
    for run in range(2):
        watched.source.started.clear()
        with w:
            watched.show(snapshot(NOW + 100 * run), snapshot(NOW + 100 * run + 1))
            for i in range(3 + run):
                w.step(i)
                time.sleep(0.002)
        summary = w.summary()
        logged.append(
            (summary.report.frames, summary.steps.count if summary.steps else 0, summary.reason)
        )
        assert summary.rates is not None and summary.rates.samples_per_s, (
            "what a step does was said of each"
        )
    assert logged == [(2, 3, None), (2, 4, None)]


def test_a_watch_that_has_ended_takes_nothing_more_from_its_source() -> None:
    """A source may be watched again: what it gives then belongs to that watch alone."""
    runs: list[str] = []

    class Slow(Scripted):
        async def run(self, deliver: Any) -> None:
            runs.append("has begun")
            try:
                await News().wait(60.0)
            finally:
                runs.append("has ended")

    with gputop.watch(source=Slow(), gpus="all"):
        until(lambda: runs == ["has begun"])
    assert runs == ["has begun", "has ended"]


class Tensor:
    """As one of torch's: with a graph behind it that ``detach`` leaves."""

    def __init__(self, value: float, graph: object = None, *, values: int = 1) -> None:
        self.value, self.graph, self.values = value, graph, values

    def detach(self) -> Tensor:
        return Tensor(self.value, values=self.values)

    def __float__(self) -> float:
        if self.values > 1:
            raise RuntimeError("a Tensor with 2 elements cannot be converted to Scalar")
        return self.value


def test_tensors_are_logged_as_numbers_and_their_graphs_are_not_kept() -> None:
    got: list[dict[str, float]] = []
    watched = Watched(log=lambda numbers, _step: got.append(numbers), log_every=0.0)
    with watched.watch as w:
        w.step(
            1, loss=Tensor(0.25, graph=object()), several=Tensor(1.0, values=2), text="no number"
        )  # type: ignore[arg-type]
        assert w._watcher.log.scalars["loss"].graph is None  # type: ignore[attr-defined]
        watched.show(snapshot(NOW))
    assert got[-1]["loss"] == 0.25 and type(got[-1]["loss"]) is float
    assert not {"several", "text"} & set(got[-1])


def test_values_that_are_no_times_or_amounts_do_not_end_the_loop(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert gputop.watch("x")._options.interval == 1.0  # type: ignore[arg-type]
    assert "interval must be 0.05 to 3600 seconds, not 'x'" in caplog.text
    with pytest.raises(ValueError, match="log_every must be in seconds, not 'x'"):
        gputop.watch(log_every="x")  # type: ignore[arg-type]
    with Watched().watch as w:
        for wrong in ("x", object(), -1.0, float("nan"), 10**400):
            w.step(data_wait_s=wrong, wait_s=wrong)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="samples must be a number above 0"):
            w.work(samples=10**400)


class _Process:
    """As ``multiprocessing.process`` in a child."""

    def __init__(self, *, daemon: bool = False) -> None:
        self.daemon = daemon

    def parent_process(self) -> object:
        return self

    def current_process(self) -> _Process:
        return self


class _Group:
    """As ``torch.distributed`` with a process group, or without."""

    def __init__(self, rank: int | None) -> None:
        self.rank = rank

    def is_available(self) -> bool:
        return True

    def is_initialized(self) -> bool:
        return self.rank is not None

    def get_rank(self) -> int | None:
        return self.rank


def test_a_child_is_watched_where_it_is_a_rank_and_never_where_it_loads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import sys
    from types import SimpleNamespace

    def child(*, daemon: bool = False, rank: int | None = None, loads: bool = False) -> None:
        worker = SimpleNamespace(get_worker_info=lambda: object() if loads else None)
        monkeypatch.setitem(sys.modules, "multiprocessing.process", _Process(daemon=daemon))
        monkeypatch.setitem(sys.modules, "torch.distributed", _Group(rank))
        monkeypatch.setitem(sys.modules, "torch.utils.data", worker)

    child()
    assert (
        unwatched_child({}, children=False) == NO_RANK
        and unwatched_child({}, children=True) is None
    )
    assert (
        unwatched_child({"LOCAL_RANK": "1"}, children=False)
        is unwatched_child({"RANK": "1"}, children=False)
        is None
    )
    child(rank=1)
    assert unwatched_child({}, children=False) is None
    assert (role_of("node", {}).rank, role_of("node", {}).samples) == (1, True), (
        "which of a node it is, is not known"
    )
    here = role_of("node", {"MASTER_ADDR": "127.0.0.1"})
    assert (here.rank, here.local_rank, here.samples) == (1, 1, False)
    child(rank=0)
    assert role_of("node", {"MASTER_ADDR": "localhost"}).samples
    for worker in ({"daemon": True}, {"loads": True}):
        child(rank=0, **worker)
        assert unwatched_child({"RANK": "0"}, children=True) == LOADER_WORKER
