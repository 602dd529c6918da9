"""Nothing on the screen jumps: not by itself, not by what runs, not by the first key, not by a pause."""

from __future__ import annotations

import re
from functools import cache

import pytest
from msgspec.structs import replace

from gputop.monitor import Frame, Monitor
from gputop.output.ansi import plain_text
from gputop.paint.hint_row import hint_of
from gputop.paint.keys import KEYS
from gputop.paint.main_screen import main_screen
from gputop.paint.view import View
from gputop.session.playback import Playback
from gputop.session.session import Session
from gputop.sources.recorded import RecordedSource
from gputop.sources.simulation.simulated import SimulatedSource, snapshot_at
from tests.support.fake_app import Handed
from tests.support.frames import MOMENT, demo_frame

VIEW = View(hint=hint_of(KEYS))
SIZES = [
    (80, 24), (160, 48),
    *(pytest.param(*size, marks=pytest.mark.slow) for size in ((40, 10), (120, 40), (200, 60), (300, 100))),
]  # fmt: skip
LABELS = re.compile(
    r"UTIL|SM|GAP|WORK|MEM|OCC|TENSOR|DRAM|GiB|MHz|throttle|ECC|PCIe|NVLink|efficiency|idle(?= +[0-9]+ %)|cpu|waiting"
    r" for a core|for I/O|net|disk|queued|network|workers running|GPU-MEM|TREE-CPU|LOADERS|COMMAND|last|self|every"
)


@cache
def _a_minute() -> list[Frame]:
    source = SimulatedSource(None, clock=lambda: MOMENT)
    monitor = Monitor()
    for snapshot in source.past(120):
        monitor.feed(snapshot)
    return [monitor.feed(snapshot_at(MOMENT + second, started=MOMENT)) for second in range(1, 61)]


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_no_word_moves_sideways_in_a_minute(width: int, height: int) -> None:
    before: list[list[tuple[str, int]]] = []
    words: list[tuple[str, str]] = []
    for second, frame in enumerate(_a_minute(), 1):
        said = [(d.verdict, d.title) for d in frame.diagnoses]
        rows = plain_text(main_screen(frame, VIEW, width, height).rows).splitlines()
        # Evidence and attribution are sentences with numbers in them; everything else is fixed.
        rows = [row for row in rows if not re.search("while GPU|[↳→·] |  +[a-z]+ .*: ", row)]
        now = [[(m.group(), m.start()) for m in LABELS.finditer(row)] for row in rows]
        if words == said and len(now) == len(before):
            assert now == before, f"second {second}"
        before, words = now, said


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_the_layout_does_not_depend_on_how_many_processes_run(width: int, height: int) -> None:
    frame = demo_frame()
    alone = replace(frame, snapshot=replace(frame.snapshot, processes=frame.snapshot.processes[:1]))
    heads = []
    for one in (frame, alone):
        rows = plain_text(main_screen(one, VIEW, width, height).rows).splitlines()
        heads.append(
            [i for i, row in enumerate(rows) if row.startswith(("─ host", "L processes", " ?"))]
        )
    assert heads[0] == heads[1]


def test_a_pause_in_the_first_second_freezes_exactly_what_was_on_the_screen() -> None:
    session = Session(Monitor())
    for snapshot in SimulatedSource(None, clock=lambda: MOMENT).past(120):
        session.take(snapshot)
    playback = Playback(source=Handed(), session=session, replay_past=RecordedSource)
    assert playback.frame is not None
    view = replace(VIEW, span_s=300.0)
    before = main_screen(playback.frame, view, 160, 48).rows
    assert playback.pause()
    for second in range(1, 5):
        session.take(snapshot_at(MOMENT + second, started=MOMENT))
        while playback.player is not None and playback.player.busy:
            playback.work()
        assert main_screen(playback.frame, view, 160, 48).rows == before
    playback.go_live()
    playback.newest = session.monitor.latest


def test_a_tiny_screen_wastes_no_row() -> None:
    rows = plain_text(main_screen(demo_frame(), VIEW, 40, 10).rows).splitlines()
    assert all(row.strip() for row in rows) and len(rows) == 10
