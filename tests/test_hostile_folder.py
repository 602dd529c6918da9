"""A folder of somebody else's, whose files are named as modules are: no command and no tool runs one of them."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from gputop.command_line.registry import COMMANDS_AND_PARTS
from tests.support.hostile import recording
from tests.support.pty_program import ROOT
from tests.support.synthetic_memory import FORWARD, Allocator, dumped
from tests.support.synthetic_trace import planted, written

NAMES = (
    "gputop",
    "sitecustomize",
    "usercustomize",
    "msgspec",
    "psutil",
    "pynvml",
    "textual",
    "numpy",
    "torch",
    "mcp",
)
STARTS = """
import sys
sys.path.insert(1, {root!r})
from gputop.__main__ import program
sys.exit(program())
"""
"""As an installer writes it: what Python finds first is the folder of this script, not the one that it is run in."""
COMMANDS: dict[str, tuple[str, ...]] = {
    "once": ("--json",), "doctor": (), "pick": (), "report": ("r.jsonl",), "diagnose": ("r.jsonl",),
    "compare": ("r.jsonl",) * 2,
    "dump": ("r.jsonl", "--json"), "screenshot": ("r.jsonl", "-o", "s.svg"), "trace": ("ranks",),
    "memory": ("snap.pickle",), "export": ("--once",), "record": ("--for", "1s", "-o", "n.jsonl"),
    "run": ("--", "true"), "prove": (), "serve": ("demo", "no-such"), "alerts": ("r.jsonl",), "mark": ("x",),
    "fleet": ("--prom", "http://127.0.0.1:9", "--json"),
    "fleet queries": (), "fleet deploy": ("prometheus",),
    "fleet demo": ("--json",), "demo": ("--once",), "completion": ("bash",), "config": (), "help": (),
    "mcp": ("nowhere",), "replay": ("r.jsonl",),
}  # fmt: skip
BY_DESIGN = {"loader": "runs the user's code, in his Python"}
TOOLS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("snapshot", {}), ("diagnose", {"file": "r.jsonl"}), ("report", {"file": "r.jsonl"}),
    ("compare", {"before": "r.jsonl", "after": "r.jsonl"}), ("trace", {"file": "ranks"}),
    ("memory", {"file": "snap.pickle"}),
)  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "checkout"
    (place / "ranks").mkdir(parents=True)
    for name in sorted({*NAMES, *sys.stdlib_module_names}):
        (place / f"{name}.py").write_text(
            f"open({str(tmp_path / 'ran')!r}, 'a').write('{name} ')\n"
        )
    for rank in range(2):
        written(place / "ranks" / f"rank{rank}.json", planted("busy"))
    memory = Allocator()
    memory.alloc(1 << 20, FORWARD)
    dumped(place / "snap.pickle", memory.snapshot())
    recording(place / "r.jsonl")
    (tmp_path / "gputop").write_text(STARTS.format(root=str(ROOT)))
    yield place
    assert not (tmp_path / "ran").exists(), (tmp_path / "ran").read_text()


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def test_every_command_is_tried_but_what_runs_foreign_code_by_design() -> None:
    assert sorted([*COMMANDS, *BY_DESIGN]) == sorted(COMMANDS_AND_PARTS)


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_runs_nothing_of_the_folder_that_it_is_started_in(
    command: str, folder: Path
) -> None:
    done = subprocess.run(
        [sys.executable, str(folder.parent / "gputop"), *command.split(), *COMMANDS[command]],
        env=environment(), cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode in (0, 1, 2, 3), done.stderr
    assert b"internal error" not in done.stderr, done.stderr


@pytest.mark.slow
@pytest.mark.skipif(
    find_spec("mcp") is None, reason="the protocol's SDK is not installed: pip install '.[mcp]'"
)
def test_no_tool_of_an_assistant_runs_anything_of_its_folder(folder: Path) -> None:
    from mcp import Client
    from mcp.client.stdio import StdioServerParameters

    server = StdioServerParameters(
        command=sys.executable,
        args=[str(folder.parent / "gputop"), "mcp"],
        env=environment(),
        cwd=str(folder),
    )

    async def ask() -> set[str]:
        async with Client(server) as client:
            for name, given in TOOLS:
                found = await client.call_tool(name, given)
                # Without a GPU this one says so.
                assert not found.is_error or name == "snapshot", (name, found.content)
                if name == "memory":
                    assert json.loads(found.content[0].text)["devices"]
            return {tool.name for tool in (await client.list_tools()).tools}

    assert asyncio.run(ask()) == {name for name, _ in TOOLS}
