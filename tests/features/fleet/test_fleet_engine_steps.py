"""A job whose ranks wait for each other in every step, on a real Prometheus: whose own time is longer is found."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from msgspec.structs import replace

from gputop.features.fleet.address import address_of
from gputop.features.fleet.engine import Client, PromQuery, QueryError
from gputop.features.fleet.fleet_frame import fleet_frame
from gputop.features.fleet.fleet_reading import GpuReading
from gputop.features.fleet.prometheus_fleet import PrometheusFleet
from gputop.features.fleet.promql import rule_scope
from gputop.features.fleet.questions import QUESTIONS
from gputop.features.fleet.simulated_fleet import STARTED, STEP_S, SimulatedFleet
from tests.support.engines import backfill, missing, prometheus
from tests.support.fleet_pages import past

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.xdist_group("engines")]


class Synchronous(SimulatedFleet):
    """Every step takes one second on every rank; what a rank does not take for itself it waits for the others."""

    def gpu(self, host: int, number: int, t: float) -> GpuReading:
        read = super().gpu(host, number, t)
        return read if read.step_s is None else replace(read, step_s=1.0, step_wait_s=1.0 - read.step_s * 0.8)


def test_the_rank_that_the_others_wait_for_is_known_by_its_own_part_of_a_step(tmp_path: Path) -> None:
    if reason := missing("prometheus"):
        pytest.skip(reason)
    fleet = Synchronous(125)
    job = next(job for job in fleet.jobs if job.steps and job.straggler is not None and job.begun_s > 900.0)
    straggler = str(job.straggler)
    backfill(tmp_path, past(fleet, STARTED, 900.0, 15.0, range(job.first, job.first + job.hosts)))
    with prometheus(tmp_path) as url:
        client = Client(address_of(url, {}))
        live = PrometheusFleet(client, url, "", lambda: STARTED)
        frame = fleet_frame(live.ask(STARTED))
        asked = QUESTIONS["straggler_own_step"].promql(rule_scope("gputop"))
        unwaited = QUESTIONS["straggler_step"].promql(rule_scope("gputop"))
        assert asked is not None and unwaited is not None
        own, whole = client.ask([PromQuery(asked, STARTED), PromQuery(unwaited, STARTED)])
        live.close()
    (late,) = frame.stragglers
    assert (late.host, late.gpu, late.kind, late.by) == (fleet.host_name(job.first), straggler, "slow", "own_step")
    assert math.isclose(late.median, STEP_S * 0.8, rel_tol=0.01) and late.value > 1.1 * late.median
    assert not isinstance(own, QueryError) and not isinstance(whole, QueryError)
    (row,) = own.rows
    assert f'"rank":"{straggler}"'.encode() in bytes(row.metric).replace(b" ", b"")
    assert row.value is not None and math.isclose(float(row.value[1]), late.value / late.median, rel_tol=0.01)
    assert not whole.rows, "all steps take equal time"
