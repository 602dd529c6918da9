"""The reading guide of docs/design/architecture.md is true: its files are there, as many as it says, and on the way."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
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
