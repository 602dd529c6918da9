"""``python -m tests.bench.soak``: a day's and more of ticks at full speed, and what they leave behind.

Processes change, GPUs are lost and found, the screen is resized and switched. Monitor, painter and the memory of the
past run for ``--ticks``, the reader of this machine's /proc and driver for ``--local``. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from gputop.model.snapshot import GpuSample, ProcessSample, Snapshot
from gputop.monitor import Monitor
from gputop.paint.details import DetailsView
from gputop.paint.gpu_details import gpu_details
from gputop.paint.main_screen import Painter
from gputop.paint.view import View
from gputop.recording.memory import Memory
from gputop.sources.collector import Collector
from gputop.sources.host import HostCollector
from gputop.sources.processes import ProcessCollector
from gputop.sources.simulated import snapshot_at

BEGUN = 1_780_000_000.0
DAY_TICKS = 86_400
RECORDED = 240
"""Simulated snapshots that are made once and then varied: making them would take longer than everything measured."""
SIZES = ((160, 48), (80, 24), (1, 1), (300, 100), (40, 10), (120, 200))
LOOKS = 100
"""How often memory is looked at over the run."""
WARM_UP = 10_000
"""Ticks in which rings and caches fill up, at most half of the run: the minutes that charts keep are 7,200 ticks."""


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def slope(points: list[tuple[int, int]]) -> float:
    """Bytes a tick, by least squares."""
    n = len(points)
    mean_x, mean_y = sum(x for x, _ in points) / n, sum(y for _, y in points) / n
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread else 0.0


def changed(snapshot: Snapshot, tick: int, draw: random.Random) -> Snapshot:
    """The snapshot of a tick: each process lives for some minutes, now and then a GPU is gone for some."""
    generation = tick // 180

    def process(p: ProcessSample) -> ProcessSample:
        return replace(p, pid=1000 + (p.pid * 31 + generation * 97) % 4_000_000, starttime=generation * 100)

    def gpu(sample: GpuSample) -> GpuSample:
        lost = (tick // 300 + sample.static.index) % 9 == 0
        if not lost:
            return sample
        return GpuSample(sample.static, lost_reason="GPU is lost", lost_since=BEGUN, unavailable={"util_pct": "lost"})

    kept = tuple(process(p) for p in snapshot.processes if draw.random() > 0.02)
    return replace(snapshot, t=BEGUN + tick, gpus=tuple(gpu(g) for g in snapshot.gpus), processes=kept)


def ticks(count: int) -> Iterator[Snapshot]:
    made = [snapshot_at(BEGUN + s, started=BEGUN) for s in range(RECORDED)]
    draw = random.Random(1)
    for tick in range(count):
        yield changed(made[tick % RECORDED], tick, draw)


def drawn(count: int) -> dict[str, Any]:
    """Every snapshot through monitor, memory and screen; the slope of resident memory after the warm-up."""
    monitor, painter, memory = Monitor(), Painter(), Memory()
    points: list[tuple[int, int]] = []
    begun = time.monotonic()
    for tick, snapshot in enumerate(ticks(count)):
        frame = monitor.feed(snapshot)
        memory.add(snapshot)
        width, height = SIZES[tick // 500 % len(SIZES)]
        view = View(scroll=tick % 7, span_s=(120.0, 3600.0)[tick // 1000 % 2])
        painter.paint(frame, view, width, height)
        if tick % 50 == 0 and frame.snapshot.gpus:
            uuid = frame.snapshot.gpus[tick % len(frame.snapshot.gpus)].static.uuid
            gpu_details(frame, DetailsView(view), uuid, max(20, width), max(5, height))
        if tick % 1000 == 0 and (past := memory.past()) is not None:
            past.close()
        if tick % max(1, count // LOOKS) == 0 and tick >= min(WARM_UP, count // 2):
            gc.collect()
            points.append((tick, resident_bytes()))
    took = time.monotonic() - begun
    each = slope(points)
    tenths = points[:: max(1, len(points) // 10)]
    return {
        "ticks": count,
        "ms_a_tick": round(1000 * took / count, 3),
        "rss_mb": round(resident_bytes() / 1e6, 1),
        "rss_mb_since_warm": [round(size / 1e6, 2) for _, size in tenths],
        "rss_slope_mb_a_day": round(each * DAY_TICKS / 1e6, 3),
        "charts_kept": len(monitor.latest.history.keys()) if monitor.latest else 0,
    }


def read(count: int) -> dict[str, Any]:
    """This machine's /proc, as often as it can be read, with a child that comes and goes."""
    host, processes = HostCollector("/proc"), ProcessCollector("/proc")
    points: list[tuple[int, int]] = []
    descriptors = []
    for tick in range(count):
        host.read(float(tick))
        processes.read(float(tick), ())
        if tick % max(1, count // LOOKS) == 0 and tick >= min(WARM_UP, count // 2):
            gc.collect()
            points.append((tick, resident_bytes()))
            descriptors.append(len(os.listdir("/proc/self/fd")))
    return {
        "ticks": count,
        "rss_slope_mb_a_day": round(slope(points) * DAY_TICKS / 1e6, 3),
        "descriptors": [descriptors[0], descriptors[-1]],
    }


def started(count: int) -> dict[str, Any]:
    """Threads made and ended, as a hung driver makes them: how many are left."""
    before = threading.active_count()
    for _ in range(count):
        done = threading.Event()
        collector: Collector[int] = Collector("soak", int, done.set)
        collector.start()
        done.wait(5.0)
        collector.stop()
        collector.join(5.0)
    return {"started": count, "left": threading.active_count() - before}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.soak", description=__doc__)
    parser.add_argument("--ticks", type=int, default=200_000, help="of the monitor and the screen (default 200,000)")
    parser.add_argument("--local", type=int, default=3_000, help="readings of this machine (default 3,000)")
    options = parser.parse_args()
    result = {"screen": drawn(options.ticks), "machine": read(options.local), "threads": started(200)}
    print(json.dumps(result, indent=2))
    ok = result["screen"]["rss_slope_mb_a_day"] < 1.0 and result["threads"]["left"] == 0
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
