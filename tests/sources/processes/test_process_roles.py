"""Which role each process gets: workers, helpers, Ray tasks and orphans that come, name themselves and go; and when
that is looked at again."""

from __future__ import annotations

import itertools

import pytest

from gputop.model.metrics import PROCESS_METRICS
from gputop.model.snapshot import ProcessSample, value
from gputop.sources.gpu_process import GpuProcess, unseen
from gputop.sources.processes import collector as collector_module
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
    fake.process(110, "pt_data_worker", "python -c from multiprocessing.spawn import spawn_main", ppid=100)
    collector.read(T0 + 0.5, [JOB])
    assert by_pid(collector.read(T0 + 1.0, [JOB]))[110].static.loader == "torch"


def test_a_helper_counts_as_a_loader_only_while_it_works(fake: FakeProc) -> None:
    def helper(moment: int, ticks: int) -> ProcessSample:
        fake.process(130, "ffmpeg", "ffmpeg -i x", ppid=100, cpu_ticks=ticks, run_ns=ticks * 10_000_000 + 1)
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


def test_a_worker_of_a_job_that_this_gputop_does_not_watch_is_no_orphan(fake: FakeProc) -> None:
    fake.process(300, ppid=1, command="python other.py")
    fake.process(301, "pt_data_worker", ppid=300)
    assert 301 not in by_pid(collector_of(fake).read(T0, [JOB]))


def test_a_process_that_proc_hides_has_a_reason_for_each_value_that_is_missing() -> None:
    sample = unseen(GpuProcess(0, 7, 1e9, "C", 40.0), "hidden")
    missing = {key for key in PROCESS_METRICS if value(sample, key) is None} - {"main_waits", "held_up_by"} | {
        "main_looks",
        "waits_for",
    }
    assert missing == set(sample.unavailable)
    assert set(sample.unavailable.values()) == {"hidden"}


# When the trees are found again: where somebody came, went or may have changed, and else not.


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by one entry whenever a collector finds the trees again."""
    entries: list[int] = []
    real = collector_module.find_trees
    monkeypatch.setattr(collector_module, "find_trees", lambda *given: entries.append(1) or real(*given))
    return entries


def test_trees_are_found_again_only_where_they_may_have_changed(fake: FakeProc, found: list[int]) -> None:
    fake.uptime(5000.0)
    collector, moments = collector_of(fake), itertools.count()

    def trees(util: float | None = 90.0, jobs: tuple[GpuProcess, ...] = (JOB,)) -> tuple[int, set[int]]:
        before = len(found)
        samples = collector.read(T0 + 4.0 * next(moments), jobs, {0: util})
        return len(found) - before, {sample.pid for sample in samples}

    assert [trees()[0] for _ in range(2)] == [1, 1], "what is new is looked at twice"
    assert [trees() for _ in range(5)] == [(0, {100, 110})] * 5, "nobody came and nobody went"
    fake.process(111, "pt_data_worker", ppid=100)
    assert trees() == (1, {100, 110, 111})
    fake.end(110)
    assert [trees() for _ in range(3)][-1] == (0, {100, 111})
    # While the GPU waits, who feeds it from beside the trees is found by open files, and forgotten when it works.
    assert [trees(0.0)[0] for _ in range(6)][-1] == 1
    # Its mean over ten seconds is above the bound at the seventh look.
    working = [trees()[0] for _ in range(12)]
    assert working[:7] == [1] * 7 and working[-4:].count(0) >= 3, "of twenty looks one reads everything again"


def test_trees_are_found_again_while_a_process_may_still_become_another(fake: FakeProc, found: list[int]) -> None:
    fake.uptime(5000.0)

    def looks(count: int, *jobs: GpuProcess) -> list[int]:
        """How often the trees were found in each of so many looks."""
        collector, counts = collector_of(fake), []
        for i in range(count):
            before = len(found)
            collector.read(T0 + 4.0 * i, jobs)
            counts.append(len(found) - before)
        return counts

    assert looks(5, JOB) == [1, 1, 0, 0, 0]
    assert looks(5, JOB, GpuProcess(0, 999, 1e9)) == [1] * 5, "a pid that the driver lists may be seen at any time"
    fake.process(301, "pt_data_worker", ppid=1, session=20)
    assert looks(5, JOB) == [1] * 5, "an orphan may die"
    fake.end(301)
    fake.process(110, ppid=100, starttime=499_900)
    assert looks(5, JOB) == [1] * 5, "one so young may still name itself"

    fake.process(110, ppid=100)
    collector = collector_of(fake)
    for i in range(4):
        collector.read(T0 + 4.0 * i, [JOB])
    both = collector.read(T0 + 16.0, [JOB, GpuProcess(1, 110, 1e9)])
    assert [(s.pid, s.role) for s in both] == [(100, "gpu"), (110, "gpu")], "a member that takes a GPU of its own"
