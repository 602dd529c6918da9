"""The one door for programs: what each environment holds, what ends with us, and that there is no other way."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gputop.system.children import (
    TooLate,
    an_alerts,
    die_with_parent,
    finished,
    ours,
    until_we_end,
)
from tests.support.waiting import has_ended, until


def test_the_three_environments_differ_in_what_they_hold_and_where_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = {"PATH": ".:/bin::rel:/usr/bin", "HOME": "/h", "LANG": "C", "HF_TOKEN": "x"}
    for name in list(os.environ):
        monkeypatch.delenv(name)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    assert (ours(A="b").variables, ours().folder) == (
        {**given, "PATH": "/bin:/usr/bin", "A": "b"},
        "/",
    )
    assert (an_alerts().variables, an_alerts().folder) == (
        {"PATH": "/bin:/usr/bin", "HOME": "/h", "LANG": "C"},
        "/",
    )
    monkeypatch.delenv("PATH")
    assert an_alerts().variables["PATH"].startswith("/")


def test_what_it_writes_comes_as_text_and_one_that_takes_too_long_is_ended_with_what_it_has_started(
    tmp_path: Path,
) -> None:
    done = finished(["sh", "-c", "echo yes; echo no >&2; exit 3"], ours(), 20.0)
    assert (done.returncode, done.stdout, done.stderr) == (3, "yes\n", "no\n")
    with pytest.raises(TooLate):
        finished(["sh", "-c", f"sleep 60 & echo $! > {tmp_path}/pid; wait"], ours(), 0.3)
    until(lambda: has_ended(int((tmp_path / "pid").read_text())))
    with pytest.raises(FileNotFoundError):
        until_we_end("no-such-program")


KILLED = """
import sys
from gputop.system.children import ours, start, until_we_end
child = start(until_we_end("sleep", "60"), ours())
print(child.pid, flush=True)
sys.stdin.read()
"""


def test_another_s_program_ends_with_the_one_that_started_it_even_by_sigkill() -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", KILLED], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    parent.kill()
    parent.communicate()
    until(lambda: has_ended(pid))


def test_a_fork_whose_parent_has_ended_before_it_could_ask_ends_as_well() -> None:
    told, tells = os.pipe()
    if (child := os.fork()) == 0:
        parent = os.getpid()
        if os.fork() == 0:
            until(lambda: os.getppid() != parent)
            die_with_parent(parent)
            os.write(tells, b"it lives on")
        os._exit(0)
    os.close(tells)
    os.waitpid(child, 0)
    with open(told, "rb") as said:
        assert said.read() == b""
