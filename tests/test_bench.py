"""The benchmark's instruments, on programs whose behaviour is known."""

from __future__ import annotations

import os
import sys

import pytest

from tests.bench.measure import Figures
from tests.bench.report import as_data, as_table
from tests.bench.scaling import LOADS, Cost, parts
from tests.bench.terminal import ProgramEnded, Terminal
from tests.bench.workload import Load


def start(program: str) -> Terminal:
    return Terminal([sys.executable, "-c", program], os.environ, 50, 160)


def test_a_terminal_dates_what_it_shows_and_counts_cpu_bytes_and_memory() -> None:
    terminal = start(
        "import os, time; print(os.get_terminal_size(), flush=True); time.sleep(0.3); print('x' * 99); input()"
    )
    try:
        terminal.drain(0.8)
        early, late = terminal.first_shown_s("columns=160, lines=50"), terminal.first_shown_s("x{99}")
        assert early is not None and late is not None and late > early
        assert terminal.first_shown_s("never") is None
        assert 100 < terminal.bytes_written() < 200
        assert 0 < terminal.cpu_s() < 5
        assert 1e6 < terminal.peak_rss_bytes() < 1e9
    finally:
        terminal.close(0.1)


def test_a_busy_program_costs_cpu_and_an_idle_one_does_not() -> None:
    busy, idle = start("while True: pass"), start("input()")
    try:
        idle.drain(0.3)
        before = busy.cpu_s(), idle.cpu_s()
        busy.drain(0.4)
        assert busy.cpu_s() - before[0] > 10 * (idle.cpu_s() - before[1])
    finally:
        busy.close(0.1)
        idle.close(0.1)


def test_keys_arrive_and_their_answer_is_timed() -> None:
    echo = "import sys, termios, tty; tty.setraw(0)\nwhile True: print(sys.stdin.read(1), end='', flush=True)"
    terminal = start(echo)
    try:
        terminal.drain(0.5)
        assert terminal.answer_s(b"k") < 0.5
        written = terminal.bytes_written()
        terminal.drain(0.5, b"j", keys_per_s=20)
        assert 5 <= terminal.bytes_written() - written <= 20
    finally:
        terminal.close(0.1)


def test_a_program_that_leaves_early_is_an_error_that_shows_its_words() -> None:
    terminal = start("print('no such option')")
    with pytest.raises(ProgramEnded, match="no such option"):
        terminal.drain(10)
    terminal.close(0.1)


def test_the_table_gives_ratios_only_where_both_have_a_figure() -> None:
    results = {"gputop": Figures(first_frame_ms=50, cpu_rest_pct=1), "nvitop": Figures(first_frame_ms=100)}
    assert as_data(Load(), results)["ratio_to_nvitop"] == {"gputop": {"first_frame_ms": 0.5}}
    frame, cpu = as_table(Load(), results).splitlines()[2], as_table(Load(), results).splitlines()[5]
    assert frame.split()[-3:] == ["50", "100", "0.50"]
    assert cpu.split()[-2:] == ["1.00", "—"]


def test_the_parts_of_the_cost_come_back_from_a_known_one() -> None:
    costs = [Cost(load, 1 + 0.2 * load.gpus + 0.01 * load.gpus * load.processes_per_gpu, 0, 0) for load in LOADS]
    assert parts(costs) == pytest.approx({"ms_per_gpu": 0.2, "ms_per_process": 0.01})
