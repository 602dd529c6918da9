"""Answers for coding assistants: the commands' JSON, foreign texts labelled, files kept in."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gputop.mcp.answers import MOST_BYTES, Folders, Refused, compact, labelled
from gputop.recording.writer import RecordingWriter
from gputop.sources.simulation.simulated import SimulatedSource
from tests.nvml.stand_in import Process, Scenario
from tests.support.scenes import gpu, snap, train
from tests.support.synthetic_memory import FORWARD, Allocator, dumped
from tests.support.synthetic_trace import planted, written

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
        "a\0b", "/etc/passwd", "../../etc/passwd", ".", "-", "deep/../../out/secret.json",
    ):  # fmt: skip
        with pytest.raises(Refused):
            folders.file(name)
    assert folders.relative({"a": [str(inside / "deep" / "a.json")]}) == {"a": ["deep/a.json"]}
    assert folders.file("deep") == str(inside / "deep")
    for name, make in (
        ("out.gputop.jsonl", lambda path: path.symlink_to(outside / "secret.json")),
        # Opening it would wait for a writer.
        ("pipe.json", lambda path: os.mkfifo(path)),
    ):
        make(inside / "deep" / name)
        for asked in ("deep", f"deep/{name}"):
            with pytest.raises(Refused):
                folders.file(asked)
        (inside / "deep" / name).unlink()
    with pytest.raises(Refused):
        Folders([str(inside / "deep" / "a.json")])


def test_an_answer_that_is_too_long_loses_its_largest_lists_and_says_how_much() -> None:
    data = {"few": [1, 2], "rows": [{"words_untrusted": "x" * 100, "n": n} for n in range(1000)]}
    text = compact(data)
    found = json.loads(text)
    assert len(text.encode()) <= MOST_BYTES and found["few"] == [1, 2]
    assert found["left_out"] == {"rows": 1000 - len(found["rows"])} and len(found["rows"]) > 50
    with pytest.raises(Refused):
        compact({str(n): "x" * 100 for n in range(1000)})


SDK = pytest.mark.skipif(
    find_spec("mcp") is None, reason="the protocol's SDK is not installed: pip install '.[mcp]'"
)


@SDK
async def test_arguments_that_a_tool_cannot_take_are_refused_in_one_line(tmp_path: Path) -> None:
    from mcp.server.mcpserver.exceptions import ToolError

    from gputop.mcp.server import make_server

    server = make_server([str(tmp_path)])
    for tool, given, words in (
        ("report", {"file": "a", "full": True}, "report takes no full; it takes file"),
        ("report", {}, "report: file: Field required"),
        ("diagnose", {"seconds": "long"}, "diagnose: seconds: Input should be a valid number"),
        ("diagnose", {"seconds": 1e9}, "diagnose: seconds: Input should be less than"),
        (
            "report",
            {"file": "../../etc/passwd"},
            "../../etc/passwd: no such file below the folders",
        ),
        ("trace", {"file": "--html"}, "--html: no such file below the folders"),
    ):
        with pytest.raises(ToolError) as refused:
            await server.call_tool(tool, given)
        said = str(refused.value)
        assert words in said and "\n" not in said


@SDK
async def test_four_commands_run_at_once_and_every_call_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gputop.mcp.server import make_server

    running, most = set[object](), [0]

    def finished(*_: object) -> SimpleNamespace:
        this = object()
        running.add(this)
        most.append(len(running))
        time.sleep(0.05)
        running.discard(this)
        return SimpleNamespace(stdout='{"kind": "report"}', stderr="")

    monkeypatch.setattr("gputop.mcp.server.finished", finished)
    (tmp_path / "run.gputop.jsonl").touch()
    server = make_server([str(tmp_path)])
    calls = [server.call_tool("report", {"file": "run.gputop.jsonl"}) for _ in range(12)]
    answers = await asyncio.gather(*calls)
    assert len(answers) == 12 and max(most) == 4


@SDK
@pytest.mark.slow
@pytest.mark.nvml
async def test_an_assistant_asks_through_the_sdks_own_client(
    nvml_scenario: Callable[..., Scenario], tmp_path: Path
) -> None:
    from mcp import Client
    from mcp.client.stdio import StdioServerParameters

    scenario = nvml_scenario(gpus=8)
    for device in scenario.gpus:
        device.processes = [Process(pid, pid << 20) for pid in range(3_000_000, 3_000_064)]
    scenario.write()
    folder = tmp_path / "runs"
    _files(folder)
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "gputop", "mcp", str(folder)],
        env={**scenario.environment(), "PYTHONPATH": str(ROOT)},
        cwd=str(tmp_path),
    )
    async with Client(server) as client:
        tools = (await client.list_tools()).tools
        assert {tool.name for tool in tools} == {
            "snapshot",
            "diagnose",
            "report",
            "compare",
            "trace",
            "memory",
        }
        assert all(
            tool.annotations is not None and tool.annotations.read_only_hint for tool in tools
        )

        async def ask(name: str, **given: Any) -> Any:
            found = await client.call_tool(name, given)
            assert not found.is_error, found.content
            assert found.structured_content is None, "one text, and not the same a second time"
            (part,) = found.content
            text = part.text
            assert len(text.encode()) <= MOST_BYTES, (name, len(text))
            return json.loads(text)

        snapshot = await ask("snapshot")
        assert [gpu["util_pct"] for gpu in snapshot["gpus"]] == [90.0] * 8
        assert "name_untrusted" in snapshot["gpus"][0] and snapshot["left_out"]["processes"] > 0
        assert [gpu["index"] for gpu in (await ask("snapshot", gpus="3,5"))["gpus"]] == [3, 5]
        assert len((await ask("diagnose", seconds=4.0))["gpus"]) == 8
        recorded = await ask("diagnose", file="run.gputop.jsonl.gz")
        assert "dataloader_cpu" in {gpu["verdict"] for gpu in recorded["gpus"]}
        assert (await ask("report", file="run.gputop.jsonl.gz"))["frames"] > 80
        assert (await ask("compare", before="a.gputop.jsonl.gz", after="b.gputop.jsonl.gz"))[
            "differences"
        ]
        (rank,) = (await ask("trace", file="before.json"))["ranks"]
        assert (
            rank["file_untrusted"] == "before.json" and rank["gpus"][0]["verdict"] == "main_process"
        )
        assert (await ask("trace", file="before.json", after="after.json"))["files_untrusted"]
        (device,) = (await ask("memory", file="s.pickle"))["devices"]
        assert device["peak"]["bytes"] == 500 << 20
        for name, given, words in (
            ("trace", {"file": "not.json"}, "failed; stderr_untrusted: "),
            ("memory", {"file": "code.pickle"}, "a pickle can run code"),
            ("report", {"file": "../program.py"}, "no such file below the folders"),
            ("snapshot", {"gpus": "77"}, "77"),
            ("snapshot", {"gpus": "0 --html"}, "failed; stderr_untrusted: "),
        ):
            failed = await client.call_tool(name, given)
            text = " ".join(getattr(part, "text", "") for part in failed.content)
            assert failed.is_error and "secret contents" not in text and "Traceback" not in text, (
                text
            )
            assert words in text and str(tmp_path) not in text, text


def _files(folder: Path) -> None:
    """Recordings, traces, a memory snapshot, and files that are none."""
    folder.mkdir()
    writer = RecordingWriter(str(folder / "run.gputop.jsonl.gz"))
    for snapshot in SimulatedSource(clock=lambda: 1_780_000_000.0).past(90):
        writer.write(snapshot)
    writer.close()
    for name in ("a", "b"):
        writer = RecordingWriter(str(folder / f"{name}.gputop.jsonl.gz"))
        for tick in range(40):
            writer.write(snap(tick, gpu(), [train()]))
        writer.close()
    written(folder / "before.json", planted("single_process"))
    written(folder / "after.json", planted("busy"))
    memory = Allocator()
    for n in range(500):
        memory.alloc(1 << 20, [{**frame, "line": n} for frame in FORWARD])
    dumped(folder / "s.pickle", memory.snapshot())
    (folder / "not.json").write_text("secret contents")
    (folder / "code.pickle").write_bytes(b"\x80\x04cos\nsystem\n(S'true'\ntR.")
