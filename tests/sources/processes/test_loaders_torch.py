"""The real PyTorch DataLoader, watched from outside under each start method."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gputop.sources.processes.collector import ProcessCollector
from tests.proc_trees.running import Samples, loaders, running, watch

pytestmark = [
    pytest.mark.slow,
    pytest.mark.torch,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed"),
]
# Until Python 3.10 time.sleep is a select without files: the kernel names it as it names waiting on a queue.
_ASLEEP = "sleep" if sys.version_info >= (3, 11) else "queue"
_SCRIPT = Path(__file__).parents[2].joinpath("proc_trees") / "torch_loader.py"


@pytest.fixture
def collector() -> Iterator[ProcessCollector]:
    made = ProcessCollector()
    yield made
    made.close()


def _are_torch(samples: Samples, count: int) -> bool:
    return [sample.static.loader for sample in loaders(samples)] == ["torch"] * count


@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.weekly), "forkserver"])
def test_busy_workers_are_runnable_and_named(collector: ProcessCollector, method: str) -> None:
    with running(method, "2", "0", "1", "burn", script=_SCRIPT) as tree:
        samples = watch(
            collector,
            tree.pid,
            lambda seen: (
                _are_torch(seen, 2) and all((s.main_run_pct or 0) + (s.main_wait_pct or 0) > 70 for s in loaders(seen))
            ),
        )
    for worker in loaders(samples):
        assert worker.static.why == "R1 comm pt_data_worker"
        assert worker.gpu == 0


@pytest.mark.parametrize(("method", "persistent"), [("fork", "0"), ("spawn", "1")])
def test_idle_workers_wait_on_their_queue(collector: ProcessCollector, method: str, persistent: str) -> None:
    with running(method, "2", "1", persistent, "idle", script=_SCRIPT) as tree:
        samples = watch(
            collector,
            tree.pid,
            lambda seen: _are_torch(seen, 2) and all(s.waiting_on == "queue" for s in loaders(seen)),
        )
    assert samples[0].waiting_on in ("sleep", "queue", None)


def test_sleeping_workers_are_seen_asleep(collector: ProcessCollector) -> None:
    with running("fork", "4", "0", "1", "sleep", script=_SCRIPT) as tree:
        watch(
            collector,
            tree.pid,
            lambda seen: _are_torch(seen, 4) and all(s.waiting_on == _ASLEEP for s in loaders(seen)),
        )


def test_workers_that_are_not_persistent_are_replaced_each_epoch(collector: ProcessCollector) -> None:
    seen_pids: set[int] = set()

    def has_replacements(samples: Samples) -> bool:
        seen_pids.update(sample.pid for sample in loaders(samples))
        return len(seen_pids) >= 6

    with running("fork", "2", "0", "0", "sleep", script=_SCRIPT) as tree:
        watch(collector, tree.pid, has_replacements)


def test_without_workers_the_main_thread_does_the_work(collector: ProcessCollector) -> None:
    with running("fork", "0", "0", "0", "burn", script=_SCRIPT) as tree:
        samples = watch(
            collector, tree.pid, lambda seen: (seen[0].main_run_pct or 0) + (seen[0].main_wait_pct or 0) > 70
        )
    assert loaders(samples) == []
