"""Numbers agree with words: a row shows the means that its verdict stands on, and not the second that just passed."""

from __future__ import annotations

import re

import pytest

from gputop.monitor import Frame, Monitor
from gputop.output.ansi import plain_text
from gputop.paint.glyphs import level_glyph
from gputop.paint.gpu_fields import number_labels, sm_text
from gputop.paint.main_screen import main_screen
from gputop.paint.theme import THEMES
from gputop.paint.view import View
from gputop.sources.simulation.simulated import snapshot_at
from tests.support.frames import MOMENT
from tests.support.scenes import gpu

STARVED = 3


@pytest.fixture(scope="module")
def frames() -> list[Frame]:
    """One second after the other of a node on which GPU 3 starves: its utilisation jumps between 8 and 85."""
    monitor = Monitor()
    return [
        monitor.feed(snapshot_at(MOMENT + second, started=MOMENT, gpus=8)) for second in range(90)
    ]


def row_of(frame: Frame, gpu: int, size: tuple[int, int]) -> str:
    rows = plain_text(main_screen(frame, View(), *size).rows).splitlines()
    return next(
        row for row in rows if re.match(rf"[ ─]{gpu}  ?", row) or row.startswith(f" {gpu} ")
    )


def test_a_row_of_the_list_stands_still_while_the_seconds_jump(frames: list[Frame]) -> None:
    newest = [frame.snapshot.gpus[STARVED].util_pct for frame in frames[60:]]
    assert max(newest) - min(newest) > 50  # type: ignore[type-var,operator]
    shown = []
    for frame in frames[60:]:
        numbers = re.findall(r"\d+", row_of(frame, STARVED, (80, 24))[14:22])
        shown.append(int(numbers[0]))
        means = frame.diagnoses[STARVED].means
        assert means is not None and means.util_pct is not None
        assert shown[-1] == round(means.util_pct)
    assert max(shown) - min(shown) < 30


def test_the_row_of_a_starved_gpu_and_its_verdict_say_the_same(frames: list[Frame]) -> None:
    d = frames[-1].diagnoses[STARVED]
    assert d.figure is not None and d.figure[0] == "idle" and d.means is not None
    assert d.figure[1] == pytest.approx(100.0 - (d.means.util_pct or 0.0))


def test_the_gap_is_the_difference_of_the_two_numbers_above_it(frames: list[Frame]) -> None:
    d = frames[-1].diagnoses[0]
    for util, sm in ((97.4, 87.6), (98.4, 88.6), (40.0, 41.0)):
        shown = [int(row[1][0]) for row in number_labels(gpu(util=util, sm=sm), d)]
        assert shown[2] == max(0, shown[0] - shown[1])


def test_with_too_few_samples_the_newest_second_stands_dim(frames: list[Frame]) -> None:
    frame = Monitor().feed(frames[0].snapshot)
    util = frame.snapshot.gpus[STARVED].util_pct
    row = next(
        row
        for row in main_screen(frame, View(), 80, 24).rows
        if "".join(t for t, _ in row).startswith(" 3 ")
    )
    assert (
        f"  {util:3.0f}" in "".join(text for text, style in row if style.startswith("dim"))
    ) is True


def test_nothing_is_green_that_was_not_seen_to_work(frames: list[Frame]) -> None:
    working, starved = frames[-1].diagnoses[1], frames[-1].diagnoses[STARVED]
    styles = [
        sm_text(gpu(sm=sm), d, newest=False)[1]
        for sm, d in ((0.0, working), (88.0, working), (88.0, starved))
    ]
    assert styles == ["strong", "value.sm", "strong"]
    assert level_glyph("grey") != level_glyph("green")
    looks = THEMES["dark"].looks
    assert looks["level.grey"] != looks["level.green"]
