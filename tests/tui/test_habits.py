"""Sixty things that people do in other tops, vim and less, each with the same or a more obvious key.

Here are those that move, sort, search and filter; ``test_habits_acting`` has the rest.
"""

from __future__ import annotations

import pytest

from gputop.paint.process_table import shown_rows
from gputop.tui.screens.pages import HelpScreen
from tests.support.fake_app import screen_text, wheel
from tests.support.frames import demo_frame
from tests.support.habit_screen import cursor, order, screen_after


@pytest.mark.parametrize("key", ["q", "ctrl+c"])
async def test_01_quit(key: str) -> None:
    async with screen_after(key) as (app, _):
        pass
    assert app.return_code == 0


@pytest.mark.parametrize("key", ["h", "question_mark", "f1"])
async def test_02_help_lists_every_key(key: str) -> None:
    async with screen_after(key) as (app, _):
        assert isinstance(app.screen, HelpScreen)
        await app.screen.run_action("scroll(1)")
        assert "F9" in "\n".join("".join(t for t, _ in row) for row in app.screen.rows(100))


@pytest.mark.parametrize(("down", "up"), [("down", "up"), ("j", "k")])
async def test_03_move_through_the_processes(down: str, up: str) -> None:
    async with screen_after("home") as (app, pilot):
        await pilot.press(down, down, up)
        assert cursor(app) == 1


async def test_04_jump_by_pages_and_to_both_ends() -> None:
    async with screen_after("end") as (app, pilot):
        last = cursor(app)
        await pilot.press("pageup")
        assert cursor(app) < last
        await pilot.press("home")
        assert cursor(app) == 0


async def test_05_scroll_with_the_wheel() -> None:
    async with screen_after("t") as (app, pilot):
        wheel(app)
        await pilot.pause()
        assert app.view.scroll == 3


async def test_06_select_with_a_click() -> None:
    async with screen_after() as (app, pilot):
        row = next(i for i, line in enumerate(screen_text(app).splitlines()) if " 4901 " in line)
        await pilot.click(offset=(30, row))
        assert app.view.process is not None and app.view.process[0] == 4901


async def test_07_sort_with_a_click_on_a_head_and_invert_with_another() -> None:
    async with screen_after() as (app, pilot):
        lines = screen_text(app).splitlines()
        head = next(i for i, line in enumerate(lines) if "GPU-MEM" in line and "PID" in line)
        await pilot.click(offset=(lines[head].index("CPU%"), head))
        assert (app.view.sort, app.view.inverted) == ("cpu_pct", False)
        await pilot.click(offset=(lines[head].index("CPU%"), head))
        assert app.view.inverted


LETTERS = {
    "m": "gpu_mem_bytes", "t": "gpu_time_pct", "c": "cpu_pct", "r": "rss_bytes", "a": "age_s", "p": "pid", "u": "user",
    "n": "command", "g": "gpu",
}  # fmt: skip


async def test_08_to_16_sort_by_a_letter() -> None:
    async with screen_after() as (app, pilot):
        for letter, key in LETTERS.items():
            await pilot.press("o", letter)
            assert app.view.sort == key
            values = [getattr(p.process, key, None) for p in shown_rows(demo_frame(), app.view) if not p.branch]
            known = [v for v in values if v is not None]
            assert known == sorted(known, reverse=key not in ("gpu", "pid")), key


async def test_17_sort_by_the_next_column() -> None:
    async with screen_after("full_stop") as (app, _):
        assert app.view.sort == "gpu"


async def test_18_invert_the_order() -> None:
    async with screen_after("o", "p") as (app, pilot):
        before = order(app)
        await pilot.press("I")
        assert order(app) == before[::-1]


async def test_19_open_and_close_the_tree() -> None:
    async with screen_after("f5") as (app, pilot):
        opened = len(shown_rows(demo_frame(), app.view))
        await pilot.press("t")
        assert len(shown_rows(demo_frame(), app.view)) < opened
        assert app.view.tree == "none"


async def test_20_search_while_typing() -> None:
    async with screen_after("slash", *"fsdp", "enter") as (app, _):
        assert app.view.process is not None and app.view.process[0] == 4901


async def test_21_next_and_previous_match() -> None:
    async with screen_after("home", "slash", *"slurm", "enter") as (app, pilot):
        first = cursor(app)
        await pilot.press("f3")
        second = cursor(app)
        assert second > first
        await pilot.press("shift+f3")
        assert cursor(app) == first


async def test_22_filter_and_see_what_is_filtered() -> None:
    async with screen_after("f4", *"user:rl", "enter") as (app, _):
        assert order(app) == [4711]
        assert "pass user:rl" in screen_text(app)


async def test_23_take_the_filter_away() -> None:
    async with screen_after("f", *"user:rl", "enter", "escape") as (app, _):
        assert len(order(app)) == 8


async def test_24_one_users_processes() -> None:
    async with screen_after("u", "enter") as (app, _):
        assert app.view.filter.text == "user:ml"
        assert 4711 not in order(app)


async def test_25_the_processes_of_one_gpu() -> None:
    async with screen_after("f", *"gpu:5", "enter") as (app, _):
        assert order(app) == [6001]
