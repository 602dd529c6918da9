"""The demo is a tour: its processes answer, simulated and called so, and each GPU's page shows what its remedy changes."""

# ruff: noqa: E501

from __future__ import annotations

import os
import re
import signal
from functools import cache

import pytest

from gputop.command_line.demo_node import Remedied
from gputop.model.inspection import ProcessIdentity
from gputop.monitor import Frame, Monitor
from gputop.output.ansi import plain_text
from gputop.paint.cells import cells
from gputop.paint.deep_look_rows import environment_rows, look_rows
from gputop.paint.glyphs import ASCII, COLOUR
from gputop.paint.tour_rows import STEPS, tour_rows
from gputop.paint.view import View
from gputop.sources.simulation.simulated import SimulatedSource
from gputop.sources.simulation.simulated_access import SIMULATED, SimulatedAccess
from tests.support.expected_verdicts import EXPECTED
from tests.support.fake_app import app_on, screen_text
from tests.support.frames import MOMENT, demo_frame
from tests.support.steady_pilot import shown


@cache
def _after() -> Frame:
    return Remedied(1.0, 0, lambda: MOMENT).frame()


def test_each_page_is_about_the_verdict_that_its_gpu_reaches() -> None:
    expected = {e.gpu: e.verdict for e in EXPECTED["node"]}
    assert [step.verdict for step in STEPS] == [expected[gpu] for gpu in range(8)]
    assert [bool(step.remedy) for step in STEPS] == [
        v != "healthy" for _, v in sorted(expected.items())
    ]
    assert all(d.verdict in ("healthy", "idle") for d in _after().diagnoses)


@pytest.mark.parametrize(("width", "height"), [(40, 10), (80, 24), (160, 48), (300, 100)])
def test_a_page_has_both_charts_and_fits_its_width(width: int, height: int) -> None:
    for at, step in enumerate(STEPS):
        rows = tour_rows(
            demo_frame(), _after(), at, View(glyphs=ASCII if at % 2 else COLOUR), width, height
        )
        assert {sum(cells(text) for text, _ in row) for row in rows} == {width}
        text = plain_text(rows)
        assert ("after: " in text) is bool(step.remedy) and (
            "simulated" in text.splitlines()[0] or width < 80
        )


def test_a_page_says_what_the_remedy_changed_beside_both_charts() -> None:
    text = plain_text(tour_rows(demo_frame(), _after(), 0, View(), 160, 48))
    assert re.search(r"UTIL 9\d → 9\d %, SM [78] → 8\d %", text)
    assert "BUSY, NOT WORKING" in text and "● working" in text
    for at, step in enumerate(STEPS):
        small = plain_text(tour_rows(demo_frame(), _after(), at, View(), 120, 40))
        assert not step.remedy or "\n  → " in small.split("as it is")[1].split("after: ")[0], (
            "what helps is never cut off"
        )


async def test_the_tour_is_paged_through_and_leaves_its_last_gpu_selected() -> None:
    app, _ = app_on()
    async with shown(app, (120, 40)) as pilot:
        await pilot.press("f7")
        assert "gputop demo --tour" in screen_text(app)
        app.remedied = _after
        await pilot.press("f7", "3", "right")
        assert "4 of 8" in screen_text(app)
        await pilot.press("left", "left", "space", "escape")
        assert len(app.screen_stack) == 1
        assert app.view.gpu == demo_frame().snapshot.gpus[2].static.uuid
        await pilot.press("f7", "8", "right")
        assert len(app.screen_stack) == 1


def _asked() -> tuple[SimulatedSource, SimulatedAccess, list[float]]:
    clock = [MOMENT]
    source = SimulatedSource(clock=lambda: clock[0])
    assert source.next_due() is not None
    return source, SimulatedAccess(source), clock


def _identity(source: SimulatedSource, pid: int) -> ProcessIdentity:
    assert source.now is not None
    return next(ProcessIdentity(p.pid, p.starttime) for p in source.now.processes if p.pid == pid)


@pytest.mark.parametrize("pid", [4802, 4810])
def test_a_signal_ends_the_job_with_its_loaders_and_frees_the_gpu(
    pid: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "kill", lambda *_: pytest.fail("a real process was signalled"))
    source, access, clock = _asked()
    outcome = access.send(_identity(source, pid), signal.SIGTERM)
    assert outcome.sent and outcome.note == SIMULATED
    clock[0] += 1.0
    after = source.next_due()
    assert after is not None and not [p for p in after.processes if p.gpu == 3]
    assert {p.gpu for p in after.processes} == {0, 1, 2, 4, 5, 6, 7}
    assert after.gpus[3].util_pct == 0.0 and (after.gpus[3].mem_used_bytes or 0.0) < 2**30
    assert not access.send(ProcessIdentity(pid, 1), signal.SIGTERM).sent


def test_a_signal_that_is_not_simulated_is_not_said_to_be_sent() -> None:
    source, access, _ = _asked()
    outcome = access.send(_identity(source, 4802), signal.SIGSTOP)
    assert not outcome.sent and "SIGTERM" in outcome.reason


def test_environment_and_deep_look_of_the_demo_are_called_simulated() -> None:
    source, access, _ = _asked()
    who = _identity(source, 4802)
    text = plain_text(environment_rows(access.environment(who), "train", 120, revealed=False))
    assert SIMULATED in text
    look = access.look(who, _identity(source, 4810))
    assert SIMULATED in plain_text(look_rows(look, "", 120))


def test_what_was_changed_shows_after_a_while_as_the_verdict_of_a_free_gpu() -> None:
    source, access, clock = _asked()
    monitor = Monitor()
    access.send(_identity(source, 5120), signal.SIGKILL)
    for _ in range(40):
        clock[0] += 1.0
        snapshot = source.next_due()
        assert snapshot is not None
        frame = monitor.feed(snapshot)
    assert frame.diagnoses[7].verdict == "idle"
