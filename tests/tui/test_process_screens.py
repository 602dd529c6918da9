"""The screens that keys open on processes: what they ask before they act, and what they leave untouched."""

from __future__ import annotations

import signal
import subprocess
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace
from textual.widgets import Input, Label

from gputop.command_line.screen import first_view
from gputop.config import Settings
from gputop.model.inspection import DeepLook, ProcessIdentity
from gputop.model.snapshot import CgroupName, ProcessSample, ProcessStatic
from gputop.monitor import Frame
from gputop.paint.cells import cells
from gputop.paint.glyphs import ASCII, COLOUR, Glyphs
from gputop.paint.process_columns import COLUMNS, DEFAULT
from gputop.paint.process_filter import parse
from gputop.paint.terminal_kind import choose
from gputop.paint.view import View
from gputop.sources.processes.on_demand.control import ProcessControl
from gputop.sources.procfs import parse_stat, read_small
from gputop.tui.screens.process_screens import (
    ColumnsScreen,
    EnvironmentScreen,
    SignalScreen,
    StacksScreen,
)
from gputop.tui.screens.prompt import Prompt
from tests.support.fake_app import Asked, app_on, screen_text
from tests.support.frames import demo_frame
from tests.support.steady_pilot import shown

SIZE = (160, 48)


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "600"])
    yield process
    process.kill()
    process.wait()


def _frame_with(pid: int, starttime: int | None) -> Frame:
    frame = demo_frame()
    process = ProcessSample(
        pid,
        starttime,
        gpu=0,
        gpu_mem_bytes=1e9,
        static=ProcessStatic(user="ml", command="sleep 600"),
    )
    return replace(frame, snapshot=replace(frame.snapshot, processes=(process,)))


def _starttime(pid: int) -> int:
    stat = parse_stat(read_small(f"/proc/{pid}/stat"))
    assert stat is not None
    return stat.starttime


async def test_a_real_process_is_ended_only_after_the_question_was_answered(
    child: subprocess.Popen[bytes],
) -> None:
    app, _ = app_on(_frame_with(child.pid, _starttime(child.pid)))
    app.access = ProcessControl()
    async with shown(app, SIZE) as pilot:
        await pilot.press("f9", "y", "enter")
        assert f"Send SIGTERM to process {child.pid}?" in screen_text(app)
        assert "ml" in screen_text(app) and "sleep 600" in screen_text(app)
        await pilot.press("enter", "n", "enter")
        assert child.poll() is None
        await pilot.press("y")
        assert child.wait(10) == -signal.SIGTERM
        await pilot.pause()
        assert not isinstance(app.screen, SignalScreen)
        assert app.view.message == f"SIGTERM sent to process {child.pid}"


async def test_a_process_that_was_replaced_is_spared_and_the_screen_says_so(
    child: subprocess.Popen[bytes],
) -> None:
    app, _ = app_on(_frame_with(child.pid, _starttime(child.pid) - 7))
    app.access = ProcessControl()
    async with shown(app, SIZE) as pilot:
        await pilot.press("f9", "enter", "y")
        assert "not sent: it has ended and its pid belongs to another process" in screen_text(app)
        assert child.poll() is None


async def test_a_refusal_stays_on_the_screen_until_it_was_read() -> None:
    app, _ = app_on(access=Asked(refuse="permission denied: it belongs to ops"))
    async with shown(app, SIZE) as pilot:
        await pilot.press("f9", "enter", "y", "y", "down")
        assert "not sent: permission denied: it belongs to ops" in screen_text(app)
        await pilot.press("escape")
        assert not isinstance(app.screen, SignalScreen)


async def test_the_same_process_on_two_gpus_gets_one_signal() -> None:
    frame = demo_frame()
    one = next(p for p in frame.snapshot.processes if p.role == "gpu")
    both = (one, replace(one, gpu=7))
    asked = Asked()
    app, _ = app_on(replace(frame, snapshot=replace(frame.snapshot, processes=both)), access=asked)
    async with shown(app, SIZE) as pilot:
        await pilot.press("home", "space", "space", "f9", "enter", "y")
        assert asked.sent == [(one.pid, signal.SIGTERM)]
        assert app.view.tagged == frozenset()


async def test_what_needs_live_processes_says_so_in_a_demo() -> None:
    app, _ = app_on()
    async with shown(app, SIZE) as pilot:
        for key in ("f9", "e", "d"):
            await pilot.press(key)
            assert "cannot be reached" in (app.view.message or "")
            assert len(app.screen_stack) == 1


async def test_secrets_are_masked_until_v_and_found_only_then() -> None:
    app, _ = app_on(access=Asked())
    async with shown(app, SIZE) as pilot:
        await pilot.press("e")
        assert isinstance(app.screen, EnvironmentScreen)
        assert "hf_abc" not in screen_text(app) and "OMP_NUM_THREADS" in screen_text(app)
        await pilot.press("v")
        assert "hf_abc" in screen_text(app)
        await pilot.press("slash", *"omp", "enter")
        assert "HF_TOKEN" not in screen_text(app) and "OMP_NUM_THREADS" in screen_text(app)


async def test_a_deep_look_asks_about_the_selected_process_and_its_busiest_loader() -> None:
    frame = demo_frame()
    parent = next(p for p in frame.snapshot.processes if p.pid == 4802)
    loaders = [p for p in frame.shown.processes if p.ppid == 4802]
    busiest = max(loaders, key=lambda p: p.cpu_pct or 0.0)
    asked = Asked()
    app, _ = app_on(view=View(process=(4802, parent.starttime, parent.gpu)), access=asked)
    async with shown(app, SIZE) as pilot:
        await pilot.press("d")
        assert isinstance(app.screen, StacksScreen)
        screen = app.screen
        for _ in range(100):
            await pilot.pause(0.01)
            if screen._inspection is not None:
                break
        assert asked.looked == [
            (
                ProcessIdentity(4802, parent.starttime),
                ProcessIdentity(busiest.pid, busiest.starttime),
            )
        ]
        assert "forward" in screen_text(app) and "3 of 3 looks" in screen_text(app)
        assert "py-spy record" in screen_text(app) and "nsys profile" in screen_text(app)


async def test_a_deep_look_that_fails_is_said_and_can_be_taken_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked, look, answers = Asked(), Asked.look, [RecursionError(), None]

    def fails_first(self: Asked, *given: Any) -> DeepLook:
        if (error := answers.pop(0)) is not None:
            raise error
        return look(self, *given)

    monkeypatch.setattr(Asked, "look", fails_first)
    app, _ = app_on(access=asked)
    async with shown(app, SIZE) as pilot:
        for wanted in ("has failed: RecursionError", "3 of 3 looks"):
            await pilot.press("d")
            for _ in range(500):
                await pilot.pause(0.01)
                if wanted in screen_text(app):
                    break
            assert wanted in screen_text(app)
        threads = [thread for thread in threading.enumerate() if thread.name == "gputop-look"]
        await pilot.press("escape")
    for thread in threads:
        thread.join(10.0)
    assert len(threads) == 1 and not threads[0].is_alive()


async def test_a_filter_acts_while_it_is_typed_and_escape_brings_the_old_one_back() -> None:
    app, _ = app_on(view=View(filter=parse("gpu:1")))
    async with shown(app, SIZE) as pilot:
        await pilot.press("f")
        app.screen.query_one(Input).value = "gpu:3"
        await pilot.pause()
        assert app.view.filter.text == "gpu:3"
        app.screen.query_one(Input).value = "gpuu:3"
        await pilot.pause()
        assert "did you mean gpu?" in str(app.screen.query_one("#mistake", Label).content)
        await pilot.press("enter")
        assert isinstance(app.screen, Prompt)
        await pilot.press("escape")
        assert app.view.filter.text == "gpu:1"


async def test_columns_are_chosen_moved_reset_and_left_alone() -> None:
    app, _ = app_on()
    async with shown(app, SIZE) as pilot:
        await pilot.press("f2", "space", "down", "greater_than_sign", "enter")
        assert "gpu" not in app.view.columns
        assert app.view.columns.index("gpu_mem_bytes") < app.view.columns.index("user")
        await pilot.press("f2", "r", "enter")
        assert app.view.columns == DEFAULT
        await pilot.press("f2", "space", "escape")
        assert app.view.columns == DEFAULT
        await pilot.press("f2", "end")
        assert isinstance(app.screen, ColumnsScreen)
        assert list(COLUMNS)[-1] in screen_text(app)


@pytest.mark.parametrize(
    ("glyphs", "size"),
    [
        (COLOUR, (80, 24)),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (
                (COLOUR, (40, 10)), (COLOUR, (160, 48)), (ASCII, (40, 10)), (ASCII, (80, 24)), (ASCII, (160, 48)),
            )
        ),
    ],
    ids=lambda value: getattr(value, "name", None),
)  # fmt: skip
async def test_every_screen_is_full_and_safe_at_every_size(
    size: tuple[int, int], glyphs: Glyphs
) -> None:
    frame = demo_frame()
    hostile = ProcessStatic(
        user="\x1b[31mröot",
        command="漢字 \u202e[bold]\n" * 300,
        name="e\u0301",
        batch_job=CgroupName("\x07j"),
    )
    processes = tuple(replace(p, static=hostile) for p in frame.snapshot.processes)
    app, _ = app_on(
        replace(frame, snapshot=replace(frame.snapshot, processes=processes)),
        View(glyphs=glyphs),
        Asked(),
    )
    async with shown(app, size) as pilot:
        for key in ("e", "d", "u", "f2", "f9"):
            await pilot.press(key)
            assert len(app.screen_stack) == 2, key
            for more in ("end", "enter" if key == "f9" else "home"):
                await pilot.press(more)
                rows = screen_text(app).splitlines()
                assert [cells(row) for row in rows] == [size[0]] * size[1]
                assert all(
                    row.isprintable() and (row.isascii() or glyphs is COLOUR) for row in rows
                )
            await pilot.press("escape", *(["escape"] if key == "f9" else []))
            assert len(app.screen_stack) == 1, key


def test_the_configurations_columns_are_the_screens() -> None:
    settings = Settings(columns=("pid", "cpu_pct", "command"))
    terminal = choose(
        {"TERM": "xterm-256color"}, "utf-8", theme="dark", ascii_only=False, no_color=False
    )
    assert first_view(settings, terminal).columns == ("pid", "cpu_pct", "command")
    assert first_view(Settings(), terminal).columns == DEFAULT
