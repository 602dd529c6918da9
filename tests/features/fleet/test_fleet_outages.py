"""A real Prometheus that restarts or hangs under a watch that runs: one line each, the last values stay, it goes on.

The watch asks every fifth of a second, so that an outage of seconds is many refreshes.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from gputop.features.fleet.address import address_of
from gputop.features.fleet.engine import Client
from gputop.features.fleet.fleet_frame import fleet_frame
from gputop.features.fleet.fleet_screen import fleet_screen
from gputop.features.fleet.fleet_view import FleetView
from gputop.features.fleet.prometheus_fleet import PrometheusFleet
from gputop.features.fleet.simulated_fleet import STARTED, SimulatedFleet
from gputop.features.fleet.watch_thread import FleetWatch, ShownFrame
from tests.features.fleet.conftest import text_of
from tests.support.engines import backfill, free_port, missing, prometheus
from tests.support.fleet_pages import past

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(missing("prometheus")), reason="no prometheus")]
HOSTS, DEADLINE_S, LONGEST_S = 20, 1.0, 120.0


class Eager(PrometheusFleet):
    """Asks again at once."""

    interval_s = 0.2  # type: ignore[assignment]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("engine")
    backfill(found, past(SimulatedFleet(HOSTS), STARTED, 900.0, 15.0))
    return found


@pytest.fixture
def watch() -> Iterator[FleetWatch]:
    url = f"http://127.0.0.1:{free_port()}"
    found = FleetWatch(Eager(Client(address_of(url, {}), DEADLINE_S), url, "", lambda: STARTED))
    found.go_to(STARTED)
    found.fleet.settle()
    found.start(lambda: None)
    yield found
    found.close()


def _port(watch: FleetWatch) -> int:
    return int(watch.fleet.source.rpartition(":")[2])


@contextmanager
def _stopped(engine: psutil.Process) -> Iterator[None]:
    engine.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        engine.send_signal(signal.SIGCONT)


def _until(watch: FleetWatch, holds: Callable[[ShownFrame], object]) -> ShownFrame:
    deadline = time.monotonic() + LONGEST_S
    while not holds(watch.shown):
        assert time.monotonic() < deadline, watch.shown.error
        time.sleep(0.02)
    return watch.shown


def _rows(shown: ShownFrame, stale_s: float) -> str:
    assert shown.frame is not None
    rows = fleet_screen(shown.frame, FleetView(error=shown.error, stale_s=stale_s), 120, 36).rows
    colours = {style.partition("|")[0] for row in rows[3:-2] for text, style in row if text.strip()}
    assert colours <= {"dim", "rule", "title", "heading"}, "what is old is grey"
    return text_of(rows)


def test_an_engine_that_was_not_there_at_the_start_restarts_and_comes_back(folder: Path, watch: FleetWatch) -> None:
    shown = _until(watch, lambda shown: shown.error)
    assert shown.frame is None and "nobody listens there" in str(shown.error)
    wanted = fleet_frame(SimulatedFleet(HOSTS).ask(STARTED)).counts
    for _ in range(2):
        with prometheus(folder, port=_port(watch)):
            # A look at an engine that is not quite ready may miss a part.
            _until(watch, lambda shown: shown.frame is not None and not shown.error and shown.frame.counts == wanted)
        shown = _until(watch, lambda shown: shown.error)
        assert shown.frame is not None and shown.frame.counts == wanted
        assert "\n" not in str(shown.error) and len(str(shown.error)) < 120
        text = _rows(shown, 42.0)
        assert "STALE 42 s" in text and str(shown.error) in text and "node-0" in text


def test_an_engine_that_hangs_is_given_up_at_its_deadline_and_nobody_waits_for_it(
    folder: Path, watch: FleetWatch
) -> None:
    with prometheus(folder, port=_port(watch)):
        engine = next(child for child in psutil.Process().children() if child.name() == "prometheus")
        kept = _until(watch, lambda shown: shown.frame is not None).frame
        with _stopped(engine):
            shown = _until(watch, lambda shown: shown.error)
            assert "no answer within 1 s" in str(shown.error) and shown.frame is not None
            assert kept is not None and shown.frame.counts == kept.counts
            begun = time.monotonic()
            for n in range(20):
                _rows(shown, 5.0)
                watch.see((), f"node-{n + 1:03d}")
            assert time.monotonic() - begun < LONGEST_S / 3 and watch.age_s > 0.5
        _until(watch, lambda shown: shown.error is None)
        with _stopped(engine):
            _until(watch, lambda shown: shown.error)
            watch.close()
            threads = [thread for thread in threading.enumerate() if thread.name == "gputop-fleet"]
            for thread in threads:
                thread.join(LONGEST_S)
            assert not any(thread.is_alive() for thread in threads)
