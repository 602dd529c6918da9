"""The fleet's screen: rows at every size, keys, mouse, filter and time, on a simulated fleet."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from gputop.features.fleet.fleet_reading import Down, FleetError, FleetReading, LastHour
from gputop.features.fleet.judge.fleet_frame import FleetFrame, fleet_frame
from gputop.features.fleet.read.simulated_fleet import STARTED, SimulatedFleet
from gputop.features.fleet.show.fleet_app import FleetApp
from gputop.features.fleet.show.fleet_screen import fleet_screen, help_rows, summary
from gputop.features.fleet.show.fleet_view import (
    FLEET_KEYS,
    FleetView,
    Panel,
    groups,
    moved,
    parse,
    rows_of,
    selected_host,
    sorted_by,
)
from gputop.features.fleet.show.watch_thread import FleetWatch
from gputop.model.expression import ExpressionError
from gputop.paint.cells import cells
from gputop.paint.glyphs import ASCII, COLOUR, MONO
from gputop.paint.theme import THEMES
from tests.features.fleet.conftest import text_of
from tests.support.steady_pilot import shown


def _text(frame: FleetFrame, view: FleetView, width: int = 160, height: int = 48) -> str:
    return text_of(fleet_screen(frame, view, width, height).rows)


@pytest.mark.parametrize(
    "panel", ["hosts", "jobs", "users", "stragglers", "waste", "alerts", "host"]
)
def test_every_panel_fills_every_size_exactly(frame: FleetFrame, panel: Panel) -> None:
    for width, height in ((40, 10), (80, 24), (120, 36), (160, 48), (300, 100)):
        for glyphs in (COLOUR, ASCII) if width == 80 else (MONO,):
            view = FleetView(glyphs=glyphs, panel=panel, host="node-026")
            painted = fleet_screen(frame, view, width, height)
            assert len(painted.rows) == len(painted.targets) == height
            assert {sum(cells(text) for text, _ in row) for row in painted.rows} == {width}
            for row in painted.rows:
                for text, style in row:
                    assert THEMES["dark"].look(style) and (glyphs is not ASCII or text.isascii())


def test_that_a_fleet_is_simulated_and_what_is_wrong_with_a_host_are_said_at_every_width(
    frame: FleetFrame,
) -> None:
    for width in (60, 80, 120, 200):
        text = _text(frame, FleetView(), width, 60)
        assert "SIMULATED" in text.split("\n")[0]
        assert "small kernels" in text
    assert "SIMULATED" not in _text(
        fleet_frame(replace(frame.read, source="http://prom:9090")), FleetView()
    )
    assert "DCGM_FI_PROF_SM_ACTIVE, gauge, SM activity" in _text(frame, FleetView(), 120, 40)


def test_the_header_counts_what_the_frame_counts_and_says_how_old_it_is(frame: FleetFrame) -> None:
    text = _text(frame, FleetView())
    for state, words in (
        ("working", "working"),
        ("busy_not_working", "BUSY, NOT WORKING"),
        ("starved", "starved"),
    ):
        assert f"{frame.counts[state]} {words}" in text
    assert "1 host down" in text and "data 3 s old" in text and "125 hosts" in text
    stale = _text(frame, FleetView(stale_s=240.0))
    assert "STALE 4 min" in stale and "data 4 min old" in stale and "data 3 s old" not in stale
    half = replace(
        frame.read,
        gpus=[replace(gpu, power_w=None) if gpu.gpu < "4" else gpu for gpu in frame.read.gpus],
    )
    counted = fleet_frame(half)
    wide = "".join(text for text, _ in summary(counted, FleetView(), 240))
    assert f"kW of {counted.power[2] // 2} GPUs" in wide
    assert "being read" in _text(
        fleet_frame(replace(frame.read, hour=LastHour())), FleetView(panel="waste")
    )


def test_what_is_old_is_grey_the_whole_screen_or_the_page_of_a_host_that_is_down(
    frame: FleetFrame,
) -> None:
    down = next(iter(frame.read.down))
    for view, first in ((FleetView(stale_s=60.0), 2), (FleetView(panel="host", host=down), 5)):
        rows = fleet_screen(frame, view, 160, 48).rows[first:-3]
        colours = {style.partition("|")[0] for row in rows for text, style in row if text.strip()}
        assert colours <= {"dim", "rule", "title", "heading"} and colours & {"dim"}, view
    assert "the exporter does not answer; its last values: util 98 %" in _text(
        frame, FleetView(panel="host", host=down)
    )
    fresh = fleet_screen(frame, FleetView(), 160, 48).rows[2:-3]
    assert "value.alarm" in {style for row in fresh for _, style in row}


@pytest.mark.parametrize("width", [80, 100, 120, 160, 200])
def test_money_is_shown_whole_with_the_price_that_it_assumes_and_only_at_a_price(
    frame: FleetFrame, width: int
) -> None:
    text = _text(frame, FleetView(panel="waste", price=2.5), width)
    first = frame.waste[0]
    assert (
        f"{first.gpu_h:,.1f} GPU-h  {first.gpu_h * 2.5:>9,.0f} \n"
        in text.replace("  \n", " \n") + "\n"
    )
    assert "at 2.5 a GPU-hour" in text and "a GPU-hour" not in _text(
        frame, FleetView(panel="waste"), width
    )


def test_a_narrow_header_keeps_who_does_not_work_and_who_is_down(frame: FleetFrame) -> None:
    for width in (72, 80, 100, 120, 160, 300):
        summary = _text(frame, FleetView(), width).split("\n")[1]
        words = (
            "727 work",
            "104 BUSY",
            "88 starved",
            "1 lost",
            "late",
            "1 host down" if width > 100 else "1 down",
        )
        assert all(word in summary for word in words) or width == 100, (width, summary)
        assert ("BUSY, NOT WORKING" in summary) == (width >= 100)


def test_a_group_of_several_hosts_names_the_host_of_its_straggler_and_a_column_its_hosts(
    frame: FleetFrame,
) -> None:
    jobs = _text(frame, FleetView(panel="jobs"), 200)
    assert "node-062 GPU 0 straggles: SM 94" in jobs and jobs.split("\n")[3].count("JOB") == 1
    assert "HOSTS" in jobs.split("\n")[3]


def test_the_worst_host_is_the_first_and_every_order_can_be_reversed(frame: FleetFrame) -> None:
    view = FleetView()
    assert [group.verdict.state for group in groups(frame, view)[:3]] == [
        "lost",
        "late",
        "busy_not_working",
    ]
    for name in ("worst", "waste", "gap", "sm", "util", "power", "stragglers", "name"):
        once = sorted_by(replace(view, sort="name" if name != "name" else "worst"), name)
        there, back = rows_of(frame, once), rows_of(frame, sorted_by(once, name))
        assert there == back[::-1] and len(there) == 125


def test_the_cursor_stays_in_sight_and_on_its_host_when_the_order_changes(
    frame: FleetFrame,
) -> None:
    view, page = FleetView(), 10
    for _ in range(30):
        view = moved(rows_of(frame, view), view, 1, page)
    host = selected_host(frame, view)
    assert rows_of(frame, view).index(str(host)) == 30 and view.first == 21
    assert selected_host(frame, sorted_by(view, "name")) == host


@pytest.mark.parametrize(("text", "holds"), [
    ("user:speech", lambda group: "speech" in group.users),
    ("state:starved", lambda group: any(gpu.state == "starved" for gpu in group.gpus)),
    ("util<50 sm>10", lambda group: group.util_pct < 50 and group.sm_active_pct > 10),
    ('job:"slurm 8822"', lambda group: "slurm 8822" in group.jobs),
    ("!host~node-0", lambda group: "node-0" not in group.name),
    ("verdict:kernels", lambda group: "kernels" in group.verdict.text),
    ("stragglers>0", lambda group: group.stragglers > 0),
])  # fmt: skip
def test_the_filter_keeps_the_rows_it_says(frame: FleetFrame, text: str, holds) -> None:  # type: ignore[no-untyped-def]
    kept = {group.name for group in groups(frame, FleetView(filter=parse(text)))}
    known = [group for group in frame.hosts if group.sm_active_pct is not None]
    assert (
        kept & {group.name for group in known}
        == {group.name for group in known if holds(group)}
        != set()
    )
    with pytest.raises(ExpressionError, match="did you mean user"):
        parse("usr:ml")


def test_a_gpu_that_is_lost_is_called_so_on_its_host_whatever_its_node_said_last(
    frame: FleetFrame,
) -> None:
    rows = _text(frame, FleetView(panel="host", host="node-029"), 160).split("\n")
    (lost,) = [row for row in rows if "× lost" in row]
    assert lost.split()[0] == "7" and sum("● working" in row for row in rows) == 7
    unused = next(group for group in frame.hosts if group.counts.get("allocated_unused"))
    text = _text(frame, FleetView(panel="host", host=unused.name), 160)
    assert text.count("▲ allocated, unused") == 8 and "ask its owner" in text


class Answers(SimulatedFleet):
    """A fleet that can fail, and tells when it was asked."""

    def __init__(self) -> None:
        super().__init__(30)
        self.asked: list[float | None] = []
        self.fails = ""
        self.closed = threading.Event()

    def ask(self, at: float | None = None) -> FleetReading:
        self.asked.append(at)
        if self.fails:
            raise FleetError(self.fails)
        return super().ask(at)

    def close(self) -> None:
        self.closed.set()


@contextlib.asynccontextmanager
async def _shown(
    answers: Answers, size: tuple[int, int] = (100, 30)
) -> AsyncIterator[tuple[FleetApp, Any]]:
    """The screen once its first frame is there."""
    app = FleetApp(FleetView(), "dark", FleetWatch(answers))
    async with shown(app, size) as pilot:
        await _settled(pilot, lambda: app.frame is not None)
        yield app, pilot


async def _settled(pilot, condition) -> None:  # type: ignore[no-untyped-def]
    for _ in range(2000):
        await pilot.pause(0.002)
        if condition():
            return
    raise AssertionError("it never came")


async def _typed(pilot, *keys: str) -> None:  # type: ignore[no-untyped-def]
    """Keys at once, as by somebody who does not wait for what each of them opens."""
    for key in keys:
        pilot.app.simulate_key(key)
    await pilot.pause()


async def test_keys_lead_to_every_panel_and_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    answers = Answers()
    async with _shown(answers, (120, 36)) as (app, pilot):
        await _typed(pilot, "down", "enter")
        assert app.view.panel == "host" and app.view.host == rows_of(app.frame, FleetView())[1]
        await _settled(pilot, lambda: app.watched.shown.host == app.view.host)
        for key, panel in (
            ("escape", "hosts"), ("u", "jobs"), ("u", "users"), ("u", "hosts"), ("s", "stragglers"), ("w", "waste"),
            ("A", "alerts"),
        ):  # fmt: skip
            await _typed(pilot, key)
            assert app.view.panel == panel
        await _typed(pilot, "escape", "f", *"user:ml", "enter")
        assert app.view.filter.text == "user:ml" and app.view.panel == "hosts"
        await _typed(pilot, "escape", "u", "enter")
        assert app.view.filter.text.startswith("job:")
        await _typed(pilot, "f8", "question_mark")
        assert list(tmp_path.glob("gputop-fleet-*.svg")) and len(app.screen_stack) == 2
        assert all(key.shown in text_of(help_rows(COLOUR, 100, FLEET_KEYS)) for key in FLEET_KEYS)
        await _typed(pilot, "escape", "o", "I", "T", "escape", "end", "home")
        assert len(app.screen_stack) == 1
    assert answers.closed.wait(60)


async def test_going_back_in_time_asks_at_that_time_and_p_returns() -> None:
    answers = Answers()
    async with _shown(answers) as (app, pilot):
        await _typed(pilot, "left")
        await _settled(pilot, lambda: app.frame.t == STARTED - 60.0)  # type: ignore[union-attr]
        await _typed(pilot, "J", *"-10m", "enter")
        await _settled(pilot, lambda: app.frame.t == STARTED - 660.0)  # type: ignore[union-attr]
        await _typed(pilot, "p")
        await _settled(pilot, lambda: app.frame.t == STARTED)  # type: ignore[union-attr]
        assert not app.view.paused and answers.asked[-1] is None


async def test_an_engine_that_fails_is_told_in_one_line_and_the_last_values_stay() -> None:
    answers = Answers()
    async with _shown(answers) as (app, pilot):
        answers.fails = "http://x: nobody listens there (connection refused)"
        app.watched.go_to(STARTED - 5.0)
        await _settled(pilot, lambda: app.view.error is not None)
        text = _text(app.frame, app.view, 100, 30)  # type: ignore[arg-type]
        assert "nobody listens there" in text and "node-0" in text
        assert app.view.stale_s is not None and "STALE" in text, (
            "it is old from the first refresh that failed"
        )
        answers.fails = ""
        app.watched.go_to(None)
        await _settled(pilot, lambda: app.view.error is None)
        assert app.view.stale_s is None


@pytest.mark.parametrize("width", [1, 10, 40])
def test_a_fleet_that_has_not_answered_is_drawn_at_every_width(width: int) -> None:
    read = FleetReading(
        1.0, "1 host", (), {"a": Down(None, "connecting …", "pending")}, (), None, LastHour([], 1.0)
    )
    assert len(fleet_screen(fleet_frame(read), FleetView(), width, 20).rows) == 20
