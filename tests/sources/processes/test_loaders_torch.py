"""The real PyTorch DataLoader, watched from outside under each start method."""

from __future__ import annotations

import importlib.util
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
    with running(method, "burn", script=_SCRIPT) as tree:
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


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_idle_workers_wait_on_their_queue(collector: ProcessCollector, method: str) -> None:
    with running(method, "idle", script=_SCRIPT) as tree:
        samples = watch(
            collector,
            tree.pid,
            lambda seen: _are_torch(seen, 2) and all(s.waiting_on == "queue" for s in loaders(seen)),
        )
    assert samples[0].waiting_on in ("sleep", "queue", None)
