"""``gputop loader`` calls the user's function, within the budget, and reports its failure in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command import ran

FUNCTIONS = """
import signal, sys, time
def prints():
    print("from the function")
    return 7
def raises(): raise ValueError("first\\x1b[31m\\nsecond")
def exits(): sys.exit(5)
def hangs():
    while True: pass
def sleeps(): time.sleep(600)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "sets.py").write_text(FUNCTIONS)
    return tmp_path


def _loader(folder: Path, name: str, *more: str) -> tuple[int, str, str]:
    done = ran(folder, "-m", "gputop", "loader", name, "--json", *more)
    return done.returncode, done.stdout, done.stderr


def test_the_functions_output_is_not_mixed_into_the_json(folder: Path) -> None:
    code, out, errors = _loader(folder, "sets:prints")
    assert (code, out) == (2, "")
    assert errors.splitlines() == [
        "from the function",
        "gputop: sets:prints: int is neither a dataset nor a DataLoader",
    ]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("sets:raises", "sets:raises() raised ValueError: first"),
        ("sets:exits", "sets:exits() raised SystemExit: 5"),
        ("sets:none", "sets has no function none"),
        ("nowhere:none", "nowhere cannot be imported"),
        ("sets", "must be MODULE:FUNCTION"),
    ],
)
def test_a_function_that_fails_ends_in_one_line(folder: Path, name: str, words: str) -> None:
    code, out, errors = _loader(folder, name)
    assert (code, out) == (2, "") and words in errors
    assert errors.count("\n") == 1 and "\x1b" not in errors


@pytest.mark.parametrize("name", ["hangs", "sleeps"])
def test_the_function_has_no_more_time_than_the_budget(folder: Path, name: str) -> None:
    code, out, errors = _loader(folder, f"sets:{name}", "--budget", "1s")
    assert (code, out, errors.count("\n")) == (2, "", 1)
    assert "has not returned within the budget of 1 s" in errors
