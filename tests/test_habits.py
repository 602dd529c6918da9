"""Sixty things that people do in other tops, vim and less, each with the same or a more obvious key."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from textual.pilot import Pilot

from gputop.commands.overview import overview
from gputop.commands.topics import page_of
from gputop.monitor import Frame
from gputop.output.reference.page import plain
from gputop.paint import process_table
from gputop.paint.process_table import shown_rows
from gputop.paint.view import View
from gputop.tui.app import GputopApp, SnapshotReady
from gputop.tui.screens.help import HelpScreen
from tests.support.fake_app import Asked, app_on, later, screen_text, wheel
from tests.support.frames import demo_frame


@asynccontextmanager
async def _screen(
    *keys: str, view: View | None = None, access: Asked | None = None, frame: Frame | None = None
) -> AsyncIterator[tuple[GputopApp, Pilot[int]]]:
    """The demo's screen after some keys."""
    app, _ = app_on(frame, view, access)
    async with app.run_test(size=(160, 48)) as pilot:
        await pilot.press(*keys)
        yield app, pilot


def _order(app: GputopApp) -> list[int]:
    assert app.frame is not None
    return [shown.process.pid for shown in shown_rows(app.frame, app.view) if not shown.branch]


def _cursor(app: GputopApp) -> int:
    assert app.frame is not None
    return process_table.cursor(shown_rows(app.frame, app.view), app.frame, app.view)


@pytest.mark.parametrize("key", ["q", "ctrl+c"])
async def test_01_quit(key: str) -> None:
    async with _screen(key) as (app, _):
        pass
    assert app.return_code == 0


@pytest.mark.parametrize("key", ["h", "question_mark", "f1"])
async def test_02_help_lists_every_key(key: str) -> None:
    async with _screen(key) as (app, _):
        assert isinstance(app.screen, HelpScreen)
        await app.screen.run_action("scroll(1)")
        assert "F9" in "\n".join("".join(t for t, _ in row) for row in app.screen.rows(100))


@pytest.mark.parametrize(("down", "up"), [("down", "up"), ("j", "k")])
async def test_03_move_through_the_processes(down: str, up: str) -> None:
    async with _screen("home") as (app, pilot):
        await pilot.press(down, down, up)
        assert _cursor(app) == 1


async def test_04_jump_by_pages_and_to_both_ends() -> None:
    async with _screen("end") as (app, pilot):
        last = _cursor(app)
        await pilot.press("pageup")
        assert _cursor(app) < last
        await pilot.press("home")
        assert _cursor(app) == 0


async def test_05_scroll_with_the_wheel() -> None:
    async with _screen("t") as (app, pilot):
        wheel(app)
        await pilot.pause()
        assert app.view.scroll == 3


async def test_06_select_with_a_click() -> None:
    async with _screen() as (app, pilot):
        row = next(i for i, line in enumerate(screen_text(app).splitlines()) if " 4901 " in line)
        await pilot.click(offset=(30, row))
        assert app.view.process is not None and app.view.process[0] == 4901


async def test_07_sort_with_a_click_on_a_head_and_invert_with_another() -> None:
    async with _screen() as (app, pilot):
        lines = screen_text(app).splitlines()
        head = next(i for i, line in enumerate(lines) if "GPU-MEM" in line and "PID" in line)
        await pilot.click(offset=(lines[head].index("CPU%"), head))
        assert (app.view.sort, app.view.inverted) == ("cpu_pct", False)
        await pilot.click(offset=(lines[head].index("CPU%"), head))
        assert app.view.inverted


@pytest.mark.parametrize(
    ("number", "letter", "key"),
    [
        (8, "m", "gpu_mem_bytes"), (9, "t", "gpu_time_pct"), (10, "c", "cpu_pct"), (11, "r", "rss_bytes"),
        (12, "a", "age_s"), (13, "p", "pid"), (14, "u", "user"), (15, "n", "command"), (16, "g", "gpu"),
    ],
)  # fmt: skip
async def test_08_to_16_sort_by_a_letter(number: int, letter: str, key: str) -> None:
    async with _screen("o", letter) as (app, _):
        assert app.view.sort == key, number
        values = [getattr(p.process, key, None) for p in shown_rows(demo_frame(), app.view) if not p.branch]
        known = [v for v in values if v is not None]
        assert known == sorted(known, reverse=key not in ("gpu", "pid"))


async def test_17_sort_by_the_next_column() -> None:
    async with _screen("f6") as (app, _):
        assert app.view.sort == "gpu_time_pct"


async def test_18_invert_the_order() -> None:
    async with _screen("o", "p") as (app, pilot):
        before = _order(app)
        await pilot.press("I")
        assert _order(app) == before[::-1]


async def test_19_open_and_close_the_tree() -> None:
    async with _screen("f5") as (app, pilot):
        opened = len(shown_rows(demo_frame(), app.view))
        await pilot.press("t")
        assert len(shown_rows(demo_frame(), app.view)) < opened
        assert app.view.tree == "none"


async def test_20_search_while_typing() -> None:
    async with _screen("slash", *"fsdp", "enter") as (app, _):
        assert app.view.process is not None and app.view.process[0] == 4901


async def test_21_next_and_previous_match() -> None:
    async with _screen("home", "slash", *"slurm", "enter") as (app, pilot):
        first = _cursor(app)
        await pilot.press("f3")
        second = _cursor(app)
        assert second > first
        await pilot.press("shift+f3")
        assert _cursor(app) == first


async def test_22_filter_and_see_what_is_filtered() -> None:
    async with _screen("f4", *"user:rl", "enter") as (app, _):
        assert _order(app) == [4711]
        assert "pass user:rl" in screen_text(app)


async def test_23_take_the_filter_away() -> None:
    async with _screen("f", *"user:rl", "enter", "escape") as (app, _):
        assert len(_order(app)) == 8


async def test_24_one_users_processes() -> None:
    async with _screen("u", "enter") as (app, _):
        assert app.view.filter.text == "user:ml"
        assert 4711 not in _order(app)


async def test_25_the_processes_of_one_gpu() -> None:
    async with _screen("f", *"gpu:5", "enter") as (app, _):
        assert _order(app) == [6001]


async def test_26_tag_and_untag() -> None:
    async with _screen("home", "space", "space") as (app, pilot):
        assert len(app.view.tagged) == 2
        assert "2 tagged" in screen_text(app)
        await pilot.press("U")
        assert app.view.tagged == frozenset()


async def test_27_end_a_process() -> None:
    asked = Asked()
    async with _screen("home", "f9", "enter", "y", access=asked):
        assert asked.sent == [(6001, 15)]


async def test_28_kill_a_process() -> None:
    asked = Asked()
    async with _screen("home", "K", "down", "down", "down", "enter", "y", access=asked):
        assert asked.sent == [(6001, 9)]


async def test_29_interrupt_a_process() -> None:
    asked = Asked()
    async with _screen("home", "f9", "down", "enter", "y", access=asked):
        assert asked.sent == [(6001, 2)]


async def test_30_think_better_of_it() -> None:
    asked = Asked()
    async with _screen("home", "f9", "enter", "n", "escape", access=asked) as (app, _):
        assert asked.sent == []
        assert len(app.screen_stack) == 1


async def test_31_end_all_that_are_tagged() -> None:
    asked = Asked()
    async with _screen("home", "space", "space", "f9", "enter", "y", access=asked):
        assert sorted(pid for pid, _ in asked.sent) == [4301, 6001]


async def test_32_be_kept_from_ending_anything() -> None:
    asked = Asked()
    async with _screen("home", "f9", access=asked, view=View(read_only=True)) as (app, pilot):
        assert "read-only" in (app.view.message or "")
        assert len(app.screen_stack) == 1
        await pilot.press("enter", "y")
        assert asked.sent == []


async def test_33_see_the_environment() -> None:
    async with _screen("e", access=Asked()) as (app, _):
        assert "OMP_NUM_THREADS" in screen_text(app)


async def test_34_choose_columns() -> None:
    async with _screen("f2", "end", "space", "enter") as (app, pilot):
        assert app.view.columns[-2:] == ("tree_write_bytes_per_s", "command")
        await pilot.press("f2", *["space"] * 9, "enter")
        assert "TREE-WRITE" in screen_text(app)


async def test_35_see_a_process_in_full() -> None:
    async with _screen("home", "enter", access=Asked()) as (app, _):
        assert len(app.screen_stack) == 2
        assert "6001" in screen_text(app)


async def test_36_see_a_gpu_in_full() -> None:
    async with _screen("tab", "tab", "enter") as (app, _):
        assert len(app.screen_stack) == 2


async def test_37_keep_the_cursor_on_its_process_while_the_order_changes() -> None:
    async with _screen("home", "down") as (app, pilot):
        chosen = app.view.process
        await pilot.press("I")
        rows = shown_rows(demo_frame(), app.view)
        assert process_table.key_of(rows[_cursor(app)].process) == chosen


async def test_38_pause_the_screen_and_go_on() -> None:
    app, source = app_on()
    async with app.run_test(size=(160, 48)) as pilot:

        async def measured(seconds: float) -> float:
            """The time of the frame that shows after one more snapshot."""
            source.next = later(demo_frame(), seconds)
            app.post_message(SnapshotReady())
            await pilot.pause()
            assert app.frame is not None
            return app.frame.snapshot.t - demo_frame().snapshot.t

        assert await measured(1.0) == 1.0
        await pilot.press("p")
        assert await measured(2.0) == 1.0
        await pilot.press("p")
        assert await measured(3.0) == 3.0


async def test_39_see_the_hosts_cpu_memory_and_each_gpus_power_and_temperature() -> None:
    async with _screen() as (app, _):
        text = screen_text(app)
        assert all(word in text for word in ("cpu ", "mem ", " W ", "°C", "GiB"))


def test_40_the_options_that_one_looks_for() -> None:
    text = plain(page_of("options"), 200)
    for option in ("--gpus", "CUDA_VISIBLE_DEVICES", "--interval", "--ascii", "--theme", "--read-only", "--filter"):
        assert option in text
    assert "one measured snapshot" in overview()


async def test_41_to_48_vim_and_less_move_find_and_command() -> None:
    async with _screen("home") as (app, pilot):
        await pilot.press("ctrl+f")
        page = _cursor(app)
        await pilot.press("ctrl+b")
        assert page > _cursor(app) == 0
        await pilot.press("G")
        last = _cursor(app)
        await pilot.press("g")
        assert last > page and _cursor(app) == 0
        await pilot.press("slash", *"train", "enter")
        first = _cursor(app)
        await pilot.press("n")
        assert _cursor(app) > first
        await pilot.press("N")
        assert _cursor(app) == first
        await pilot.press("colon")
        assert type(app.screen).__name__ == "Palette"


async def test_49_to_54_act_on_counts_gpus_and_processes_by_tab_and_enter() -> None:
    async with _screen() as (app, pilot):
        await pilot.press("tab", "right", "enter")
        assert (app.view.focus, app.view.count) == ("counts", "BUSY, NOT WORKING")
        flagged = [
            g.static.uuid
            for g, d in zip(demo_frame().snapshot.gpus, demo_frame().diagnoses, strict=True)
            if d.busy_not_working
        ]
        seen = [app.view.gpu]
        await pilot.press("enter")
        seen.append(app.view.gpu)
        assert sorted(map(str, seen)) == sorted(flagged), "enter goes through exactly those that are counted"
        await pilot.press("tab", "down")
        assert app.view.focus == "gpus" and "▸ 5 " in screen_text(app)
        await pilot.press("tab", "M")
        assert (app.view.focus, app.view.sort) == ("processes", "gpu_mem_bytes")
        await pilot.press("l")
        assert "open files are not shown" in (app.view.message or "")
        await pilot.press("escape", "p", "shift+right")
        assert app.view.command_at == 1 and app.playback.shows_past


async def test_55_to_57_choose_a_theme_on_the_screen_itself() -> None:
    async with _screen() as (app, pilot):
        before = app.look.name
        await pilot.press("T", "right")
        assert app.look.name != before and f"[{app.look.name}]" in (app.view.message or "")
        await pilot.press("escape")
        assert app.look.name == before and app.view.message is None
        await pilot.press("T", "enter")
        assert app.look.name != before and "to keep it" in (app.view.message or "")


async def test_58_to_60_click_on_what_names_a_key() -> None:
    async with _screen("t") as (app, pilot):
        lines = screen_text(app).splitlines()
        title = next(i for i, line in enumerate(lines) if "o sort" in line)
        await pilot.click(offset=(lines[title].index("t tree"), title))
        assert app.view.tree == "none"
        await pilot.click(offset=(lines[0].index("? help"), 0))
        assert isinstance(app.screen, HelpScreen)
        await pilot.click(offset=(2, 47))
        assert len(app.screen_stack) == 1
        await pilot.press("p")
        lines = screen_text(app).splitlines()
        bar = next(i for i, line in enumerate(lines) if "esc live" in line)
        await pilot.click(offset=(80, 47))
        assert app.playback.player is not None and app.playback.shows_past
        await pilot.click(offset=(lines[bar].index("esc live"), bar))
        assert not app.playback.shows_past


@pytest.mark.parametrize(
    ("preset", "keys", "name"), [("nvitop", ("home", "K"), "SIGKILL"), ("htop", ("home", "k"), "")]
)
async def test_a_preset_s_letters_end_a_process_after_a_question(preset: str, keys: tuple[str, ...], name: str) -> None:
    from gputop.paint.key_presets import wanted_keys

    asked = Asked()
    app = GputopApp(View(), "dark", app_on()[0].playback, access=asked, keys=wanted_keys(preset, {}))
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press(*keys)
        assert type(app.screen).__name__ == "SignalScreen" and asked.sent == []
        assert (f"Send {name} to process" in screen_text(app)) is bool(name)
