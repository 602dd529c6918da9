"""``gputop loader`` runs somebody else's function in an interpreter of its own, within the budget."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command import ran
from tests.support.waiting import has_ended, until

MADE = """
import os, signal, sys, threading, time
def whole():
    import argparse, gc, msgspec, uuid
    number = uuid.uuid4()
    assert msgspec.json.decode(msgspec.json.encode(number), type=uuid.UUID) == number
    assert argparse._("a") == "a" and argparse._ is not str
    assert gc.isenabled() and gc.get_threshold()[0] < 10_000 and sys.getswitchinterval() == 0.005
    assert threading.active_count() == 1 and __name__ == "sets"
    print("from the function")
    return 7
def raises(): raise ValueError("first\\x1b[31m\\nsecond")
def exits(): sys.exit(5)
def ends(): os._exit(7)
def killed(): os.kill(os.getpid(), signal.SIGKILL)
def closes():
    os.closerange(3, 64)
    time.sleep(60)
def hangs():
    while True: pass
def sleeps():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with open("pid", "w") as file: file.write(str(os.getpid()))
    time.sleep(600)
def leaves():
    threading.Thread(target=time.sleep, args=(600,)).start()
    pid = os.fork()
    if pid == 0:
        time.sleep(600)
    with open("pid", "w") as file: file.write(str(pid))
    return 7
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "sets.py").write_text(MADE)
    return tmp_path


def _loader(folder: Path, name: str, *more: str) -> tuple[int, str, str]:
    done = ran(folder, "-m", "gputop", "loader", f"sets:{name}", "--json", *more)
    return done.returncode, done.stdout, done.stderr


def test_the_users_function_runs_on_an_interpreter_that_is_as_python_makes_it(folder: Path) -> None:
    code, out, errors = _loader(folder, "whole")
    assert (code, out) == (2, "")
    # It went through, to a result that is no data set; what it prints is not mixed into the JSON.
    assert errors.splitlines() == [
        "from the function",
        "gputop: sets:whole: TypeError: int is neither a dataset nor a DataLoader",
    ]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("raises", "sets:raises() raised ValueError: first"),
        ("exits", "sets:exits() raised SystemExit: 5"),
        ("ends", "the process that runs it ended with status 7"),
        ("killed", "the process that runs it was ended by SIGKILL"),
        ("closes", "the process that runs it has closed its files"),
    ],
)
def test_however_the_users_function_fails_one_line_says_so(folder: Path, name: str, words: str) -> None:
    code, out, errors = _loader(folder, name)
    assert (code, out) == (2, "") and words in errors
    assert errors.count("\n") == 1 and "\x1b" not in errors


@pytest.mark.parametrize(("name", "budget"), [("hangs", 1), ("sleeps", 3)])
def test_the_users_function_has_no_more_time_than_the_budget(folder: Path, name: str, budget: int) -> None:
    code, out, errors = _loader(folder, name, "--budget", f"{budget}s")
    assert (code, out, errors.count("\n")) == (2, "", 1)
    assert f"has not returned within the budget of {budget} s" in errors
    if name == "sleeps":
        until(lambda: has_ended(int((folder / "pid").read_text())))


def test_threads_and_forks_of_the_users_function_end_with_the_command(folder: Path) -> None:
    code, _, errors = _loader(folder, "leaves")
    assert code == 2 and "int is neither a dataset nor a DataLoader" in errors
    until(lambda: has_ended(int((folder / "pid").read_text())))
