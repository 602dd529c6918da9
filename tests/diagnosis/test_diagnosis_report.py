"""What the diagnosis gives to the outputs: JSON, findings, waste, lanes, tables."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputop.cli import main
from gputop.commands.diagnose import judged
from gputop.diagnosis.engine import Diagnoser
from gputop.diagnosis.types import STATES
from gputop.diagnosis.verdict.catalogue import badge_rows, verdict_rows
from gputop.diagnosis.verdict.diagnosis_data import as_json
from gputop.model.snapshot import Snapshot
from gputop.output.diagnosis_text import diagnosis_document
from gputop.output.plain_document import plain
from gputop.sources.simulation.simulated import SimulatedSource
from tests.support.examples import looks
from tests.support.scenes import T0, Watch, gpu, snap, train, workers

STARVED = (gpu(util=40.0, sm=35.0), [train(main=2.0), *workers(4, 90.0, 10.0)])
HEALTHY = (gpu(), [train(main=30.0)])


def test_the_json_has_the_agreed_form() -> None:
    diagnoser = Diagnoser()
    for tick in range(60):
        snapshot = snap(tick, *STARVED)
        diagnoses = diagnoser.diagnose(snapshot)
    data = json.loads(json.dumps(as_json(snapshot, diagnoses, T0), allow_nan=False))
    assert list(data) == ["schema", "host", "simulated", "begin", "end", "servers", "steps", "gpus"]
    assert (data["schema"], data["host"], data["begin"], data["end"]) == (1, "node-17", T0, T0 + 59)
    (found,) = data["gpus"]
    assert list(found) == [
        "index", "uuid", "name", "verdict", "title", "level", "state", "busy_not_working", "efficiency_pct",
        "confidence", "window_s", "n", "since", "lasted_s", "charged_s", "speedup_at_most", "unused_pct", "evidence",
        "cause", "uneven", "feeders", "remedy", "notes", "badges", "role", "number", "owner", "seconds",
        "busy_not_working_seconds", "lost_seconds", "timeline",
    ]  # fmt: skip
    assert (found["verdict"], found["level"], found["confidence"]) == (
        "dataloader_cpu",
        "yellow",
        "high",
    )
    assert (found["efficiency_pct"], found["window_s"], found["n"]) == (87.5, 30, 30)
    assert set(found["seconds"]) == set(STATES)
    assert [change["verdict"] for change in found["timeline"]] == ["collecting", "dataloader_cpu"]
    assert found["timeline"][0] == {"t": T0, "verdict": "collecting", "busy_not_working": None}


def test_how_long_to_watch_is_refused_of_what_is_not_watched(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["diagnose", "demo", "--for", "5s"]) == 2
    assert "--for" in capsys.readouterr().err


def diagnosed(snapshots: Iterable[Snapshot]) -> str:
    """The text of `gputop diagnose` on these snapshots."""
    return plain(diagnosis_document(*judged(snapshots, None)))


def test_a_ticket_gives_a_reason_once_and_no_confidence_where_nothing_was_judged() -> None:
    lost = snap(0, gpu(util=None, sm=None, lost_reason="it fell off the bus; reset it"))
    text = diagnosed([lost])
    assert "confidence" not in text
    assert text.count("reset it") == 1
    assert "\n■ GPU 0: LOST   (since " in text
    text = diagnosed(SimulatedSource("no_sm_counter", clock=lambda: T0).past(60.0))
    (first,) = [row for row in text.splitlines() if "GPU 0" in row]
    assert "no bottleneck seen   (efficiency n/a, confidence low, since " in first


def test_states_with_commas_in_their_names_are_told_apart() -> None:
    busy = [snap(tick, gpu(util=99.0, sm=5.0)) for tick in range(30)]
    working = [snap(30 + tick, *HEALTHY) for tick in range(50)]
    (times,) = [row for row in diagnosed([*busy, *working]).splitlines() if "time: " in row]
    parts = times.partition("time: ")[2].split("; ")
    assert [re.sub(r" \d+ \w+$", "", part) for part in parts] == [
        "working",
        "busy, not working",
        "not judged",
    ]


def test_findings_hold_every_change_and_when_it_ended() -> None:
    watch = Watch()
    watch.feed(snap(tick, *HEALTHY) for tick in range(60))
    watch.feed(snap(60 + tick, *STARVED) for tick in range(60))
    watch.feed(snap(120 + tick, *HEALTHY) for tick in range(60))
    verdicts = [finding for finding in watch.diagnoser.findings() if finding.kind == "verdict"]
    assert verdicts[0].id == "healthy"
    assert "dataloader_cpu" in [finding.id for finding in verdicts]
    for before, after in pairwise(verdicts):
        assert before.ended == after.t
    assert verdicts[-1].ended is None
    assert all(finding.evidence for finding in verdicts)


def test_a_starved_gpus_time_is_split_by_its_util() -> None:
    watch = Watch()
    last = watch.feed(snap(tick, *STARVED) for tick in range(117))
    assert last.seconds is not None
    starved, working = last.seconds["starved"], last.seconds["working"]
    assert starved + working + last.seconds["unmeasured"] == pytest.approx(116.0)
    assert starved / (starved + working) == pytest.approx(0.6)
    waste = watch.diagnoser.waste()
    assert waste.recent_s == pytest.approx(116.0)
    assert waste.recent_lost_gpus == pytest.approx(starved / 116.0)


def test_the_last_ten_minutes_slide() -> None:
    watch = Watch()
    low = gpu(util=96.0, sm=8.0)
    watch.feed(snap(tick, low, [train()]) for tick in range(300))
    last = watch.feed(snap(300 + tick, *HEALTHY) for tick in range(640))
    waste = watch.diagnoser.waste()
    assert last.seconds is not None and last.seconds["busy_not_working"] == pytest.approx(
        300, abs=40
    )
    assert waste.recent_s == pytest.approx(600.0)
    assert (waste.recent_gpus, waste.recent_lost_gpus) == pytest.approx((1.0, 0.0), abs=0.02)


def test_time_of_a_gpu_that_nobody_holds_is_idle_and_not_wasted() -> None:
    watch = Watch()
    last = watch.feed(snap(tick, gpu(util=0.0, sm=0.0), []) for tick in range(100))
    waste = watch.diagnoser.waste()
    assert last.seconds is not None and last.lost == {}
    assert waste.recent_lost_gpus == 0.0
    assert (
        waste.recent_idle_gpus == pytest.approx(last.seconds["idle"] / 99.0)
        and last.charged_s == 0.0
    )


def test_unmeasured_time_is_in_neither_number() -> None:
    watch = Watch()
    last = watch.feed(snap(tick, gpu(sm=None, sm_source="bound"), [train()]) for tick in range(100))
    waste = watch.diagnoser.waste()
    assert (waste.recent_gpus, waste.recent_lost_gpus) == (0.0, 0.0)
    assert last.seconds is not None and last.seconds["unmeasured"] == pytest.approx(99.0)


def test_lanes_are_those_of_this_tick() -> None:
    diagnoser = Diagnoser()
    diagnoser.diagnose(snap(0, *STARVED))
    lanes = diagnoser.lanes("GPU-0")
    assert lanes["idle_pct"] == 60.0
    assert (lanes["loader_run_pct"], lanes["loader_wait_pct"], lanes["loader_disk_pct"]) == (
        90.0,
        10.0,
        0.0,
    )
    assert lanes["main_pct"] == 2.0
    diagnoser.diagnose(snap(1, gpu(util=None, lost_reason="lost")))
    assert diagnoser.lanes("GPU-0") == {"idle_pct": None}
    assert diagnoser.lanes("unknown") == {}


PERCENT = st.none() | st.floats(0.0, 100.0)
RATE = st.none() | st.floats(0.0, 1e12) | st.sampled_from([1e-308, 1e300, float("inf")])
SAMPLES = st.builds(
    gpu, util=PERCENT, sm=PERCENT, dram=PERCENT, tensor_active_pct=PERCENT, fp32_active_pct=PERCENT, power_w=RATE,
    power_limit_w=RATE, mem_used_bytes=RATE, mem_total_bytes=RATE, sm_clock_mhz=RATE, sm_clock_max_mhz=RATE,
    pcie_rx_bytes_per_s=RATE, pcie_gen=st.none() | st.integers(0, 9), pcie_width=st.none() | st.integers(0, 32),
    throttle_reasons=st.none() | st.integers(0, 0x1FF), ecc_uncorrected=st.none() | st.integers(0, 9),
    xid=st.none() | st.integers(0, 99), sm_source=st.sampled_from(["gpm", "dcgm-exporter", "bound", "none"]),
    lost_reason=st.sampled_from([None, None, None, "GPU is lost"]),
)  # fmt: skip
ROWS = st.lists(
    st.builds(
        train, pid=st.integers(1, 6), ppid=st.none() | st.integers(0, 6),
        role=st.sampled_from(["gpu", "loader", "helper"]), gpu=st.none() | st.integers(0, 2),
        gpu_mem_bytes=RATE, cpu_pct=RATE, run_pct=RATE, wait_pct=RATE, main_run_pct=PERCENT, main_wait_pct=PERCENT,
        state=st.sampled_from([None, "R", "S", "D"]), write_bytes_per_s=RATE, throttled_pct=PERCENT, age_s=RATE,
    ),
    max_size=5,
)  # fmt: skip
PHASES = st.lists(
    st.tuples(st.integers(1, 25), st.sampled_from([0.2, 1.0, 1.7, 4.0, 90.0]), SAMPLES, ROWS),
    max_size=8,
)


@looks(12)
@given(PHASES)
def test_whatever_was_measured_gives_one_sound_diagnosis(phases: list[Any]) -> None:
    known = {row.id for row in verdict_rows()}
    diagnoser, t = Diagnoser(), 0.0
    for ticks, step, sample, rows in phases:
        for _ in range(ticks):
            t += step
            snapshot = snap(t, sample, rows)
            (said,) = diagnoser.diagnose(snapshot)
            json.dumps(as_json(snapshot, [said], T0), allow_nan=False)
            assert said.verdict in known and said.timeline[-1][1:] == (
                said.verdict,
                said.busy_not_working,
            )
            assert said.busy_not_working is None or sample.lost_reason is None
            assert said.efficiency_pct is not None or said.efficiency_reason
            assert said.seconds is not None and sum(said.seconds.values()) <= t + 1e-6
            assert all(badge.evidence for badge in said.badges)


def test_an_id_that_was_given_once_stays_and_no_id_is_given_twice() -> None:
    verdicts, badges = ([row.id for row in rows()] for rows in (verdict_rows, badge_rows))
    assert len(set(verdicts)) == len(verdicts) and len(set(badges)) == len(badges)
    assert set(verdicts) >= {
        "collecting", "startup", "idle_holding_memory", "idle", "low_demand", "checkpoint_pause", "worker_restart",
        "pcie_transfer", "dataloader_io", "dataloader_cpu", "main_process", "starved_unattributed", "dataloader_wait",
        "stream_wait", "memory_bandwidth", "communication", "small_kernels", "low_sm", "stalled", "no_tensor_cores",
        "half_working", "healthy", "working", "no_bottleneck_seen", "kv_cache_full",
    }  # fmt: skip
    assert set(badges) >= {
        "lost", "ecc", "thermal", "power_brake", "xid", "counter_fault", "memory_leak", "memory_full", "straggler",
        "pcie_degraded", "core_shortage", "cpu_limit", "step_growth", "swap", "power_capped", "stop_start",
        "shared_gpu", "fabric_errors",
    }  # fmt: skip
