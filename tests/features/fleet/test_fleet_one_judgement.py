"""Screen and rules judge alike: every state at its thresholds, on a real engine, under each generation of names."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from gputop.diagnosis.types import STATES
from gputop.features.fleet.deploy.rules_file import recorded
from gputop.features.fleet.fleet_reading import GpuState
from gputop.features.fleet.judge.fleet_frame import fleet_frame
from gputop.features.fleet.judge.gpu_state import GPU_STATES
from gputop.features.fleet.judge.state_rules import CODES, STATE, state_of
from gputop.features.fleet.promql import ALL_NAMES, Names, rule_scope
from gputop.features.fleet.read.address import address_of
from gputop.features.fleet.read.engine import Answer, Client, PromQuery, labels_of
from gputop.features.fleet.read.prometheus_fleet import PrometheusFleet
from tests.features.fleet.test_fleet_histories import END
from tests.support.engines import backfill, missing, prometheus
from tests.support.planted_alerts import gpu_labels, signal_series

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(missing("prometheus")), reason="no prometheus"),
]
UTILS = (0.0, 0.03, 0.07, 0.49, 0.5, 0.6, 0.79, 0.8, 0.81, 0.97)
SMS = (None, 0.0, 0.05, 0.14, 0.16, 0.23, 0.25, 0.29, 0.31, 0.9)
HELD = (1e8, 2e9)


def _history(names: Names) -> list[str]:
    """Ten minutes of GPUs on both sides of every threshold, with and without a job."""
    lines = []
    for number, (util, sm, held, job) in enumerate(itertools.product(UTILS, SMS, HELD, ("", "7"))):
        labels = gpu_labels(names, f"n{number // 8}", number % 8, job)
        found = {
            **signal_series(names, "util", util, labels),
            **signal_series(names, "memory", held, labels),
        }
        if sm is not None:
            found |= signal_series(names, "sm", sm, labels)
        if names == "gputop":
            found[f'gputop_gpu_state{{{labels},state="{STATES[number % len(STATES)]}"}}'] = 1.0
            if number // 6 % 2:
                found[f'gputop_pod_info{{{labels},k8s_namespace_name="a",k8s_pod_name="b"}}'] = 1.0
            if number // 12 % 2:
                found[f'gputop_job_info{{{labels},scheduler="slurm",job_id="7",user="ann"}}'] = 1.0
        for series, value in found.items():
            lines += [f"{series} {value!r} {END - back:.3f}\n" for back in range(600, -1, -15)]
    return lines


@pytest.mark.parametrize("names", ALL_NAMES)
def test_the_rules_record_the_state_that_the_screen_shows(names: Names, tmp_path: Path) -> None:
    backfill(tmp_path, _history(names))
    assert dict(dict(recorded(names))["gputop_gpus"])[STATE].startswith("("), (
        "and this is what is recorded"
    )
    with prometheus(tmp_path) as url:
        client = Client(address_of(url, {}))
        fleet = PrometheusFleet(client, url, "", lambda: END)
        frame = fleet_frame(fleet.ask(END))
        (answer,) = client.ask([PromQuery(state_of(rule_scope(names)), END)])
        fleet.close()
    assert isinstance(answer, Answer)
    told: dict[str, GpuState] = {}
    by_code = {str(code): state for state, code in CODES.items()}
    for row in answer.rows:
        labels = labels_of(row.metric)
        assert row.value is not None
        told[labels.get("UUID") or labels["uuid"]] = by_code[row.value[1]]
    shown = {gpu.read.uuid: gpu.state for gpu in frame.gpus}
    assert len(shown) == len(UTILS) * len(SMS) * len(HELD) * 2 and told.keys() == shown.keys()
    odd = [
        (gpu.read, told[gpu.read.uuid]) for gpu in frame.gpus if told[gpu.read.uuid] != gpu.state
    ]
    assert not odd and set(shown.values()) == set(GPU_STATES)
