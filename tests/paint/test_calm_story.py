"""The screen is calm and hides nothing: small sizes, sparklines, what has just changed, what is lost, who waits."""

from __future__ import annotations

import re
from functools import lru_cache

import pytest

from gputop.cli import main
from gputop.monitor import Frame, Monitor
from gputop.output.ansi import plain_text
from gputop.paint.finding_rows import finding_blocks
from gputop.paint.header import summary
from gputop.paint.main_screen import main_screen
from gputop.paint.theme import THEMES
from gputop.paint.view import View
from gputop.sources.simulation.simulated import SimulatedSource
from tests.support.colour import contrast
from tests.support.frames import demo_frame


@lru_cache(maxsize=8)
def last_of(scenario: str, seconds: float = 200.0) -> Frame:
    source, monitor = (
        SimulatedSource(scenario, events_past=True, clock=lambda: 1_780_000_000.0),
        Monitor(),
    )
    return [monitor.feed(snapshot) for snapshot in source.past(seconds)][-1]


def text_of(frame: Frame, width: int, height: int, view: View | None = None) -> str:
    return plain_text(main_screen(frame, view or View(), width, height).rows)


def test_every_gpu_and_every_count_is_on_the_smallest_screen() -> None:
    rows = text_of(demo_frame(), 40, 10).splitlines()
    assert [row.split()[0] for row in rows[2:]] == [str(gpu) for gpu in range(8)]
    assert rows[1].split() == [
        "●",
        "3",
        "work",
        "■",
        "2",
        "BUSY",
        "▲",
        "2",
        "starved",
        "▲",
        "1",
        "hold",
    ]


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
def test_no_count_is_hidden_at_any_width_and_a_click_meets_the_right_one(width: int) -> None:
    frame = demo_frame()
    row = summary(frame, View(), width).row(width)
    text = "".join(part for part, _ in row)
    assert all(f" {n} " in text for n in (3, 2, 1)) and len(text) == width
    target = summary(frame, View(), width).target("count")
    assert target.at_column(text.index("starved")) is not None
    assert target.at_column(text.index("starved")).key == "starved"  # type: ignore[union-attr]


@pytest.mark.parametrize("scenario", ["stalled", "half_working", "no_tensor_cores"])
def test_the_count_over_a_yellow_verdict_is_yellow_too(scenario: str) -> None:
    frame = last_of(scenario)
    row = summary(frame, View(), 120).row(120)
    assert not any(style.startswith("level.green") for _, style in row)
    words = "half working" if scenario == "half_working" else "working poorly"
    assert any(words in text and style.startswith("level.yellow") for text, style in row)
    assert {d.state for d in frame.diagnoses} == {"working"}, "its time counts as work"


@pytest.mark.parametrize("name", ["dark", "light", "colour-blind"])
def test_work_is_quieter_than_the_words_that_praise_it(name: str) -> None:
    theme = THEMES[name]
    assert theme.background is not None
    area, words = theme.look("gap.sm").fg, theme.look("level.green").fg
    assert area is not None and words is not None
    assert contrast(area, theme.background) < contrast(words, theme.background)


def test_the_victims_of_a_straggler_say_for_whom_they_wait() -> None:
    titles = [badge.title for d in last_of("straggler").diagnoses for badge in d.badges]
    assert sorted(titles) == ["straggler", "waits for GPU 2", "waits for GPU 2", "waits for GPU 2"]


def test_the_words_beside_the_charts_have_a_help_of_their_own(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["help", "efficiency"]) == 0
    assert "SM / UTIL" in capsys.readouterr().out


def test_a_split_gpu_is_counted_by_its_instances_alone() -> None:
    rows = text_of(last_of("mig"), 120, 40).splitlines()
    assert "2 working" in rows[1] and "1 not judged" not in rows[1] and "of 2 GPUs' time" in rows[1]


def test_the_numbers_of_a_gpu_on_which_nothing_is_wrong_are_dim() -> None:
    rows = main_screen(demo_frame(), View(), 160, 48).rows
    styles = {}
    for i, row in enumerate(rows):
        text = "".join(part for part, _ in row)
        if "TENSOR" in text:
            title = "".join(part for part, _ in rows[i - 1])
            styles[title.split()[1]] = next(style for part, style in row if "TENSOR" in part)
    assert styles["1"] == styles["2"] == "dim" and styles["3"] == styles["6"] == "text"


def test_a_finding_says_once_how_long_it_stood() -> None:
    frame = last_of("idle_holding_memory", 400.0)
    for width in (80, 160):
        rows = plain_text(
            [row for _, block in finding_blocks(frame, width, 0.0) for row in block]
        ).splitlines()
        held = [row for row in rows if "idle, holding memory" in row]
        assert held and all(
            len(re.findall(r"\d+ (?:s|min|h)", row)) <= 2 and "memory   for" in row for row in held
        )


@pytest.mark.parametrize("width", [60, 80])
def test_how_long_a_finding_stood_is_never_cut(width: int) -> None:
    rows = [row for _, block in finding_blocks(last_of("node"), width, 0.0) for row in block[:1]]
    assert rows and all(
        re.search(r"for \d+(\.\d)? (s|min)( until now)?\s*$", plain_text([row])) for row in rows
    )
