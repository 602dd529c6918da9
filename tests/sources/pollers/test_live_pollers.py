"""The pollers in a real loop and a real program: a stop of the program, and a quit during a call that hangs."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from gputop.model.source import CLOSE_S
from gputop.monitor import Monitor
from gputop.paint.view import View
from gputop.session.arrivals import Arrivals
from gputop.session.playback import Playback
from gputop.session.session import Session
from gputop.sources.local import LocalSource
from gputop.sources.nvml.gpu_device import GpusReading
from gputop.sources.pollers.nvml import NvmlPoller
from gputop.sources.selection import MachineOptions
from gputop.tui.node_app import GputopApp
from tests.faults.row import Watcher
from tests.nvml.stand_in import Scenario

STOPPED_S = 1.5


@pytest.mark.nvml
def test_a_program_that_was_stopped_leaves_a_hole_and_goes_on_at_its_pace(
    nvml_scenario: Callable[..., Scenario],
) -> None:
    seen: list[float] = []

    def note(snapshot: dict[str, Any]) -> bool:
        seen.append(snapshot["t"])
        return len(seen) >= 4

    with Watcher(nvml_scenario(1), interval_s=0.25) as watcher:
        watcher.until(note)
        watcher._process.send_signal(signal.SIGSTOP)
        time.sleep(STOPPED_S)
        watcher._process.send_signal(signal.SIGCONT)
        before = len(seen)
        watcher.until(lambda snapshot: note(snapshot) and len(seen) >= before + 5)
    steps = [after - earlier for earlier, after in pairwise(seen)]
    hole = max(steps)
    assert hole >= STOPPED_S - 0.3
    # Late ticks are skipped: none is made up for.
    assert sum(step < 0.1 for step in steps[steps.index(hole) + 1 :]) <= 1


async def test_a_quit_during_a_call_that_hangs_waits_for_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hangs = threading.Event()

    def read(*_: object) -> GpusReading:
        hangs.wait(60.0)
        return GpusReading(time.time(), (), ())

    waits_s: list[float] = []
    join = threading.Thread.join

    def note(thread: threading.Thread, timeout: float | None = None) -> None:
        if thread.name.startswith("gputop-"):
            waits_s.append(60.0 if timeout is None else timeout)
        join(thread, timeout)

    monkeypatch.setattr(NvmlPoller, "read", read)
    source = LocalSource(MachineOptions(interval_s=0.1), own_process=False)
    source._poller.nvml.looked.set()
    arrivals = Arrivals(source)
    arrivals.start(0.1)
    session = Session(Monitor(0.1))
    app = GputopApp(View(), "dark", Playback(source=source, session=session, arrivals=arrivals))
    try:
        async with app.run_test(size=(80, 24)) as pilot:
            # Ticks without the GPUs go on in the loop while the call hangs.
            while app.playback.newest is None or app.playback.newest.snapshot.stale == {}:
                await pilot.pause(0.05)
            monkeypatch.setattr(threading.Thread, "join", note)
            app.exit()
        source.close()
        # So much is waited at most, however slow the machine: ``test_quit`` measures the whole.
        assert waits_s and sum(waits_s) <= CLOSE_S + 0.01
        assert not hangs.is_set()
    finally:
        hangs.set()
