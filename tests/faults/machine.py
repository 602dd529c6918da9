"""Faults around the driver: /proc, kernel statistics, control groups and the clock."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from gputop.monitor import Frame, Monitor
from gputop.paint.main_screen import main_screen
from gputop.paint.view import View
from gputop.sources.simulated import snapshot_at
from tests.faults.row import Row, World

BEGUN = 1_780_000_000.0
HOUR = 3600.0
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
        assert (len([value for value in columns if value is not None]) > 1) is kept
        assert len(frame.diagnoses) == len(frame.snapshot.gpus)
        assert row.sees in main_text(frame)

    return proof


def main_text(frame: Frame) -> str:
    """The main screen as text."""
    rows = main_screen(frame, View(), 160, 48).rows
    return "\n".join("".join(text for text, _ in row) for row in rows)


def rows() -> list[Row]:
    """The machine's part of the matrix."""
    processes, host = "tests/test_process_collector.py::", "tests/test_host.py::"
    return [
        Row("a pid that /proc does not show", "the driver's pids are of another PID namespace, or hidden",
            "what the driver says of it, and why no more", "GPUs; all other processes", None,
            processes + "test_a_pid_that_proc_does_not_show_keeps_what_the_driver_says"),
        Row("/proc with hidepid", "other users' processes are hidden", "hidden by hidepid", "GPUs; own processes",
            None, processes + "test_hidepid_is_named_as_the_reason"),
        Row("denied files of /proc", "another user's `io` and `wchan`", "why, and that root would see it",
            "everything else", None, processes + "test_refused_io_and_wait_channel_say_what_would_help"),
        Row("a process that dies", "it ends between two reads", "its row goes", "everything", None,
            processes + "test_a_worker_that_vanishes_is_gone_at_once_and_a_process_that_exits_keeps_its_name"),
        Row("files that vanish while they are read", "a tree ends while it is searched", "the row goes", "everything",
            None, processes + "test_files_that_vanish_while_the_tree_is_found_are_left_out"),
        Row("a reused pid", "another process has the pid now", "a new row", "everything", None,
            processes + "test_a_reused_pid_is_not_taken_for_the_old_process"),
        Row("hostile names", "control characters in names and command lines", "harmless characters", "everything",
            None, processes + "test_control_characters_never_reach_the_screen"),
        Row("no schedstat", "a kernel without scheduler statistics", "a notice: waiting for a core cannot be told",
            "CPU time; all verdicts that do without", None,
            processes + "test_a_kernel_without_schedstat_leaves_cpu_time_and_says_so"),
        Row("no PSI", "a kernel without /proc/pressure", "n/a with the reason", "everything else", None,
            host + "test_missing_pressure_files_are_said_and_take_nothing_else_away"),
        Row("no /proc files at all", "an empty /proc", "n/a with reasons", "GPUs", None,
            host + "test_an_empty_machine_gives_reasons_and_never_raises"),
        Row("cgroup v1, cgroup v2", "limits on any ancestor, in either layout", "the limit", "everything", None,
            "tests/test_process_cgroup.py::test_limits_are_found_on_any_ancestor"),
        Row("another cgroup namespace", "a group that is not ours to read", "n/a", "everything else", None,
            "tests/test_process_cgroup.py::test_a_group_of_another_cgroup_namespace_is_not_guessed"),
        Row("the clock steps back", "an hour back while running", "GPU", "everything; charts and verdicts begin afresh",
            None, _clock(-HOUR, kept=False)),
        Row("the clock steps forward, suspend", "an hour is missing", "GPU", "everything; the charts keep what was",
            None, _clock(HOUR, kept=True)),
        Row("a clock set back between two reads of /proc", "rates would be negative or huge", "one pair without rates",
            "everything", None, host + "test_a_clock_that_steps_back_costs_one_pair_and_gives_no_false_rate"),
    ]  # fmt: skip
