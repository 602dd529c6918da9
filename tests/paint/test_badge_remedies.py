"""What helps against a badge is shown wherever rows are free, on every size of screen."""

from __future__ import annotations

import pytest

from gputop.diagnosis.verdict.summary import summarize
from gputop.monitor import Frame
from gputop.output.ansi import plain_text
from gputop.paint.main_screen import main_screen
from gputop.paint.view import View
from gputop.sources.simulation.scenarios import SCENARIOS
from tests.support.frames import demo_frame
from tests.support.seldom import quick_ones

QUICK = ("thermal", "straggler", "ecc", "shared_gpu", "dataloader_cpu_throttled")
"""Scenes of badges with remedies of one and of more lines."""
SIZES = ((80, 24), (100, 30), (120, 40), (160, 48), (200, 60))


def painted(frame: Frame, uuid: str, size: tuple[int, int]) -> tuple[str, int]:
    """Return the screen's words and the number of empty rows at its end."""
    rows = plain_text(main_screen(frame, View(gpu=uuid), *size).rows).splitlines()
    last = max(at for at, row in enumerate(rows) if row.strip())
    return " ".join(" ".join(rows).split()), len(rows) - 1 - last


@pytest.mark.parametrize("scenario", quick_ones(SCENARIOS, QUICK))
def test_each_badge_of_the_selected_gpu_has_its_remedy_where_rows_are_free(scenario: str) -> None:
    frame = demo_frame(scenario)
    for d in frame.diagnoses:
        for badge in summarize(d).other_badges:
            for size in SIZES if badge.remedy else ():
                words, free = painted(frame, d.uuid, size)
                # A long remedy is wrapped: its first words are enough.
                first_words = " ".join(badge.remedy.split()[:4])
                assert f"→ {first_words}" in words or not free, (badge.id, size, free)


def test_the_least_pane_of_one_gpu_has_room_for_a_remedy_beside_its_chart() -> None:
    frame = demo_frame("thermal")
    words, _ = painted(frame, frame.diagnoses[0].uuid, (100, 24))
    assert "→ check airflow and fans" in words
