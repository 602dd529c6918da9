"""Faults of the terminal and signals."""

from __future__ import annotations

import os
import signal
import time

from tests.faults.row import NOTHING, Row, World
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
    """Rows about the terminal."""
    return [
        Row("the terminal is gone", NOTHING, 129, _gone, slow=True),
        Row("a terminal of one cell", "H100", 0, _one_cell, slow=True),
    ]
