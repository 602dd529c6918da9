"""The release's own steps: the tag is checked, README says that gputop is published, and each job has what it takes."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import gputop

ROOT = Path(__file__).parents[1]
STEPS = (".github/release/publish.py", ".github/release/notes.py")
READ = (
    "README.md",
    "pyproject.toml",
    "docs/changelog.md",
    "gputop/__init__.py",
    "gputop/model/extras.py",
)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    if not (ROOT / STEPS[0]).exists():
        pytest.skip("an sdist has no .github")
    for name in (*STEPS, *READ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def step(tree: Path, name: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, tree / name, *words], capture_output=True, text=True, check=False
    )


def test_publishing_changes_readme_s_lines_and_once_is_enough(tree: Path) -> None:
    readme = (tree / "README.md").read_text()
    assert "uvx" not in readme and "pipx" not in readme and "shields.io" not in readme, (
        "nothing is published yet"
    )
    assert step(tree, STEPS[0], "me/gputop").returncode == 0
    published = {name: (tree / name).read_text() for name in READ}
    assert "uvx --from gputop-tui gputop demo" in published["README.md"]
    assert "github.com/me/gputop/actions" in published["README.md"]
    assert len(published["README.md"].splitlines()) <= 90
    assert step(tree, STEPS[0], "me/gputop").returncode == 0
    assert published == {name: (tree / name).read_text() for name in READ}


@pytest.mark.parametrize(
    ("record", "requirement", "elsewhere"),
    [
        (
            '{"url": "file:///a%20b/gputop", "dir_info": {}}',
            "'/a b/gputop[png]'",
            "pipx install . in a checkout of gputop",
        ),
        (
            '{"url": "file:///w/gputop_tui-1-py3-none-any.whl", "archive_info": {}}',
            "'/w/gputop_tui-1-py3-none-any.whl[png]'",
            "pipx install gputop_tui-1-py3-none-any.whl",
        ),
        (None, "'gputop-tui[png]'", "pipx install gputop-tui"),
        ("not JSON", "'gputop-tui[png]'", "pipx install gputop-tui"),
    ],
)
def test_hints_name_the_place_that_gputop_was_installed_from(
    record: str | None,
    requirement: str,
    elsewhere: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    from gputop.model import extras

    monkeypatch.setattr(extras, "CHECKOUT", str(tmp_path))
    monkeypatch.setattr(
        extras.metadata, "distribution", lambda name: SimpleNamespace(read_text=lambda file: record)
    )
    monkeypatch.setattr(extras.sys, "executable", "/nowhere/bin/python")
    assert extras.install("png") == f"/nowhere/bin/python -m pip install {requirement}"
    assert extras.install_there() == elsewhere


def test_hints_name_the_checkout_that_gputop_runs_from() -> None:
    from gputop.model import extras

    assert extras.install("png").endswith(f" install '{extras.CHECKOUT}[png]'")


def test_a_tag_that_package_and_changelog_do_not_know_is_refused(tree: Path) -> None:
    released = "1.0.0"
    for name in ("pyproject.toml", "gputop/__init__.py"):
        (tree / name).write_text((tree / name).read_text().replace(gputop.__version__, released))
    notes = step(tree, STEPS[1], f"v{released}")
    assert (
        notes.returncode == 0
        and notes.stdout.strip()
        and not re.search("^## ", notes.stdout, re.MULTILINE)
    )
    wrong = step(tree, STEPS[1], "v9.9.9")
    assert (
        wrong.returncode == 1 and "pyproject.toml" in wrong.stderr and "changelog" in wrong.stderr
    )


def test_every_dependency_is_bounded_on_both_sides() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    before_tools = text.partition("[tool.")[0]
    requirements = re.findall(r'"([A-Za-z][\w.-]*)((?:>=|<|==|~=)[^";]*)', before_tools)
    assert {name for name, _ in requirements} >= {"textual", "nvidia-ml-py", "msgspec", "tomli"}
    for name, bounds in requirements:
        assert re.fullmatch(r">=[\d.]+,<[\d.]+|==[\d.!]+", bounds), (name, bounds)


def test_every_dependency_is_one_that_the_program_imports() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    declared = re.findall(r'"([\w-]+)>=', text.partition("dependencies = [")[2].partition("]")[0])
    modules = {"nvidia-ml-py": "pynvml"}
    sources = "\n".join(
        path.read_text(encoding="utf-8") for path in (ROOT / "gputop").rglob("*.py")
    )
    for name in declared:
        assert re.search(
            rf"^\s*(?:from|import) {modules.get(name, name)}\b", sources, re.MULTILINE
        ), name
    assert len(declared) >= 5


DEVELOPERS_EXTRAS = {"test", "lint", "coverage", "integrations", "manifests", "site"}


def test_the_extras_of_the_report_are_those_of_the_package() -> None:
    from gputop.model.extras import EXTRAS

    text = (Path(__file__).parents[1] / "pyproject.toml").read_text()
    section = text.partition("[project.optional-dependencies]")[2].partition("\n[")[0]
    declared = dict(re.findall(r'^([\w-]+) = \[\s*"([\w-]+)', section, re.MULTILINE))
    assert set(declared) - DEVELOPERS_EXTRAS == set(EXTRAS)
    for name, extra in EXTRAS.items():
        assert declared[name] == extra.distribution


def test_every_page_is_two_clicks_from_the_readme_at_most() -> None:
    first = _linked_pages(ROOT / "README.md")
    reached = set(first).union(*map(_linked_pages, first))
    assert set((ROOT / "docs").rglob("*.md")) - reached == set()


def _linked_pages(page: Path) -> set[Path]:
    targets = re.findall(r"\]\(([^)#\s]+\.md)(?:#[^)]*)?\)", page.read_text("utf-8"))
    return {(page.parent / target).resolve() for target in targets}
