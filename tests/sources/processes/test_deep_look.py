"""The deep look: real threads of real processes; py-spy's answers read, refused and explained; commands to copy."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gputop.model.inspection import (
    DeepLook,
    InspectedProcess,
    ProcessIdentity,
    ThreadSample,
    ThreadStack,
)
from gputop.paint.cells import cells
from gputop.paint.deep_look_rows import look_rows, recipes
from gputop.sources.processes.on_demand.deep_look import (
    DeepLooker,
    install_hint,
    main_stack,
    permission_help,
)
from gputop.sources.procfs import parse_stat, read_small
from tests.proc_trees.fake_proc import FakeProc

CODE = """
import threading, time
def name_thread():
    with open('/proc/thread-self/comm', 'w') as file: file.write('pt_data_pin')
    named.set(); time.sleep(600)
def wait_for_work():
    print('ready', flush=True); time.sleep(600)
named = threading.Event(); threading.Thread(target=name_thread, daemon=True).start(); named.wait()
wait_for_work()
"""
DUMP = [
    {"pid": 1, "thread_name": "burner", "os_thread_id": 8, "active": True, "frames": [{"name": "burn", "line": 3}]},
    {
        "pid": 1, "thread_name": "MainThread", "os_thread_id": 7, "active": False,
        "frames": [
            {"name": "forward", "filename": "/home/ml/model.py", "short_filename": "model.py", "line": 88},
            {"name": "<module>", "filename": "/home/ml/train.py", "short_filename": None, "line": None},
        ],
    },
]  # fmt: skip


@pytest.fixture
def child() -> Iterator[ProcessIdentity]:
    process = subprocess.Popen([sys.executable, "-c", CODE], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    found = parse_stat(read_small(f"/proc/{process.pid}/stat"))
    assert found is not None
    yield ProcessIdentity(process.pid, found.starttime)
    process.kill()
    process.wait()
    process.stdout.close()


def _program(folder: Path, body: str) -> str:
    """A stand-in for py-spy that keeps its arguments in a file."""
    program = folder / "py-spy"
    program.write_text(f'#!/bin/sh\necho "$@" >> {folder}/asked\n{body}\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return str(program)


def _look(
    child: ProcessIdentity, program: str | None, loader: ProcessIdentity | None = None
) -> DeepLook:
    waits: list[float] = []
    looker = DeepLooker(py_spy=program, wait=waits.append)
    if program is None:
        looker._py_spy = None  # whatever is installed on the machine that tests
    look = looker.look(child, loader)
    assert all(0 <= wait <= 1.5 for wait in waits)
    return look


def test_the_threads_of_a_process_are_listed_with_names_states_and_what_they_wait_for(
    child: ProcessIdentity,
) -> None:
    look = _look(child, None)
    main, other = look.process.threads
    assert main.tid == child.pid
    assert other.name == "pt_data_pin"
    assert {main.state, other.state} <= {"R", "S"}
    assert look.process.stacks == ()
    assert look.process.reason == "py-spy is not installed"
    assert look.process.help == install_hint()
    assert look.argv[0] == sys.executable and look.argv[1] == "-c"
    assert look.folder == os.getcwd()


def test_py_spy_is_asked_three_times_without_pausing_the_process(
    child: ProcessIdentity, tmp_path: Path
) -> None:
    answer = json.dumps([{**DUMP[1], "os_thread_id": child.pid}])
    look = _look(child, _program(tmp_path, f"echo '{answer}'"))
    asked = (tmp_path / "asked").read_text().splitlines()
    assert asked == [f"dump --nonblocking --json --pid {child.pid}"] * 3
    assert len(look.process.stacks) == 3
    assert look.process.stacks[0].frames == (
        ("forward", "model.py", 88),
        ("<module>", "/home/ml/train.py", 0),
    )
    assert not look.process.stacks[0].active


@pytest.mark.parametrize(
    ("error", "reason", "helped"),
    [
        (
            "Permission Denied: Try running again with elevated permissions by going 'sudo env'",
            "permission denied",
            True,
        ),
        ("Error: Operation not permitted (os error 1)", "permission denied", True),
        ("Error: Failed to find python version from target process", "not a Python process", False),
        (
            "Error: Failed to get process executable name. Check that the process is running.",
            "it has ended",
            False,
        ),
        ("Error: something new\n\nCaused by:\n  0: more", "py-spy failed: something new", False),
        ("", "py-spy failed: without a word", False),
    ],
)
def test_a_refusal_is_one_line_with_what_would_help(
    child: ProcessIdentity, tmp_path: Path, error: str, reason: str, helped: bool
) -> None:
    program = _program(tmp_path, f"cat >&2 <<'END'\n{error}\nEND\nexit 1")
    look = _look(child, program)
    assert look.process.stacks == ()
    assert look.process.reason.startswith(reason)
    assert bool(look.process.help) == helped
    assert (tmp_path / "asked").read_text().count("dump") == 1


def test_an_answer_that_is_no_stack_and_a_program_that_cannot_run_are_reasons(
    child: ProcessIdentity, tmp_path: Path
) -> None:
    assert "no main thread" in _look(child, _program(tmp_path, "echo '[[[]]'")).process.reason
    assert "could not be run" in _look(child, str(tmp_path / "absent")).process.reason


def test_another_process_with_the_same_pid_is_never_looked_at(
    child: ProcessIdentity, tmp_path: Path
) -> None:
    look = _look(ProcessIdentity(child.pid, 1), _program(tmp_path, "echo '[]'"))
    assert not (tmp_path / "asked").exists()
    assert "another process" in look.process.reason
    assert (look.process.threads, look.argv, look.folder) == ((), (), None)


def test_a_loader_is_looked_at_beside_its_process(child: ProcessIdentity, tmp_path: Path) -> None:
    mine = parse_stat(read_small(f"/proc/{os.getpid()}/stat"))
    assert mine is not None
    look = _look(child, _program(tmp_path, "exit 1"), ProcessIdentity(os.getpid(), mine.starttime))
    assert look.loader is not None
    assert look.loader.threads[0].tid == os.getpid()


def test_the_main_thread_is_found_by_its_thread_id_or_its_name() -> None:
    text = json.dumps(DUMP).encode()
    assert main_stack(text, 7) == ThreadStack(
        (("forward", "model.py", 88), ("<module>", "/home/ml/train.py", 0))
    )
    assert main_stack(text, 8) == ThreadStack((("burn", "?", 3),), active=True)
    assert main_stack(json.dumps([{**DUMP[1], "os_thread_id": None}]).encode(), 9) is not None
    for hostile in (
        b"",
        b"{}",
        b"[1, null]",
        b'[{"os_thread_id": 7, "frames": 3}]',
        b"[" * 10**5,
        b"\xff",
    ):
        found = main_stack(hostile, 7)
        assert found is None or found.frames == ()


@pytest.mark.parametrize(
    ("scope", "bounds", "words"),
    [
        ("1", "1ffffffffff", "sudo sysctl kernel.yama.ptrace_scope=0"),
        ("2", "1ffffffffff", "only root"),
        ("3", "1ffffffffff", "nobody may trace"),
        (None, "1ffffffffff", "as the user of the process"),
        ("1", "00000000a80425fb", "--cap-add=SYS_PTRACE"),
    ],
)
def test_what_would_give_the_permission(
    tmp_path: Path, scope: str | None, bounds: str, words: str
) -> None:
    fake = FakeProc(tmp_path)
    fake.write("proc/self/status", f"Name:\tx\nCapBnd:\t{bounds}\n")
    if scope is not None:
        fake.write("proc/sys/kernel/yama/ptrace_scope", scope + "\n")
    assert words in permission_help(str(fake.proc))


def test_commands_are_quoted_for_the_shell_and_never_carry_escape_sequences() -> None:
    argv = ["python", "train.py", "--name", "it's big", "$(id)"]
    spy, nsys, torch = (lines for _, lines in recipes(4711, argv, "/home/ml/my runs"))
    assert spy[-1].endswith("--subprocesses --pid 4711")
    assert nsys[0] == "cd '/home/ml/my runs'"
    assert nsys[1].endswith("""python train.py --name 'it'"'"'s big' '$(id)'""")
    compile("\n".join(torch), "snippet", "exec")
    hostile = [lines for _, lines in recipes(1, ["python", "\x1b[201~\nrm -rf /"], "/tmp/\x1b]0;x")]
    assert all(line.isprintable() for lines in hostile for line in lines)
    assert hostile[1][0].endswith(" COMMAND")


def test_the_profilers_commands_end_in_the_line_that_reads_what_they_wrote() -> None:
    nsys, torch = (lines for _, lines in recipes(4711, ["python", "train.py"], None)[1:])
    assert nsys[-2].startswith("nsys export --type sqlite ") and "profile-4711.nsys-rep" in nsys[-2]
    assert nsys[-1] == "gputop trace profile-4711.sqlite"
    assert "trace.json.gz" in torch[2] and torch[-1].endswith("gputop trace trace.json.gz")


def test_equal_stacks_are_painted_once_with_how_often_they_were_seen() -> None:
    same, other = (
        ThreadStack((("step", "a.py", 1),)),
        ThreadStack((("load\x1b", "b.py", 2),), active=True),
    )
    threads = tuple(
        ThreadSample(9 + i, "漢字" * 20, "D", waiting_on="disk", channel="io_schedule")
        for i in range(40)
    )
    sight = InspectedProcess(ProcessIdentity(9, 1), threads, (same, other, same))
    refused = InspectedProcess(ProcessIdentity(10, 1), reason="permission denied", help="x" * 300)
    rows = look_rows(
        DeepLook(sight, refused, ("python", "-c", "x" * 999), "/"), "python 漢字" * 50, 90
    )
    assert {sum(cells(text) for text, _ in row) for row in rows} == {90}
    text = "\n".join("".join(part for part, _ in row) for row in rows)
    assert "2 of 3 looks" in text and "1 of 3 looks" in text
    assert "\x1b" not in text
    assert "16 more threads" in text
    assert "permission denied" in text
