"""Threads of a process: read while its details are open, and the screens that `enter` and a click open on a process."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from gputop.model.inspection import ProcessIdentity, ThreadList
from gputop.monitor import Monitor
from gputop.paint.process_page import find
from gputop.paint.process_table import key_of
from gputop.paint.view import View
from gputop.sources.processes.on_demand import requested_looks
from gputop.sources.processes.on_demand.requested_looks import (
    MOST_LISTED_THREADS,
    PROCESS_GONE,
    ThreadWatch,
    read_threads,
)
from gputop.tui.node_app import GputopApp
from gputop.tui.screens.detail_screens import ProcessDetailsScreen
from tests.support.fake_app import app_on, hand_in, playback_on, screen_rows, screen_text
from tests.support.frames import demo_frame
from tests.support.scenes import SOME_THREADS, gpu, snap, train
from tests.support.steady_pilot import shown
from tests.support.waiting import until


def _fake(
    proc: Path, pid: int, tids: dict[int, tuple[str, str, str, str]], starttime: int = 500
) -> None:
    """A process in a made-up /proc: tid → (name, state, schedstat, wait channel)."""
    tail = " ".join(
        ["0"] * 7 + ["5", "5"] + ["0"] * 4 + [str(len(tids)), "0", str(starttime), "0", "100"]
    )
    (proc / str(pid)).mkdir(parents=True, exist_ok=True)
    (proc / str(pid) / "stat").write_text(f"{pid} (x) S 1 1 1 {tail}")
    for tid, (name, state, schedstat, channel) in tids.items():
        task = proc / str(pid) / "task" / str(tid)
        task.mkdir(parents=True, exist_ok=True)
        (task / "stat").write_text(f"{tid} ({name}) {state} 1 1 1 {tail}")
        (task / "schedstat").write_text(schedstat)
        (task / "wchan").write_text(channel)


def test_rates_of_threads_come_from_two_readings(tmp_path: Path) -> None:
    _fake(
        tmp_path,
        9,
        {9: ("main", "S", "1000000000 0 5", "futex_wait_queue"), 7: ("a (b) c", "R", "0 0 1", "0")},
    )
    first = read_threads(9, 500, None, 100.0, str(tmp_path))
    assert [(t.tid, t.name, t.run_pct) for t in first.threads] == [
        (9, "main", None),
        (7, "a (b) c", None),
    ]
    assert [t.waiting_on for t in first.threads] == ["lock", None]
    _fake(
        tmp_path,
        9,
        {9: ("main", "S", "2000000000 500000000 9", "0"), 7: ("a (b) c", "R", "0 0 1", "0")},
    )
    second = read_threads(9, 500, first, 102.0, str(tmp_path))
    assert (second.threads[0].run_pct, second.threads[0].wait_pct) == (50.0, 25.0)


def test_another_process_with_the_same_pid_is_never_read(tmp_path: Path) -> None:
    _fake(tmp_path, 9, {9: ("other", "S", "1 1 1", "0")}, starttime=501)
    assert read_threads(9, 500, None, 1.0, str(tmp_path)) == ThreadList(1.0, reason=PROCESS_GONE)
    assert read_threads(8, 500, None, 1.0, str(tmp_path)).reason == PROCESS_GONE


def test_very_many_threads_are_counted_but_not_all_read(tmp_path: Path) -> None:
    _fake(
        tmp_path, 9, dict.fromkeys(range(9, 9 + MOST_LISTED_THREADS + 20), ("t", "S", "1 1 1", "0"))
    )
    listed = read_threads(9, 500, None, 1.0, str(tmp_path))
    assert (len(listed.threads), listed.total) == (MOST_LISTED_THREADS, MOST_LISTED_THREADS + 20)


def test_the_watch_reads_this_very_process_and_ends() -> None:
    times = iter(range(100))
    watch = ThreadWatch(os.getpid(), None, clock=lambda: float(next(times)))
    watch.ask()
    until(lambda: watch.latest is not None)
    assert watch.latest is not None and watch.latest.threads[0].tid == os.getpid()
    threads = [thread for thread in threading.enumerate() if thread.name == "gputop-threads"]
    watch.close()
    for thread in threads:
        thread.join(10.0)
    assert threads and not any(thread.is_alive() for thread in threads)


def test_an_error_while_threads_are_read_is_told_and_the_next_reading_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers: list[ThreadList | Exception] = [RecursionError(), ThreadList(1.0, total=3, reason="x")]

    def read(*_: object) -> ThreadList:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(requested_looks, "read_threads", read)
    watch = ThreadWatch(os.getpid(), None)
    try:
        for wanted in ("its threads cannot be read: RecursionError", "x"):
            watch.ask()
            until(lambda: watch.latest is not None and watch.latest.reason == wanted)  # noqa: B023
    finally:
        watch.close()


class Reader:
    """Hands out one list of threads, and knows whether it was closed."""

    def __init__(self, identity: ProcessIdentity) -> None:
        self.identity = identity
        self.latest: ThreadList | None = None
        self.asked, self.closed = 0, False

    def ask(self) -> None:
        self.asked += 1

    def close(self) -> None:
        self.closed = True


class Access:
    """Reaches no process but hands out readers of threads."""

    def __init__(self) -> None:
        self.readers: list[Reader] = []

    def watch_threads(self, identity: ProcessIdentity) -> Reader:
        self.readers.append(Reader(identity))
        return self.readers[-1]


def _main_screen(access: Access | None = None, view: View | None = None) -> GputopApp:
    return GputopApp(view or View(), "dark", playback_on(demo_frame()), access=access)  # type: ignore[arg-type]


async def test_the_screen_reads_threads_while_it_is_open() -> None:
    p = next(p for p in demo_frame().snapshot.processes if p.role == "gpu")
    access = Access()
    app = _main_screen(access, View(process=key_of(p)))
    async with shown(app, (120, 60)) as pilot:
        await pilot.press("enter")
        assert "reading them" in "\n".join(screen_rows(app))
        (reader,) = access.readers
        assert reader.identity == ProcessIdentity(p.pid, p.starttime) and reader.asked
        reader.latest = SOME_THREADS
        screen = app.screen
        assert isinstance(screen, ProcessDetailsScreen)
        screen._look()
        assert "cuda-EvtHandlr" in "\n".join(screen_rows(app))
        await pilot.press("escape")
        await pilot.pause()
        assert reader.closed
        assert not isinstance(app.screen, ProcessDetailsScreen)


async def test_the_screen_remembers_a_process_that_ends_while_it_is_looked_at() -> None:
    monitor = Monitor()
    p = train()
    app, source = app_on(monitor.feed(snap(0, gpu(), [p])))
    async with shown(app, (100, 40)) as pilot:
        await pilot.press("enter")
        await hand_in(app, source, pilot, [snap(1, gpu(), [])])
        assert app.frame is not None and find(app.frame, key_of(p)) is None
        screen = app.screen
        assert isinstance(screen, ProcessDetailsScreen)
        screen._look()
        assert "has ended" in screen_rows(app)[1] and "python train.py" in "\n".join(
            screen_rows(app)
        )


async def test_a_demo_has_no_threads_to_read_and_live_has() -> None:
    access = Access()
    for app, words in ((_main_screen(), "not recorded"), (_main_screen(access), "reading them")):
        async with shown(app, (140, 90)) as pilot:
            await pilot.press("home", "enter")
            assert words in screen_text(app)
    assert len(access.readers) == 1
