"""The live source on stand-in GPUs that come and go, hang and are lost."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from gputop.sources.local import LocalSource
from gputop.sources.nvml import gpu_device, handle, nvml_session
from tests.bench.soak.measure import descriptors, resident_bytes
from tests.nvml.stand_in import GIB, Process, Scenario, build

GPUS = 4
SLEEPERS = 8
STEP_S = 0.1
INTERVAL_S = 0.02
HUNG_S = 0.1
HANG_S = 0.5
LOST = 15
"""NVML's code for a lost GPU."""
CYCLE, LOST_STEPS, HANGING_STEP = 30, 5, 18
LOOK_TICKS = 25
LEAST_TICKS = 4 * LOOK_TICKS


class Machine:
    """Stand-in GPUs with real processes, in force while it is entered; ``change`` makes the next thing happen."""

    def __init__(self, directory: Path, library: Path | None = None) -> None:
        self.scenario = Scenario(directory, library or build(directory).parent, gpus=GPUS)
        self.steps = 0
        self._sleepers: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Machine:
        self._sleepers = [_sleeper() for _ in range(SLEEPERS)]
        self._list_processes()
        return self

    def __exit__(self, *_: object) -> None:
        for sleeper in self._sleepers:
            _end(sleeper)

    def change(self) -> None:
        """Another process, and in turn another GPU that is lost, found, or that hangs."""
        _end(self._sleepers.pop(0))
        self._sleepers.append(_sleeper())
        self.scenario.clear_trouble()
        phase, turn = self.steps % CYCLE, self.steps // CYCLE
        if phase < LOST_STEPS:
            self.scenario.error("*", LOST, gpu=turn % GPUS)
        if phase == HANGING_STEP:
            self.scenario.hang("nvmlDeviceGetUtilizationRates", HANG_S, gpu=(turn + 1) % GPUS, times=1)
        self.steps += 1
        self._list_processes()

    def _list_processes(self) -> None:
        for index, gpu in enumerate(self.scenario.gpus):
            gpu.processes = [Process(sleeper.pid, GIB, sm=5) for sleeper in self._sleepers[index::GPUS]]
        self.scenario.write()


def measured(seconds: float, library: Path | None = None) -> dict[str, Any]:
    """The live source at 50 Hz in a program of its own: GPUs are lost and found, processes change, calls hang.

    ``library`` is the folder of the stand-in, where it is built already. Of threads and descriptors it gives the least
    and the most of each quarter of the run.
    """
    with tempfile.TemporaryDirectory() as directory, Machine(Path(directory), library) as machine:
        reader = subprocess.Popen(
            [sys.executable, "-m", "tests.bench.soak.machine", str(seconds)],
            env=machine.scenario.environment(),
            stdout=subprocess.PIPE,
            text=True,
        )
        while reader.poll() is None:
            machine.change()
            time.sleep(STEP_S)
        assert reader.stdout is not None
        rows = [json.loads(line) for line in reader.stdout]
        sessions, steps = machine.scenario.sessions(), machine.steps
    if reader.returncode or len(rows) < 3:
        raise RuntimeError(f"the reader ended with {reader.returncode} after {len(rows)} looks")
    return {**_account(rows), "processes_lived": SLEEPERS + steps, "driver_sessions": sessions}


def _account(rows: list[dict[str, Any]]) -> dict[str, Any]:
    first, *open_rows, last = rows
    quarters = [open_rows[i * len(open_rows) // 4 : (i + 1) * len(open_rows) // 4] for i in range(4)]
    points = [(row["tick"], row["rss"]) for row in open_rows]
    return {
        "ticks": last["tick"],
        "rss_mb": [round(points[i * (len(points) - 1) // 8][1] / 1e6, 2) for i in range(9)],
        "threads": [_range(quarter, "threads") for quarter in quarters],
        "descriptors": [_range(quarter, "descriptors") for quarter in quarters],
        "gpus_lost": last["lost"],
        "calls_hung": last["hung"],
        "before": {key: first[key] for key in ("threads", "descriptors")},
        "closed": {key: last[key] for key in ("threads", "descriptors")},
    }


def _range(rows: list[dict[str, Any]], key: str) -> list[int]:
    return [min(row[key] for row in rows), max(row[key] for row in rows)] if rows else []


def _sleeper() -> subprocess.Popen[bytes]:
    return subprocess.Popen(["sleep", "600"])


def _end(sleeper: subprocess.Popen[bytes]) -> None:
    sleeper.kill()
    sleeper.wait()


def main() -> int:
    """The program that is measured: threads, descriptors and memory as JSON lines.

    The first one before the source is started, the last one after it is closed.
    """
    # A second is a tick here: what the driver is asked again after some seconds is asked after so many ticks.
    for module in (gpu_device, handle, nvml_session):
        for name in ("RETRY_S", "RETRY_LOST_S", "PROCESSES_S", "SELDOM_S"):
            if hasattr(module, name):
                setattr(module, name, getattr(module, name) * INTERVAL_S)
    begun = time.time()
    source = LocalSource(INTERVAL_S, hung_s=HUNG_S, clock=lambda: begun + (time.time() - begun) / INTERVAL_S)
    news = threading.Event()
    until = time.monotonic() + float(sys.argv[1])
    # On a crowded machine a tick takes longer: it goes on until there is something to compare.
    at_latest = until + 9.0 * float(sys.argv[1])
    tick = lost = hung = 0
    was_lost: set[int] = set()

    def look() -> None:
        gc.collect()
        row = {"tick": tick, "rss": resident_bytes(), "descriptors": descriptors(), "lost": lost, "hung": hung}
        print(json.dumps({**row, "threads": threading.active_count()}), flush=True)

    look()
    source.start(news.set)
    while (now := time.monotonic()) < until or (tick < LEAST_TICKS and now < at_latest):
        news.wait(1.0)
        news.clear()
        snapshot = source.poll()
        if snapshot is None:
            continue
        tick += 1
        now_lost = {gpu.static.index for gpu in snapshot.gpus if gpu.lost_reason is not None}
        lost += len(now_lost - was_lost)
        hung += sum("has not returned" in (snapshot.gpus[i].lost_reason or "") for i in now_lost - was_lost)
        was_lost = now_lost
        if tick % LOOK_TICKS == 0:
            look()
    source.close()
    time.sleep(2 * HANG_S)
    look()
    return 0


if __name__ == "__main__":
    sys.exit(main())
