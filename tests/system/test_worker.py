"""Workers: an error is kept and the next turn comes, a turn that hangs is not waited for, and each thread is one."""

from __future__ import annotations

import ast
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gputop.system import worker as workers
from gputop.system.worker import Retired, Worker, once
from tests.support.waiting import until

PATIENCE_S = 10.0
PACKAGE = Path(workers.__file__).parents[1]


class Gate:
    """An answer that does not come before it is opened."""

    def __init__(self) -> None:
        self.reached, self.opened = threading.Event(), threading.Event()


@contextmanager
def working(
    answers: list[object], close: threading.Event | None = None
) -> Iterator[tuple[Worker[object], threading.Event]]:
    """A worker that gives these answers, one a turn: an error is raised, a gate is waited at."""
    done = threading.Event()

    def work() -> object:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, Gate):
            answer.reached.set()
            answer.opened.wait(PATIENCE_S)
        return answer

    worker: Worker[object] = Worker("test", work, done.set, close=close.set if close else None)
    try:
        yield worker, done
    finally:
        worker.stop()


def finish(worker: Worker[object], done: threading.Event) -> None:
    assert done.wait(PATIENCE_S)
    done.clear()
    assert worker.busy_since is None


def deep() -> int:
    return 1 + deep()


@pytest.mark.parametrize("error", [ValueError("bad"), MemoryError(), RecursionError()])
def test_an_error_is_kept_and_the_next_turn_clears_it(error: Exception) -> None:
    with working([error, "good"]) as (worker, done):
        worker.ask()
        finish(worker, done)
        assert worker.error is error and worker.latest is None
        worker.ask()
        finish(worker, done)
        assert (worker.latest, worker.error, worker.turns) == ("good", None, 2)


def test_a_worker_outlives_what_recurses_without_end_in_its_work_and_after_it() -> None:
    calls: list[str] = []
    enough = threading.Event()

    def call(name: str) -> Callable[[], int]:
        def call() -> int:
            calls.append(name)
            if len(calls) >= 9:
                enough.set()
            return deep()

        return call

    worker: Worker[int] = Worker("test", call("work"), call("done"), again=call("again"), close=call("close"))
    worker.ask()
    assert enough.wait(PATIENCE_S)
    worker.stop(PATIENCE_S)
    assert not worker.alive and calls[-1] == "close" and isinstance(worker.error, RecursionError)
    assert {"work", "done"} <= {*calls}


def test_no_thread_begins_before_the_first_turn_is_asked_for() -> None:
    with working(["one"]) as (worker, done):
        worker.wake()
        assert not worker.alive and worker.busy_since is None
        worker.ask()
        finish(worker, done)
        assert worker.alive


def test_a_turn_that_is_asked_for_during_another_follows_it() -> None:
    gate = Gate()
    with working([gate, "second"]) as (worker, _):
        worker.ask()
        assert gate.reached.wait(PATIENCE_S)
        since = worker.busy_since
        worker.ask()
        assert worker.busy_since == since
        gate.opened.set()
        until(lambda: worker.latest == "second")
        assert (worker.latest, worker.turns) == ("second", 2)


def test_many_that_ask_at_once_get_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    before, start = {*threading.enumerate()}, threading.Thread.start

    def slowly(thread: threading.Thread) -> None:
        if thread.name == "gputop-test":
            time.sleep(0.05)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", slowly)
    gate = Gate()
    with working([gate, "second"]) as (worker, _):
        askers = [threading.Thread(target=worker.ask) for _ in range(20)]
        for each in askers:
            each.start()
        for each in askers:
            each.join()
        assert [thread.name for thread in {*threading.enumerate()} - before] == ["gputop-test"]
        gate.opened.set()


def test_a_worker_that_is_told_when_to_go_on_does() -> None:
    turns: list[float] = []
    enough = threading.Event()

    def work() -> None:
        turns.append(time.monotonic())
        if len(turns) == 3:
            enough.set()

    worker: Worker[None] = Worker("test", work, again=lambda: 0.0 if len(turns) < 3 else None)
    worker.ask()
    assert enough.wait(PATIENCE_S)
    worker.stop(PATIENCE_S)
    assert len(turns) == 3 and not worker.alive


def test_an_error_is_not_met_over_and_over_without_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    failed, ended = threading.Event(), threading.Event()
    monkeypatch.setattr(workers, "AFTER_ERROR_S", 3600.0)

    def work() -> None:
        if failed.is_set():
            ended.set()
        failed.set()
        raise ValueError

    worker: Worker[None] = Worker("test", work, again=0.0)
    worker.ask()
    assert failed.wait(PATIENCE_S)
    assert not ended.wait(0.2)
    worker.stop(PATIENCE_S)
    assert not worker.alive and worker.turns == 1


def test_stopping_closes_on_the_working_thread_and_ends_it() -> None:
    closed = threading.Event()
    with working(["one"], closed) as (worker, done):
        worker.ask()
        finish(worker, done)
        worker.stop()
        assert closed.wait(PATIENCE_S)
        worker.stop(PATIENCE_S)
        assert not worker.alive
        worker.ask()
        assert not worker.alive and worker.busy_since is None


def test_a_worker_that_ends_itself_does_not_wait_for_itself() -> None:
    worker: Worker[None] = Worker("test", lambda: worker.stop(3600.0))
    worker.ask()
    until(lambda: not worker.alive)
    assert not worker.alive and worker.turns == 1 and worker.error is None


def test_the_end_is_not_waited_for_while_a_turn_hangs() -> None:
    gate, closed = Gate(), threading.Event()
    with working([gate], closed) as (worker, _):
        worker.ask()
        assert gate.reached.wait(PATIENCE_S)
        worker.stop(0.05)
        assert worker.alive and worker.busy_since is not None and not closed.is_set()
        gate.opened.set()
        assert closed.wait(PATIENCE_S)


def test_a_retired_thread_leaves_what_another_uses_open() -> None:
    closed = threading.Event()
    with working([Retired()], closed) as (worker, done):
        worker.ask()
        until(lambda: not worker.alive)
        assert not worker.alive and not closed.is_set() and not done.is_set() and worker.error is None


def test_work_that_is_done_once_ends_its_thread_and_an_error_goes_nowhere(capfd: pytest.CaptureFixture[str]) -> None:
    worker = once("test", deep)
    until(lambda: not worker.alive)
    assert not worker.alive and isinstance(worker.error, RecursionError) and worker.turns == 1
    assert capfd.readouterr().err == ""


def test_a_program_ends_though_a_worker_hangs() -> None:
    code = """
import os, threading
from gputop.system.worker import Worker, once
reached = threading.Event()
def hangs(): reached.set(); os.read(os.pipe()[0], 1)
Worker("test", hangs, close=lambda: print("closed")).ask()
once("test", lambda: threading.Event().wait())
reached.wait()
print("ends")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60.0, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ends\n", "")


def test_where_no_thread_can_be_started_that_is_raised_and_nothing_seems_under_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with working(["one"]) as (worker, done):
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", start)
            with pytest.raises(RuntimeError):
                worker.ask()
        assert worker.busy_since is None and not worker.alive
        worker.ask()
        finish(worker, done)


OWN_THREADS = {
    "system/worker.py": "the worker itself",
    "api/watcher.py": "inside somebody's training: any end of it, also SystemExit, becomes a reason that is logged",
    "features/fleet/engine_client.py": "a pool of the standard library: one refresh waits for all answers",
    "features/fleet/http_wire.py": "a timer that closes connections at the deadline of an answer",
    "features/traces/chunks.py": "a pool of the standard library: the next piece is unpacked while one is decoded",
    "features/export/scrape_server.py": "the standard library's thread for each connection",
    "features/prove/cuda_program.py": "a program of its own: reads its stdin, whose end ends it",
    "sources/activity/counters/helper.py": "a program of its own: reads its stdin",
    "sources/activity/counters/counter_thread.py": "the same program: one GPU's counters a thread",
    "tui/terminal/driver.py": "writes to a terminal that may take nothing; the loop goes on without it",
    "tui/terminal/guard.py": "the last resort for the terminal: needs nothing that may wait or fail",
}
"""Where threads begin, and why not as a worker: docs/design/architecture.md says the same."""


def starts_threads(path: Path) -> bool:
    names = {"Thread", "Timer", "ThreadPoolExecutor", "ThreadingMixIn", "start_new_thread"}
    text = path.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(text)) if any(name in text for name in names) else ():
        used = [node.func] if isinstance(node, ast.Call) else node.bases if isinstance(node, ast.ClassDef) else []
        if any(getattr(each, "attr", getattr(each, "id", "")) in names for each in used):
            return True
    return False


def test_every_thread_is_a_workers_or_one_that_has_a_reason_not_to_be() -> None:
    found = {str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.py") if starts_threads(path)}
    assert found == OWN_THREADS.keys()
