"""The contributor's table and the reading guide are true: what they name is where they say."""

from __future__ import annotations

import ast
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
    "a column of the process table": ("tree_read_bytes_per_s", 0),
    "a key": ("copy_json", 2),
    "a key that only changes what is shown": ("half_down", 0),
    "a key of the fleet": ("copy_ssh", 0),
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


GUIDE = (ROOT / "docs" / "design" / "architecture.md").read_text(encoding="utf-8")
SECTION = GUIDE.partition("## From the driver to the cell\n")[2].partition("\n## ")[0]
STEPS = re.findall(r"^\d+\. (.*(?:\n   .*)*)", SECTION, re.MULTILINE)


def _files(text: str) -> list[Path]:
    return [ROOT / "gputop" / name for name in re.findall(r"`([\w/]+\.py)`", text)]


def _imports(file: Path) -> set[Path]:
    """The modules of gputop that a file imports, also where it needs only their types."""
    found: set[Path] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        found |= {ROOT / f"{name.replace('.', '/')}.py" for name in names}
    return found


def test_the_way_of_a_number_has_the_thirteen_files_that_it_names() -> None:
    files = [file for step in STEPS for file in _files(step)]
    assert "these thirteen files" in SECTION and len(files) == len(set(files)) == 13
    assert all(file.is_file() for file in _files(SECTION))


def test_each_file_of_the_way_knows_one_before_it_or_is_known_by_it() -> None:
    files = [file for step in STEPS for file in _files(step)]
    for at, file in enumerate(files[1:], 1):
        before = files[:at]
        linked = _imports(file) & set(before) or any(file in _imports(other) for other in before)
        # A source knows no screen: between them stands the protocol of the session.
        assert linked or file.name in ("node_app.py", "player.py"), file


def test_what_the_guide_names_inside_of_a_file_is_defined_there() -> None:
    named = re.findall(r"`([\w/]+\.py)`: `(\w+)`", SECTION)
    assert len(named) >= 2
    for file, name in named:
        assert f"def {name}(" in (ROOT / "gputop" / file).read_text(encoding="utf-8"), (file, name)
