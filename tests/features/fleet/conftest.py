"""What tests of a fleet share: an engine that answers whatever they say, and fleets that ask it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gputop.features.fleet.judge.fleet_frame import FleetFrame, fleet_frame
from gputop.features.fleet.read.address import address_of
from gputop.features.fleet.read.engine import Answer, Client, PromQuery, QueryError
from gputop.features.fleet.read.prometheus_fleet import PrometheusFleet
from gputop.features.fleet.read.simulated_fleet import LATE, STARTED, SimulatedFleet
from gputop.paint.line import Row
from tests.support.engines import backfill, imported, prometheus, victoria
from tests.support.scripted_engine import ScriptedEngine
from tests.support.scripted_engine import engine as scripted


def planted(fleet: SimulatedFleet) -> set[tuple[str, str, str]]:
    """(host, gpu, kind) of every straggler that the exported values can show."""
    stragglers = {
        (job.first + job.straggler // fleet.gpus, job.straggler % fleet.gpus, job.fate)
        for job in fleet.jobs
        if job.straggler is not None
    }
    return {
        (fleet.host_name(host), str(gpu), "starved" if fate is LATE else "slow")
        for host, gpu, fate in stragglers
        if not fleet.is_down(host) and host != fleet.late
    }


def text_of(rows: Iterable[Row]) -> str:
    """Painted rows without their colours."""
    return "\n".join("".join(text for text, _ in row) for row in rows)


def counted(frame: FleetFrame) -> dict[str, int]:
    """How many GPUs are in each state that there is."""
    return {state: n for state, n in frame.counts.items() if n}


def failing_at_times(client: Any) -> list[str]:
    """Let the client's questions that hold this text fail; an empty one lets all pass."""
    real, failing = client.ask, [""]

    def ask(queries: Sequence[PromQuery]) -> list[Answer | QueryError]:
        return [
            QueryError("503, the engine failed")
            if failing[0] and failing[0] in query.promql
            else answer
            for query, answer in zip(queries, real(queries), strict=True)
        ]

    client.ask = ask
    return failing


@contextmanager
def engine_with(name: str, folder: Path, lines: Iterable[str]) -> Iterator[str]:
    """The URL of an engine with these lines in it."""
    if name == "prometheus":
        backfill(folder, lines)
    with (prometheus if name == "prometheus" else victoria)(folder) as url:
        if name != "prometheus":
            imported(url, lines)
        yield url


@pytest.fixture(scope="session")
def frame() -> FleetFrame:
    """The simulated fleet of 125 hosts at its start."""
    return fleet_frame(SimulatedFleet(125).ask(STARTED))


@pytest.fixture
def engine() -> Iterator[ScriptedEngine]:
    with scripted() as server:
        yield server


@pytest.fixture
def asked() -> Iterator[Callable[..., PrometheusFleet]]:
    """Makes fleets of an engine's address, at the simulation's time unless a clock is given; they are closed."""
    fleets: list[PrometheusFleet] = []

    def of(
        url: str, clock: Callable[[], float] = lambda: STARTED, select: str = "", **address: Any
    ) -> PrometheusFleet:
        fleets.append(PrometheusFleet(Client(address_of(url, {}, **address)), "x", select, clock))
        return fleets[-1]

    yield of
    for fleet in fleets:
        fleet.close()
