"""The screen is calm and hides nothing: small sizes, sparklines, what has just changed, what is lost, who waits."""

from __future__ import annotations

import itertools
import re
from functools import lru_cache
from pathlib import Path

import pytest
from msgspec.structs import replace

from gputop.cli import main
from gputop.monitor import Frame, Monitor
from gputop.output.ansi import plain_text
from gputop.paint.glyphs import COLOUR, MONO
from gputop.paint.header import hint_of, summary
from gputop.paint.help_rows import help_rows
from gputop.paint.keys import KEYS
from gputop.paint.main_screen import main_screen
from gputop.paint.screen_division import LEAST_PROCESSES, MOST_PROCESSES, kept_processes
from gputop.paint.theme import THEMES
from gputop.paint.verdict_history import finding_blocks
from gputop.paint.view import View, selected_gpu
from gputop.paint.words import just_changed
from gputop.sources.simulation.simulated import SimulatedSource
from tests.support.colour import contrast
from tests.support.frames import demo_frame


@lru_cache(maxsize=8)
def last_of(scenario: str, seconds: float = 200.0) -> Frame:
    source, monitor = SimulatedSource(scenario, events_past=True, clock=lambda: 1_780_000_000.0), Monitor()
    return [monitor.feed(snapshot) for snapshot in source.past(seconds)][-1]


def text_of(frame: Frame, width: int, height: int, view: View | None = None) -> str:
    return plain_text(main_screen(frame, view or View(), width, height).rows)


def test_every_gpu_and_every_count_is_on_the_smallest_screen() -> None:
    rows = text_of(demo_frame(), 40, 10).splitlines()
    assert [row.split()[0] for row in rows[2:]] == [str(gpu) for gpu in range(8)]
    assert rows[1].split() == ["●", "3", "work", "■", "2", "BUSY", "▲", "2", "starved", "▲", "1", "hold"]


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


def test_the_selected_pane_of_a_full_node_is_three_times_as_tall_as_the_others() -> None:
    rows = text_of(demo_frame(), 160, 48).splitlines()
    titles = [i for i, row in enumerate(rows) if "H100   " in row and i > 1]
    heights = [b - a for a, b in itertools.pairwise(titles)]
    assert heights == [9, 3, 3, 3, 3, 3, 3]


def test_a_verdict_that_has_just_changed_is_emphasised_for_a_second() -> None:
    frame = demo_frame()
    t = frame.snapshot.t
    before = frame.diagnoses[3]
    d = replace(before, since=t, timeline=((t - 60, "collecting", None), (t, before.verdict, None)))
    changed = replace(frame, diagnoses=(*frame.diagnoses[:3], d, *frame.diagnoses[4:]))
    assert just_changed(frame.snapshot, d)
    assert not just_changed(replace(frame.snapshot, t=t + 1.0), d)
    for size in ((80, 24), (160, 48)):
        styles = {style for row in main_screen(changed, View(), *size).rows for text, style in row if "starved" in text}
        assert "level.yellow|select" in styles


def test_a_lost_gpu_is_followed_and_says_so_once() -> None:
    frame = last_of("lost_gpu")
    lost = next(i for i, gpu in enumerate(frame.snapshot.gpus) if gpu.lost_reason is not None)
    assert selected_gpu(frame, View()) == lost
    title = next(row for row in text_of(frame, 100, 30).splitlines() if "LOST since" in row)
    assert title.lower().count("lost") == 1


def test_the_victims_of_a_straggler_say_for_whom_they_wait() -> None:
    titles = [badge.title for d in last_of("straggler").diagnoses for badge in d.badges]
    assert sorted(titles) == ["straggler", "waits for GPU 2", "waits for GPU 2", "waits for GPU 2"]


def test_a_text_picture_shows_where_the_gap_begins(tmp_path: Path) -> None:
    path = tmp_path / "shot.txt"
    assert main(["screenshot", "demo", "small_kernels", "--size", "160x48", "-o", str(path)]) == 0
    text = path.read_text(encoding="utf-8")
    assert MONO.gap * 20 in text and "█" * 20 in text


def test_a_picture_of_the_demo_refuses_a_gpu_that_is_not_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--gpus", "99", "screenshot", "demo", "-o", str(tmp_path / "shot.txt")]) == 2
    assert "99" in capsys.readouterr().err


def test_in_the_help_no_word_touches_its_meaning() -> None:
    for width in (60, 80, 120):
        text = plain_text(help_rows(COLOUR, width))
        assert "dataloaderin" not in text
        assert "send SIGKILL to those" not in text


@pytest.mark.parametrize("topic", ["numbers", "efficiency"])
def test_the_words_beside_the_charts_have_a_help_of_their_own(topic: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help", topic]) == 0
    assert "SM / UTIL" in capsys.readouterr().out


def test_a_split_gpu_is_counted_by_its_instances_alone() -> None:
    rows = text_of(last_of("mig"), 120, 40).splitlines()
    assert "2 working" in rows[1] and "1 not judged" not in rows[1] and "of 2 GPUs' time" in rows[1]


def test_where_no_gpu_waits_the_host_takes_one_row() -> None:
    frame = last_of("healthy")
    rows = text_of(frame, 160, 48).splitlines()
    assert sum("waiting for a core" in row for row in rows) == 1
    assert not any(row.startswith("─ host") or "while GPU" in row for row in rows)


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
        rows = plain_text([row for _, block in finding_blocks(frame, width, 0.0) for row in block]).splitlines()
        held = [row for row in rows if "idle, holding memory" in row]
        assert held and all(len(re.findall(r"\d+ (?:s|min|h)", row)) <= 2 and "memory   for" in row for row in held)


def test_what_has_no_room_for_its_rows_keeps_its_title() -> None:
    rows = text_of(demo_frame(), 160, 38).splitlines()
    assert any(row.startswith("─ processes") for row in rows)


@pytest.mark.parametrize(("width", "height"), [(200, 50), (200, 60), (240, 70), (300, 100)])
def test_panes_beside_each_other_use_the_width_and_leave_no_row_empty(width: int, height: int) -> None:
    rows = text_of(demo_frame(), width, height, View(hint=hint_of(KEYS), tree="all")).splitlines()
    charts = [row[: width // 2] for row in rows if re.match(r"  UTIL +\d+ ", row)]
    assert len(charts) >= 4
    # GPU 1 works all the time: its chart is as wide as there is room, but for columns whose time has not come.
    blocks = [len(re.search("[▁-█]+", chart)[0]) for chart in charts if re.search("[▁-█]+", chart)]  # type: ignore[index]
    assert max(blocks) >= (0.65 if height >= 60 else 0.3) * (width // 2)
    assert all(row.strip() for row in rows[-4:])


@pytest.mark.parametrize("gpus", [1, 4, 8, 16])
def test_charts_take_the_rows_that_so_many_gpus_need_for_no_processes(gpus: int) -> None:
    assert LEAST_PROCESSES <= kept_processes(90, gpus) <= MOST_PROCESSES
    assert kept_processes(90, gpus) <= kept_processes(90, 2 * gpus)


@pytest.mark.parametrize("width", [60, 80])
def test_how_long_a_finding_stood_is_never_cut(width: int) -> None:
    rows = [row for _, block in finding_blocks(last_of("node"), width, 0.0) for row in block[:1]]
    assert rows and all(re.search(r"for \d+(\.\d)? (s|min)( until now)?\s*$", plain_text([row])) for row in rows)
