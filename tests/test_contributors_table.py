"""The contributor's table is true: what it names is where it says."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
_PAGE = (ROOT / "docs" / "contributing.md").read_text(encoding="utf-8")
_TABLE = _PAGE.partition("## What to touch")[2].partition("\n## ")[0]
ROWS = dict(re.findall(r"^\| (an? .*?) \| (.*) \|.*\|$", _TABLE, re.MULTILINE))
"""What is added → what is touched for it."""
PROBES: dict[str, tuple[str, int | None]] = {
    "a GPU metric": ("ecc_corrected_volatile", 1),
    "a process metric": ("feed_by", 4),
    "a host metric": ("load1", 1),
    "a verdict": ("CHECKPOINT_PAUSE", 1),
    "a badge": ("CORE_SHORTAGE", 0),
    "a key": ("copy_json", 1),
    "a key that only changes what is shown": ("half_down", 0),
    "a key of the fleet": (r"save_picture|screenshot  f8", 0),
    "a key of a page": ("users_regroup|action_regroup", 1),
    "a theme": ("colour-blind", 0),
    "a loader framework": ("ray", 4),
    "a command": (r"commands\.mark", 0),
    "a command of a feature": (r"features\.memory_snapshot\.memory_command", 0),
    "a feature": (r"features\.memory_snapshot\.memory_command", 0),
    "a series of the exporter that is no metric": ("throttled", None),
    "an option": ("fail_on", 2),
    "a setting": ("read_only", None),
    "a help topic": ("filters_page", 0),
    "a source of SM activity": ("dcgm-exporter", None),
    "a source of SM activity that is never used unasked": ("dcgmi", None),
    "a question to a fleet": ("loaders_on_disk", 0),
    "an exporter that a fleet may have": ("utkuozdemir", 2),
    "a file for a cluster": (r"daemonset\.yaml", None),
    "a demo scenario": ("uneven_workers", 1),
    "a fault": ("a hang of the count", 1),
    "a real-life case": ("shared_lock", 1),
}
"""For each row one such thing by its name (a pattern), and how many files speak of it besides those that the row names:
in a folder that it names, in a rule that judges it or the demo that simulates it. None: a word of the field, in any."""


@cache
def _texts() -> dict[str, str]:
    """The files of the package, and of the tests that the table is about."""
    package = {path.relative_to(ROOT / "gputop").as_posix(): path for path in (ROOT / "gputop").rglob("*.py")}
    rooms = (ROOT / "tests" / "faults", ROOT / "tests" / "e2e")
    tests = {path.relative_to(ROOT).as_posix(): path for room in rooms for path in room.rglob("*.py")}
    return {name: path.read_text(encoding="utf-8") for name, path in {**package, **tests}.items()}


def _naming(pattern: str) -> set[str]:
    """The files in which a name stands."""
    spelled, word = re.compile(pattern), re.compile(rf"(?<![\w-])(?:{pattern})(?![\w-])")
    # The first is fast, as it begins with a literal.
    return {name for name, text in _texts().items() if spelled.search(text) and word.search(text)}


def test_each_row_has_its_probe() -> None:
    assert ROWS.keys() == PROBES.keys()


@pytest.mark.parametrize("row", ROWS)
def test_what_a_row_says_of_one_thing_is_true(row: str) -> None:
    pattern, besides = PROBES[row]
    named = {name for name in re.findall(r"`([\w/]+\.py)`", ROWS[row]) if not name.startswith("tests/")}
    naming = _naming(pattern)
    assert named <= naming, "what is named need not be touched"
    assert besides is None or len(naming - named) <= besides, sorted(naming - named)
