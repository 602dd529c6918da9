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
from gputop.sources.simulation.simulated import snapshot_at
from tests.faults.row import Row, Watcher, World, is_healthy
from tests.nvml.stand_in import GIB, Process

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
            frame = monitor.feed(replace(snapshot, t=snapshot.t + step_s))
        uuid = frame.snapshot.gpus[0].static.uuid
        columns = frame.history.columns(uuid, "util_pct", 60.0, 90)
        drawn = [value is not None for value in columns]
        assert (sum(drawn) > 2) is kept
        # What is missing is a hole in the line, not a line across it.
        assert drawn[-50:-2] == [False] * 48
        assert len(frame.diagnoses) == len(frame.snapshot.gpus)
        assert row.sees in main_text(frame)

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


def main_text(frame: Frame) -> str:
    """The main screen as text."""
    rows = main_screen(frame, View(), 160, 48).rows
    return "\n".join("".join(text for text, _ in row) for row in rows)


def rows() -> list[Row]:
    """The machine's part of the matrix."""
    processes, host = "tests/sources/processes/test_process_collector.py::", "tests/sources/test_host.py::"
    inside, loader = "tests/api/test_api_unharmed.py::", "tests/features/loader_bench/test_loader_command.py::"
    return [
        Row("a defect of ours in a command", "it raises what nobody has foreseen", "internal error, with its place",
            "–", 70, "tests/commands/test_cli.py::test_what_nobody_has_foreseen_is_one_line_with_its_place"),
        Row("a defect of ours in `export`", "judging a frame or writing a page raises", "internal error, once",
            "`gputop_up 0`; the next frame is tried", None, "tests/features/export/test_export_page.py::"
            "test_what_nobody_has_foreseen_is_exported_as_down_said_once_and_gone_with_the_next_good_frame"),
        Row("a defect of ours in `run`", "judging a frame raises", "nothing more was measured: internal error",
            "the job, and its exit status", None,
            "tests/session/test_job.py::test_what_nobody_has_foreseen_ends_the_measuring_and_not_the_job"),
        Row("no file can be opened", "`ulimit -n 8`", "which limit, in one line", "–", 3,
            "tests/commands/test_cli.py::test_what_the_machine_does_not_give_is_one_line_that_names_it"),
        Row("no /dev", "an empty /dev in a container", "H100", "everything", 0,
            "tests/commands/test_cli.py::test_streams_are_left_as_they_are_where_there_is_no_null_device"),
        Row("a clock before 1970", "`gputop record`", "the clock is set before 1970", "what records nothing", 2,
            "tests/recording/test_record_counts.py::test_a_clock_before_1970_is_named"),
        Row("no thread can be started", "the limit on processes is reached", "which limit, in one line; exit status 3",
            "a training that is watched goes on, its steps without GPUs", None,
            inside + "test_where_no_thread_can_be_started_the_training_goes_on_and_a_reason_says_so"),
        Row("a call of the program's own that raises anything", "`on_frame` or a logger raises SystemExit",
            "once, as a warning; it is not called again", "the training, the watch, all other loggers", None,
            inside + "test_whatever_is_raised_on_the_watchs_own_thread_stays_there"),
        Row("a loader's function that hangs", "`gputop loader` calls it, and it does not return",
            "one line when the budget is spent", "gputop; nothing of the function is left", None,
            loader + "test_the_users_function_has_no_more_time_than_the_budget"),
        Row("a loader's function that ends its process", "it exits, is killed, or closes all files",
            "how it ended, in one line", "gputop", None,
            loader + "test_however_the_users_function_fails_one_line_says_so"),
        Row("a pid that /proc does not show", "the driver's pids are of another PID namespace, or hidden",
            "what the driver says of it, and why no more", "GPUs; all other processes", None,
            processes + "test_a_pid_that_proc_does_not_show_keeps_what_the_driver_says"),
        Row("/proc with hidepid", "other users' processes are hidden", "hidden by hidepid", "GPUs; own processes",
            None, processes + "test_hidepid_is_named_as_the_reason"),
        Row("denied files of /proc", "another user's `io` and `wchan`", "why, and that root would see it",
            "everything else", None, processes + "test_refused_io_and_wait_channel_say_what_would_help"),
        Row("a process that dies", "it ends between two reads", "its row goes", "everything", None,
            processes + "test_a_worker_that_vanishes_is_gone_at_once_and_a_process_that_exits_keeps_its_name"),
        Row("dead processes and zombies in the driver's list", "one has exited, one waits for its parent",
            "ended, the driver still holds its memory", "what the driver says of them; all other processes", None,
            _dead_and_zombie),
        Row("files that vanish while they are read", "a tree ends while it is searched", "the row goes", "everything",
            None, processes + "test_files_that_vanish_while_the_tree_is_found_are_left_out"),
        Row("a reused pid", "another process has the pid now", "a new row", "everything", None,
            processes + "test_a_reused_pid_is_not_taken_for_the_old_process"),
        Row("hostile names", "control characters in names and command lines", "harmless characters", "everything",
            None, processes + "test_control_characters_never_reach_the_screen"),
        Row("no schedstat", "a kernel without scheduler statistics", "a notice: waiting for a core is unknown",
            "CPU time; all verdicts that do without", None,
            processes + "test_a_kernel_without_schedstat_leaves_cpu_time_and_says_so"),
        Row("no PSI", "a kernel without /proc/pressure", "n/a with the reason", "everything else", None,
            host + "test_missing_pressure_files_are_said_and_take_nothing_else_away"),
        Row("no /proc files at all", "an empty /proc", "n/a with reasons", "GPUs", None,
            host + "test_an_empty_machine_gives_reasons_and_never_raises"),
        Row("cgroup v1, cgroup v2", "limits on any ancestor, in either layout", "the limit", "everything", None,
            "tests/sources/processes/test_process_cgroup.py::test_limits_are_found_on_any_ancestor"),
        Row("another cgroup namespace", "a group that is not ours to read", "n/a", "everything else", None,
            "tests/sources/processes/test_process_cgroup.py::test_a_group_of_another_cgroup_namespace_is_not_guessed"),
        Row("the clock steps back", "an hour back while running", "GPU", "everything; charts and verdicts begin afresh",
            None, _clock(-HOUR, kept=False)),
        Row("the clock steps forward, suspend", "an hour is missing", "GPU", "everything; the charts keep what was",
            None, _clock(HOUR, kept=True)),
        Row("the clock steps back: what is measured", "the same on the way from the driver and /proc", "H100",
            "every rate and age: they stand on another clock", None, _own_clock_back, slow=True),
        Row("the clock steps forward: what is measured", "an hour on, as after a suspend", "H100",
            "every rate and age; the line has one hole of an hour", None, _own_clock_on, slow=True),
        Row("a clock set back while recording", "`record --for 60s`, an hour back", "where it was set back",
            "the recording, for as long as was asked", None,
            "tests/recording/test_recording_writer.py::test_a_clock_that_is_set_back_does_not_lengthen_a_recording"),
        Row("a clock set back between two reads of /proc", "rates would be negative or huge", "one pair without rates",
            "everything", None, host + "test_a_clock_that_steps_back_costs_one_pair_and_gives_no_false_rate"),
    ]  # fmt: skip
