"""Faults of the terminal and signals."""

from __future__ import annotations

import os
import signal
import time

from tests.faults.row import Row, World
from tests.support.pty_program import SCREEN_TAKEN, in_time_s


def _gone(row: Row, world: World) -> None:
    with world.screen(world.make(1)) as program:
        program.read_until_started("H100")
        os.close(program.terminal)
        program.terminal = os.open(os.devnull, os.O_RDWR)
        _ends(row, program.pid, in_time_s(program.start_s))
        program.status = row.status


def _ends(row: Row, pid: int, most_s: float) -> None:
    deadline = time.monotonic() + most_s
    while not (ended := os.waitpid(pid, os.WNOHANG))[0]:
        assert time.monotonic() < deadline, "it runs on without a terminal"
        time.sleep(0.02)
    assert os.waitstatus_to_exitcode(ended[1]) == row.status


def _one_cell(row: Row, world: World) -> None:
    with world.screen(world.make(1), columns=1, rows=1) as program:
        program.read_until(SCREEN_TAKEN)
        program.resize(120, 40)
        program.signal(signal.SIGWINCH)
        program.read_until(row.sees)
        program.press("q")
        program.end_in_time()
        assert program.status == row.status
        assert program.is_restored()


def rows() -> list[Row]:
    """The terminal's part of the matrix."""
    here = "tests/tui/test_terminal.py::"
    parent = "tests/tui/test_terminal_parent.py::"
    signalled = here + "test_a_signal_restores_the_terminal_and_is_told_by_the_exit_code"
    return [
        Row("the terminal is gone", "its window is closed", "–", "–", 129, _gone),
        Row("the terminal is gone at any time", "by its window, tmux or a hang-up; while gputop loads, runs, is paused,"
            " is stopped, or the driver hangs", "–", "nothing: it ends within 2 s", 129,
            "tests/tui/test_closings.py::test_nothing_is_left_behind"),
        Row("a storm of SIGCONT", "kill -CONT again and again", "–", "everything, with the threads it had", 0,
            "tests/tui/test_closings.py::test_fifty_times_continued_it_has_the_threads_it_had", terminal=True),
        Row("SIGTERM while suspended", "ctrl+z, then kill %1", "–", "–", 143,
            "tests/tui/test_closings.py::test_a_shell_ends_it_while_it_is_suspended_in_the_background",
            terminal=True),
        Row("keys before the screen is there", "typed while gputop loads", "no echo", "they are obeyed then", 0,
            "tests/tui/test_typed_ahead.py::test_keys_typed_while_it_loads_are_not_echoed_and_are_obeyed",
            terminal=True),
        Row("keys in one burst", "`fgpu:1` sent at once", "gpu:1 in the prompt", "everything", 0,
            "tests/tui/test_typed_ahead.py::test_a_filter_and_the_key_after_it_in_one_burst_are_obeyed", terminal=True),
        Row("a main thread that hangs for good", "in a call that signals do not interrupt", "–", "they end it", 143,
            "tests/tui/test_guard.py::test_a_signal_ends_a_program_whose_main_thread_hangs_for_good"),
        Row("COLUMNS and LINES are exported", "and the window is resized", "the window's size", "everything", 0,
            "tests/tui/test_terminal.py::test_a_size_in_the_environment_does_not_hold_while_the_window_is_resized",
            terminal=True),
        Row("a terminal of one cell", "started at 1×1, then enlarged", "H100", "everything", 0, _one_cell,
            terminal=True),
        Row("a stalled terminal", "nobody reads what is drawn", "nothing until it is read again",
            "every sample, in charts, history and recording; signals still end it in < 2.5 s", 143,
            here + "test_a_terminal_that_is_not_read_costs_no_sample", terminal=True),
        Row("a storm of resizes", "SIGWINCH many times a second, down to 1×1", "the last size", "everything", 0,
            here + "test_a_resize_storm_and_a_tiny_terminal_are_survived", terminal=True),
        *(
            Row(name, f"kill -{name[3:]}", "–", "–", 128 + number, signalled, terminal=True)
            for name, number in (("SIGTERM", 15), ("SIGHUP", 1), ("SIGINT", 2), ("SIGQUIT", 3))
        ),
        Row("SIGTSTP, SIGCONT", "ctrl+z, fg", "the shell, then the screen again", "everything", 0,
            here + "test_suspended_it_gives_the_terminal_back_and_resumed_it_draws_again", terminal=True),
        Row("quitting while the driver hangs", "`q` during a call of 30 s", "–", "–", 0,
            here + "test_quitting_while_a_driver_call_hangs", terminal=True),
        Row("a crash in the driver's library", "SIGSEGV, an abort or an exit within a call", "was ended by SIGSEGV",
            "–", 139, parent + "test_a_death_that_python_cannot_handle_leaves_the_terminal_whole_and_says_what_it_was",
            terminal=True),
        Row("SIGKILL, or no memory left", "kill -9 of the screen, or the kernel's own", "was ended by SIGKILL", "–",
            137, parent + "test_a_death_that_python_cannot_handle_leaves_the_terminal_whole_and_says_what_it_was",
            terminal=True),
        Row("SIGKILL of the screen's parent", "kill -9 of the process that holds the terminal", "–",
            "nothing: the screen leaves", 137, parent + "test_killed_alone_the_parent_takes_the_screen_with_it",
            terminal=True),
        Row("a library prints", "the driver writes to stdout or stderr meanwhile", "–", "everything", None,
            parent + "test_what_a_library_prints_does_not_stand_in_the_picture_and_the_screen_goes_on", terminal=True),
        Row("a defect of ours on the screen", "judging, drawing or a key raises what nobody has foreseen",
            "internal error, with its place, below the last picture", "the screen; the next frame is tried", None,
            "tests/tui/test_tui.py::"
            "test_what_nobody_has_foreseen_leaves_the_last_picture_with_a_line_and_the_screen_goes_on", terminal=True),
        Row("a source that falls silent", "no news for long", "STALE and the age", "keys, charts, quitting", None,
            "tests/tui/test_tui.py::test_a_source_that_falls_silent_is_called_stale", terminal=True),
    ]  # fmt: skip
