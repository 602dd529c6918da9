"""The release's own steps: the tag is checked, README says that gputop is published, and each job has what it takes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import gputop

ROOT = Path(__file__).parents[1]
STEPS = (".github/release/publish.py", ".github/release/notes.py")
READ = ("README.md", "pyproject.toml", "docs/changelog.md", "gputop/__init__.py", "gputop/model/extras.py")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    if not (ROOT / STEPS[0]).exists():
        pytest.skip("an sdist has no .github")
    for name in (*STEPS, *READ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def step(tree: Path, name: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, tree / name, *words], capture_output=True, text=True, check=False)


def test_publishing_changes_readme_s_lines_and_once_is_enough(tree: Path) -> None:
    readme = (tree / "README.md").read_text()
    assert "uvx" not in readme and "pipx" not in readme and "shields.io" not in readme, "nothing is published yet"
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
    record: str | None, requirement: str, elsewhere: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from gputop.model import extras

    monkeypatch.setattr(extras, "CHECKOUT", str(tmp_path))
    monkeypatch.setattr(extras.metadata, "distribution", lambda name: SimpleNamespace(read_text=lambda file: record))
    monkeypatch.setattr(extras.sys, "executable", "/nowhere/bin/python")
    assert extras.install("png") == f"/nowhere/bin/python -m pip install {requirement}"
    assert extras.install_there() == elsewhere


def test_hints_name_the_checkout_that_gputop_runs_from() -> None:
    from gputop.model import extras

    assert extras.install("png").endswith(f" install '{extras.CHECKOUT}[png]'")


def test_where_readme_has_no_place_for_it_nothing_is_changed(tree: Path) -> None:
    readme = tree / "README.md"
    readme.write_text(readme.read_text().replace("<!-- install -->", ""))
    done = step(tree, STEPS[0], "me/gputop")
    assert done.returncode == 1 and "marks" in done.stderr
    assert "uvx" not in readme.read_text()


def test_a_tag_that_package_and_changelog_do_not_know_is_refused(tree: Path) -> None:
    released = "1.0.0"
    for name in ("pyproject.toml", "gputop/__init__.py"):
        (tree / name).write_text((tree / name).read_text().replace(gputop.__version__, released))
    notes = step(tree, STEPS[1], f"v{released}")
    assert notes.returncode == 0 and notes.stdout.strip() and not re.search("^## ", notes.stdout, re.MULTILINE)
    wrong = step(tree, STEPS[1], "v9.9.9")
    assert wrong.returncode == 1 and "pyproject.toml" in wrong.stderr and "changelog" in wrong.stderr


# The workflow, read: nothing of it runs but what needs neither the network nor a right.

BY_BRANCH = {"pypa/gh-action-pypi-publish@release/v1"}
"""Named so by its authors; its newest commit is set by a person (docs/releasing.md)."""
Job = dict[str, Any]


@pytest.fixture
def jobs() -> dict[str, Job]:
    path = ROOT / ".github" / "workflows" / "release.yml"
    if not path.exists():
        pytest.skip("an sdist has no .github")
    found: dict[str, Job] = pytest.importorskip("yaml").safe_load(path.read_text())["jobs"]
    return found


def wanted(job: Job) -> list[str]:
    needs = job.get("needs", [])
    return [needs] if isinstance(needs, str) else needs


def before(jobs: dict[str, Job], name: str) -> set[str]:
    """The jobs that have ended when this one begins."""
    return set(wanted(jobs[name])).union(*(before(jobs, each) for each in wanted(jobs[name])))


def artifacts(job: Job, action: str) -> set[str]:
    given = [step["with"] for step in job["steps"] if step.get("uses", "").startswith(f"actions/{action}-artifact@")]
    names = {values.get("name") or values["pattern"] for values in given}
    return {part for name in names for part in re.findall(r"[\w-]+", name)}


def test_every_job_that_is_waited_for_exists_and_every_artifact_was_uploaded_before(jobs: dict[str, Job]) -> None:
    for name, job in jobs.items():
        assert set(wanted(job)) <= jobs.keys()
        uploaded = {one for each in before(jobs, name) for one in artifacts(jobs[each], "upload")}
        assert artifacts(job, "download") <= uploaded, name
    assert artifacts(jobs["image"], "download") == {"dist"} and artifacts(jobs["announce"], "download") >= {"notes"}


def test_the_image_follows_the_approved_package_and_its_failure_silences_nothing(jobs: dict[str, Job]) -> None:
    assert "publish" in wanted(jobs["image"])
    assert set(wanted(jobs["announce"])) == {"publish", "image"}
    assert jobs["announce"]["if"] == "${{ !cancelled() && needs.publish.result == 'success' }}"
    (told,) = [step for step in jobs["announce"]["steps"] if "needs.image.result != 'success'" in step.get("if", "")]
    assert "notes.md" in told["run"]


def test_whatever_has_rights_runs_actions_by_commit(jobs: dict[str, Job]) -> None:
    for name, job in jobs.items():
        used = {step["uses"] for step in job["steps"] if "uses" in step} - BY_BRANCH
        assert used and all(re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", each) for each in used), (name, used)


def test_the_image_is_built_of_what_the_steps_before_have_put_beside_its_dockerfile(
    jobs: dict[str, Job], tmp_path: Path
) -> None:
    steps = jobs["image"]["steps"]
    (number,) = [n for n, step in enumerate(steps) if step.get("uses", "").startswith("docker/build-push-action@")]
    build = steps[number]["with"]
    context = tmp_path / build["context"]
    # As a checkout leaves it: what git holds.
    listed = subprocess.run(
        ["git", "ls-files", build["context"]], cwd=ROOT, capture_output=True, text=True, check=False
    )
    for name in listed.stdout.split() or pytest.skip("no git here"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    environment = {"PATH": os.environ["PATH"], "GITHUB_REPOSITORY": "Some-Owner/GPUtop", "GITHUB_OUTPUT": "output"}
    for step in steps[:number]:
        if step.get("uses", "").startswith("actions/download-artifact@"):
            dist = tmp_path / step["with"]["path"]
            dist.mkdir()
            for name in ("gputop_tui-1-py3-none-any.whl", "gputop_tui-1.tar.gz"):
                (dist / name).write_text("")
        elif "run" in step:
            subprocess.run(["bash", "-eo", "pipefail", "-c", step["run"]], cwd=tmp_path, env=environment, check=True)
    assert (tmp_path / "output").read_text() == "image=ghcr.io/some-owner/gputop\n"
    dockerfile = (context / "Dockerfile").read_text()
    sent = [line.removeprefix("!") for line in (context / ".dockerignore").read_text().splitlines() if line[:1] == "!"]
    for source in re.findall(r"^(?:COPY|ADD) (\S+) ", dockerfile, re.MULTILINE):
        assert (context / source).exists() and source in sent, source
    assert [path.name for path in context.glob("wheels/*.whl")] == ["gputop_tui-1-py3-none-any.whl"]
    assert set(re.findall(r"(\w+)=", build["build-args"])) <= set(re.findall(r"^ARG (\w+)", dockerfile, re.MULTILINE))
    assert build["platforms"] == "linux/amd64,linux/arm64"


def test_every_dependency_is_bounded_on_both_sides() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    before_tools = text.partition("[tool.")[0]
    requirements = re.findall(r'"([A-Za-z][\w.-]*)((?:>=|<|==|~=)[^";]*)', before_tools)
    assert {name for name, _ in requirements} >= {"textual", "nvidia-ml-py", "msgspec", "psutil", "tomli"}
    for name, bounds in requirements:
        assert re.fullmatch(r">=[\d.]+,<[\d.]+|==[\d.!]+", bounds), (name, bounds)


def test_every_dependency_is_one_that_the_program_imports() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    declared = re.findall(r'"([\w-]+)>=', text.partition("dependencies = [")[2].partition("]")[0])
    modules = {"nvidia-ml-py": "pynvml"}
    sources = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "gputop").rglob("*.py"))
    for name in declared:
        assert re.search(rf"^\s*(?:from|import) {modules.get(name, name)}\b", sources, re.MULTILINE), name
    assert len(declared) >= 5
