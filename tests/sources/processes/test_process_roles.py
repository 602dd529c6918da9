"""Which role each process gets: workers, helpers and Ray tasks that come, name themselves and go."""

from __future__ import annotations

import pytest

from gputop.model.metrics import PROCESS_METRICS
from gputop.model.snapshot import ProcessSample, value
from gputop.sources.gpu_process import GpuProcess, unseen
from tests.proc_trees.fake_proc import FakeProc
from tests.proc_trees.one_job import JOB, T0, by_pid, collector_of, one_job

fake = pytest.fixture(one_job)


def test_a_process_on_two_gpus_has_two_samples_and_its_workers_one_each(fake: FakeProc) -> None:
    second = GpuProcess(3, 100, 9e9, "C")
    samples = collector_of(fake).read(T0, [JOB, second])
    assert [(s.pid, s.gpu) for s in samples] == [(100, 0), (100, 3), (110, 3)]


def test_a_gpu_process_below_another_keeps_its_own_workers(fake: FakeProc) -> None:
    fake.process(120, ppid=100)
    fake.process(121, "pt_data_worker", ppid=120)
    samples = by_pid(collector_of(fake).read(T0, [JOB, GpuProcess(1, 120, 1e9)]))
    assert (samples[120].role, samples[120].gpu) == ("gpu", 1)
    assert (samples[110].gpu, samples[121].gpu) == (0, 1)


def test_new_children_are_found_by_the_next_tick_but_one(fake: FakeProc) -> None:
    collector = collector_of(fake)
    collector.read(T0, [JOB])
    fake.process(100)
    fake.process(111, "pt_data_worker", ppid=100)
    collector.read(T0 + 0.5, [JOB])
    assert 111 in by_pid(collector.read(T0 + 1.0, [JOB]))


def test_a_worker_that_names_itself_late_is_judged_again(fake: FakeProc) -> None:
    fake.process(110, "python", "python -c from multiprocessing.spawn import spawn_main", ppid=100)
    collector = collector_of(fake)
    assert by_pid(collector.read(T0, [JOB]))[110].static.loader == "python"
    fake.process(
        110, "pt_data_worker", "python -c from multiprocessing.spawn import spawn_main", ppid=100
    )
    collector.read(T0 + 0.5, [JOB])
    assert by_pid(collector.read(T0 + 1.0, [JOB]))[110].static.loader == "torch"


def test_a_helper_counts_as_a_loader_only_while_it_works(fake: FakeProc) -> None:
    def helper(moment: int, ticks: int) -> ProcessSample:
        fake.process(
            130, "ffmpeg", "ffmpeg -i x", ppid=100, cpu_ticks=ticks, run_ns=ticks * 10_000_000 + 1
        )
        return by_pid(collector.read(T0 + moment, [JOB]))[130]

    collector = collector_of(fake)
    assert helper(0, 0).role == "helper"
    assert helper(1, 100).role == "helper", "one busy second is no loader"
    roles = [helper(1 + i, 100 + 100 * i).role for i in range(1, 8)]
    assert roles[-1] == "loader"
    assert helper(9, 800).static.why == "R5 busy descendant"
    assert [helper(10 + i, 800).role for i in range(20)][-1] == "helper"


def test_ray_tasks_beside_a_ray_gpu_process_are_loaders(fake: FakeProc) -> None:
    fake.process(200, "raylet", "/ray/raylet --x", ppid=1)
    fake.process(201, "ray::Train", "ray::TrainWorker", ppid=200)
    fake.process(202, "ray::Map", "ray::Map(decode)", ppid=200)
    fake.process(203, "ray::IDLE", "ray::IDLE", ppid=200)
    one = by_pid(collector_of(fake).read(T0, [GpuProcess(5, 201, 1e9)]))
    assert one.keys() == {201, 202}
    assert (one[202].role, one[202].gpu, one[202].static.loader) == ("loader", 5, "ray")
    fake.process(204, "ray::Train", "ray::TrainWorker", ppid=200)
    two = by_pid(collector_of(fake).read(T0, [GpuProcess(5, 201, 1e9), GpuProcess(6, 204, 1e9)]))
    assert two[202].gpu is None, "which of two GPUs it feeds cannot be seen"


def test_a_process_that_proc_hides_has_a_reason_for_each_value_that_is_missing() -> None:
    sample = unseen(GpuProcess(0, 7, 1e9, "C", 40.0, 10.0, 0.0, 0.0), "hidden")
    missing = {key for key in PROCESS_METRICS if value(sample, key) is None} - {
        "main_waits",
        "held_up_by",
    } | {
        "main_looks",
        "waits_for",
    }
    assert missing == set(sample.unavailable)
    assert set(sample.unavailable.values()) == {"hidden"}
