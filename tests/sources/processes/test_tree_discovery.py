"""When the trees of processes are found again: where somebody came, went or may have changed, and else not."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from gputop.sources.gpu_process import GpuProcess
from gputop.sources.processes import collector as collector_module
from gputop.sources.processes.collector import ProcessCollector
from tests.proc_trees.fake_proc import FakeProc

_T = 1_780_000_000.0
_JOB = GpuProcess(0, 100, 4e9, "C", 50.0)


@pytest.fixture
def fake(tmp_path: Path) -> FakeProc:
    made = FakeProc(tmp_path)
    made.group("")
    made.process(1, "systemd", "/sbin/init", ppid=0, session=1)
    made.process(100)
    made.process(110, "pt_data_worker", ppid=100)
    return made


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by one entry whenever a collector finds the trees again."""
    entries: list[int] = []
    real = collector_module.find_trees
    monkeypatch.setattr(collector_module, "find_trees", lambda *given: entries.append(1) or real(*given))
    return entries


def test_trees_are_found_again_only_where_they_may_have_changed(fake: FakeProc, found: list[int]) -> None:
    fake.uptime(5000.0)
    collector, moments = ProcessCollector(str(fake.proc), str(fake.sys)), itertools.count()

    def trees(util: float | None = 90.0, jobs: tuple[GpuProcess, ...] = (_JOB,)) -> tuple[int, set[int]]:
        before = len(found)
        samples = collector.read(_T + 4.0 * next(moments), jobs, {0: util})
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
        collector, counts = ProcessCollector(str(fake.proc), str(fake.sys)), []
        for i in range(count):
            before = len(found)
            collector.read(_T + 4.0 * i, jobs)
            counts.append(len(found) - before)
        return counts

    assert looks(5, _JOB) == [1, 1, 0, 0, 0]
    assert looks(5, _JOB, GpuProcess(0, 999, 1e9)) == [1] * 5, "a pid that the driver lists may be seen at any time"
    fake.process(301, "pt_data_worker", ppid=1, session=20)
    assert looks(5, _JOB) == [1] * 5, "an orphan may die"
    fake.end(301)
    fake.process(110, ppid=100, starttime=499_900)
    assert looks(5, _JOB) == [1] * 5, "one so young may still name itself"

    fake.process(110, ppid=100)
    collector = ProcessCollector(str(fake.proc), str(fake.sys))
    for i in range(4):
        collector.read(_T + 4.0 * i, [_JOB])
    both = collector.read(_T + 16.0, [_JOB, GpuProcess(1, 110, 1e9)])
    assert [(s.pid, s.role) for s in both] == [(100, "gpu"), (110, "gpu")], "a member that takes a GPU of its own"
