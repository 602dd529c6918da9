"""The benchmark's instruments, on programs whose behaviour is known."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import venv
from dataclasses import replace
from pathlib import Path

import pytest

from tests.bench import stage_report
from tests.bench.environments import CHECKOUT, CannotInstall, install
from tests.bench.measure import Effort, measure, terminal_environment
from tests.bench.memory import Memory, memory_of
from tests.bench.programs import Program, gputop, peer, peers, python_of
from tests.bench.terminal import ProgramEnded, Terminal
from tests.bench.workload import Load, machine
from tests.nvml.stand_in import LIBRARY, Scenario

HASTE = Effort(starts=2, start_s=3.0, rounds=1, warm_up_s=0.3, rest_s=0.4, answers=1, held_s=0.2, onces=1)
PATIENCE_S = 60.0
"""What a crowded machine may need to start a program; what waits for nothing ends long before."""


@pytest.fixture
def place(nvml_dir: Path, tmp_path: Path) -> Path:
    """A directory for a machine, with the library in it."""
    shutil.copy(nvml_dir / LIBRARY, tmp_path)
    return tmp_path


def start(program: str) -> Terminal:
    return Terminal([sys.executable, "-c", program], os.environ, 50, 160)


def test_a_terminal_dates_what_it_shows_and_counts_cpu_bytes_and_memory() -> None:
    terminal = start(
        "import os, time; print(os.get_terminal_size(), flush=True); time.sleep(0.3); print('x' * 99); input()"
    )
    try:
        terminal.drain_until(b"x" * 99, PATIENCE_S)
        early, late = terminal.first_shown_s("columns=160, lines=50"), terminal.first_shown_s("x{99}")
        assert early is not None and late is not None and late > early
        assert terminal.first_shown_s("never") is None
        assert 100 < terminal.bytes_written() < 200
        assert 0 < terminal.cpu_s() < 5
        memory = terminal.memory()
        assert memory.peak_mb is not None and memory.rss_mb is not None
        assert 1 < memory.rss_mb <= memory.peak_mb < 1000
    finally:
        terminal.close(0.1)


@pytest.mark.slow
def test_a_busy_program_costs_cpu_and_an_idle_one_does_not() -> None:
    busy, idle = start("print('ready', flush=True)\nwhile True: pass"), start("input('ready')")
    try:
        for terminal in (busy, idle):
            terminal.drain_until(b"ready", PATIENCE_S)
        before = busy.cpu_s(), idle.cpu_s()
        busy.drain(0.4)
        assert busy.cpu_s() - before[0] > 10 * (idle.cpu_s() - before[1])
    finally:
        busy.close(0.1)
        idle.close(0.1)


def test_keys_arrive_and_their_answer_is_timed() -> None:
    echo = "import sys, termios, tty; tty.setraw(0); print('ready', end='', flush=True)\n"
    terminal = start(echo + "while True: print(sys.stdin.read(1), end='', flush=True)")
    try:
        terminal.drain_until(b"ready", PATIENCE_S)
        assert 0.0 < terminal.answer_s(b"k", PATIENCE_S) < PATIENCE_S
        written = terminal.bytes_written()
        terminal.drain(0.5, b"j", keys_per_s=20)
        end = time.monotonic() + PATIENCE_S
        while terminal.bytes_written() == written and time.monotonic() < end:
            terminal.drain(0.05)
        assert 1 <= terminal.bytes_written() - written <= 20
    finally:
        terminal.close(0.1)


def test_a_program_that_leaves_early_is_an_error_that_shows_its_words() -> None:
    terminal = start("print('no such option')")
    with pytest.raises(ProgramEnded, match="no such option"):
        terminal.drain(10)
    terminal.close(0.1)


def test_a_terminal_says_where_its_cursor_is_and_reads_no_longer_than_it_must() -> None:
    ask = (
        "import sys, termios, time, tty; tty.setraw(0); print('\\x1b[6n', end='', flush=True)\n"
        "text = 'answered' if sys.stdin.read(6).endswith('R') else ''\n"
        "print(text[:4], end='', flush=True); time.sleep(0.1); print(text[4:], flush=True); sys.stdin.read(1)"
    )
    terminal = start(ask)
    try:
        terminal.drain_until(b"answered", PATIENCE_S, settle_s=0.0)
        assert time.monotonic() - terminal.started < PATIENCE_S / 2
        assert "answered" in "".join(terminal.screen())
    finally:
        terminal.close(0.1)


def test_memory_is_told_resident_shared_out_and_private(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7/status").write_text("Name:\tx\nVmHWM:\t    3000 kB\nVmRSS:\t    2000 kB\n")
    assert memory_of(7, str(tmp_path)) == Memory(3.072, 2.048, None, None)
    (tmp_path / "7/smaps_rollup").write_text(
        "Rss: 2000 kB\nPss: 1000 kB\nPss_Dirty: 1 kB\nPrivate_Clean: 200 kB\nPrivate_Dirty: 300 kB\n"
    )
    assert memory_of(7, str(tmp_path)) == Memory(3.072, 2.048, 1.024, 0.512)


NVTOP = f"""#!{sys.executable}
import sys, termios, time, tty
if "--snapshot" in sys.argv:
    sys.exit(len(sys.argv) > 2)
if "--version" in sys.argv:
    sys.exit(print("nvtop version 3.2.0"))
assert sys.argv[1:] == ["-d", "5"], sys.argv
tty.setraw(0)
print("PID 61300", flush=True)
time.sleep(0.4)
print("POW 613 / 700 W", end="", flush=True)
while sys.stdin.read(1) != "q":
    print(".", end="", flush=True)
"""


def executable(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.mark.slow
@pytest.mark.nvml
def test_nvtop_is_taken_from_path_and_measured_with_its_own_options(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    executable(tmp_path / "nvtop", NVTOP)
    program = peer("nvtop", None, tmp_path)
    assert program.version() == "3.2.0"
    assert peer("nvtop", "/not/there", tmp_path).version() is None
    with machine(Load(1, 1), place) as scenario:
        measured = measure([program], scenario, 0.5, HASTE)["nvtop"]
    assert measured.trouble is None
    figures = measured.figures()
    assert {"first_frame_ms", "cpu_rest_pct", "cpu_key_pct", "key_answer_ms", "rss_mb", "once_ms"} <= figures.keys()
    assert figures["first_frame_ms"].count == 2
    assert figures["first_frame_ms"].low > 400
    assert figures["nvml_calls_per_s"].median == 0


@pytest.mark.slow
@pytest.mark.nvml
def test_a_first_frame_that_did_not_always_come_has_no_figure(place: Path, tmp_path: Path) -> None:
    starts = 'open(__file__ + ".starts", "a").write("x") and len(open(__file__ + ".starts").read())'
    text = NVTOP.replace('"POW 613 / 700 W"', f"613 if ({starts}) < 3 else 163")
    path = executable(tmp_path / "nvtop", text)
    with machine(Load(1, 0), place) as scenario:
        haste = replace(HASTE, start_s=0.8)
        measured = measure([peer("nvtop", str(path), tmp_path)], scenario, 0.5, haste)["nvtop"]
    assert measured.trouble is None and "once_ms" in measured.samples
    assert "first_frame_ms" not in measured.samples


def test_a_peer_that_cannot_be_had_is_left_out_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CannotInstall):
        peer("nvtop", None, tmp_path)
    assert [program.name for program in peers({"nvtop": None, "gpustat": "/there/gpustat"}, tmp_path)] == ["gpustat"]
    assert "without nvtop: it is not on PATH" in capsys.readouterr().err


def test_a_program_is_installed_compiled_and_a_failure_has_the_installers_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def create(home: Path, **_: object) -> None:
        (home / "bin").mkdir(parents=True)
        # Stands for pip: notes how it was called, fails for one requirement.
        called = 'echo "$*" "path=$PYTHONPATH" > called; case "$*" in *absent) echo trouble >&2; exit 1;; esac'
        executable(home / "bin/python", f"#!/bin/sh\ncd {home}; {called}\n")

    monkeypatch.setattr(venv, "create", create)
    monkeypatch.setenv("PYTHONPATH", "/a/source/tree")
    assert install("present", tmp_path / "a") == tmp_path / "a/bin"
    assert (tmp_path / "a/called").read_text() == "-m pip install -q --compile present path=\n"
    with pytest.raises(CannotInstall, match=r"^trouble$"):
        install("absent", tmp_path / "b")


def test_gpustat_watches_with_all_that_it_shows_and_is_left_by_ctrl_c(tmp_path: Path) -> None:
    program = peer("gpustat", "/there/gpustat", tmp_path)
    assert program.watch(1.0) == ["/there/gpustat", "--show-all", "--interval", "1"]
    assert program.once() == ["/there/gpustat", "--show-all"]
    assert (program.keys, program.leave) == (False, b"\x03")


def test_an_installed_program_never_sees_the_source_tree_nor_settings_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "GPUTOP_DCGM_URL", "NO_COLOR", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.setenv(name, "1")
    scenario = Scenario(tmp_path, tmp_path)
    installed = terminal_environment(peer("nvitop", "/there/nvitop", tmp_path), scenario)
    assert not {key for key in installed if key.startswith(("PYTHON", "GPUTOP_", "NO_COLOR", "CUDA_"))}
    assert installed["LD_LIBRARY_PATH"] == str(tmp_path)
    source = gputop("/there/python", tmp_path)
    assert terminal_environment(source, scenario)["PYTHONPATH"] == str(CHECKOUT)
    assert python_of(source) == "/there/python"
    assert python_of(Program("gputop", ("/venv/bin/gputop",), (), ())) == "/venv/bin/python"


@pytest.mark.slow
@pytest.mark.nvml
def test_every_stage_is_measured_against_the_stand_in_library(place: Path) -> None:
    with machine(Load(2, 2), place) as scenario:
        environment = terminal_environment(gputop(sys.executable, place), scenario)
        command = [sys.executable, "-m", "tests.bench.stages", "--interval", "0.25", "--ticks", "2"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=30, check=True)
        assert scenario.calls()
    assert json.loads(done.stdout).keys() == {"feed", "host", *stage_report.PARTS} - {"derive"}
    assert all(0 < value < 1000 for value in json.loads(done.stdout).values())
