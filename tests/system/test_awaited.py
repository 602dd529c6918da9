"""Work on daemon threads that a coroutine awaits, with a loop and without one."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from gputop.system.awaited import Awaited, News, RunHere, run_here
from gputop.system.worker import once
from tests.support.waiting import until

PATIENCE_S = 5.0


def in_a_loop(coroutine: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(coroutine)


both = pytest.mark.parametrize("run", [run_here, in_a_loop])


@both
def test_a_turn_is_awaited_and_its_result_is_there(run: Callable[..., Any]) -> None:
    call = Awaited("answer", lambda: 42)

    async def asks() -> tuple[bool, int | None]:
        call.ask()
        return await call.ended(PATIENCE_S), call.latest

    assert run(asks()) == (True, 42)
    call.stop(PATIENCE_S)


@both
def test_a_turn_that_hangs_is_waited_for_no_longer_than_said(run: Callable[..., Any]) -> None:
    hangs = threading.Event()
    call = Awaited("hangs", lambda: hangs.wait(PATIENCE_S))

    async def asks() -> list[bool]:
        call.ask()
        first = await call.ended(0.02)
        assert call.busy_since is not None
        hangs.set()
        return [first, await call.ended(PATIENCE_S)]

    begun = time.monotonic()
    assert run(asks()) == [False, True]
    assert time.monotonic() - begun < PATIENCE_S
    call.stop(PATIENCE_S)


@both
def test_each_turn_is_taken_once(run: Callable[..., Any]) -> None:
    call = Awaited("counts", lambda: None)

    async def asks() -> list[bool]:
        call.ask()
        return [await call.ended(PATIENCE_S), await call.ended(0.01)]

    assert run(asks()) == [True, False]
    call.stop(PATIENCE_S)


@both
def test_news_of_another_worker_end_a_wait(run: Callable[..., Any]) -> None:
    news, hangs = News(), threading.Event()
    slow = Awaited("slow", lambda: hangs.wait(PATIENCE_S), news=news)
    quick = Awaited("quick", lambda: None, news=news)

    async def asks() -> bool:
        slow.ask()
        quick.ask()
        return await slow.ended(PATIENCE_S, unless=lambda: quick.has_ended)

    begun = time.monotonic()
    assert run(asks()) is False
    assert time.monotonic() - begun < PATIENCE_S
    hangs.set()
    for worker in (slow, quick):
        worker.stop(PATIENCE_S)


@both
def test_stopping_a_worker_ends_the_wait_for_it(run: Callable[..., Any]) -> None:
    call: Awaited[None] = Awaited("idle", lambda: None)

    async def waits() -> bool:
        threading.Timer(0.02, call.stop).start()
        return await call.ended(60.0)

    assert run(waits()) is False


def test_a_coroutine_runs_here_also_within_a_loop() -> None:
    """A notebook's cell runs in a loop, and asks for one reading there."""
    call = Awaited("answer", lambda: 42)

    async def asks() -> bool:
        call.ask()
        return await call.ended(PATIENCE_S)

    async def cell() -> bool:
        return run_here(asks())

    assert asyncio.run(cell())
    call.stop(PATIENCE_S)


def test_a_cancelled_run_ends_where_it_waits_and_leaves_what_it_holds() -> None:
    left = threading.Event()

    async def waits() -> None:
        try:
            await News().wait(60.0)
        finally:
            left.set()

    here = RunHere(waits())
    thread = once("here", here.run)
    until(lambda: here._waits_on is not None)
    here.cancel()
    assert left.wait(PATIENCE_S)
    until(lambda: not thread.alive)


def test_a_cancelled_wait_in_a_loop_leaves_the_turn_running() -> None:
    hangs = threading.Event()
    call = Awaited("hangs", lambda: hangs.wait(PATIENCE_S))

    async def cancelled() -> None:
        call.ask()
        task = asyncio.create_task(call.ended(60.0))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    assert call.busy_since is not None
    # The loop is closed by now, and takes no more calls.
    hangs.set()
    until(lambda: call.turns == 1)
    assert call.error is None
    call.stop(PATIENCE_S)


def test_what_needs_a_loop_is_refused_without_one() -> None:
    async def sleeps() -> None:
        await asyncio.sleep(1.0)

    async def waits() -> None:
        future: asyncio.Future[None] = asyncio.Future(loop=asyncio.new_event_loop())
        await future

    with pytest.raises(RuntimeError):
        run_here(sleeps())
    with pytest.raises(RuntimeError, match="needs a loop"):
        run_here(waits())


def test_neither_the_module_nor_a_run_imports_asyncio() -> None:
    program = (
        "import sys; from gputop.system.awaited import Awaited, run_here\n"
        "call = Awaited('answer', lambda: 42); call.ask()\n"
        "assert run_here(call.ended(5.0)); assert 'asyncio' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_run_that_is_cancelled_before_it_begins_leaves_no_coroutine_behind() -> None:
    begun: list[bool] = []

    async def never() -> None:
        begun.append(True)

    coroutine = never()
    run = RunHere(coroutine)
    run.cancel()
    assert inspect.getcoroutinestate(coroutine) == inspect.CORO_CLOSED
    assert run.run() is None and begun == []
