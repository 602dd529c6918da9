"""The one door for programs: what each environment holds, what ends with us, and that there is no other way."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

import pytest

from gputop.system.children import (
    ForkEnded,
    ForkLimits,
    TooLate,
    an_alerts,
    die_with_parent,
    finished,
    in_a_fork,
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


def test_a_fork_gives_what_it_writes_however_much_and_although_its_own_fork_holds_the_pipe() -> (
    None
):
    def work(result: IO[bytes]) -> None:
        if os.fork() == 0:
            time.sleep(30.0)
            os._exit(0)
        result.write(b"x" * 3_000_000)

    assert in_a_fork(work, ForkLimits(wall_s=20.0)) == b"x" * 3_000_000


def _spin(result: IO[bytes]) -> None:
    re.fullmatch("(a+)+b", "a" * 60)


def _speak_and_sleep(result: IO[bytes]) -> None:
    result.write(b"begun")
    result.flush()
    time.sleep(60.0)


def _grow(result: IO[bytes]) -> None:
    bytearray(1 << 30)


@pytest.mark.parametrize(
    ("work", "limits", "is_late", "said"),
    [
        (_spin, ForkLimits(cpu_s=0.2), True, b""),
        (_spin, ForkLimits(silent_s=0.2, wall_s=60.0), True, b""),
        (_speak_and_sleep, ForkLimits(silent_s=30.0, wall_s=0.5), True, b"begun"),
        (_grow, ForkLimits(growth_bytes=64 << 20, wall_s=60.0), False, b""),
        (lambda result: os.kill(os.getpid(), 11), ForkLimits(), False, b""),
    ],
)
def test_a_fork_beyond_its_limits_is_ended(
    work: Callable[[IO[bytes]], None], limits: ForkLimits, is_late: bool, said: bytes
) -> None:
    with pytest.raises(ForkEnded) as ended:
        in_a_fork(work, limits)
    assert (ended.value.is_late, ended.value.said) == (is_late, said)
