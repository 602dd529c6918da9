"""What is written when rows change: after it a terminal shows exactly the new rows.

Tests of ``gputop/tui/terminal/cell_writer.py`` and of ``LiveRows``.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pyte
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from textual.app import App
from textual.drivers.headless_driver import HeadlessDriver

from gputop.paint.keys import KEYS, PAGE_KEYS
from gputop.paint.theme import THEMES
from gputop.sources.recorded import RecordedSource
from gputop.tui.node_app import GputopApp
from gputop.tui.terminal.cell_writer import (
    LEAST_UNCHANGED,
    changed_runs,
    changed_text,
    row_cells,
)
from gputop.tui.terminal.rows_widget import LiveRows, sequence_of
from tests.support.examples import looks, text_of
from tests.support.exported import Clock
from tests.support.fake_app import Handed, app_on, hand_in, later, wheel
from tests.support.frames import demo_frame
from tests.support.seldom import quick_ones
from tests.support.steady_pilot import SteadyPilot, shown

WIDTH = 30
LEFT_OUT = ("quit", "interrupt", "suspend", "redraw", "snapshot", "record", "mark")
"""Commands that end or stop the program, write files, or draw everything again by themselves."""
Spans = list[tuple[str, str]]
styles = st.sampled_from(["text", "alarm.title", "strong", "dim"])
spans = st.lists(st.tuples(text_of("ab█▄ 訓", 12, 1), styles), max_size=5)


def _sequence(name: str) -> str:
    return sequence_of("dark", name, "truecolor")


def _shown_after(texts: list[str]) -> list[object]:
    screen = pyte.Screen(WIDTH + 2, 3)
    stream = pyte.Stream(screen)
    for text in texts:
        stream.feed(text)
    return [screen.buffer[1][x] for x in range(WIDTH + 2)]


@looks(60)
@given(st.lists(spans, min_size=2, max_size=5))
def test_a_terminal_that_gets_the_changes_shows_the_new_row(rows: list[Spans]) -> None:
    blank = row_cells((), WIDTH, _sequence)
    never = [("\0", "")] * WIDTH
    before = blank
    written = [changed_text(1, 2, never, blank)]
    for row in rows:
        now = row_cells(tuple(row), WIDTH, _sequence)
        written.append(changed_text(1, 2, before, now))
        whole = [changed_text(1, 2, never, blank), changed_text(1, 2, never, now)]
        assert _shown_after(written) == _shown_after(whole)
        before = now


@pytest.mark.parametrize(
    ("unchanged", "runs"), [(LEAST_UNCHANGED - 1, 1), (LEAST_UNCHANGED, 2)], ids=["near", "far"]
)
def test_runs_that_are_near_are_written_as_one(unchanged: int, runs: int) -> None:
    before = row_cells(((" " * WIDTH, "text"),), WIDTH, _sequence)
    now = row_cells((("x" + " " * unchanged + "x", "text"),), WIDTH, _sequence)
    assert len(changed_runs(before, now)) == runs


def test_a_row_is_exactly_as_wide_as_asked() -> None:
    for row in ((), (("訓" * WIDTH, "text"),), (("a" * 2 * WIDTH, "text"),)):
        assert len(row_cells(row, WIDTH, _sequence)) == WIDTH


def test_an_unchanged_row_writes_nothing() -> None:
    row = row_cells((("abc", "text"),), WIDTH, _sequence)
    assert changed_text(0, 0, row, list(row)) == ""


class TerminalOf:
    """A terminal that shows what an app in a test writes."""

    def __init__(self) -> None:
        self.screen = pyte.Screen(100, 30)
        self.stream = pyte.Stream(self.screen)
        self.written: list[str] = []

    def write(self, data: str) -> None:
        """Show what the app's driver gets."""
        self.written.append(data)
        self.stream.feed(data)

    def cells(self) -> list[list[object]]:
        """Return each cell with its colours."""
        return [
            [self.screen.buffer[y][x] for x in range(self.screen.columns)]
            for y in range(self.screen.lines)
        ]

    def rows(self) -> list[str]:
        """Return the text of each row."""
        return [row.rstrip() for row in self.screen.display]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[TerminalOf]:
    found = TerminalOf()
    monkeypatch.setattr(HeadlessDriver, "is_headless", property(lambda _: False))
    monkeypatch.setattr(HeadlessDriver, "write", lambda _, data: found.write(data))
    yield found


async def _full_repaint(app: App[int], pilot: SteadyPilot, terminal: TerminalOf) -> None:
    """Draw everything again on an empty terminal, as Textual does it."""
    terminal.screen.reset()
    app.refresh(layout=True)
    await pilot.settle()


async def _act(
    chosen: random.Random,
    app: GputopApp,
    source: Handed,
    pilot: SteadyPilot,
    terminal: TerminalOf,
    keys: list[str],
) -> str:
    """Do one thing that a user, a terminal or a source may do; return its name."""
    kind = chosen.choice(["key"] * 6 + ["snapshot"] * 4 + ["wheel", "click", "theme", "size"])
    if kind == "key":
        key = chosen.choice(keys)
        await pilot.press(key)
        return f"key {key}"
    if kind == "snapshot":
        snapshot = later(app.playback.frame or demo_frame(), 1.0)
        busy = replace(snapshot.gpus[0], util_pct=float(chosen.randrange(101)))
        gpus = (busy, *snapshot.gpus[1:])
        await hand_in(app, source, pilot, [replace(snapshot, gpus=gpus)])
    elif kind == "wheel":
        wheel(app, chosen.randrange(100), chosen.randrange(30))
    elif kind == "click":
        await pilot.click(offset=(chosen.randrange(80), chosen.randrange(24)))
    elif kind == "size":
        columns, rows = chosen.choice([(80, 24), (100, 30), (120, 40)])
        terminal.screen.resize(rows, columns)
        await pilot.resize_terminal(columns, rows)
    else:
        app.apply_theme(THEMES[chosen.choice(["dark", "light", "mono"])])
    await pilot.settle()
    return kind


@pytest.mark.parametrize("seed", quick_ones(range(5), [2]))
async def test_after_random_actions_the_terminal_is_as_after_a_full_repaint(
    seed: int, terminal: TerminalOf
) -> None:
    chosen = random.Random(seed)
    commands = [key for table in (KEYS, PAGE_KEYS) for key in table if key.id not in LEFT_OUT]
    keys = [name for key in commands if key.keys for name in key.keys.split(",")]
    keys = [name for name in keys if name not in ("q", "Q", "f10")]
    app, source = app_on()
    # However slow the machine is, no picture says so between two that are compared, and no past plays on.
    app._watch = lambda: None  # type: ignore[method-assign]
    app.playback._replay_past = lambda past: RecordedSource(past, clock=Clock())
    async with shown(app, (100, 30)) as pilot:
        done: list[str] = []
        for number in range(100):
            done.append(await _act(chosen, app, source, pilot, terminal, keys))
            if number % 10 == 9:
                # Frames that a slow machine has put off to its next picture, and the rest of the charts.
                while app.playback.take_past() or app.playback.work():
                    await pilot.settle()
                app.paint()
                await pilot.settle()
                found = terminal.cells()
                seen = terminal.rows()
                await _full_repaint(app, pilot, terminal)
                wrong = [
                    (y, seen[y], terminal.rows()[y])
                    for y, row in enumerate(terminal.cells())
                    if row != found[y]
                ]
                assert not wrong, done[-10:]
                await pilot.press("escape")


async def test_only_changed_cells_are_written_where_nothing_lies_above(
    terminal: TerminalOf,
) -> None:
    app, _ = app_on()
    async with shown(app, (100, 30)) as pilot:
        rows = list(app.query_one(LiveRows).rows)
        rows[3] = (("changed", "text"), *rows[3])
        terminal.written.clear()
        app.query_one(LiveRows).set_rows(rows)
        await pilot.settle()
        assert sum(map(len, terminal.written)) < 2500
        assert terminal.rows()[3].startswith("changed")


async def test_rows_below_an_open_page_are_right_when_it_closes(terminal: TerminalOf) -> None:
    app, _ = app_on()
    async with shown(app, (100, 30)) as pilot:
        await pilot.press("question_mark")
        covered = terminal.rows()
        widget = app.screen_stack[0].query_one(LiveRows)
        rows = [*widget.rows[:-1], (("the last row", "text"),)]
        widget.set_rows(rows)
        await pilot.settle()
        assert terminal.rows() == covered
        await pilot.press("escape")
        found = terminal.cells()
        await _full_repaint(app, pilot, terminal)
        assert found == terminal.cells()
