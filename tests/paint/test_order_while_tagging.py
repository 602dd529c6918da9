"""Rows keep their places while somebody tags; and processes can be ordered by their memory's bandwidth."""

from __future__ import annotations

from msgspec.structs import replace

from gputop.paint.main_screen import Painter
from gputop.paint.process_columns import COLUMNS
from gputop.paint.process_table import ShownProcess, in_order_of, key_of
from gputop.paint.view import View
from tests.support.fake_app import app_on, screen_text
from tests.support.frames import demo_frame
from tests.support.steady_pilot import shown


def _pids(rows: list[ShownProcess]) -> list[int]:
    return [row.process.pid for row in rows if not row.branch]


def test_rows_keep_their_places_while_one_is_tagged() -> None:
    frame = demo_frame()
    turned = replace(frame, diagnoses=frame.diagnoses)
    processes = tuple(reversed(frame.shown.processes))
    turned.__dict__["shown"] = replace(
        frame.shown,
        processes=tuple(replace(p, gpu_mem_bytes=float(p.pid)) for p in processes),
    )
    painter, view = Painter(), View(sort="gpu_mem_bytes")
    before = painter.shown_rows(frame, view)
    tagged = replace(view, tagged=frozenset({key_of(before[0].process)}))
    assert _pids(painter.shown_rows(turned, tagged)) == _pids(before)
    assert _pids(Painter().shown_rows(turned, view)) != _pids(before), "without a tag they move"
    other_sort = replace(tagged, sort="pid")
    assert _pids(painter.shown_rows(turned, other_sort)) == sorted(_pids(before)), "unless asked"


def test_branches_stay_below_their_process_and_new_ones_come_last() -> None:
    rows = Painter().shown_rows(demo_frame(), View(tree="all"))
    known = [row for row in rows if row.process.pid != rows[0].process.pid]
    kept = in_order_of(rows, list(reversed([row for row in known if not row.branch])))
    assert len(kept) == len(rows)
    tops = _pids(kept)
    assert tops[-1] == rows[0].process.pid and tops[0] == _pids(rows)[-1]


async def test_the_menu_of_orders_has_the_bandwidth_of_gpu_memory() -> None:
    app, _ = app_on()
    async with shown(app, (120, 40)) as pilot:
        await pilot.press("o", COLUMNS["gpu_mem_time_pct"].letter)
        assert app.view.sort == "gpu_mem_time_pct"
        assert "by MEM" in screen_text(app)
