"""To add one thing is to touch few files: one of each is added to a copy of the tree, and is then everywhere."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.additions import ADDITIONS, Addition, apply, proofs
from tests.support.command_line_additions import COMMAND_LINE_ADDITIONS
from tests.support.feature_additions import FEATURE_ADDITIONS
from tests.support.fleet_additions import FLEET_ADDITIONS
from tests.support.screen_additions import SCREEN_ADDITIONS
from tests.support.trial_additions import TRIAL_ADDITIONS

ROOT = Path(__file__).parent.parent
ALL = (
    *ADDITIONS, *SCREEN_ADDITIONS, *COMMAND_LINE_ADDITIONS, *FEATURE_ADDITIONS, *FLEET_ADDITIONS, *TRIAL_ADDITIONS,
)  # fmt: skip
COPIED = ("gputop", "tests", "docs", "screenshots", "README.md", "pyproject.toml")
CHECKS = (
    "tests/test_added.py",
    "tests/test_reference.py",
    "tests/test_generated.py",
    "tests/test_vocabulary.py",
    "tests/test_architecture.py",
    "tests/test_fault_matrix.py::test_rows_have_names_of_their_own_and_no_empty_cells",
    "tests/test_fault_matrix.py::test_the_table_for_readers_has_a_line_for_each_row",
    "tests/test_hostile_names.py",
    "tests/diagnosis/test_diagnosis_report.py",
    "tests/features/alerts/test_alerts.py",
    "tests/features/export/test_export_page.py",
    "tests/features/fleet/test_fleet_deploy.py",
    "tests/features/fleet/test_fleet_queries.py",
    "tests/features/web/test_web_gate.py::test_each_setting_is_either_for_a_viewer_or_it_is_not",
    "tests/paint/test_rebinding.py",
    "tests/paint/test_process_columns.py",
    "tests/paint/test_theme.py",
    "tests/sources/processes/test_process_collector.py",
    "tests/sources/test_doctor.py",
    "tests/sources/test_simulated.py::test_what_is_missing_has_a_reason",
)
"""What was added, and the checks that would miss it where a list is kept beside the one that was patched."""
SOMETIMES = frozenset({"gputop/features/export/run_counters.py"})
"""What the table names for some of the things in a row, and the addition does not need."""


@pytest.mark.parametrize("addition", ALL, ids=lambda addition: addition.name)
def test_an_addition_touches_few_files_that_are_where_it_says(addition: Addition, tmp_path: Path) -> None:
    files = {patch.file for patch in addition.patches}
    assert len(files) <= addition.most_files
    for file in files:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / file).exists():
            shutil.copy(ROOT / file, tmp_path / file)
    apply(tmp_path, addition)
    for file in (file for file in files if file.endswith(".py")):
        compile((tmp_path / file).read_text(encoding="utf-8"), file, "exec")


def test_the_contributors_table_has_a_row_for_each_addition() -> None:
    rows = (ROOT / "docs" / "contributing.md").read_text(encoding="utf-8")
    for addition in ALL:
        (row,) = [line for line in rows.splitlines() if line.startswith(f"| {addition.name} |")]
        named = {
            name if name.startswith("tests/") else f"gputop/{name}"
            for name in re.findall(r"`([\w/]+\.py)`", row.split("|")[2])
        }
        touched = {patch.file for patch in addition.patches}
        assert named - touched <= SOMETIMES, "what is named need not be touched"
        for patch in addition.patches:
            name = patch.file.removeprefix("gputop/")
            # A folder that is new itself is named by the one that it is put into.
            folder = next(parent for parent in Path(patch.file).parents if (ROOT / parent).is_dir())
            assert f"`{name}`" in row or f"{folder.name}/`" in row, (addition.name, patch.file)


def _run(copy: Path, *arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=copy,
        env={**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


def _with_all(tmp_path: Path) -> Path:
    """A copy of the tree with every addition, and with what is made of it."""
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, tmp_path / name)
    for addition in ALL:
        apply(tmp_path, addition)
    (tmp_path / "tests" / "test_added.py").write_text(proofs(ALL), encoding="utf-8")
    _run(tmp_path, "-m", "tests.tools.reference")
    _run(tmp_path, "-m", "tests.tools.dashboards")
    return tmp_path


PYTEST = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "addopts=", "-m", "not slow")


@pytest.mark.slow
def test_one_of_each_is_added_and_every_check_holds(tmp_path: Path) -> None:
    _run(_with_all(tmp_path), *PYTEST, *CHECKS)


@pytest.mark.slow
@pytest.mark.weekly
@pytest.mark.long
def test_one_of_each_is_added_and_every_quick_test_holds(tmp_path: Path) -> None:
    """But those that try the patches themselves, which are in the copy already."""
    _run(_with_all(tmp_path), *PYTEST, "-n", "auto", "--ignore", "tests/test_additions.py", "tests")
