"""Starts and ends real trees, and waits for what the collector says about them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from gputop.model.snapshot import ProcessSample
from gputop.sources.gpu_process import GpuProcess
from gputop.sources.processes.collector import ProcessCollector

_TREE = Path(__file__).with_name("tree.py")
_TIMEOUT_S = 120.0
_PAUSE_S = 0.1

Samples = tuple[ProcessSample, ...]


@contextmanager
def running(
    *arguments: str, python: str = sys.executable, script: Path = _TREE
) -> Iterator[subprocess.Popen[str]]:
    """A real tree in its own session, killed as a whole at the end."""
    tree = subprocess.Popen(
        [python, str(script), *arguments], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        assert tree.stdout is not None
        assert tree.stdout.readline() == "ready\n"
        yield tree
    finally:
        os.killpg(tree.pid, signal.SIGKILL)
        tree.wait()
        if tree.stdout is not None:
            tree.stdout.close()


def watch(
    collector: ProcessCollector, pid: int, wanted: Callable[[Samples], bool], *, gpu: bool = True
) -> Samples:
    """Read until the samples are as wanted; the assertion shows the last ones when they never are."""
    listed = [GpuProcess(0, pid, 1e9, "C")] if gpu else []
    deadline = time.monotonic() + _TIMEOUT_S
    samples: Samples = ()
    while time.monotonic() < deadline:
        samples = collector.read(time.time(), listed)
        if wanted(samples):
            return samples
        time.sleep(_PAUSE_S)
    raise AssertionError(f"not seen within {_TIMEOUT_S:g} s: {samples}")


def loaders(samples: Samples) -> list[ProcessSample]:
    """The dataloader workers among samples."""
    return [sample for sample in samples if sample.role == "loader"]
