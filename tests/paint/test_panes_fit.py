"""All GPUs have panes on screens of usual height; where they do not fit, forced panes scroll."""

from __future__ import annotations

import re
from functools import cache
from itertools import pairwise

import pytest

from gputop.monitor import Frame, Monitor
from gputop.output.ansi import plain_text
from gputop.paint.main_screen import main_screen
from gputop.paint.view import View
from gputop.sources.simulation.simulated import SimulatedSource
from tests.support.frames import MOMENT, demo_frame

HINT = (("?", "help", "help"),)


@cache
def _frame(gpus: int) -> Frame:
    if gpus == 8:
        return demo_frame()
    monitor = Monitor()
    frames = [monitor.feed(s) for s in SimulatedSource(gpus=gpus, clock=lambda: MOMENT).past(45.0)]
    return frames[-1]


def _text(gpus: int, width: int, height: int, view: View) -> str:
    return plain_text(main_screen(_frame(gpus), view, width, height).rows)


def _charts(text: str) -> int:
    return sum(line.startswith("  UTIL") for line in text.splitlines())


@pytest.mark.parametrize(("gpus", "height"), [(8, 40), (8, 44), (4, 30), (4, 36)])
@pytest.mark.parametrize("width", [100, 120, 160])
def test_every_gpu_has_a_pane_from_usual_heights_on(gpus: int, height: int, width: int) -> None:
    text = _text(gpus, width, height, View(hint=HINT))
    assert _charts(text) == gpus
    assert text.count("python") >= 3 and "COMMAND" in text, "processes keep some rows"


def test_the_host_says_what_feeders_and_main_thread_did() -> None:
    text = _text(8, 160, 48, View(hint=HINT))
    assert "while GPU 3 idled (" in text and re.search(r"main thread +\d % busy", text)
    assert "8 torch workers, the busiest: run" in text
    assert "main thread waits: poll" in text and "pin_memory off" in text


def test_the_worst_gpu_has_no_lower_chart_than_any_other() -> None:
    lines = _text(8, 200, 60, View(hint=HINT)).splitlines()
    titles = [y for y, line in enumerate(lines) if line[100:].startswith("─ ")]
    heights = [b - a for a, b in pairwise(titles)]
    assert heights[0] == max(heights) > min(heights), "the first line has the GPU that is worst"
    scale = [y for y, line in enumerate(lines) if line[:100].rstrip().endswith("  0")]
    beside = [y for y, line in enumerate(lines) if line[100:].rstrip().endswith("  0")]
    assert scale[0] == beside[0], "charts of a line are equally high"


def test_forced_panes_name_their_place_and_follow_the_selected_gpu() -> None:
    text = _text(8, 100, 30, View(hint=HINT, layout="scroll"))
    assert _charts(text) == 6 and "GPU 0 to 5 of 8" in text
    last = _frame(8).snapshot.gpus[7].static.uuid
    text = _text(8, 100, 30, View(hint=HINT, layout="scroll", gpu=last))
    assert _charts(text) == 6 and "GPU 2 to 7 of 8" in text
    assert "GPU 0 to" not in _text(8, 100, 60, View(hint=HINT, layout="scroll"))
    assert _charts(_text(8, 50, 30, View(layout="scroll"))) == 0, "a list on a narrow screen"
