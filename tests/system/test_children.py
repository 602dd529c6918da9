"""The one door for programs: what each environment holds, what ends with us, and that there is no other way."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from gputop.system.children import (
    TooLate,
    an_alerts,
    die_with_parent,
    finished,
    how_it_ended,
    our_program,
    ours,
    the_users,
    until_we_end,
)
from tests.support.waiting import has_ended, until

PACKAGE = Path(__file__).parents[2] / "gputop"
OTHER_WAYS = {
    "system/children.py": "the door itself",
    "api/batches.py": "each size of max_batch in a fresh process of the user's own program",
    "features/loader_bench/measure_setting.py": "each setting in a fresh process of the program that holds the loader",
}
NAMED = re.compile(r"subprocess|multiprocessing|\bpty\b|concurrent|fork|popen|spawn|exec|system\(")
"""What a file that starts a program names; all others need not be taken apart."""
STARTING = re.compile(r"fork|forkpty|popen|system|posix_spawnp?|(exec|spawn)[lv]p?e?|(create_)?subprocess_(exec|shell)")


def starts_programs(path: Path) -> bool:
    """Whether a file starts a program by itself: by a module that does, or by a call of ``os`` or ``asyncio``."""
    text = path.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(text)) if NAMED.search(text) else ():
        modules: list[str] = []
        if isinstance(node, ast.Import):
            modules = [name.name for name in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules = [node.module or "", *(f"{node.module}.{name.name}" for name in node.names)]
        if {"subprocess", "multiprocessing", "pty", "concurrent.futures.process"} & set(modules):
            return True
        if "concurrent.futures.ProcessPoolExecutor" in modules:
            return True
        called = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
        if STARTING.fullmatch(called):
            return True
    return False


def test_nothing_starts_a_program_but_the_one_door_and_what_has_a_reason() -> None:
    found = {str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.py") if starts_programs(path)}
    assert found == OTHER_WAYS.keys()


@pytest.mark.parametrize(
    "code",
    ["import subprocess", "from subprocess import run", "import multiprocessing", "import os\nos.fork()",
     "from os import execv\nexecv('a', ['a'])", "import os\nos.posix_spawn('a', [], {})", "import os\nos.system('a')",
     "import asyncio\nasyncio.create_subprocess_shell('a')", "from concurrent.futures import ProcessPoolExecutor"],
)  # fmt: skip
def test_every_other_way_is_seen(tmp_path: Path, code: str) -> None:
    (tmp_path / "x.py").write_text(code)
    assert starts_programs(tmp_path / "x.py")


def test_the_three_environments_differ_in_what_they_hold_and_where_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"PATH": ".:/bin::rel:/usr/bin", "HOME": "/h", "LANG": "C", "HF_TOKEN": "x"}
    for name in list(os.environ):
        monkeypatch.delenv(name)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    assert (the_users(A="b").variables, the_users().folder) == ({**given, "A": "b"}, None)
    assert (ours(A="b").variables, ours().folder) == ({**given, "PATH": "/bin:/usr/bin", "A": "b"}, "/")
    assert (an_alerts().variables, an_alerts().folder) == ({"PATH": "/bin:/usr/bin", "HOME": "/h", "LANG": "C"}, "/")
    monkeypatch.delenv("PATH")
    assert an_alerts().variables["PATH"].startswith("/")


def test_what_it_writes_comes_as_text_and_one_that_takes_too_long_is_ended_with_what_it_has_started(
    tmp_path: Path,
) -> None:
    done = finished(["sh", "-c", "cat; echo no >&2; exit 3"], ours(), 20.0, "yes")
    assert (done.status, done.out, done.err) == (3, "yes", "no\n")
    with pytest.raises(TooLate):
        finished(["sh", "-c", f"sleep 60 & echo $! > {tmp_path}/pid; wait"], ours(), 1.0)
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
    parent = subprocess.Popen([sys.executable, "-c", KILLED], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    parent.kill()
    parent.communicate()
    until(lambda: has_ended(pid))


def test_a_program_of_ours_imports_what_we_can_and_nothing_from_where_we_stand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "json.py").write_text("open('/dev/null'); raise SystemExit('foreign')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", str(tmp_path), *sys.path])
    done = finished(our_program("gputop.cli", "--version"), the_users(), 60.0)
    assert done.status == 0 and done.out.startswith("gputop "), done.err


def test_how_a_program_ended_is_told_by_name() -> None:
    assert [how_it_ended(status) for status in (0, 3, -11, -99)] == [
        "ended with status 0", "ended with status 3", "was ended by SIGSEGV", "was ended by signal 99",
    ]  # fmt: skip


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
