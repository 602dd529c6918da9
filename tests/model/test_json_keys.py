"""JSON has each value once, under the catalogue's keys, and null for what was not measured."""

from __future__ import annotations

import json

from msgspec.structs import replace

from gputop.model import metrics
from gputop.model.feeders import MainLooks, WaitEnd
from gputop.model.json_keys import json_keys, keys_of
from gputop.model.snapshot import (
    CgroupName,
    FeedTime,
    GpuSample,
    HostSample,
    ProcessSample,
    ProcessStatic,
)
from gputop.sources.simulation.simulated import snapshot_at
from tests.support.frames import MOMENT

TABLES = {
    GpuSample: (metrics.GPU_STATIC, metrics.GPU_METRICS, metrics.SM_PROVENANCE, metrics.GPU_STATE),
    HostSample: (metrics.HOST_METRICS,),
    ProcessSample: (metrics.PROCESS_METRICS, metrics.PROCESS_STATIC),
}
WORDS = {"main_waits", "waiting_on", "held_up_by", "sm_reason", "job", "container", "cpu_outsiders"}


def test_every_key_of_the_catalogue_is_there_or_the_field_whose_words_it_is() -> None:
    rows = {
        kind: [row for table in tables for row in table.values()] for kind, tables in TABLES.items()
    }
    assert {row.key for each in rows.values() for row in each if row.field} == WORDS
    for kind, each in rows.items():
        assert set(keys_of(kind)) == {row.field or row.key for row in each} | {"unavailable"}


def test_a_process_is_flat_and_says_nothing_twice() -> None:
    static = ProcessStatic("ml", "python a.py", batch_job=CgroupName("slurm", "8821"))
    process = ProcessSample(
        7, feed=FeedTime(run=12.3456789), main_looks=MainLooks((("queue", 2),)),
        waits_for=(WaitEnd("pipe", 80.0, (4,)),), static=static,
    )  # fmt: skip
    data = json_keys(process)
    assert (data["pid"], data["user"], data["feed_run_pct"], data["feed_disk_pct"]) == (
        7,
        "ml",
        12.345679,
        None,
    )
    assert data["batch_job"] == {"kind": "slurm", "id": "8821"} and data["contained_in"] is None
    assert data["main_looks"] == {"counts": [["queue", 2]]}
    assert data["waits_for"] == [{"via": "pipe", "pct": 80.0, "pids": [4]}]
    assert not WORDS & data.keys()


def test_a_whole_node_is_json_without_a_number_that_is_none() -> None:
    node = snapshot_at(MOMENT, started=MOMENT - 60.0)
    odd = replace(node.gpus[0], util_pct=float("nan"), doubts={"power_w": "twice the limit"})
    for struct in (odd, *node.gpus, *node.processes, node.host, *node.periods, *node.steps):
        json.dumps(json_keys(struct), allow_nan=False)
    assert json_keys(odd)["util_pct"] is None and json_keys(odd)["doubts"] == {
        "power_w": "twice the limit"
    }
    assert "doubts" not in json_keys(node.gpus[1])
