"""Ten minutes of the screen beside processes that come and go: nothing may grow but the past that is kept.

One test takes longer than a hang may: run it with ``-o faulthandler_timeout=900``.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.bench.measure import terminal_environment
from tests.bench.programs import gputop
from tests.bench.terminal import Terminal
from tests.bench.workload import Load, machine

WARM_UP_S = 120.0
WATCHED_S = 480.0
FORKS_PER_S = 20.0
MOST_GROWN_MB = 6.0
"""The past of a run is kept packed, and the charts' rings fill, until the twelfth minute."""


class Held(NamedTuple):
    threads: int
    descriptors: int
    resident_mb: float


def held_by(pid: int) -> Held:
    folder = Path("/proc", str(pid))
    status = dict(
        line.split(":", 1) for line in (folder / "status").read_text("utf-8").splitlines()
    )
    return Held(
        threads=int(status["Threads"]),
        descriptors=len(os.listdir(folder / "fd")),
        resident_mb=int(status["VmRSS"].split()[0]) / 1024,
    )


@contextmanager
def processes_that_come_and_go() -> Iterator[None]:
    """Start short processes, as a shell script beside a training job does."""
    over = threading.Event()

    def fork() -> None:
        while not over.wait(1 / FORKS_PER_S):
            subprocess.run(["true"], check=False)

    thread = threading.Thread(target=fork)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.mark.slow
@pytest.mark.weekly
@pytest.mark.nvml
def test_after_ten_minutes_threads_and_descriptors_are_those_of_the_second_minute(
    tmp_path: Path, nvml_dir: Path
) -> None:
    program = gputop(sys.executable, tmp_path)
    with machine(Load(2, 16), tmp_path / "machine") as scenario, processes_that_come_and_go():
        environment = terminal_environment(program, scenario)
        terminal = Terminal(program.watch(1.0), environment, 50, 160)
        try:
            terminal.drain(WARM_UP_S)
            before = held_by(terminal.pid)
            terminal.drain(WATCHED_S)
            after = held_by(terminal.pid)
        finally:
            terminal.close()
    print(before, after)
    assert (after.threads, after.descriptors) == (before.threads, before.descriptors)
    assert after.resident_mb - before.resident_mb <= MOST_GROWN_MB
