"""Of the sixty things that people do in other tops: to act on processes, to look closer and to choose what is seen."""

from __future__ import annotations

import pytest

from gputop.commands.command_line import overview
from gputop.commands.registry import page_of
from gputop.output.document import plain
from gputop.paint import process_table
from gputop.paint.header import hint_of
from gputop.paint.keys import KEYS
from gputop.paint.process_table import shown_rows
from gputop.paint.view import View
from gputop.tui.node_app import GputopApp, SnapshotReady
from gputop.tui.screens.pages import HelpScreen
from tests.support.fake_app import Asked, app_on, later, screen_text
from tests.support.frames import demo_frame
from tests.support.habit_screen import cursor, screen_after
from tests.support.steady_pilot import shown


async def test_26_tag_and_untag() -> None:
    async with screen_after("home", "space", "space") as (app, pilot):
        assert len(app.view.tagged) == 2
        assert "2 tagged" in screen_text(app)
        await pilot.press("U")
        assert app.view.tagged == frozenset()


async def test_27_end_a_process() -> None:
    asked = Asked()
    async with screen_after("home", "f9", "enter", "y", access=asked):
        assert asked.sent == [(4711, 15)]


async def test_28_kill_a_process() -> None:
    asked = Asked()
    async with screen_after("home", "K", "down", "down", "down", "enter", "y", access=asked):
        assert asked.sent == [(4711, 9)]


async def test_29_interrupt_a_process() -> None:
    asked = Asked()
    async with screen_after("home", "f9", "down", "enter", "y", access=asked):
        assert asked.sent == [(4711, 2)]


async def test_30_think_better_of_it() -> None:
    asked = Asked()
    async with screen_after("home", "f9", "enter", "n", "escape", access=asked) as (app, _):
        assert asked.sent == []
        assert len(app.screen_stack) == 1


async def test_31_end_all_that_are_tagged() -> None:
    asked = Asked()
    async with screen_after("home", "space", "space", "f9", "enter", "y", access=asked):
        assert sorted(pid for pid, _ in asked.sent) == [4711, 4901]


async def test_32_be_kept_from_ending_anything() -> None:
    asked = Asked()
    async with screen_after("home", "f9", access=asked, view=View(read_only=True)) as (app, pilot):
        assert "read-only" in (app.view.message or "")
        assert len(app.screen_stack) == 1
        await pilot.press("enter", "y")
        assert asked.sent == []


async def test_33_see_the_environment() -> None:
    async with screen_after("e", access=Asked()) as (app, _):
        assert "OMP_NUM_THREADS" in screen_text(app)


async def test_34_choose_columns() -> None:
    async with screen_after("f2", "end", "space", "enter") as (app, pilot):
        assert app.view.columns[-2:] == ("tree_write_bytes_per_s", "command")
        await pilot.press("f2", *["space"] * 9, "enter")
        assert "TREE-WRITE" in screen_text(app)


async def test_35_see_a_process_in_full() -> None:
    async with screen_after("home", "enter", access=Asked()) as (app, _):
        assert len(app.screen_stack) == 2
        assert "4711" in screen_text(app)


async def test_36_see_a_gpu_in_full() -> None:
    async with screen_after("tab", "tab", "enter") as (app, _):
        assert len(app.screen_stack) == 2


async def test_37_keep_the_cursor_on_its_process_while_the_order_changes() -> None:
    async with screen_after("home", "down") as (app, pilot):
        chosen = app.view.process
        await pilot.press("I")
        rows = shown_rows(demo_frame(), app.view)
        assert process_table.key_of(rows[cursor(app)].process) == chosen


async def test_38_pause_the_screen_and_go_on() -> None:
    app, source = app_on()
    async with shown(app, (160, 48)) as pilot:

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
    async with screen_after() as (app, _):
        text = screen_text(app)
        assert all(word in text for word in ("cpu ", "mem ", " W ", "°C", "GiB"))


def test_40_the_options_that_one_looks_for() -> None:
    text = plain(page_of("options"), 200)
    for option in ("--gpus", "CUDA_VISIBLE_DEVICES", "--interval", "--ascii", "--theme", "--read-only", "--filter"):
        assert option in text
    assert "one measured snapshot" in overview()


async def test_41_to_48_vim_and_less_move_find_and_command() -> None:
    async with screen_after("home", view=View(tree="all")) as (app, pilot):
        await pilot.press("ctrl+f")
        page = cursor(app)
        await pilot.press("ctrl+b")
        assert page > cursor(app) == 0
        await pilot.press("G")
        last = cursor(app)
        await pilot.press("g")
        assert last > page and cursor(app) == 0
        await pilot.press("slash", *"train", "enter")
        first = cursor(app)
        await pilot.press("n")
        assert cursor(app) > first
        await pilot.press("N")
        assert cursor(app) == first
        await pilot.press("colon")
        assert type(app.screen).__name__ == "Palette"


async def test_49_to_54_act_on_counts_gpus_and_processes_by_tab_and_enter() -> None:
    async with screen_after() as (app, pilot):
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
    async with screen_after() as (app, pilot):
        before = app.look.name
        await pilot.press("T", "down")
        assert app.look.name != before, "the screen is its own preview"
        await pilot.press("escape")
        assert app.look.name == before and app.view.message is None
        await pilot.press("T", "down", "enter")
        assert app.look.name != before and "to keep it" in (app.view.message or "")
        await pilot.press("T", "c")
        assert app.look.name == "colour-blind"


async def test_58_to_60_click_on_what_names_a_key() -> None:
    async with screen_after("t") as (app, pilot):
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
    from gputop.paint.keys import wanted_keys

    asked = Asked()
    app = GputopApp(View(), "dark", app_on()[0].playback, access=asked, keys=wanted_keys(preset, {}))
    async with shown(app, (120, 40)) as pilot:
        await pilot.press(*keys)
        assert type(app.screen).__name__ == "SignalScreen" and asked.sent == []
        assert (f"Send {name} to process" in screen_text(app)) is bool(name)


async def test_61_jump_to_a_part_by_its_letter() -> None:
    async with screen_after(view=View(hint=hint_of(KEYS))) as (app, pilot):
        assert not {line[0] for line in screen_text(app).splitlines()} & {"S", "V", "L"}
        for key, focus in (("V", "gpus"), ("S", "counts"), ("L", "processes")):
            await pilot.press(key)
            assert app.view.focus == focus
        await pilot.press("V")
        assert "▸ 0 " in screen_text(app), "what is selected keeps its mark"


async def test_62_tag_a_process_with_all_that_hangs_on_it() -> None:
    async with screen_after("home") as (app, pilot):
        await pilot.press("slash", *"4802", "enter", "B")
        pids = {pid for pid, _, _ in app.view.tagged}
        assert 4802 in pids and len(pids) == 9, "the job and its eight workers"
        await pilot.press("B")
        assert app.view.tagged == frozenset()


async def test_63_click_a_fact_of_the_header_to_see_more_of_it() -> None:
    async with screen_after() as (app, pilot):
        top, counts = screen_text(app).splitlines()[:2]
        await pilot.click(offset=(top.index("charts ") + 8, 0))
        assert app.view.span_s == 300.0
        await pilot.press("escape")
        await pilot.click(offset=(counts.index("last 10 min") + 20, 1))
        assert type(app.screen).__name__ == "FindingsScreen"
        await pilot.press("escape")
        await pilot.click(offset=(top.index("SM measured") + 12, 0))
        assert type(app.screen).__name__ == "GpuDetailsScreen"


@pytest.mark.parametrize(("key", "reason"), [("J", "p shows it"), ("Z", "p pauses"), ("f12", "F12: no command")])
async def test_64_a_key_without_a_command_says_what_has_one(key: str, reason: str) -> None:
    async with screen_after(key) as (app, _):
        assert reason in (app.view.message or "")
