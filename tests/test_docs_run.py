"""Every command and program in README and the docs is run, or says what it needs to run."""

from __future__ import annotations

import importlib.util
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from msgspec import Struct

from gputop.cli import _parsed, main

ROOT = Path(__file__).parents[1]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
LANGUAGES = ("sh", "console", "python")


class Block(Struct, frozen=True):
    """A block of a page: ``name`` is the page and the number of the block on it."""

    name: str
    language: str
    text: str


def _blocks() -> list[Block]:
    found = []
    for page in PAGES:
        fences = re.findall(r"^```(\w+)\n(.*?)^```", page.read_text(), re.M | re.S)
        ours = [(language, text) for language, text in fences if language in LANGUAGES]
        found += [
            Block(f"{page.stem} {number}", language, text)
            for number, (language, text) in enumerate(ours, 1)
        ]
    return found


BLOCKS = {block.name: block for block in _blocks()}
NEEDS = {
    "README 1": "a new environment: tests/test_release.py builds and tries one",
    "README 2": "a new environment: .ci/run runs the line",
    "alerts 1": "an alert's command, which runs",
    "alerts 2": "a home of one's own",
    "ci 1": "two jobs on a GPU",
    "ci 2": "three recordings of jobs",
    "cluster 1": "hosts that ssh reaches",
    "contributing 1": "a new environment: CI's own",
    "fleet 1": "a Prometheus and hosts that ssh reaches",
    "install 1": "pipx",
    "install 2": "root",
    "install 4": "docker and a GPU",
    "install 5": "a cluster",
    "mcp 1": "an assistant that speaks MCP",
    "memory 1": "a GPU and PyTorch",
    "scripts 1": "a job on a GPU",
    "trace 1": "PyTorch: its profile is made and read in test_trace_reading",
    "useful 1": "inference servers",
    "workers 1": "PyTorch and a job: test_loader_bench_torch",
}
"""Blocks that need more than this checkout, and what; the API's recipes have their own test (test_api_recipes)."""
RUN_HERE = {name for name in BLOCKS if name not in NEEDS and not name.startswith("api ")}


def _commands(block: Block) -> Iterator[list[str]]:
    """Yield the words of each gputop command of a block of shell."""
    for line in block.text.splitlines():
        if block.language == "console":
            if not line.startswith("$ "):
                continue
            line = line[2:]
        inner = re.findall(r"\$\(([^)]*)\)", line)
        for part in (*re.split(r"\||&&|;", re.sub(r"\$\([^)]*\)", "", line)), *inner):
            words = shlex.split(part, comments=True)
            while words and "=" in words[0] and not words[0].startswith("-"):
                words.pop(0)
            if words and words[0].rpartition("/")[2] == "gputop":
                yield words[1:]


COMMANDS = [
    pytest.param(words, id=f"{block.name}: {shlex.join(words)}"[:90])
    for block in BLOCKS.values()
    if block.language != "python"
    for words in _commands(block)
]


def test_every_block_is_run_or_says_what_it_needs() -> None:
    assert set(NEEDS) <= set(BLOCKS), "a block is gone"
    assert len(COMMANDS) >= 25
    assert {"beside-loss 1", "install 3", "useful 2"} == RUN_HERE


@pytest.mark.parametrize("words", COMMANDS)
def test_each_command_in_the_docs_is_understood_as_it_stands(words: list[str]) -> None:
    """Also where it needs a GPU: its name and its options exist."""
    _parsed(words)


@pytest.mark.parametrize(
    "name", sorted(name for name in RUN_HERE if BLOCKS[name].language != "python")
)
def test_a_shell_block_runs_as_it_stands(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    for words in _commands(BLOCKS[name]):
        assert main(words) == 0, (words, capsys.readouterr())
    if name == "useful 2":
        assert (tmp_path / "card.svg").read_text().startswith("<svg")
    if name == "install 3":
        assert (tmp_path / "gputop" / "config.toml").is_file()


def test_the_loop_beside_a_tracker_runs_as_it_stands(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """W&B is a stand-in here; test_api_recipes runs the real one."""
    wandb = ModuleType("wandb")
    rows: list[object] = []
    wandb.__dict__.update(init=lambda **_: None, log=lambda row, **_: rows.append(row))
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    monkeypatch.chdir(tmp_path)
    batches = [[0] * 8] * 5
    given = {"loader": batches, "train": lambda batch: 0.5}
    exec(compile(BLOCKS["beside-loss 1"].text, "beside-loss.md", "exec"), given)  # noqa: S102
    assert given["w"].summary().report.steps[0].steps == 4  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", [name for name in BLOCKS if BLOCKS[name].language == "python"])
def test_each_program_in_the_docs_is_python(name: str) -> None:
    compile(BLOCKS[name].text, name, "exec")


@pytest.mark.slow
@pytest.mark.torch
def test_the_profilers_loop_of_the_page_on_traces_writes_a_file_that_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if importlib.util.find_spec("torch") is None:
        pytest.skip("PyTorch is not installed")
    import torch

    monkeypatch.chdir(tmp_path)
    given = {"loader": [torch.ones(64, 64)] * 20, "step": lambda batch: batch @ batch}
    exec(compile(BLOCKS["trace 1"].text, "trace.md", "exec"), given)  # noqa: S102
    assert main(["trace", "trace.json.gz"]) == 2, "no GPU's work is in it, and that is said"
