"""Feeders on the screen: threads in LOADERS, and why nothing is known."""

from __future__ import annotations

from msgspec.structs import replace

from gputop.diagnosis.types import Attribution
from gputop.monitor import Frame, Monitor
from gputop.paint import host_rows
from gputop.paint.glyphs import COLOUR
from gputop.paint.line import Row
from gputop.paint.process_columns import loader_words
from gputop.paint.view import View
from tests.support.scenes import gpu, snap, train, workers

ATTRIBUTION = Attribution(60.0, loaders=4)


def _text(rows: list[Row]) -> str:
    return "\n".join("".join(text for text, _ in row) for row in rows)


def _frame(attribution: Attribution) -> Frame:
    frame = Monitor(1.0).feed(snap(0, gpu(util=40.0), [train(), *workers(4, run=9.0)]))
    (d,) = frame.diagnoses
    return replace(frame, diagnoses=(replace(d, attribution=attribution, state="starved"),))


def test_where_the_host_is_unknown_its_own_reason_is_said_and_no_other_note_that_has_the_word() -> (
    None
):
    frame = _frame(ATTRIBUTION)
    notes = (
        "cannot say whether it really works: no dcgm-exporter at http://localhost:9400/metrics",
    )
    dark = replace(
        frame.diagnoses[0], attribution=None, notes=notes, host_reason="no permission to read /proc"
    )
    rows = _text(host_rows.attribution_rows(replace(frame, diagnoses=(dark,)), View(COLOUR), 160))
    assert (
        "is unknown: no host signals: no permission to read /proc" in rows
        and "localhost" not in rows
    )


def test_loaders_counts_the_threads_of_a_process_without_workers() -> None:
    process = train(feeder_threads=6.0, pool_run_pct=205.0)
    assert loader_words(process, []) == "threads 6 R2"
    assert loader_words(replace(process, pool_run_pct=3.0), []) == "threads 6"
    assert loader_words(replace(process, feeder_threads=None), []) == "–"
    assert loader_words(process, workers(2, run=50.0)).startswith("2 torch")
