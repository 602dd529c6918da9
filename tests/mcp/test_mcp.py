"""What coding assistants are told: the same data as the commands', foreign texts labelled, files kept in."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from gputop.mcp.answers import MOST_BYTES, Folders, Outside, compact, labelled, snapshot_brief
from gputop.output.snapshot_data import once_data
from gputop.recording.writer import RecordingWriter
from gputop.sources.simulation.simulated import SimulatedSource
from tests.nvml.stand_in import Process, Scenario
from tests.support.scenes import gpu, snap, train
from tests.support.synthetic_memory import FORWARD, Allocator, dumped
from tests.support.synthetic_trace import TraceMaker, planted, written

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
    assert folders.files() == {"recordings": [], "traces": [], "memory_snapshots": []}
    assert folders.named({"a": [str(inside / "deep" / "a.json")]}) == {"a": ["deep/a.json"]}
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


def test_what_can_be_asked_about_is_told_by_its_kind_and_a_json_by_what_is_in_it(tmp_path: Path) -> None:
    written(tmp_path / "rank0.json.gz", planted("busy"))
    (tmp_path / "settings.json").write_text('{"a": 1}')
    (tmp_path / "torn.json.gz").write_bytes(b"\x1f\x8bno")
    (tmp_path / "run.gputop.jsonl").write_text("")
    (tmp_path / "s.pickle").write_bytes(b"\x80")
    assert Folders([str(tmp_path)]).files() == {
        "recordings": ["run.gputop.jsonl"], "traces": ["rank0.json.gz"], "memory_snapshots": ["s.pickle"],
    }  # fmt: skip


def test_the_snapshot_of_8_gpus_with_64_processes_each_is_short_and_says_what_it_left_out() -> None:
    processes = [
        train(n, main=5.0, pid=1000 * n + p, gpu_mem_bytes=float(p << 30)) for n in range(8) for p in range(64)
    ]
    data = once_data(snap(0, [gpu(n, temp_c=50.0) for n in range(8)], processes))
    text = compact(labelled(snapshot_brief(data, gpu=None, top=None)), full=False)
    assert len(text.encode()) <= MOST_BYTES
    found = json.loads(text)
    assert [one["process_count"] for one in found["gpus"]] == [64] * 8
    assert [one["pid"] for one in found["gpus"][3]["processes"]] == [3063, 3062, 3061]
    assert found["gpus"][0]["sm_active_pct"] == 90.0 and "left_out" not in found
    one = snapshot_brief(data, gpu=3, top=20)
    assert [len(gpu["processes"]) for gpu in one["gpus"]] == [20]


def test_an_answer_that_is_too_long_loses_its_largest_lists_and_says_how_much_unless_it_is_wanted_in_full() -> None:
    data = {"few": [1, 2], "rows": [{"words_untrusted": "x" * 100, "n": n} for n in range(1000)]}
    text = compact(data, full=False)
    found = json.loads(text)
    assert len(text.encode()) <= MOST_BYTES and found["few"] == [1, 2]
    assert found["left_out"] == {"rows": 1000 - len(found["rows"])} and len(found["rows"]) > 50
    assert len(json.loads(compact({"rows": list(range(50_000))}, full=True))["rows"]) == 50_000


SDK = pytest.mark.skipif(find_spec("mcp") is None, reason="the protocol's SDK is not installed: pip install '.[mcp]'")


def ask(folder: Path, tool: str, **given: Any) -> dict[str, Any]:
    """What a tool answers, in this process."""
    from gputop.mcp.server import Tools

    allowed = {key: given.pop(key) for key in ("allow_run", "allow_mark") if key in given}
    tools = Tools(Folders([str(folder)]), None, allowed.get("allow_run", ()), allowed.get("allow_mark", False))
    text = asyncio.run(getattr(tools, tool)(**given))
    if not given.get("full"):
        assert len(text.encode()) <= MOST_BYTES
    found: dict[str, Any] = json.loads(text)
    return found


def many_kernels(rank: int) -> dict[str, Any]:
    """A rank, of which two have hundreds of kernels; the third one computes longer than the others."""
    maker = TraceMaker()
    for step in range(12):
        begin = maker.t
        maker.free = max(maker.free, maker.t + 10)
        for n in range(60 if rank in (0, 2) else 5):
            maker.launch(f"void company::project::very_long_namespace::kernel_number_{step * 60 + n}<float>(int)", 20)
        compute = 900 if rank == 2 else 500
        maker.launch("gemm", compute)
        said = {"Collective name": "allreduce", "Process Group Name": "0", "Seq": step, "In msg nelems": 1000 + step,
                "Out msg nelems": 1000, "Group size": 8, "dtype": "Float"}  # fmt: skip
        maker.launch("ncclDevKernel_AllReduce", 1000 - compute, **said)
        maker.t = maker.free - 5
        maker.span(f"ProfilerStep#{step}", begin, maker.t, "user_annotation")
    return maker.document(distributedInfo={"rank": rank, "world_size": 8})


@SDK
def test_the_trace_of_8_ranks_is_short_and_shows_the_one_that_the_others_wait_for(tmp_path: Path) -> None:
    (tmp_path / "ranks").mkdir()
    for rank in range(8):
        written(tmp_path / "ranks" / f"rank{rank}.json", many_kernels(rank))
    found = ask(tmp_path, "trace", file="ranks")
    assert [one["rank"] for one in found["ranks"]] == list(range(8))
    assert found["straggler"]["rank"] == found["detail"]["rank"] == 2
    assert found["detail"]["file_untrusted"] == "ranks/rank2.json"
    assert len(found["detail"]["gpus"][0]["kernels"]) == 10
    assert "left_out" not in found
    other = ask(tmp_path, "trace", file="ranks", rank=5, top=2, steps="3-4")
    assert other["detail"]["rank"] == 5 and len(other["detail"]["gpus"][0]["kernels"]) == 2
    assert other["detail"]["gpus"][0]["steps"] == 2
    whole = ask(tmp_path, "trace", file="ranks", full=True)
    assert len(whole["ranks"][0]["gpus"][0]["kernels"]) > 700


@SDK
def test_two_traces_two_recordings_and_a_memory_snapshot_can_be_asked_about(tmp_path: Path) -> None:
    from mcp.server.mcpserver.exceptions import ToolError

    written(tmp_path / "before.json", planted("single_process"))
    written(tmp_path / "after.json", planted("busy"))
    found = ask(tmp_path, "trace_compare", before="before.json", after="after.json")
    assert found["before"]["verdict"] == "main_process" and "steps_table" not in found["before"]
    assert found["files_untrusted"] == ["before.json", "after.json"]
    for name in ("a", "b"):
        writer = RecordingWriter(str(tmp_path / f"{name}.gputop.jsonl.gz"))
        for tick in range(40):
            writer.write(snap(tick, gpu(), [train()]))
        writer.close()
    assert ask(tmp_path, "compare", before="a.gputop.jsonl.gz", after="b.gputop.jsonl.gz")["differences"]
    memory = Allocator()
    for n in range(500):
        memory.alloc(1 << 20, [{**frame, "line": n} for frame in FORWARD])
    dumped(tmp_path / "s.pickle", memory.snapshot())
    (device,) = ask(tmp_path, "memory", file="s.pickle")["devices"]
    assert device["peak_bytes"] == 500 << 20 and len(device["alive"]) == 10
    assert len(ask(tmp_path, "memory", file="s.pickle", full=True)["devices"][0]["alive"]) == 500
    (tmp_path / "code.pickle").write_bytes(b"\x80\x04cos\nsystem\n(S'true'\ntR.")
    with pytest.raises(ToolError, match="a pickle can run code"):
        ask(tmp_path, "memory", file="code.pickle")


@SDK
def test_a_gpu_that_is_not_there_is_no_gpu_with_which_nothing_is_wrong() -> None:
    from mcp.server.mcpserver.exceptions import ToolError

    with pytest.raises(ToolError, match="no such GPU: 7; there are 0"):
        ask(Path(__file__).parents[1] / "telemetry", "diagnose", file="h200_train.gputop.jsonl.gz", gpu=7)


@SDK
async def test_arguments_that_a_tool_cannot_take_are_refused_in_one_line(tmp_path: Path) -> None:
    from mcp.server.mcpserver.exceptions import ToolError

    from gputop.mcp.server import make_server

    server = make_server([str(tmp_path)])
    for tool, given, words in (
        ("explain", {"id": "low_sm"}, "explain takes no id; it takes verdict"),
        ("files", {"x": 1}, "files takes no x; it takes no arguments"),
        ("report", {}, "report: file: Field required"),
        ("snapshot", {"top": "many"}, "snapshot: top: Input should be a valid integer, unable to parse string"),
    ):
        with pytest.raises(ToolError) as refused:
            await server.call_tool(tool, given)
        assert str(refused.value).startswith(words) and "\n" not in str(refused.value)


@SDK
def test_explain_lists_all_without_an_id_and_tells_one(tmp_path: Path) -> None:
    found = ask(tmp_path, "explain")
    assert {"id": "stream_wait", "title": "starved: waits on the device"} in found["verdicts"] and found["badges"]
    assert ask(tmp_path, "explain", verdict="main_process")["condition"]


@SDK
def test_the_users_function_and_marks_are_named_and_run_only_where_the_user_allowed_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mcp.server.mcpserver.exceptions import ToolError

    from gputop.mcp import server

    ran: list[Any] = []
    monkeypatch.setattr(server, "_run", lambda command, environment, seconds: ran.append(command) or {"best": 4})
    monkeypatch.setattr(server, "send_mark", lambda text, t: ran.append(text) or server_sent())
    found = ask(tmp_path, "loader", function="train:make")
    assert found["ran"] is False and found["command_untrusted"] == "gputop loader train:make --json --budget 40s"
    assert ask(tmp_path, "loader", function="other:make", allow_run=["train:make"])["ran"] is False
    assert ask(tmp_path, "mark", text="it's me")["command_untrusted"] == """gputop mark 'it'"'"'s me'"""
    assert ran == []
    assert ask(tmp_path, "loader", function="train:make", allow_run=["train:make"])["result"] == {"best": 4}
    assert ask(tmp_path, "mark", text="lr 1e-4", allow_mark=True)["reached"] == 1
    assert ran == [["loader", "train:make", "--json", "--budget", "40s"], "lr 1e-4"]
    for name in ("train", "train:make; rm -rf x", "-h:x", "a:b --workers 3", ""):
        with pytest.raises(ToolError, match="MODULE:FUNCTION"):
            ask(tmp_path, "loader", function=name, allow_run=[name])


def server_sent() -> Any:
    from gputop.sources.marks import Sent

    return Sent(1)


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
            "snapshot", "diagnose", "findings", "report", "compare", "trace", "trace_compare", "memory", "doctor",
            "files", "explain", "loader", "mark",
        }  # fmt: skip
        assert all(tool.annotations is not None and tool.annotations.read_only_hint for tool in tools)

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
        assert [gpu["process_count"] for gpu in snapshot["gpus"]] == [64] * 8
        assert "name_untrusted" in snapshot["gpus"][0]
        live = await ask("diagnose", seconds=4.0)
        assert len(live["gpus"]) == 8
        recorded = await ask("diagnose", file="run.gputop.jsonl.gz")
        verdicts = {gpu["verdict"] for gpu in recorded["gpus"]}
        assert "dataloader_cpu" in verdicts, verdicts
        explained = await ask("explain", verdict="dataloader_cpu")
        assert explained["condition"] and "remedy" in explained
        assert (await ask("files"))["recordings_untrusted"] == ["run.gputop.jsonl.gz"]
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
