"""What coding assistants are told: the same data as the commands', foreign texts labelled, files kept in."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from gputop.mcp.server import Folders, Outside, labelled
from gputop.recording.writer import RecordingWriter
from gputop.sources.simulation.simulated import SimulatedSource
from tests.nvml.stand_in import Scenario

ROOT = Path(__file__).parents[2]


def test_every_text_that_is_not_ours_is_labelled() -> None:
    found = labelled(
        {
            "verdict": "healthy", "remedy": "none", "name": "x\x1b[31m", "sm_pct": 3.0, "notes": ["a"], "marks": [],
            "unavailable": {"power_w": "not supported"}, "gpus": [{"user": "ml", "level": "red"}], "gone": None,
        }
    )  # fmt: skip
    assert found == {
        "verdict": "healthy", "remedy": "none", "name_untrusted": "x?[31m", "sm_pct": 3.0, "notes_untrusted": ["a"],
        "marks": [], "unavailable_untrusted": {"power_w": "not supported"},
        "gpus": [{"user_untrusted": "ml", "level": "red"}], "gone": None,
    }  # fmt: skip


def test_no_file_outside_the_folders_is_reached(tmp_path: Path) -> None:
    inside, outside = tmp_path / "in", tmp_path / "out"
    (inside / "deep").mkdir(parents=True)
    outside.mkdir()
    (inside / "deep" / "a.json").write_text("{}")
    (outside / "secret.json").write_text("{}")
    (inside / "link.json").symlink_to(outside / "secret.json")
    (inside / "folder").symlink_to(outside)
    folders = Folders([str(inside)])
    assert folders.file("deep/a.json") == str(inside / "deep" / "a.json")
    for name in (
        "../out/secret.json", str(outside / "secret.json"), "link.json", "folder/secret.json", "absent.json", "",
        "a\0b", "/etc/passwd", ".",
    ):  # fmt: skip
        with pytest.raises(Outside):
            folders.file(name)
    assert folders.files() == ["deep/a.json"]
    assert folders.file("deep") == str(inside / "deep")
    for name, make in (
        ("out.gputop.jsonl", lambda path: path.symlink_to(outside / "secret.json")),
        # Opening it would wait for a writer.
        ("pipe.json", lambda path: os.mkfifo(path)),
    ):
        make(inside / "deep" / name)
        with pytest.raises(Outside, match=f"deep: holds {name}"):
            folders.file("deep")
        with pytest.raises(Outside):
            folders.file(f"deep/{name}")
        (inside / "deep" / name).unlink()
    with pytest.raises(Outside):
        Folders([str(inside / "deep" / "a.json")])


@pytest.mark.skipif(find_spec("mcp") is None, reason="the protocol's SDK is not installed: pip install '.[mcp]'")
@pytest.mark.slow
@pytest.mark.nvml
async def test_an_assistant_asks_through_the_sdks_own_client(
    nvml_scenario: Callable[..., Scenario], tmp_path: Path
) -> None:
    from mcp import Client
    from mcp.client.stdio import StdioServerParameters

    scenario = nvml_scenario(gpus=2)
    scenario.write()
    folder = tmp_path / "runs"
    folder.mkdir()
    writer = RecordingWriter(str(folder / "run.gputop.jsonl.gz"))
    for snapshot in SimulatedSource(clock=lambda: 1_780_000_000.0).past(90):
        writer.write(snapshot)
    writer.close()
    (folder / "not.json").write_text("secret contents")
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "gputop", "mcp", str(folder)],
        env={**scenario.environment(), "PYTHONPATH": str(ROOT)},
        cwd=str(tmp_path),
    )
    async with Client(server) as client:
        tools = (await client.list_tools()).tools
        assert {tool.name for tool in tools} == {
            "snapshot", "diagnose", "findings", "report", "trace", "doctor", "files", "explain",
        }  # fmt: skip
        assert all(tool.annotations is not None and tool.annotations.read_only_hint for tool in tools)

        async def ask(name: str, **given: Any) -> Any:
            found = await client.call_tool(name, given)
            assert not found.is_error, found.content
            return found.structured_content

        snapshot = await ask("snapshot")
        assert [gpu["util_pct"] for gpu in snapshot["gpus"]] == [90.0, 90.0]
        assert "name_untrusted" in snapshot["gpus"][0]
        live = await ask("diagnose", seconds=4.0)
        assert len(live["gpus"]) == 2
        recorded = await ask("diagnose", file="run.gputop.jsonl.gz")
        verdicts = {gpu["verdict"] for gpu in recorded["gpus"]}
        assert "dataloader_cpu" in verdicts, verdicts
        explained = await ask("explain", verdict="dataloader_cpu")
        assert explained["condition"] and "remedy" in explained
        assert (await ask("files"))["files_untrusted"] == ["not.json", "run.gputop.jsonl.gz"]
        assert (await ask("report", file="run.gputop.jsonl.gz"))["frames"] > 80
        assert "findings" in await ask("findings", file="run.gputop.jsonl.gz")
        assert (await ask("doctor"))["gpus"]
        for name, given, words in (
            ("trace", {"file": "not.json"}, "not a recording or trace that can be read"),
            ("report", {"file": "../program.py"}, "no such file below the folders"),
            ("explain", {"verdict": "none"}, "no such verdict or badge; there are"),
        ):
            failed = await client.call_tool(name, given)
            text = " ".join(getattr(part, "text", "") for part in failed.content)
            assert failed.is_error and "secret contents" not in text and "Traceback" not in text, text
            assert words in text, "an assistant must be told why"
