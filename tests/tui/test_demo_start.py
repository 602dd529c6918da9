"""The demo shows a picture before its past is judged, hears keys meanwhile, and never shows half a judgement."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

from gputop.command_line.demo_node import Remedied
from gputop.command_line.screen import replay_past
from gputop.diagnosis.rules.gates import COLLECTING
from gputop.monitor import Frame, Monitor
from gputop.output.ansi import plain_text
from gputop.paint.tour_rows import tour_rows
from gputop.paint.view import View
from gputop.session.playback import Playback
from gputop.session.preparation import Preparation
from gputop.session.session import Session
from gputop.sources.simulation.simulated import SimulatedSource
from gputop.tui.node_app import GputopApp
from tests.support.fake_app import Handed, screen_text
from tests.support.frames import MOMENT
from tests.support.steady_pilot import shown

SIZE = (120, 40)


def _source() -> SimulatedSource:
    return SimulatedSource("small_kernels", clock=lambda: MOMENT)


def _sketch() -> Frame:
    return Monitor().sketch(_source().sketch(120.0, 40))


class _Held:
    """The judging of a past, of which the second half waits until it is let go on."""

    def __init__(self) -> None:
        self.goes_on = threading.Event()
        self.session = Session(Monitor())
        self.half = threading.Event()

    def steps(self) -> Iterator[object]:
        past = list(_source().past(60.0))
        for number, snapshot in enumerate(past):
            if number == len(past) // 2:
                self.half.set()
                assert self.goes_on.wait(30.0)
            yield self.session.monitor.feed(snapshot)

    def app(self, steps: Iterator[object] | None = None) -> GputopApp:
        preparation = Preparation(_sketch(), "the minute before", steps or self.steps(), 60)
        playback = Playback(
            source=Handed(),  # type: ignore[arg-type]
            session=self.session,
            replay_past=replay_past,
            preparation=preparation,
        )
        preparation.start()
        return GputopApp(View(), "dark", playback)


async def _until_judged(app: GputopApp) -> None:
    for _ in range(1000):
        if app.playback.preparation is None:
            return
        await asyncio.sleep(0.01)
    raise AssertionError("the past was never judged")


def test_a_sketch_has_charts_and_no_verdict() -> None:
    frame = _sketch()
    uuid = frame.snapshot.gpus[0].static.uuid
    values = [value for _, value in frame.history.recent(uuid, "util_pct", 120.0)]
    assert len(values) > 30 and None not in values
    assert {d.verdict for d in frame.diagnoses} == {COLLECTING.id}
    assert not any(d.evidence for d in frame.diagnoses)


async def test_no_verdict_shows_before_the_whole_past_is_judged() -> None:
    held = _Held()
    app = held.app()
    async with shown(app, SIZE) as pilot:
        assert held.half.wait(30.0)
        latest = held.session.monitor.latest
        assert latest is not None and latest.diagnoses[0].verdict != COLLECTING.id
        app.deliver(next(iter(_source().sketch(0.0, 1))))
        await pilot.pause(0.3)
        text = screen_text(app)
        assert "judging the minute before: 50 %" in text
        assert "BUSY, NOT WORKING" not in text and "collecting" in text
        await pilot.press("p")
        assert "the past is judged first" in screen_text(app)
        held.goes_on.set()
        await _until_judged(app)
        await pilot.pause()
        assert "BUSY, NOT WORKING" in screen_text(app) and "judging" not in screen_text(app)
        newest = app.playback.newest
        assert newest is not None and newest.snapshot.t == MOMENT, "what came meanwhile is taken"
        await pilot.press("p")
        assert app.playback.shows_past


async def test_q_ends_the_demo_while_its_past_is_judged() -> None:
    held = _Held()
    app = held.app()
    async with shown(app, SIZE) as pilot:
        assert held.half.wait(30.0)
        await pilot.press("q")
        assert app.return_value == 0
    held.goes_on.set()


async def test_what_fails_while_the_past_is_judged_ends_the_screen() -> None:
    def fails() -> Iterator[object]:
        yield None
        raise OSError("broken")

    app = _Held().app(fails())
    async with shown(app, SIZE) as pilot:
        await pilot.pause(0.3)
    assert isinstance(app.crash, OSError)


def test_the_first_page_of_the_tour_tells_no_verdict_before_it_is_judged() -> None:
    remedied = Remedied(1.0, 0, lambda: MOMENT)
    after = remedied.sketch()
    assert remedied.frame() is after, "nothing half judged"
    text = plain_text(tour_rows(_sketch(), after, 0, View(), 160, 48))
    assert "what changes: UTIL" in text and "something else by now" not in text
    assert "BUSY" not in text and "working" not in text.split("as it is")[1].replace(
        "not working", ""
    )
