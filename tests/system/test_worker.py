"""Workers: an error is kept and the next turn comes, a turn that hangs is not waited for, and each thread is one."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from gputop.system.worker import Worker
from tests.support.waiting import until

PATIENCE_S = 10.0


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


@pytest.mark.parametrize("error", [ValueError("bad"), MemoryError(), RecursionError()])
def test_an_error_is_kept_and_the_next_turn_clears_it(error: Exception) -> None:
    with working([error, "good"]) as (worker, done):
        worker.ask()
        finish(worker, done)
        assert worker.error is error and worker.latest is None
        worker.ask()
        finish(worker, done)
        assert (worker.latest, worker.error, worker.turns) == ("good", None, 2)


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


def test_the_end_is_not_waited_for_while_a_turn_hangs() -> None:
    gate, closed = Gate(), threading.Event()
    with working([gate], closed) as (worker, _):
        worker.ask()
        assert gate.reached.wait(PATIENCE_S)
        worker.stop(0.05)
        assert worker.alive and worker.busy_since is not None and not closed.is_set()
        gate.opened.set()
        assert closed.wait(PATIENCE_S)


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
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60.0, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "ends\n", "")
