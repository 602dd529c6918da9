"""Faults around the driver: /proc, kernel statistics, control groups and the clock."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

from msgspec.structs import replace

from gputop.monitor import Monitor
from gputop.output.ansi import plain_text
from gputop.paint.main_screen import main_screen
from gputop.paint.view import View
from gputop.sources.simulation.simulated import snapshot_at
from tests.faults.row import Row, Watcher, World, is_healthy
from tests.nvml.stand_in import GIB, Process

BEGUN = 1_780_000_000.0


def _clock_steps_back(row: Row, world: World) -> None:
    monitor = Monitor()
    for second in range(60):
        snapshot = snapshot_at(BEGUN + second, started=BEGUN)
        shown = monitor.feed(snapshot if second < 40 else replace(snapshot, t=snapshot.t - 3600.0))
    columns = shown.history.columns(shown.snapshot.gpus[0].static.uuid, "util_pct", 60.0, 90)
    drawn = [value is not None for value in columns]
    assert sum(drawn) <= 2
    # What is missing is a hole in the line, not a line across it.
    assert drawn[-50:-2] == [False] * 48
    assert len(shown.diagnoses) == len(shown.snapshot.gpus)
    assert row.sees in plain_text(main_screen(shown, View(), 160, 48).rows)


def _states(snapshot: dict[str, Any], pids: set[int]) -> dict[int, str | None]:
    """The states of these processes, where the driver's memory of theirs is known: it may come late."""
    rows = [p for p in snapshot["processes"] if p["pid"] in pids and p["gpu_mem_bytes"] == GIB]
    return {p["pid"]: p["state"] for p in rows}


def _dead_and_zombie(row: Row, world: World) -> None:
    sleeping = [sys.executable, "-c", "import time; time.sleep(60)"]
    dead, zombie, alive = (subprocess.Popen(sleeping) for _ in range(3))
    scenario = world.make(1)
    scenario.gpus[0].processes = [
        Process(process.pid, GIB, sm=10) for process in (dead, zombie, alive)
    ]
    try:
        with Watcher(scenario) as watcher:
            # Orphans of whatever else runs on the machine may be listed beside them.
            gpu_pids = {dead.pid, zombie.pid, alive.pid}
            watcher.until(
                lambda s: (
                    gpu_pids <= {p["pid"] for p in s["processes"] if p["starttime"] is not None}
                )
            )
            for process in (dead, zombie):
                process.kill()
            dead.wait()
            seen = watcher.until(
                lambda s: _states(s, gpu_pids) == {dead.pid: None, zombie.pid: "Z", alive.pid: "S"}
            )
    finally:
        alive.kill()
        zombie.wait()
        alive.wait()
    found = {process["pid"]: process for process in seen["processes"]}
    assert (
        found[zombie.pid]["unavailable"]["read_bytes_per_s"]
        == "the process has ended and waits for its parent"
    )
    assert row.sees in found[dead.pid]["unavailable"]["state"]
    assert is_healthy(seen["gpus"][0])


def rows() -> list[Row]:
    """Rows about processes and the clock."""
    return [
        Row(
            "dead processes and zombies",
            "ended, the driver still holds its memory",
            None,
            _dead_and_zombie,
        ),
        Row("the clock steps back", "GPU", None, _clock_steps_back),
    ]
