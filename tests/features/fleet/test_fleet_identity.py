"""A GPU is one whatever speaks of it, and its hours count once; a host is a straggler where each of its GPUs is."""

from __future__ import annotations

import pytest

from gputop.features.fleet.fleet_reading import FleetError, FleetReading, GpuReading, JobName
from gputop.features.fleet.judge.fleet_frame import fleet_frame
from gputop.features.fleet.judge.straggler import stragglers
from gputop.features.fleet.read.address import address_of
from gputop.features.fleet.read.decode_labels import discovered
from gputop.features.fleet.read.engine import Client
from gputop.features.fleet.read.prometheus_fleet import PrometheusFleet
from gputop.features.fleet.read.screen_queries import DIALECT_LABEL, GONE, FleetSchema
from gputop.model.cards import mig_share
from tests.features.fleet.test_fleet_histories import END
from tests.support.scripted_engine import engine as scripted


def _identified(*rows: dict[str, str]) -> list[tuple[str, str, str, float, bool]]:
    told = [{DIALECT_LABEL: "legacy", "instance": "m:9400", "Hostname": "m", **row} for row in rows]
    found = discovered(told, FleetSchema()).identities
    return sorted(
        (one.uuid, one.mig, one.gpu, round(one.share, 3), one.gone) for one in found.values()
    )


def test_a_split_gpu_is_its_instances_whose_shares_are_their_slices() -> None:
    whole = {"gpu": "0", "UUID": "GPU-0"}
    one = {**whole, "GPU_I_ID": "7", "GPU_I_PROFILE": "1g.10gb"}
    three = {**whole, "GPU_I_ID": "2", "GPU_I_PROFILE": "3g.40gb"}
    other = {"gpu": "1", "UUID": "GPU-1"}
    assert _identified(whole, one, three, other) == [
        ("GPU-0", "2", "0/2", 0.429, False), ("GPU-0", "7", "0/7", 0.143, False), ("GPU-1", "", "1", 1.0, False),
    ]  # fmt: skip
    bare = [{**whole, "GPU_I_ID": number} for number in "12"]
    assert [share for *_, share, _ in _identified(*bare)] == [0.5, 0.5]
    gone = {**whole, DIALECT_LABEL: f"legacy{GONE}"}
    assert [number for _, _, number, _, _ in _identified(gone, one)] == ["0/7"]
    assert mig_share("NVIDIA A30 MIG 1g.6gb") == 0.25 and mig_share("NVIDIA A30") is None
    assert mig_share("NVIDIA H100 80GB HBM3 MIG 1c.3g.40gb") == pytest.approx(3 / 7)


def test_gputop_says_whose_part_an_instance_is_so_that_it_is_the_same_under_other_names() -> None:
    own_rows = [
        {
            DIALECT_LABEL: "gputop",
            "gpu": "1",
            "uuid": "MIG-1",
            "mig": "7/0",
            "parent": "GPU-0",
            "instance": "m:9401",
        },
        {DIALECT_LABEL: "gputop", "gpu": "1", "uuid": "MIG-1", "mig": "7/0", "instance": "m:9401"},
        {
            DIALECT_LABEL: "legacy",
            "gpu": "0",
            "UUID": "GPU-0",
            "GPU_I_ID": "7",
            "instance": "m:9400",
            "Hostname": "m",
        },
    ]
    assert {one.id for one in discovered(own_rows, FleetSchema()).identities.values()} == {
        ("", "GPU-0", "7")
    }


def test_a_host_is_the_straggler_only_where_each_of_its_gpus_alone_would_be() -> None:
    def gpus(host: str, sm: float, util: float = 98.0, n: int = 8) -> list[GpuReading]:
        name = JobName("slurm", "1")
        return [
            GpuReading(host, str(i), util_pct=util, sm_active_pct=sm, job=name) for i in range(n)
        ]

    rest = [*gpus("b", 60.0), *gpus("c", 60.0)]
    (late,) = stragglers([*rest, *gpus("a", 90.0)])
    assert (late.host, late.gpu, late.size, late.where) == ("a", "", 8, "all of a")
    (late,) = stragglers([*rest, *gpus("a", 60.0, n=7), *gpus("a", 90.0, n=1)])
    assert (late.host, late.size) == ("a", 1) and late.gpu
    (late,) = stragglers([*rest, *gpus("a", 40.0, 50.0)])
    assert (late.host, late.kind, late.gpu) == ("a", "starved", ""), (
        "all others spin until it arrives"
    )
    frame = fleet_frame(FleetReading(1.0, "x", [*rest, *gpus("a", 90.0)]))
    assert next(group for group in frame.hosts if group.name == "a").stragglers == 1


def test_the_address_of_an_exporter_is_told_apart_from_that_of_an_engine() -> None:
    with scripted() as server:
        page = b"# HELP gputop_up x\n# TYPE gputop_up gauge\ngputop_up 1\n"
        for status, body, says in (
            (404, page, "an exporter: gputop fleet http"), (501, page, "an exporter: gputop fleet http"),
            (404, b"up 1\n", "404, no Prometheus"),
            (404, b"# TYPE DCGM_FI_DEV_GPU_UTIL gauge\n", "that is an exporter: give the Prometheus"),
        ):  # fmt: skip
            answer = (status, {}, b"")
            server.answer = lambda query, body=body, answer=answer: (
                (200, {}, body) if query == "/metrics" else answer
            )
            fleet = PrometheusFleet(Client(address_of(server.url, {})), "x", "", lambda: END)
            with pytest.raises(FleetError, match=says):
                fleet.ask()
            fleet.close()
