"""gputop inside a program: what a watch gives, and that it never hurts what it watches."""

from __future__ import annotations

import inspect
import logging
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import gputop
from gputop.api.gpu_watch import opened
from gputop.api.job_gpus import FOREIGN_FRAMES, JobGpus
from gputop.api.process_role import role_of
from gputop.api.watch import Watch
from gputop.model.snapshot import ProcessSample
from gputop.model.source import SourceError
from gputop.report.job_report import report_recording
from tests.support.waiting import until
from tests.support.watched import GIB, NOW, Scripted, Watched, snapshot


def test_the_public_names_and_their_arguments_stay() -> None:
    found = {
        name: str(inspect.signature(getattr(gputop, name))).partition(" ->")[0]
        for name in gputop._HOMES
    }
    assert {"frames", "load", "mark", "snapshot", "trace", "watch"} <= set(found)
    assert set(gputop.__all__) == {*found, "__version__"}
    names = [p.replace("'", "") for p in inspect.signature(gputop.watch).parameters]
    assert names == [
        "interval", "gpus", "record", "log", "log_every", "metrics", "steps", "ranks", "strict", "price", "name",
        "on_frame", "on_finding", "source", "log_thread", "redact", "children", "phases",
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
        watched.show(
            snapshot(NOW),
            snapshot(NOW + 1, util=70.0),
            snapshot(NOW + 2, util=70.0, repeats=("nvml",)),
        )
        found = w.metrics()
        assert found["gputop/gpu0/util_pct"] == 80.0, "what is repeated is no sample"
        assert found["gputop/cpu_pct"] == 50.0
        assert "gputop/gpu0/temp_c" not in found and w.metrics() == {}
        assert w.available and w.reason is None
        w.mark("epoch 1")
        watched.show(snapshot(NOW + 3, pid=os.getpid()))
        assert [d.index for d in w.verdicts()] == [0]
        watched.show(snapshot(NOW + 12))
    assert watched.source.closed
    summary = w.summary()
    assert "train <b>" in summary.text and str(summary) == summary.text
    assert "GPU 0: 20 GiB of 80 GiB at most, 60 GiB free" in summary.text
    assert summary.text.splitlines()[-1].startswith("note: gputop itself: ")
    data = summary.to_dict()
    assert (data["schema"], data["frames"], data["memory"][0]["headroom_bytes"]) == (1, 5, 60 * GIB)
    page = summary._repr_html_()
    assert (
        page.startswith("<iframe srcdoc=")
        and "sandbox" in page
        and "<b>" not in page
        and "<script" not in page
    )
    frames = list(gputop.load(tmp_path / "run.gputop.jsonl.gz"))
    assert [frame.snapshot.t for frame in frames] == [NOW, NOW + 1, NOW + 2, NOW + 3, NOW + 12]
    assert report_recording(str(tmp_path / "run.gputop.jsonl.gz")).command == "train <b>"


def test_without_a_driver_the_loop_goes_on_and_one_line_says_why(
    caplog: pytest.LogCaptureFixture,
) -> None:
    source = Scripted(SourceError("no NVIDIA driver found: install it"))
    with caplog.at_level(logging.WARNING, "gputop"), gputop.watch(source=source) as w:
        w._watcher._has_first_frame.wait(10.0)
        for i in range(3):
            w.step(i, loss=0.5)
            time.sleep(0.002)
        assert (w.available, w.metrics(), w.verdicts(), w.latest) == (False, {}, [], None)
        assert w.reason == "no NVIDIA driver found: install it"
    assert [record.getMessage() for record in caplog.records] == [
        "gputop: the GPUs are not watched: no NVIDIA driver found: install it"
    ]
    summary = w.summary()
    assert "no NVIDIA driver found" in summary.text and "): 2, " in summary.text
    assert summary.to_dict()["reason"] == w.reason and "no NVIDIA driver" in summary.html
    with pytest.raises(SourceError):
        gputop.watch(source=Scripted(SourceError("none")), strict=True).start()


def test_bad_words_are_told_at_once_and_a_bad_interval_is_not_worth_a_training(caplog: Any) -> None:
    for given in (
        {"metrics": "some"},
        {"ranks": "2"},
        {"log_thread": "mine"},
        {"interval": 0.0, "strict": True},
    ):
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


def test_nested_watches_share_one_thread_and_a_new_cell_takes_the_place(
    caplog: pytest.LogCaptureFixture,
) -> None:
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
    assert (third.samples, third.rank) == (False, 11) and "local rank 0" in (third.reason or "")
    assert not role_of("0", {"RANK": "8", "LOCAL_RANK": "0"}).samples
    assert role_of("all", {"RANK": "8", "LOCAL_RANK": "3"}).samples
    assert role_of("node", {"LOCAL_RANK": "-1"}).samples, (
        "transformers' way to say that there is none"
    )
    with pytest.raises(ValueError):
        gputop.watch(ranks="some")  # type: ignore[arg-type]


def test_mine_are_the_gpus_on_which_this_job_holds_a_context() -> None:

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


def test_a_visible_gpu_on_which_only_another_works_is_not_the_job_s(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    _, gpus = opened(gputop.watch()._options, role_of("node", {}))
    assert gpus is not None
    assert [gpus.take(snapshot(NOW + i, pid=1)) for i in range(FOREIGN_FRAMES + 1)] == [[]] * (
        FOREIGN_FRAMES + 1
    )
    assert gpus.take(snapshot(NOW + 9, pid=os.getpid()))


def test_users_own_calls_that_raise_are_left_out_and_the_watch_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    source = Scripted()

    def fails(_frame: object) -> None:
        raise RuntimeError("mine")

    with gputop.watch(source=source, gpus="all", on_frame=fails) as w:
        deadline = time.monotonic() + 10.0
        t = NOW
        while (w.latest is None or w.latest.snapshot.t < NOW + 2) and time.monotonic() < deadline:
            source.waiting.append(snapshot(t := t + 1))
            time.sleep(0.002)
        assert w.available
    assert caplog.text.count("on_frame raised RuntimeError: mine") == 1


def test_frames_come_in_a_loop_until_they_are_closed() -> None:
    source = Scripted()
    source.waiting = [snapshot(NOW)]
    with gputop.frames(source=source) as frames:
        assert next(frames).snapshot.t == NOW
        # A loop that was late has the newest frame.
        source.waiting = [snapshot(NOW + 1), snapshot(NOW + 2)]
        until(lambda: not source.waiting)
        assert next(frames).snapshot.t == NOW + 2
    assert source.closed and list(frames) == []
