"""What people do in other tops, vim and less, each with the same or a more obvious key; one screen for all of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from gputop.config import Settings
from gputop.monitor import Frame
from gputop.paint import process_table
from gputop.paint.hint_row import hint_of
from gputop.paint.key_presets import PRESETS
from gputop.paint.keys import KEYS
from gputop.paint.process_columns import COLUMNS, DEFAULT
from gputop.paint.process_table import shown_rows
from gputop.paint.view import View
from gputop.tui.node_app import GputopApp
from tests.support.fake_app import Asked, app_on, hand_in, later, screen_rows, screen_text, wheel
from tests.support.frames import demo_frame
from tests.support.steady_pilot import SteadyPilot, shown

START = View(hint=hint_of(KEYS))
FLAGGED = sorted(d.uuid for d in demo_frame().diagnoses if d.busy_not_working)
UUIDS = [gpu.static.uuid for gpu in demo_frame().snapshot.gpus]


class Screen:
    """A screen under the hands of somebody."""

    def __init__(self, app: GputopApp, pilot: SteadyPilot, asked: Asked) -> None:
        self.app, self.pilot, self.asked = app, pilot, asked
        self.gpus: list[str | None] = []
        """The GPUs that were selected after each key."""

    async def again(self, view: View = START) -> None:
        """As it was at first."""
        while len(self.app.screen_stack) > 1:
            await self.pilot.press("escape")
        if self.app.playback.shows_past:
            self.app.playback.go_live()
        self.asked.sent.clear()
        self.app.see(view)
        await self.pilot.pause()

    async def press(self, keys: str) -> None:
        """Keys with blanks between them, as fast as they can come; behind a quote what is typed letter by letter."""
        self.gpus = []
        for key in keys.split():
            await self.pilot.burst(*(key[1:] if key.startswith("'") else (key,)))
            self.gpus.append(self.view.gpu)

    async def click(self, words: str, beside: int = 0) -> None:
        """Click on the first cells that say so."""
        y = next(i for i, row in enumerate(screen_rows(self.app)) if words in row)
        await self.pilot.click(offset=(screen_rows(self.app)[y].index(words) + beside, y))

    @property
    def view(self) -> View:
        return self.app.view

    @property
    def message(self) -> str:
        return self.view.message or ""

    @property
    def text(self) -> str:
        return screen_text(self.app)

    @property
    def top(self) -> str:
        """What lies uppermost; empty where that is the main screen."""
        return type(self.app.screen).__name__ if len(self.app.screen_stack) > 1 else ""

    @property
    def rows(self) -> list[process_table.ShownProcess]:
        return shown_rows(self.frame, self.view)

    @property
    def frame(self) -> Frame:
        assert self.app.frame is not None
        return self.app.frame

    @property
    def order(self) -> list[int]:
        return [shown.process.pid for shown in self.rows if not shown.branch]

    @property
    def cursor(self) -> int:
        return process_table.cursor(self.rows, self.frame, self.view)

    @property
    def pid(self) -> int | None:
        return None if self.view.process is None else self.view.process[0]


LETTERS = {
    "m": "gpu_mem_bytes", "t": "gpu_time_pct", "c": "cpu_pct", "r": "rss_bytes", "a": "age_s", "p": "pid", "u": "user",
    "n": "command", "g": "gpu",
}  # fmt: skip
HABITS: tuple[tuple[str, Callable[[Screen], object]], ...] = (
    # The help, and what lies uppermost.
    ("h", lambda s: s.top == "HelpScreen"), ("question_mark", lambda s: s.top == "HelpScreen"),
    ("f1", lambda s: s.top == "HelpScreen" and "quit" in s.text),
    ("f1 slash 'ecc enter n", lambda s: s.top == "HelpScreen" and "ecc" in s.text.lower()),
    ("f1 G", lambda s: s.app.screen._page.first > 100), ("colon", lambda s: s.top == "Palette"),
    ("home enter", lambda s: s.top == "ProcessDetailsScreen" and "4711" in s.text),
    ("D", lambda s: s.top == "GpuDetailsScreen"), ("A", lambda s: s.top == "FindingsScreen"),
    ("e", lambda s: "OMP_NUM_THREADS" in s.text), ("u enter", lambda s: s.view.filter.text == "user:ml"),
    # Moving through the processes.
    ("home down down up", lambda s: s.cursor == 1), ("home j j k", lambda s: s.cursor == 1),
    ("t home ctrl+f", lambda s: s.cursor > 4), ("t home pagedown ctrl+b", lambda s: s.cursor == 0),
    ("t home ctrl+d ctrl+u", lambda s: s.cursor == 0), ("t G", lambda s: s.cursor == len(s.rows) - 1),
    ("t G g", lambda s: s.cursor == 0), ("end", lambda s: s.cursor == len(s.rows) - 1),
    ("home down I", lambda s: s.rows[s.cursor].process.pid == s.pid != 4711),
    # Sorting.
    *((f"o {letter}", lambda s, key=key: s.view.sort == key and _is_sorted(s, key)) for letter, key in LETTERS.items()),
    ("o p I", lambda s: s.order == sorted(s.order, reverse=True)), ("full_stop", lambda s: s.view.sort == "gpu"),
    ("o c full_stop", lambda s: s.view.sort == "loader"), ("o c comma", lambda s: s.view.sort == "gpu_time_pct"),
    ("o c o escape", lambda s: s.view.sort == "cpu_pct" and not s.top), ("M", lambda s: s.view.sort == LETTERS["m"]),
    ("f6", lambda s: all(COLUMNS[column].head in _options(s) for column in DEFAULT)),
    ("f6 C", lambda s: (s.view.sort, s.view.inverted) == ("cpu_pct", True)),
    ("o c f6 down enter", lambda s: s.view.sort == "loader"),
    ("o 9", lambda s: s.top == "Menu" and "9: not in this list" in str(s.app.screen._box.border_subtitle)),
    # The tree, search, filter.
    ("f5", lambda s: s.view.tree == "all" and len(s.rows) > 8), ("t t", lambda s: s.view.tree == "none"),
    ("slash 'fsdp enter", lambda s: s.pid == 4901), ("slash 'slurm enter f3 shift+f3", lambda s: s.pid == 4711),
    ("home slash 'train enter n N", lambda s: s.cursor == 2), ("home slash 'train enter n", lambda s: s.cursor > 2),
    ("f4 'user:rl enter", lambda s: s.order == [4711] and "pass user:rl" in s.text),
    ("f 'user:rl enter escape", lambda s: len(s.order) == 8), ("f 'gpu:5 enter", lambda s: s.order == [6001]),
    # Tags, signals and columns.
    ("home space space", lambda s: len(s.view.tagged) == 2 and "2 tagged" in s.text),
    ("home space space U", lambda s: not s.view.tagged),
    ("slash '4802 enter B", lambda s: len(s.view.tagged) == 9), ("slash '4802 enter B B", lambda s: not s.view.tagged),
    ("home f9 enter y", lambda s: s.asked.sent == [(4711, 15)]),
    ("home K down down down enter y", lambda s: s.asked.sent == [(4711, 9)]),
    ("home f9 down enter y", lambda s: s.asked.sent == [(4711, 2)]),
    ("home f9 enter n escape", lambda s: not s.asked.sent and not s.top),
    ("home space space f9 enter y", lambda s: sorted(s.asked.sent) == [(4711, 15), (4901, 15)]),
    ("f2 end space enter", lambda s: s.view.columns[-2:] == (list(COLUMNS)[-1], "command")),
    # GPUs, counts and layouts.
    ("] ] [ [ [", lambda s: s.gpus == [UUIDS[1], UUIDS[2], UUIDS[1], UUIDS[0], UUIDS[7]]),
    ("] escape", lambda s: s.view.gpu is None),
    ("w w w", lambda s: sorted({*s.gpus}) == FLAGGED and s.gpus[0] == s.gpus[2]),
    ("c", lambda s: s.view.layout == "scroll" and "scroll where not all fit" in s.message),
    ("c c", lambda s: s.view.layout == "list" and "a line a GPU" in s.message),
    ("c c c", lambda s: s.view.layout == "panes" and "panes, where all fit" in s.message),
    ("plus", lambda s: s.view.span_s == 300.0 and "charts show the last 5 min" in s.message),
    ("minus minus", lambda s: s.view.span_s == 60.0), ("p shift+right", lambda s: s.view.command_at == 1),
    # Themes: the screen is its own preview.
    ("T", lambda s: s.app.look.name == "light" and "the palette (:) saves it" in s.message),
    ("T T T T", lambda s: s.app.look.name == "dark"),
    # Keys without a command say what has one.
    ("l", lambda s: "open files are not shown" in s.message), ("J", lambda s: "p shows it" in s.message),
    ("Z", lambda s: "p pauses" in s.message), ("f12", lambda s: "F12: no command" in s.message),
)  # fmt: skip


def _options(s: Screen) -> str:
    return " ".join(str(option.prompt) for option in s.app.screen._box.options)


def _is_sorted(s: Screen, key: str) -> bool:
    values = [getattr(shown.process, key, None) for shown in s.rows if not shown.branch]
    known = [value for value in values if value is not None]
    return known == sorted(known, reverse=key not in ("gpu", "pid"))


async def test_what_people_do_elsewhere_they_can_do_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "gputop.tui.painted_app.MESSAGE_S", 1e6
    )  # a message is to stand until it is looked at
    asked = Asked()
    app, _ = app_on(access=asked, view=START)
    async with shown(app, (100, 30)) as pilot:
        screen = Screen(app, pilot, asked)
        for keys, holds in HABITS:
            await screen.press(keys)
            assert holds(screen), (keys, screen.top, screen.message, screen.cursor)
            await screen.again()


@pytest.mark.parametrize("key", ["q", "Q", "f10", "ctrl+c"])
async def test_every_key_that_quits_does(key: str) -> None:
    app, _ = app_on()
    async with shown(app, (80, 24)) as pilot:
        await pilot.press(key)
    assert app.return_code == 0


async def test_what_is_clicked_is_chosen_opened_or_the_key_that_it_names() -> None:
    app, _ = app_on(view=START)
    async with shown(app, (160, 48)) as pilot:
        screen = Screen(app, pilot, Asked())
        await screen.click(" 4901 ", 20)
        assert screen.pid == 4901
        await screen.click("─ 3  H100", 5)
        assert screen.view.gpu == UUIDS[3]
        for inverted in (False, True):
            await screen.click("CPU%  LOADERS")
            assert (screen.view.sort, screen.view.inverted) == ("cpu_pct", inverted)
        await screen.click("t tree")
        assert screen.view.tree == "all"
        wheel(app)
        await pilot.pause()
        assert screen.view.scroll == 3
        for words, beside, top in (
            ("? help", 0, "HelpScreen"), ("last 10 min", 20, "FindingsScreen"), ("SM measured", 12, "GpuDetailsScreen"),
        ):  # fmt: skip
            await screen.click(words, beside)
            assert screen.top == top
            wheel(app)
            await pilot.pause()
            assert screen.view.scroll == 3, (
                "the wheel over another screen leaves the table where it was"
            )
            await screen.click("closes" if top != "GpuDetailsScreen" else "esc back")
            assert screen.top == ""
        await screen.click("charts ", 8)
        assert screen.view.span_s == 300.0
        await pilot.press("p")
        await pilot.click(offset=(80, 46))
        assert app.playback.player is not None and app.playback.shows_past
        for _ in range(9):
            # How far the past is judged stands before these words, and moves them while it grows.
            if app.playback.shows_past:
                await screen.click("esc live")
        assert not app.playback.shows_past


async def test_a_screen_that_only_reads_sends_nothing() -> None:
    asked = Asked()
    app, _ = app_on(access=asked, view=View(read_only=True))
    async with shown(app, (120, 40)) as pilot:
        await pilot.press("home", "f9")
        assert "read-only" in (app.view.message or "") and len(app.screen_stack) == 1
        await pilot.press("enter", "y", "escape", "d")
        await pilot.pause(0.1)
        await pilot.press("1")
        assert asked.sent == []


async def test_a_pause_keeps_the_picture_and_the_next_key_goes_on() -> None:
    app, source = app_on()
    async with shown(app, (160, 48)) as pilot:
        for seconds, shown_s in ((1.0, 1.0), (2.0, 1.0), (3.0, 3.0)):
            await hand_in(app, source, pilot, [later(demo_frame(), seconds)])
            assert (
                app.frame is not None and app.frame.snapshot.t - demo_frame().snapshot.t == shown_s
            )
            await pilot.press("p")


@pytest.mark.parametrize(("preset", "key", "name"), [("nvitop", "K", "SIGKILL"), ("htop", "k", "")])
async def test_a_preset_s_letters_end_a_process_after_a_question(
    preset: str, key: str, name: str
) -> None:
    assert preset in PRESETS
    asked = Asked()
    app, _ = app_on(access=asked, settings=Settings(key_preset=preset))
    async with shown(app, (120, 40)) as pilot:
        await pilot.press("home", key)
        assert type(app.screen).__name__ == "SignalScreen" and asked.sent == []
        assert (f"Send {name} to process" in screen_text(app)) is bool(name)


async def test_of_several_readings_in_an_interval_only_a_changed_verdict_is_drawn_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app, source = app_on()
    begin = demo_frame().snapshot
    quarters = [replace(begin, t=begin.t + 0.25 * n, interval_s=0.25) for n in range(1, 4)]
    drawn: list[float] = []
    async with shown(app, (80, 24)) as pilot:
        now = [1000.0]
        app._clock = lambda: now[0]
        app.paint()
        await hand_in(app, source, pilot, quarters[:1])
        monkeypatch.setattr(app, "draw", lambda: drawn.append(app.frame.snapshot.t))
        app._painted = now[0]
        await hand_in(app, source, pilot, quarters[1:2])
        assert drawn == []
        app._shown_verdicts = [("", "")]
        await hand_in(app, source, pilot, quarters[2:3])
        assert drawn == [quarters[2].t]


async def test_of_several_readings_in_an_interval_only_a_changed_verdict_and_the_past_are_drawn_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app, source = app_on()
    begin = demo_frame().snapshot
    quarters = [replace(begin, t=begin.t + 0.25 * n, interval_s=0.25) for n in range(1, 5)]
    drawn: list[float] = []

    def note_frame() -> None:
        assert app.frame is not None
        drawn.append(app.frame.snapshot.t)

    async with shown(app, (80, 24)) as pilot:
        app._clock = lambda: 1000.0
        app.paint()
        await hand_in(app, source, pilot, quarters[:1])
        monkeypatch.setattr(app, "draw", note_frame)
        app._painted = 1000.0
        await hand_in(app, source, pilot, quarters[1:2])
        assert drawn == []
        app._shown_verdicts = [("", "")]
        await hand_in(app, source, pilot, quarters[2:3])
        assert drawn == [quarters[2].t]
        monkeypatch.setattr(type(app.playback), "shows_past", True)
        await hand_in(app, source, pilot, quarters[3:])
        assert len(drawn) == 2
