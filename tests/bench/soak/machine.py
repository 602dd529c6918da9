"""The live source on stand-in GPUs that come and go, hang and are lost.

Run as a program, this file is what is measured: its argument is for how many seconds.
"""

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
from gputop.sources.selection import MachineOptions
from tests.bench.soak.session import living, resident_bytes
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


def _sleeper() -> subprocess.Popen[bytes]:
    return subprocess.Popen(["sleep", "600"])


def _change(scenario: Scenario, sleepers: list[subprocess.Popen[bytes]], step: int) -> None:
    """Another process, and in turn another GPU that is lost, found, or that hangs."""
    sleepers.append(_sleeper())
    sleepers[0].kill()
    sleepers.pop(0).wait()
    scenario.clear_trouble()
    phase, turn = step % CYCLE, step // CYCLE
    if phase < LOST_STEPS:
        scenario.error("*", LOST, gpu=turn % GPUS)
    if phase == HANGING_STEP:
        scenario.hang("nvmlDeviceGetUtilizationRates", HANG_S, gpu=(turn + 1) % GPUS, times=1)
    for index, gpu in enumerate(scenario.gpus):
        gpu.processes = [Process(sleeper.pid, GIB, sm=5) for sleeper in sleepers[index::GPUS]]
    scenario.write()


def measured(seconds: float, library: Path | None = None) -> dict[str, Any]:
    """The live source at 50 Hz in a program of its own: GPUs are lost and found, processes change, calls hang.

    ``library`` is the folder of the stand-in, where it is built already. Of threads and descriptors it gives the least
    and the most of each quarter of the run.
    """
    sleepers, step = [_sleeper() for _ in range(SLEEPERS)], 0
    try:
        with tempfile.TemporaryDirectory() as directory:
            scenario = Scenario(Path(directory), library or build(Path(directory)).parent, gpus=GPUS)
            scenario.write()
            command = [sys.executable, "-m", "tests.bench.soak.machine", str(seconds)]
            reader = subprocess.Popen(command, env=scenario.environment(), stdout=subprocess.PIPE, text=True)
            while reader.poll() is None:
                step += 1
                _change(scenario, sleepers, step)
                time.sleep(STEP_S)
            assert reader.stdout is not None
            rows = [json.loads(line) for line in reader.stdout]
    finally:
        for sleeper in sleepers:
            sleeper.kill()
            sleeper.wait()
    if reader.returncode or len(rows) < 3:
        raise RuntimeError(f"the reader ended with {reader.returncode} after {len(rows)} looks")
    first, *middle, last = rows
    quarters = [middle[i * len(middle) // 4 : (i + 1) * len(middle) // 4] for i in range(4)]
    gauges = ("threads", "descriptors")
    return {
        "ticks": last["tick"],
        "rss_mb": [round(middle[i * (len(middle) - 1) // 8]["rss"] / 1e6, 2) for i in range(9)],
        **{g: [[min(r[g] for r in some), max(r[g] for r in some)] for some in quarters if some] for g in gauges},
        "gpus_lost": last["lost"],
        "calls_hung": last["hung"],
        "before": {gauge: first[gauge] for gauge in gauges},
        "closed": {gauge: last[gauge] for gauge in gauges},
        "processes_lived": SLEEPERS + step,
    }


def main() -> int:
    """The program that is measured: threads, descriptors and memory as JSON lines.

    The first one before the source is started, the last one after it is closed.
    """
    # A second is a tick here: what the driver is asked again after some seconds is asked after so many ticks.
    for module in (gpu_device, handle, nvml_session):
        for name in ("RETRY_S", "PROCESSES_S", "SELDOM_S"):
            if hasattr(module, name):
                setattr(module, name, getattr(module, name) * INTERVAL_S)
    begun = time.time()
    source = LocalSource(
        MachineOptions(interval_s=INTERVAL_S, hung_s=HUNG_S, clock=lambda: begun + (time.time() - begun) / INTERVAL_S)
    )
    news = threading.Event()
    until = time.monotonic() + float(sys.argv[1])
    # On a crowded machine a tick takes longer: it goes on until there is something to compare.
    at_latest = until + 9.0 * float(sys.argv[1])
    tick = lost = hung = 0
    was_lost: set[int] = set()

    def look() -> None:
        gc.collect()
        print(json.dumps({"tick": tick, "rss": resident_bytes(), **living(), "lost": lost, "hung": hung}), flush=True)

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
