"""The screen of one GPU: exact at every size, one axis for all charts, a cursor that reads, words for absence."""

from __future__ import annotations

import re

import pytest
from msgspec.structs import replace

from gputop.model.metrics import GPU_METRICS
from gputop.monitor import Frame, Monitor
from gputop.output.ansi import plain_text
from gputop.paint.cells import cells
from gputop.paint.detail_page import LABEL_WIDTH, DetailsPainted, DetailsView, after_key
from gputop.paint.glyphs import ASCII, COLOUR, MONO, Glyphs
from gputop.paint.gpu_page import gpu_details
from gputop.paint.main_screen import main_screen
from gputop.paint.panes import ShownGpu, last_seen
from gputop.paint.provenance import provenance_rows
from gputop.paint.verdict_history import verdict_spans
from gputop.paint.view import View
from gputop.sources.nvml.device_health import KEYS as HEALTH_KEYS
from gputop.sources.nvml.gpu_questions import FIXED
from gputop.sources.nvml.gpu_questions import SELDOM as ASKED_SELDOM
from gputop.tui.screens.detail_screens import GpuDetailsScreen
from tests.support.fake_app import app_on, hand_in, later, screen_rows
from tests.support.frames import MOMENT, demo_frame
from tests.support.scenes import T0, gpu, snap, train
from tests.support.steady_pilot import shown

SIZES = [
    (40, 10),
    (80, 24),
    (100, 30),
    (120, 36),
    (160, 48),
    (200, 60),
    (300, 100),
    (20, 5),
    (5, 3),
    (1, 1),
]


def _painted(
    frame: Frame,
    width: int = 160,
    height: int = 48,
    position: int = 0,
    state: DetailsView | None = None,
) -> DetailsPainted:
    return gpu_details(
        frame,
        state or DetailsView(View()),
        frame.snapshot.gpus[position].static.uuid,
        width,
        height,
    )


def _text(
    frame: Frame, width: int = 160, height: int = 160, position: int = 0, **view: object
) -> str:
    state = DetailsView(View(**view))  # type: ignore[arg-type]
    return plain_text(_painted(frame, width, height, position, state).rows)


@pytest.mark.parametrize("glyphs", [COLOUR, MONO, ASCII], ids=lambda g: g.name)
@pytest.mark.parametrize(("width", "height"), SIZES)
def test_every_size_is_filled_exactly_wherever_it_is_scrolled_to(
    width: int, height: int, glyphs: Glyphs
) -> None:
    for position in (0, 7) if glyphs is COLOUR else (3,):
        for first, cursor_t in ((0, None), (7, MOMENT - 30.0), (10**6, None)):
            state = DetailsView(View(glyphs=glyphs), first, cursor_t)
            rows = _painted(demo_frame(), width, height, position, state).rows
            assert len(rows) == height
            assert {sum(cells(text) for text, _ in row) for row in rows} == {width}
            if glyphs is ASCII:
                assert all(text.isascii() for row in rows for text, _ in row)


def test_all_charts_lanes_and_tables_are_there() -> None:
    text = _text(demo_frame(), position=3)
    for word in (
        "UTIL",
        "verdict",
        "TENSOR",
        "DRAM",
        "POWER",
        "CLOCK",
        "slowed",
        "PCIe",
        "NVLink",
        "MEM",
        "TEMP",
    ):
        assert f"\n  {word}" in text
    for lane in ("GPU idle", "loaders", "queued", "disk", "network", "main"):
        assert f"\n  {lane}" in text
    assert "FROM, OR WHY IT IS MISSING" in text


def test_every_chart_stands_on_the_same_columns() -> None:
    painted = _painted(demo_frame(), state=DetailsView(View(), 0, MOMENT - 60.0))
    column = LABEL_WIDTH + painted.axis.column_of(MOMENT - 60.0)
    hair = [row for row in plain_text(painted.rows).splitlines() if "│" in row]
    assert len(hair) > 25
    assert {row.index("│") for row in hair} == {column}


def test_the_cursor_reads_the_values_of_its_column() -> None:
    monitor = Monitor()
    for tick in range(60):
        frame = monitor.feed(snap(tick, gpu(util=float(tick), power_w=100.0 + tick), [train()]))
    state = DetailsView(View(span_s=60.0))
    painted = _painted(frame, 84, 30, state=state)
    assert painted.axis.columns == 59
    for _ in range(10):
        state = after_key(state, "left", painted)
    text = plain_text(_painted(frame, 84, 30, state=state).rows)
    line = next(row for row in text.splitlines() if row.startswith("  at "))
    read = int(line.split("UTIL")[1].split()[0])
    assert 47 <= read <= 50
    assert f" {100 + read} W" in line or f" {99 + read} W" in line
    assert state.cursor_t == pytest.approx(T0 + 49, abs=1.5)


def test_a_cursor_stays_at_its_time_while_the_charts_move_on() -> None:
    state = DetailsView(View(), 0, MOMENT - 60.0)
    before, after = (
        _painted(demo_frame(), state=state),
        _painted(demo_frame(later_s=20), state=state),
    )
    assert after.axis.column_of(MOMENT - 60.0) < before.axis.column_of(MOMENT - 60.0)
    late = DetailsView(View(), 0, MOMENT - 10_000.0)
    text = plain_text(_painted(demo_frame(), state=late).rows)
    assert next(row for row in text.splitlines() if "│" in row).index("│") == LABEL_WIDTH


def test_keys_scroll_zoom_and_stop_at_the_ends() -> None:
    painted = _painted(demo_frame(), 80, 24)
    state = DetailsView(View())
    assert after_key(state, "up", painted).first == 0
    assert after_key(state, "page_down", painted).first == painted.room
    assert after_key(DetailsView(View(), 10**6), "down", painted).first == painted.most_first
    assert after_key(state, "longer", painted).view.span_s == 300.0
    assert after_key(DetailsView(View(span_s=86400.0)), "longer", painted).view.span_s == 86400.0
    oldest = after_key(state, "oldest", painted)
    assert oldest.cursor_t == painted.axis.middle(0)
    assert after_key(oldest, "newest", painted).cursor_t is None
    assert after_key(oldest, "far_right", painted).cursor_t == painted.axis.middle(10)


def test_throttling_is_marked_with_its_reason_under_the_clock() -> None:
    monitor = Monitor()
    for tick in range(60):
        frame = monitor.feed(snap(tick, gpu(throttle_reasons=0x40 if tick > 40 else 0), [train()]))
    rows = _painted(frame, 100, 60, state=DetailsView(View(span_s=60.0))).rows
    row = next(row for row in plain_text(rows).splitlines() if row.startswith("  slowed"))
    assert {
        style for row in rows for text, style in row if text.strip() and not text.strip("T ")
    } == {"level.red"}
    assert "T heat" in row
    chart = row[LABEL_WIDTH : LABEL_WIDTH + 75]
    assert set(chart) == {" ", "T"}
    assert 20 <= chart.count("T") <= 28
    quiet = _text(demo_frame(), position=1)
    assert "nothing limited the clocks" in quiet


def test_the_strip_ends_with_the_verdict_of_the_title() -> None:
    frame = demo_frame()
    d = frame.diagnoses[3]
    listed = verdict_spans(frame, d)
    assert [entry.title for entry in listed][-1] == d.title
    assert listed[-1].end is None and all(entry.end is not None for entry in listed[:-1])
    assert [entry.end for entry in listed[:-1]] == [entry.begin for entry in listed[1:]]
    text = _text(frame, position=3)
    assert text.count(d.title) >= 2  # title and strip


def test_what_is_not_measured_has_its_reason_and_no_chart() -> None:
    rows = _text(demo_frame("no_sm_counter")).splitlines()
    tensor = [row for row in rows if row.startswith("  TENSOR")]
    assert len(tensor) == 1  # in the table of values alone, where the reason stands
    assert "n/a" in tensor[0] and len(tensor[0].split("n/a")[1].strip()) > 10
    activity = next(row for row in rows if row.startswith("  SM  ") and "bound from UTIL" in row)
    assert "n/a" in activity


def test_provenance_names_the_source_that_measures_now() -> None:
    frame = demo_frame()
    scraped = replace(
        frame.snapshot.gpus[1], sm_source="dcgm-exporter", sm_window_s=30.0, sm_age_s=4.0
    )
    text = plain_text(provenance_rows(frame.snapshot, scraped, {}, 120))
    row = next(row for row in text.splitlines() if row.startswith("  SM  "))
    assert "dcgm-exporter: DCGM_FI_PROF_SM_ACTIVE, mean of 30.0 s" in row and "4.0 s" in row
    counted = replace(scraped, sm_source="counters", sm_window_s=1.0)
    row = next(
        r
        for r in plain_text(provenance_rows(frame.snapshot, counted, {}, 120)).splitlines()
        if "  SM  " in r
    )
    assert "hardware counters, held exclusively, mean of 1.0 s" in row and "GPM" not in row
    power = next(row for row in text.splitlines() if row.startswith("  POWER"))
    assert "nvmlDeviceGetPowerUsage" in power and "fresh" in power
    late = replace(frame.snapshot, stale={"nvml": 7.0})
    text = plain_text(provenance_rows(late, scraped, {}, 120))
    assert "7 s" in next(row for row in text.splitlines() if row.startswith("  POWER"))


def test_what_the_screen_calls_seldom_is_what_the_driver_is_asked_seldom() -> None:
    seldom = {key for key, metric in GPU_METRICS.items() if metric.seldom}
    asked = {key for question in (*ASKED_SELDOM, *FIXED) for key in question.keys}
    assert asked | {*HEALTH_KEYS, "ecc_corrected_per_s"} == seldom


def test_a_lost_gpu_and_one_that_is_gone_are_said_in_words() -> None:
    frame = demo_frame("lost_gpu", later_s=75)
    lost = next(i for i, g in enumerate(frame.snapshot.gpus) if g.lost_reason)
    assert "LOST since" in _text(frame, position=lost)
    gone = gpu_details(frame, DetailsView(View()), "GPU-elsewhere", 80, 24)
    assert "no longer in the snapshot" in plain_text(gone.rows) and len(gone.rows) == 24


async def test_the_screen_scrolls_zooms_reads_closes_and_follows_new_frames_and_sizes() -> None:
    first = demo_frame().snapshot.gpus[0].static.uuid
    app, source = app_on(view=View(gpu=first))
    async with shown(app, (100, 30)) as pilot:
        await pilot.press("D")
        assert {len(row) for row in screen_rows(app)} == {100}
        await pilot.press("plus")
        assert app.view.span_s == 300.0
        assert "-5 min" in screen_rows(app)[-2]
        await pilot.press("left")
        assert any(row.startswith("  at ") for row in screen_rows(app))
        await pilot.press("end")
        assert not any(row.startswith("  at ") for row in screen_rows(app))
        await pilot.click(offset=(50, 10))
        assert screen_rows(app)[10][50] == "│"
        await pilot.press("pagedown", "pagedown", "pagedown", "pagedown", "pagedown")
        assert "ECC" in "\n".join(screen_rows(app))
        await pilot.press("]")
        assert app.view.gpu == demo_frame().snapshot.gpus[1].static.uuid
        assert "1  H100" in screen_rows(app)[1]
        clock, screen = screen_rows(app)[0], app.screen
        assert isinstance(screen, GpuDetailsScreen)
        await hand_in(app, source, pilot, [later(demo_frame(), 20.0)])
        screen._look()
        assert screen_rows(app)[0] != clock
        await pilot.resize_terminal(60, 20)
        await pilot.pause(0.1)
        assert {len(row) for row in screen_rows(app)} == {60}
        await pilot.press("escape")
        assert not isinstance(app.screen, GpuDetailsScreen)


LAST = re.compile(r"before it was lost: +UTIL +9\d +\d{3} W +\d\d °C")


@pytest.mark.parametrize("size", [(100, 30), (120, 40), (160, 48), (200, 60)])
def test_a_lost_gpu_shows_its_last_values_in_its_pane_and_on_its_page(
    size: tuple[int, int],
) -> None:
    frame = demo_frame("lost_gpu", later_s=100)
    (lost,) = [gpu for gpu in frame.snapshot.gpus if gpu.lost_reason is not None]
    view = View(gpu=lost.static.uuid)
    assert LAST.search(plain_text(main_screen(frame, view, *size).rows))
    page = plain_text(gpu_details(frame, DetailsView(view), lost.static.uuid, *size).rows)
    assert LAST.search(page)


def test_the_last_values_stay_for_hours_and_none_are_made_up() -> None:
    monitor = Monitor()
    for tick in range(100):
        frame = monitor.feed(snap(tick, gpu(util=90.0, power_w=500.0)))
    lost = gpu(
        util=None, sm=None, power_w=None, lost_reason="fell off the bus", lost_since=T0 + 100
    )
    for tick in (100, 400, 5000):
        frame = monitor.feed(snap(tick, lost))
        words = "".join(text for text, _ in last_seen(ShownGpu(frame, View(), 0)))
        assert "UTIL  90" in words and "500 W" in words
    never = Monitor().feed(snap(0, lost))
    assert last_seen(ShownGpu(never, View(), 0)) == []
