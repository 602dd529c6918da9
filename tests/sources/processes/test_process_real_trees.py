"""Real processes: which of them are loaders, by which rule, and what they are seen to do."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from gputop.sources.processes.collector import ProcessCollector
from tests.proc_trees.running import Samples, loaders, running, watch


@pytest.fixture
def collector() -> Iterator[ProcessCollector]:
    # The clock by which ``watch`` reads: what comes between a reading and the counters is not counted.
    made = ProcessCollector(clock=time.time)
    yield made
    made.close()


def _all_wait_on(samples: Samples, count: int, *waits: str) -> bool:
    return [sample.waiting_on in waits for sample in loaders(samples)] == [True] * count


SLOW = [
    pytest.param(*case, marks=pytest.mark.slow) for case in (("fork", "R3"), ("forkserver", "R2"))
]


@pytest.mark.parametrize(("method", "rule"), [("spawn", "R2"), *SLOW])
def test_python_workers_are_found_under_each_start_method(
    collector: ProcessCollector, method: str, rule: str
) -> None:
    with running(method, "2", "queue") as tree:
        samples = watch(collector, tree.pid, lambda seen: _all_wait_on(seen, 2, "queue", "pipe"))
    assert samples[0].role == "gpu"
    assert samples[0].pid == tree.pid
    for worker in loaders(samples):
        assert worker.static.loader == "python"
        assert (worker.static.why or "").startswith(rule)
        assert worker.gpu == 0
        assert worker.state == "S"
    # The resource tracker and the fork server come with these methods and are no loaders.
    helpers = {sample.static.why for sample in samples if sample.role == "helper"}
    assert ("not a loader: multiprocessing's resource tracker" in helpers) == (method != "fork")
    assert ("not a loader: multiprocessing's fork server" in helpers) == (method == "forkserver")


def test_workers_that_share_one_core_are_seen_to_queue(collector: ProcessCollector) -> None:
    def queue(seen: Samples) -> bool:
        shares = [(s.run_pct or 0.0, s.wait_pct or 0.0) for s in loaders(seen)]
        return len(shares) == 3 and all(wait > 30.0 and run + wait > 60.0 for run, wait in shares)

    with running("fork", "3", "crowd") as tree:
        watch(collector, tree.pid, queue)
