"""Faults around the driver: /proc, kernel statistics, control groups and the clock."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from gputop.monitor import Frame, Monitor
from gputop.paint.main_screen import main_screen
from gputop.paint.view import View
from gputop.recording.writer import RecordingWriter
from gputop.sources.simulation.simulated import snapshot_at
from tests.faults.row import Row, Watcher, World, is_healthy
from tests.nvml.stand_in import GIB, Process
from tests.support.recording_frames import frame

BEGUN = 1_780_000_000.0
HOUR = 3600.0
LATEST_S = 10.0
"""Of what is measured four times a second nothing gets older, however busy the machine is."""
Proof = Callable[[Row, World], None]


def _clock(step_s: float, kept: bool) -> Proof:
    def proof(row: Row, world: World) -> None:
        monitor = Monitor()
        snapshots = [snapshot_at(BEGUN + s, started=BEGUN) for s in range(60)]
        for snapshot in snapshots[:40]:
            monitor.feed(snapshot)
        for snapshot in snapshots[40:]:
            shown = monitor.feed(replace(snapshot, t=snapshot.t + step_s))
        uuid = shown.snapshot.gpus[0].static.uuid
        columns = shown.history.columns(uuid, "util_pct", 60.0, 90)
        drawn = [value is not None for value in columns]
        assert (sum(drawn) > 2) is kept
        # What is missing is a hole in the line, not a line across it.
        assert drawn[-50:-2] == [False] * 48
        assert len(shown.diagnoses) == len(shown.snapshot.gpus)
        assert row.sees in main_text(shown)

    return proof


def _states(snapshot: dict[str, Any], pids: set[int]) -> dict[int, str | None]:
    """The states of these processes, where the driver's memory of theirs is known: it may come late."""
    rows = [p for p in snapshot["processes"] if p["pid"] in pids and p["gpu_mem_bytes"] == GIB]
    return {p["pid"]: p["state"] for p in rows}


def _dead_and_zombie(row: Row, world: World) -> None:
    sleeping = [sys.executable, "-c", "import time; time.sleep(60)"]
    dead, zombie, alive = (subprocess.Popen(sleeping) for _ in range(3))
    scenario = world.make(1)
    scenario.gpus[0].processes = [Process(process.pid, GIB, sm=10) for process in (dead, zombie, alive)]
    try:
        with Watcher(scenario) as watcher:
            # Orphans of whatever else runs on the machine may be listed beside them.
            gpu_pids = {dead.pid, zombie.pid, alive.pid}
            watcher.until(lambda s: gpu_pids <= {p["pid"] for p in s["processes"] if p["starttime"] is not None})
            for process in (dead, zombie):
                process.kill()
            dead.wait()
            seen = watcher.until(lambda s: _states(s, gpu_pids) == {dead.pid: None, zombie.pid: "Z", alive.pid: "S"})
    finally:
        alive.kill()
        zombie.wait()
        alive.wait()
    found = {process["pid"]: process for process in seen["processes"]}
    assert found[zombie.pid]["unavailable"]["read_bytes_per_s"] == "the process has ended and waits for its parent"
    assert row.sees in found[dead.pid]["unavailable"]["state"]
    assert is_healthy(seen["gpus"][0])


class _SetClock:
    """The local source of a busy GPU process, whose clock can be set; its snapshots are looked at one by one."""

    def __init__(self, world: World) -> None:
        self._file = world.directory / "clock"
        self.set(0.0)
        self._busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
        scenario = world.make(1)
        scenario.gpus[0].processes.append(Process(self._busy.pid, GIB, sm=66))
        self._watcher = Watcher(scenario, clock_file=str(self._file))

    def __enter__(self) -> _SetClock:
        return self

    def __exit__(self, *_: object) -> None:
        self._busy.kill()
        self._busy.wait()
        self._watcher.__exit__()

    def set(self, offset_s: float) -> None:
        draft = self._file.with_suffix(".draft")
        draft.write_text(str(offset_s))
        draft.replace(self._file)

    def follow(self, snapshots: int) -> list[dict[str, Any]]:
        """So many snapshots with all rates, each of which is held to be possible."""
        seen: list[dict[str, Any]] = []
        while len(seen) < snapshots:
            # Rates over the milliseconds between the first two reads mean little, and the host's come a tick later.
            snapshot = self._watcher.until(
                lambda s: (
                    bool(s["gpus"])
                    and s["gpus"][0]["sm_active_pct"] is not None
                    and (bool(seen) or s["host"]["cpu_pct"] is not None)
                )
            )
            _is_possible(snapshot)
            seen.append(snapshot)
        return seen


def _is_possible(snapshot: dict[str, Any]) -> None:
    (process,) = snapshot["processes"]
    # A process that never sleeps runs or waits for a core all the time.
    assert 50.0 < process["main_run_pct"] + process["main_wait_pct"] < 150.0
    assert process["gpu_time_pct"] == 66.0
    assert 0.0 <= process["age_s"] < 60.0
    (gpu,) = snapshot["gpus"]
    assert (gpu["util_pct"], gpu["lost_reason"]) == (90, None)
    assert gpu["sm_active_pct"] == 25.0
    ages = [gpu["sm_age_s"], gpu["sm_window_s"], *snapshot["stale"].values()]
    assert all(0.0 <= age < LATEST_S for age in ages)
    rates = {key: value for key, value in snapshot["host"].items() if key.endswith("_per_s") or key == "cpu_pct"}
    assert all(value is None or value >= 0.0 for value in rates.values())
    assert 0.0 < rates["cpu_pct"] <= 100.0


def _own_clock_back(row: Row, world: World) -> None:
    with _SetClock(world) as clock:
        before = clock.follow(3)[-1]
        clock.set(-HOUR)
        # The list of processes is read every two seconds: three of them stand on the clock as it is now.
        after = clock.follow(24)
    assert before["t"] - after[-1]["t"] > HOUR - 60.0
    times = [t for t, _ in after[-1]["history"]]
    assert times == sorted(times)
    assert times[-1] - times[0] < 60.0
    assert row.sees in after[-1]["gpus"][0]["static"]["name"]


def _own_clock_on(row: Row, world: World) -> None:
    with _SetClock(world) as clock:
        clock.follow(3)
        clock.set(HOUR)
        after = clock.follow(6)[-1]
    times = [t for t, _ in after["history"]]
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert sum(gap > HOUR for gap in gaps) == 1
    assert all(0.0 < gap < LATEST_S or gap > HOUR for gap in gaps)
    assert row.sees in after["gpus"][0]["static"]["name"]


def _picture_across_a_set_clock(row: Row, world: World) -> None:
    writer = RecordingWriter(str(world.directory / "r.jsonl.gz"))
    for k in (*range(3600, 3700), *range(100)):
        writer.write(frame(k, gpus=1, processes=0))
    writer.close()
    for at in ("-30s", "+30s"):
        picture = str(world.directory / f"{at}.txt")
        done = world.run(world.make(0), "screenshot", "r.jsonl.gz", f"--at={at}", "-o", picture)
        assert done.returncode == row.status, done.stderr
        with open(picture, encoding="utf-8") as file:
            assert row.sees in file.read()


def main_text(frame: Frame) -> str:
    """The main screen as text."""
    rows = main_screen(frame, View(), 160, 48).rows
    return "\n".join("".join(text for text, _ in row) for row in rows)


def rows() -> list[Row]:
    """Rows about processes and the clock."""
    return [
        Row(
            "dead processes and zombies in the driver's list",
            "ended, the driver still holds its memory",
            None,
            _dead_and_zombie,
        ),
        Row("the clock steps back", "GPU", None, _clock(-HOUR, kept=False)),
        Row("the clock steps forward, suspend", "GPU", None, _clock(HOUR, kept=True)),
        Row("a clock set back within a recording", "node-17", 0, _picture_across_a_set_clock),
        Row("the clock steps back: what is measured", "H100", None, _own_clock_back, slow=True),
        Row("the clock steps forward: what is measured", "H100", None, _own_clock_on, slow=True),
    ]
