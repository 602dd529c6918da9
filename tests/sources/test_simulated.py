"""The simulated machines: deterministic, believable, and complete."""

from __future__ import annotations

import random
import threading
from itertools import pairwise

import pytest

from gputop.diagnosis.rules import remedy_rows
from gputop.model.metrics import GPU_METRICS, HOST_METRICS, PROCESS_METRICS, Metric
from gputop.model.snapshot import Snapshot
from gputop.model.source import UsageError
from gputop.sources.simulation.noise import busy_share, drift
from gputop.sources.simulation.scenarios import SCENARIOS, find
from gputop.sources.simulation.simulated import SimulatedSource, snapshot_at
from tests.support.expected_verdicts import EXPECTED
from tests.support.frames import demo_frame

STARTED = 1_780_000_000.0
NAMES = tuple(SCENARIOS)
SOME_NAMES = [pytest.param(name, marks=pytest.mark.slow if n % 3 else ()) for n, name in enumerate(NAMES)]
"""The quick part takes each third scenario through what needs many moments of it."""


class Clock:
    """A clock that stands where it was put."""

    def __init__(self, t: float = STARTED) -> None:
        self.t = t

    def __call__(self) -> float:
        return self.t


def _broken(metrics: dict[str, Metric], row: object) -> list[tuple[str, object]]:
    return [
        (key, value)
        for key, metric in metrics.items()
        if isinstance(value := getattr(row, key), (int, float)) and not metric.is_valid(value)
    ]


def _mean(snapshots: list[Snapshot], gpu: int, key: str) -> float:
    return sum(getattr(s.gpus[gpu], key) for s in snapshots) / len(snapshots)


@pytest.mark.parametrize("name", SOME_NAMES)
def test_a_moment_is_the_same_whenever_it_is_asked_for(name: str) -> None:
    times = [STARTED + 7.0 * i for i in range(-6, 12)]
    forwards = {t: snapshot_at(t, scenario=name, started=STARTED) for t in times}
    random.Random(4).shuffle(times)
    assert all(snapshot_at(t, scenario=name, started=STARTED) == forwards[t] for t in times)
    assert len({snapshot.gpus[0].power_w for snapshot in forwards.values()}) > 5, "the machine must live"


@pytest.mark.parametrize("interval_s", [1.0, pytest.param(0.25, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", SOME_NAMES)
def test_every_value_lies_in_the_catalogues_bounds(name: str, interval_s: float) -> None:
    for i in range(-45, 75):
        t = STARTED + i * (1.66 if interval_s == 1.0 else interval_s)
        snapshot = snapshot_at(t, scenario=name, started=STARTED, interval_s=interval_s)
        assert snapshot.interval_s == interval_s
        assert not _broken(HOST_METRICS, snapshot.host)
        for gpu in snapshot.gpus:
            assert not _broken(GPU_METRICS, gpu)
        for process in snapshot.processes:
            assert not _broken(PROCESS_METRICS, process)
            assert (process.main_run_pct or 0.0) + (process.main_wait_pct or 0.0) <= 100.0 + 1e-9


@pytest.mark.parametrize("name", NAMES)
def test_what_is_missing_has_a_reason(name: str) -> None:
    snapshot = snapshot_at(STARTED + 100.0, scenario=name, started=STARTED)
    for gpu in snapshot.gpus:
        if gpu.lost_reason is None:
            missing = {key for key in GPU_METRICS if getattr(gpu, key) is None} - {"xid"}
            assert missing == {key for key, reason in gpu.unavailable.items() if reason} - {"xid"}
        if gpu.sm_active_pct is None and gpu.lost_reason is None:
            assert gpu.sm_reason
    for process in snapshot.processes:
        if process.starttime is None:
            assert "PID namespace" in process.unavailable["starttime"]


@pytest.mark.parametrize("name", SOME_NAMES)
def test_processes_form_trees_on_the_gpus_of_the_machine(name: str) -> None:
    for t in (STARTED - 300.0, STARTED, STARTED + 71.3):
        snapshot = snapshot_at(t, scenario=name, started=STARTED)
        indices = [gpu.static.index for gpu in snapshot.gpus]
        assert indices == list(range(len(indices)))
        assert len({gpu.static.uuid for gpu in snapshot.gpus}) == len(indices)
        by_pid = {process.pid: process for process in snapshot.processes}
        assert len(by_pid) == len(snapshot.processes)
        for process in snapshot.processes:
            if process.role == "gpu":
                held = snapshot.gpus[process.gpu or 0].mem_used_bytes
                assert process.gpu_mem_bytes is not None and held is not None and process.gpu_mem_bytes <= held
            else:
                parent = by_pid[process.ppid or 0]
                assert parent.role == "gpu" and parent.gpu == process.gpu
                assert (parent.starttime or 0) < (process.starttime or 0)


@pytest.mark.parametrize("name", SOME_NAMES)
def test_identity_and_age_agree_over_time(name: str) -> None:
    born: dict[tuple[int, int | None], float] = {}
    for i in range(60):
        t = STARTED + 0.7 * i
        for process in snapshot_at(t, scenario=name, started=STARTED).processes:
            if process.age_s is not None:
                first = born.setdefault((process.pid, process.starttime), t - process.age_s)
                assert t - process.age_s == pytest.approx(first, abs=0.01)


def test_the_default_machine_is_the_one_of_the_pictures() -> None:
    snapshots = [snapshot_at(STARTED + i, started=STARTED) for i in range(30)]
    want_util = (97, 98, 97, 38, 99, 99, 47, 0)
    want_sm = (8, 88, 87, 33, 16, 66, 40, 0)
    want_power = (214, 689, 684, 301, 312, 424, 330, 71)
    for gpu in range(8):
        assert _mean(snapshots, gpu, "util_pct") == pytest.approx(want_util[gpu], abs=2.5)
        assert _mean(snapshots, gpu, "sm_active_pct") == pytest.approx(want_sm[gpu], abs=2.5)
        assert _mean(snapshots, gpu, "power_w") == pytest.approx(want_power[gpu], rel=0.06)
    assert snapshots[0].machine.hostname == "node-17"
    workers = [p for p in snapshots[0].processes if p.gpu == 3 and p.role == "loader"]
    assert [p.pid for p in workers] == list(range(4810, 4818))
    states = [p.state for s in snapshots for p in s.processes if p.gpu == 3 and p.role == "loader"]
    assert states.count("R") > 0.8 * len(states)


def test_gpus_sizes_the_default_machine_with_processes_of_its_own() -> None:
    snapshot = snapshot_at(STARTED, gpus=16, started=STARTED)
    assert len(snapshot.gpus) == 16
    assert {p.gpu for p in snapshot.processes} == set(range(16))
    assert len(snapshot_at(STARTED, gpus=3, started=STARTED).gpus) == 3


def test_a_lost_gpu_is_lost_after_a_minute_and_the_others_go_on() -> None:
    before = snapshot_at(STARTED + 59.0, scenario="lost_gpu", started=STARTED)
    then = snapshot_at(STARTED + 60.0, scenario="lost_gpu", started=STARTED)
    after = snapshot_at(STARTED + 90.0, scenario="lost_gpu", started=STARTED)
    assert all(gpu.lost_reason is None for gpu in before.gpus)
    assert [(e.kind, e.gpu) for e in then.events] == [("gpu_lost", 2)]
    assert [gpu.static.index for gpu in after.gpus if gpu.lost_reason] == [2]
    assert after.gpus[2].lost_since == STARTED + 60.0 and after.gpus[2].util_pct is None
    assert {p.gpu for p in after.processes} == {0, 1, 3} and not after.events


def test_an_unknown_scenario_names_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"dataloader_cpu.*gputop demo --list"):
        find("dataloader-cpu")
    with pytest.raises(UsageError, match="--list"):
        SimulatedSource("zzz")


def test_every_scenario_has_a_line_and_an_expected_diagnosis() -> None:
    for name, scenario in SCENARIOS.items():
        assert scenario.name == name and 10 < len(scenario.title) < 70 and "\n" not in scenario.title
        gpus = len(scenario.machine.gpus)
        assert EXPECTED[name] and all(expected.gpu < gpus for expected in EXPECTED[name])


def test_the_past_is_coarse_first_then_at_full_rate_and_ends_where_the_present_begins() -> None:
    past = list(SimulatedSource(clock=Clock()).past(3700.0))
    steps = [round(b.t - a.t, 6) for a, b in pairwise(past)]
    assert steps == [25.0] * 120 + [5.0] * 114 + [1.0] * 129
    assert past[0].t == STARTED - 3700.0 and past[-1].t == STARTED - 1.0
    assert [s.interval_s for s in past[1:]] == steps, "each stands for the time since the one before"


@pytest.mark.parametrize(("seconds", "interval_s"), [(10.0, 1.0), (10.0, 0.25), (0.4, 0.25), (0.0, 1.0), (137.0, 2.0)])
def test_a_short_past_has_what_fits_in_it(seconds: float, interval_s: float) -> None:
    past = list(SimulatedSource(interval_s=interval_s, clock=Clock()).past(seconds))
    assert all(STARTED - seconds <= s.t < STARTED for s in past)
    assert len(past) == {10.0: 10 / interval_s, 0.4: 1, 0.0: 0, 137.0: 66}[seconds]


def test_each_interval_has_its_snapshot_once_however_late_it_is_asked_for() -> None:
    clock = Clock()
    source = SimulatedSource("healthy", interval_s=0.25, clock=clock)
    first = source.poll()
    assert first is not None and first.t == STARTED and source.poll() is None
    clock.t += 0.24
    assert source.poll() is None
    clock.t += 0.3
    missed, later = source.poll(), source.poll()
    assert missed is not None and missed.t == STARTED + 0.25 and source.poll() is None
    assert later is not None and later.t == STARTED + 0.5 and later.interval_s == 0.25
    assert later.own is not None and (later.own.rss_bytes or 0.0) > 1e6


def test_a_started_source_notifies_at_once_and_again_until_it_is_closed() -> None:
    source = SimulatedSource("healthy", interval_s=0.02)
    called, enough = [0], threading.Event()

    def notify() -> None:
        called[0] += 1
        if called[0] == 3:
            enough.set()

    source.start(notify)
    assert enough.wait(60.0)
    threads = [thread for thread in threading.enumerate() if thread.name == "gputop-simulated"]
    source.close()
    assert threads
    for thread in threads:
        thread.join(60.0)
    assert not any(thread.is_alive() for thread in threads)


def test_the_busy_part_of_cycles_adds_up() -> None:
    whole = busy_share(1, 2, 0.0, 30.0, 5.0, 0.4)
    parts = [busy_share(1, 2, i * 0.5, (i + 1) * 0.5, 5.0, 0.4) for i in range(60)]
    assert sum(parts) / 60 == pytest.approx(whole)
    assert whole == pytest.approx(0.4, abs=0.04)


def test_noise_is_smooth_bounded_and_centred() -> None:
    values = [drift(3, 9, 0.25 * i) for i in range(20_000)]
    assert max(map(abs, values)) <= 1.0 and abs(sum(values) / len(values)) < 0.05
    assert max(abs(b - a) for a, b in pairwise(values)) < 0.4


@pytest.mark.parametrize("scenario", NAMES)
def test_the_processes_of_a_scenario_use_no_more_cpu_than_its_host(scenario: str) -> None:
    for later in (5.0, 47.0):
        snapshot = snapshot_at(STARTED + later, scenario=scenario, started=STARTED)
        used, host = sum(process.cpu_pct or 0.0 for process in snapshot.processes), snapshot.host
        assert host.cpu_pct is not None and host.cpu_count is not None
        assert used <= host.cpu_pct * host.cpu_count


@pytest.mark.parametrize("scenario", ["node", "dataloader_cpu", "one_gpu", "sixteen"])
def test_a_host_whose_job_is_told_to_take_more_workers_has_cores_for_them(scenario: str) -> None:
    frame = demo_frame(scenario)
    host = frame.snapshot.host
    assert any("num_workers" in d.remedy for d in frame.diagnoses if d.cause == "cpu")
    assert host.cpu_pct is not None and host.psi_cpu_pct is not None
    assert host.cpu_pct < 0.75 * remedy_rows.CORES_FREE
    assert host.psi_cpu_pct < 0.75 * remedy_rows.PRESSED
