"""A CPU-bound loop in turns with and without a watch, in one process: what ``tests.bench.watch`` runs and reads.

Its thread computes and never waits by itself, so the kernel's account of it (Documentation/scheduler/sched-stats.rst)
splits each second exactly: on a core, waiting for a core (neighbours), and the rest, in which it slept. In a loop that
only computes, that is where it waited for the interpreter's lock. A piece of work in which it had to, seen by its
voluntary context switches (getrusage(2)), also runs on cold caches: what it takes beyond its neighbours is counted too.

Nothing between two pieces releases the lock: reading a file there would hand it over where a real loop would not.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import sys
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

PIECE = 20_000
"""Turns of the inner loop in a piece: about 1 ms."""
SETTLE_S = 2.0
"""After a start, in which the driver is opened and the first readings are made; not counted."""
AFTER = 2
"""Pieces after one that had to wait that may still be slower."""
AROUND = 200
"""Pieces on each side that a piece is compared with."""


class Piece(NamedTuple):
    """CPU seconds of the loop's thread, and whether it had to wait for the lock."""

    cpu_s: float
    waited: bool


class Block(NamedTuple):
    """Some seconds of the loop. ``slept_pct`` is the share of the time in which its thread neither ran nor waited for a
    core, ``slower_pct`` the CPU time that pieces which had to wait took beyond their neighbours, ``threads_pct`` the
    CPU time of gputop's threads, all against the block's time; ``cpu_s`` is the process's CPU time a piece."""

    slept_pct: float
    slower_pct: float
    threads_pct: float
    cpu_s: float
    switches: int
    longest_ms: float
    pieces: int


def slower_s(pieces: list[Piece]) -> float:
    """CPU seconds that the pieces which waited, and those right after them, took beyond the median of their
    neighbours that had nothing to do with it."""
    near = {i + after for i, piece in enumerate(pieces) if piece.waited for after in range(AFTER + 1)}
    total = 0.0
    for at in near:
        if at >= len(pieces):
            continue
        around = range(max(0, at - AROUND), min(len(pieces), at + AROUND))
        calm = [pieces[i].cpu_s for i in around if i not in near]
        if len(calm) >= AROUND // 4:
            total += pieces[at].cpu_s - statistics.median(calm)
    return total


def _account(thread: int) -> tuple[float, float]:
    """Seconds on a core and waiting for one."""
    with open(f"/proc/self/task/{thread}/schedstat", encoding="ascii") as file:
        ran, queued, _ = file.read().split()
    return int(ran) / 1e9, int(queued) / 1e9


def block(seconds: float, step: Callable[[], object], threads_s: Callable[[], float]) -> Block:
    """Compute for so long."""
    thread, pieces = threading.get_native_id(), []
    clock, cpu = time.perf_counter, time.thread_time
    usage, who = resource.getrusage, resource.RUSAGE_THREAD
    total = 0
    own, process = threads_s(), time.process_time()
    ran, queued = _account(thread)
    begun = clock()
    switches = first = usage(who).ru_nvcsw
    now, used = begun, cpu()
    while now - begun < seconds:
        for j in range(PIECE):
            total += j * j
        step()
        before, used = used, cpu()
        seen = usage(who).ru_nvcsw
        pieces.append(Piece(used - before, seen != switches))
        switches, now = seen, clock()
    ran_after, queued_after = _account(thread)
    wall = clock() - begun
    slept = wall - (ran_after - ran) - (queued_after - queued)
    return Block(
        100.0 * slept / wall,
        100.0 * slower_s(pieces) / wall,
        100.0 * (threads_s() - own) / wall,
        (time.process_time() - process) / len(pieces),
        switches - first,
        0.0,
        len(pieces),
    )


def main() -> int:
    pairs, seconds = int(sys.argv[1]), float(sys.argv[2])
    from gputop.api.watch import watch

    if hasattr(os, "sched_setaffinity") and len(sys.argv) > 3:
        os.sched_setaffinity(0, {int(core) for core in sys.argv[3].split(",")})

    def alone() -> Block:
        return block(seconds, lambda: None, lambda: 0.0)

    def watched() -> Block:
        with watch(gpus="all") as w:
            time.sleep(SETTLE_S)
            found = block(seconds, w.step, lambda: w.cost.cpu_s)
            return found._replace(longest_ms=1000.0 * w.cost.longest_s)

    with watch(gpus="all"):
        # What a first start imports is in memory from here on.
        time.sleep(SETTLE_S)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0
    found = []
    for number in range(pairs):
        # ABBA: what drifts meets both alike.
        if number % 2:
            with_it = watched()
            without = alone()
        else:
            without = alone()
            with_it = watched()
        found.append((without._asdict(), with_it._asdict()))
    print(json.dumps({"pairs": found, "rss_mb": before}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
