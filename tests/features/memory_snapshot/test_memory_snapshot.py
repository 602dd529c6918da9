"""`gputop memory`: what a snapshot says against PyTorch's own reader and a replay, and files that are none."""

from __future__ import annotations

import json
import os
import pickle
import random
import re
import resource
import sqlite3
import struct
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from gputop.cli import main
from gputop.features.memory_snapshot.allocator_snapshot import read_snapshot
from gputop.features.memory_snapshot.memory_analysis import DeviceReport, analyse
from gputop.features.memory_snapshot.memory_findings import findings
from tests.support.spoiled import checked_page, spoil
from tests.support.synthetic_memory import (
    BACKWARD,
    FORWARD,
    OPTIMIZER,
    PARAMETERS,
    Allocator,
    dumped,
    frames,
)

MIB = 1 << 20


def device(tmp_path: Path, snapshot: Any) -> DeviceReport:
    (report,) = analyse(read_snapshot(str(dumped(tmp_path / "s.pickle", snapshot)))).devices
    return report


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    status = main(["memory", *words])
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    return status, captured.out + captured.err


def random_run(seed: int) -> Allocator:
    draw = random.Random(seed)
    memory = Allocator()
    held: list[int] = []
    for _ in range(300):
        if held and draw.random() < 0.45:
            memory.free(held.pop(draw.randrange(len(held))))
        else:
            held.append(
                memory.alloc(
                    draw.randrange(1, 4 * MIB), draw.choice((FORWARD, OPTIMIZER, BACKWARD))
                )
            )
    return memory


# --- sums -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("last", [None, 120])
def test_the_peak_and_what_was_alive_then_are_those_of_a_replay(
    seed: int, last: int | None, tmp_path: Path
) -> None:
    """Also of a ring of events that has lost its begin: what was there before is told from the blocks at the end."""
    memory = random_run(seed)
    live: dict[int, tuple[int, str]] = {}
    before = 0 if last is None else len(memory.events) - last
    states = [dict(live)]
    for event in memory.events:
        if event["action"] == "alloc":
            live[event["addr"]] = (event["size"], event["frames"][0]["name"])
        elif event["action"] == "free_completed":
            del live[event["addr"]]
        states.append(dict(live))
    totals = [sum(size for size, _ in state.values()) for state in states][before:]
    peak = totals.index(max(totals))
    report = device(tmp_path, memory.snapshot(last))
    assert report.peak is not None
    assert (report.peak.bytes, report.peak.event) == (max(totals), peak)
    assert report.preexisting_bytes == totals[0]
    assert (
        sum(report.categories_bytes.values())
        == report.peak.bytes
        == sum(row.bytes for row in report.alive)
    )
    assert sum(row.allocations for row in report.alive) == len(states[before + peak])
    if last is None:
        names = Counter[str]()
        for size, name in states[peak].values():
            names[name] += size
        kinds = {
            "linear": "activations",
            "_init_group": "optimizer",
            "torch::autograd::Engine::thread_main": "gradients",
        }
        assert report.categories_bytes == {kinds[name]: size for name, size in names.items()}
    assert max(size for _, size, _ in report.curve) == report.peak.bytes


def test_places_are_the_innermost_line_that_is_not_of_a_library_and_categories_are_told_by_the_stack(
    tmp_path: Path,
) -> None:
    memory = Allocator()
    for stack in (FORWARD, OPTIMIZER, BACKWARD, PARAMETERS, []):
        memory.alloc(MIB, stack)
    rows = {row.category: row for row in device(tmp_path, memory.snapshot()).alive}
    assert rows["activations"].place == "ml/model.py:42 forward"
    assert rows["activations"].frames[0] == "nn/functional.py:2000 linear"
    assert rows["optimizer"].place == "ml/train.py:10 main"
    assert rows["gradients"].place == "no Python frame (C++ or the backward pass)"
    assert rows["other"].place == "no stack recorded"
    assert rows["parameters"].bytes == MIB


# --- what is wrong --------------------------------------------------------------------------------------------------


def checkerboard(device_bytes: int) -> Allocator:
    """64 blocks of 16 MiB, every other one freed: half of the memory is free, in pieces."""
    memory = Allocator(device_bytes)
    segment = memory.alloc(1024 * MIB, FORWARD)
    memory.free(segment)
    blocks = [memory.alloc(16 * MIB, FORWARD) for _ in range(64)]
    for address in blocks[::2]:
        memory.free(address)
    return memory


def test_an_allocation_that_failed_for_fragmentation_says_so_and_one_that_could_not_fit_says_what_was_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    memory = checkerboard(1100 * MIB)
    assert memory.alloc(200 * MIB, FORWARD) == 0
    report = device(tmp_path, memory.snapshot())
    (failure,) = report.out_of_memory
    assert (failure.wanted_bytes, failure.device_free_bytes, failure.in_use_bytes) == (
        200 * MIB,
        76 * MIB,
        512 * MIB,
    )
    assert (failure.free.stuck_bytes, failure.missing_bytes, failure.place) == (
        512 * MIB,
        0,
        "ml/model.py:42 forward",
    )
    status, text = said(capsys, str(tmp_path / "s.pickle"))
    assert status == 1 and "OUT OF MEMORY: 200 MiB wanted at ml/model.py:42 forward" in text
    assert "as one piece it would have sufficed" in text and "expandable_segments:True" in text

    memory = checkerboard(1100 * MIB)
    memory.alloc(700 * MIB, FORWARD)
    (failure,) = device(tmp_path, memory.snapshot()).out_of_memory
    assert failure.missing_bytes == (700 - 76 - 512) * MIB
    text = said(capsys, str(tmp_path / "s.pickle"))[1]
    assert "112 MiB were missing" in text and "activation checkpointing" in text


def found(snapshot: Any, tmp_path: Path) -> list[str]:
    report = analyse(read_snapshot(str(dumped(tmp_path / "f.pickle", snapshot))))
    return [finding.id for gpu in report.devices for finding in findings(report, gpu)]


def between_steps(
    free_mib: int, *, segments: int = 100, hole_is_used: bool = True
) -> dict[str, Any]:
    """Three steps that fill every segment and let go again; without ``hole_is_used`` a step fills other segments."""
    memory = Allocator()
    kept = 20 - free_mib
    for _ in range(segments):
        address = memory.alloc(20 * MIB, PARAMETERS)
        memory.events[-1]["size"] = kept * MIB
        memory.segments[-1]["blocks"] = [
            memory._block(address, kept * MIB, kept * MIB, PARAMETERS),
            {**memory._free(address + kept * MIB, free_mib * MIB), "state": "kept for later"},
        ]
    for segment in memory.segments:
        segment["blocks"][1]["state"] = "inactive"
    for _ in range(3):
        size = free_mib if hole_is_used else free_mib + 1
        for block in [memory.alloc(size * MIB, FORWARD) for _ in range(segments)]:
            memory.free(block)
    return memory.snapshot()


@pytest.mark.parametrize("free_mib", [4, 12, 17])
@pytest.mark.parametrize("last", [None, 300])
def test_a_cache_that_every_step_fills_is_no_fragmentation_and_one_that_none_can_use_is(
    free_mib: int, last: int | None, tmp_path: Path
) -> None:
    """Judged at the peak: the same memory lies free between two steps in both."""
    full = between_steps(free_mib)
    full["device_traces"][0] = full["device_traces"][0][-(last or 10_000) :]
    assert found(full, tmp_path) == []
    holes = between_steps(free_mib, hole_is_used=False)
    stuck = 100 * free_mib * MIB
    reserved = sum(segment["total_size"] for segment in holes["segments"])
    expected = ["fragmentation"] if stuck >= 0.2 * reserved and stuck >= 1 << 30 else []
    assert found(holes, tmp_path) == expected


def test_without_events_fragmentation_is_not_judged(tmp_path: Path) -> None:
    snapshot = between_steps(12, hole_is_used=False)
    assert found(snapshot, tmp_path) == ["fragmentation"]
    assert found(snapshot | {"device_traces": []}, tmp_path) == []


@pytest.mark.parametrize("pool", [(0, 3), (7, 0), [0, 1]])
@pytest.mark.parametrize("captured", [20, 60])
def test_memory_of_private_pools_is_named_where_it_is_why_an_allocation_failed(
    pool: Any, captured: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    memory = Allocator(device_bytes=(captured + 12) * 1024 * MIB)
    for _ in range(10):
        memory.alloc(1024 * MIB, PARAMETERS)
    graphs = [memory.alloc(1024 * MIB, FORWARD) for _ in range(captured)]
    for address in graphs:
        memory.free(address)
    for number, segment in enumerate(memory.segments):
        segment["segment_pool_id"] = pool if number >= 10 else (0, 0)
    memory._event("oom", 0, 4096 * MIB, FORWARD, device_free=2048 * MIB)
    report = device(tmp_path, memory.snapshot())
    assert report.end.free.private_bytes == captured << 30 and report.end.free.whole_bytes == 0
    (failure,) = report.out_of_memory
    assert (failure.cause, failure.missing_bytes) == ("private_pool", 2048 * MIB)
    assert found(memory.snapshot(), tmp_path) == ["out_of_memory"]
    text = said(capsys, str(tmp_path / "f.pickle"))[1]
    assert f"{captured}.0 GiB lie free in private pools (CUDA graphs)" in text
    assert "capture the largest size first" in text and "expandable_segments" not in text


@pytest.mark.parametrize("number", [2**64 - 1, 2**63, -1, 1 << 90])
def test_one_impossible_number_is_unknown_and_the_rest_of_the_file_is_read(
    number: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    memory = checkerboard(1100 * MIB)
    memory.alloc(200 * MIB, FORWARD)
    whole = device(tmp_path, memory.snapshot())
    memory._event("snapshot", number, 0, [])
    memory.events[-1].update(stream=number, time_us=number)
    assert device(tmp_path, memory.snapshot()).peak == whole.peak
    memory.events[-2]["device_free"] = number
    (failure,) = device(tmp_path, memory.snapshot()).out_of_memory
    assert failure.device_free_bytes is None and failure.wanted_bytes == 200 * MIB
    memory._event("free_requested", 0, number, [])
    status, text = said(capsys, str(dumped(tmp_path / "s.pickle", memory.snapshot())))
    assert (
        status == 1
        and "1 impossible number in the file" in text
        and "an unknown amount free" in text
    )


def test_what_holds_more_at_each_step_is_named_and_what_only_the_first_step_makes_is_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    memory = Allocator()
    leak = frames(("/home/ml/train.py", "log", 77))
    for step in range(6):
        memory.step()
        if step == 0:
            memory.alloc(64 * MIB, OPTIMIZER)
        kept = memory.alloc(32 * MIB, FORWARD)
        memory.alloc(3 * MIB, leak)
        memory.free(kept)
    report = device(tmp_path, memory.snapshot())
    (grown,) = report.growth
    assert (grown.place, grown.bytes_a_step, grown.steps) == ("ml/train.py:77 log", 3.0 * MIB, 5)
    status, text = said(capsys, str(tmp_path / "s.pickle"))
    assert (
        status == 1 and "GROWS: 3 MiB more are held with each step" in text and ".detach()" in text
    )
    assert [row.place for row in report.survived] == ["ml/train.py:10 main", "ml/train.py:77 log"]


# --- forms ----------------------------------------------------------------------------------------------------------


def test_text_data_and_page_say_the_same_and_no_text_of_a_file_reaches_the_terminal_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    memory = Allocator()
    memory.alloc(5 * MIB, frames(("/home/ml/\x1b[31m<script>.py", "f\x07", 3)))
    path = str(dumped(tmp_path / "s.pickle", memory.snapshot()))
    status, text = said(capsys, path)
    assert status == 0 and "\x1b[31m" not in text and "\x07" not in text
    assert max(map(len, text.splitlines())) <= 120
    assert "5 MiB" in text
    data = json.loads(said(capsys, path, "--json")[1])
    assert (data["schema"], data["kind"], data["devices"][0]["peak"]["bytes"]) == (
        1,
        "memory_snapshot",
        5 * MIB,
    )
    page = said(capsys, path, "--html")[1]
    assert "5 MiB" in checked_page(page)
    target = tmp_path / "out.html"
    assert said(capsys, path, "-o", str(target))[0] == 0
    assert target.stat().st_mode & 0o777 == 0o600
    assert said(capsys, path, "--ascii")[1].isascii()
    assert "/home" not in said(capsys, path, "--redact", "--json")[1]


def test_a_snapshot_without_events_or_stacks_says_how_to_get_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    memory = Allocator()
    memory.alloc(5 * MIB, [])
    path = str(dumped(tmp_path / "s.pickle", memory.segments))
    status, text = said(capsys, path)
    assert status == 0 and "no events: record with" in text and "no stacks: record with" in text
    assert "By category, at the end" in text
    (report,) = analyse(read_snapshot(path)).devices
    assert report.peak is None and report.end.allocated_bytes == 5 * MIB


def test_a_file_with_more_in_use_than_was_reserved_is_said_to_contradict_itself(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for size, words in ((4096, False), (4097, True)):
        blocks = [{"size": size, "requested_size": size, "state": "active_allocated"}]
        path = dumped(
            tmp_path / f"{size}.pickle", [{"address": 4096, "total_size": 4096, "blocks": blocks}]
        )
        assert ("contradicts itself" in said(capsys, str(path))[1]) == words


def test_blocks_as_pytorch_2_0_wrote_them_are_read(tmp_path: Path) -> None:
    block = {
        "size": 1024,
        "state": "active_allocated",
        "history": [{"addr": 1, "real_size": 1000, "frames": FORWARD}],
    }
    segment = {
        "address": 4096,
        "total_size": 2048,
        "stream": 0,
        "blocks": [block, {"size": 1024, "state": "inactive"}],
    }
    report = device(tmp_path, [segment])
    assert (report.end.allocated_bytes, report.end.rounding_bytes, report.end.free.stuck_bytes) == (
        1000,
        24,
        1024,
    )
    assert report.alive[0].place == "ml/model.py:42 forward"


# --- files that are none --------------------------------------------------------------------------------------------


class _Runs:
    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (os.mkdir, (self.path,))


def sqlite_file(statement: str) -> bytes:
    database = sqlite3.connect(":memory:")
    database.execute(statement)
    return (
        database.serialize()
        if hasattr(database, "serialize")
        else b"SQLite format 3\x00" + statement.encode()
    )


def memo_bomb() -> bytes:
    """Asks the reader for a table of two thousand million entries, in eight bytes."""
    return b"\x80\x04]r" + struct.pack("<I", 0x7FFFFFFF) + b"."


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "no pickle"), (b'{"traceEvents": []}', "no pickle"),
        (pickle.dumps(_Runs("ran")), "a pickle can run code"),
        (b"\x80\x04cos\nsystem\n(S'touch ran'\ntR.", "a pickle can run code"),
        (b"\x80\x04\x95\x00\x00\x00\x00\x00\x00\x00\x00\x82\x01.", "damaged"),
        (b"\x80\x04Pid\n.", "refers to objects outside"), (b"\x80\x04X\xff\xff\xff\x7fab.", "damaged|more memory"),
        (memo_bomb(), "more memory|damaged"),
        (b"\x80\x04" + b"(" * 300_000 + b"l" * 300_000 + b".", "no segments|damaged|not a memory snapshot"),
        (pickle.dumps({"segments": []})[:-3], "damaged pickle, or cut off"),
        (pickle.dumps([1, 2]), "not a memory snapshot"), (pickle.dumps("text"), "no segments"),
        (pickle.dumps([]), "neither segments nor events"),
        (pickle.dumps({"segments": [{"blocks": 3}]}), "not a memory snapshot"),
        (pickle.dumps({"segments": [], "device_traces": 7}), "not a memory snapshot"),
        (pickle.dumps({"segments": [], "device_traces": [[{"action": [], "size": 1}]]}), "not a memory snapshot"),
        (pickle.dumps({"segments": [], "device_traces": [[{"action": "alloc", "size": 1 << 90}]]}), "neither segments"),
        (sqlite_file("create table device_traces(id int)"), "memory snapshot as SQLite: .*_dump_snapsh"),
        (sqlite_file("create table device_traces(id int)")[:5000], "memory snapshot as SQLite"),
        (sqlite_file("create table CUPTI_ACTIVITY_KIND_KERNEL(a int)"), "Nsight Systems, which `gputop trace` reads"),
        (sqlite_file("create table other(x int)")[:100], "is an SQLite database: write the pickle"),
        (pickle.dumps({"segments": [], "device_traces": [[{"action": "alloc", "frames": {1: 2}}]]}), "not a memory"),
    ],
    ids=range(22),
)  # fmt: skip
def test_what_is_no_snapshot_is_one_line_and_nothing_in_it_is_run(
    content: bytes,
    words: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:

    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.pickle").write_bytes(content)
    status, text = said(capsys, str(tmp_path / "s.pickle"))
    assert status == 2 and text.count("\n") == 1 and re.search(words, text), text
    assert not (tmp_path / "ran").exists()


WRONG = (
    None,
    -1,
    1 << 70,
    3.5,
    "x" * 5000,
    [],
    {},
    [1],
    b"b",
    ("a",),
    {1},
    1 << 62,
    "active",
    "\x1b[31m",
)


def test_values_of_every_wrong_kind_end_in_a_report_or_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    draw = random.Random(7)
    memory = random_run(1)
    memory.step()
    memory.step()
    whole = pickle.dumps(memory.snapshot())
    for _ in range(60):
        snapshot = pickle.loads(whole)
        for _ in range(draw.randrange(1, 4)):
            spoil(snapshot, draw, WRONG)
        status, text = said(capsys, str(dumped(tmp_path / "s.pickle", snapshot)))
        assert status in (0, 1) or (status == 2 and text.count("\n") == 1), text
        assert "internal error" not in text and "\x1b" not in text


# --- files made to exhaust their reader -----------------------------------------------------------------------------


def holding_itself() -> list[Any]:
    loop: list[Any] = []
    loop += [loop] * 4
    return loop


def laughing() -> list[Any]:
    laughs: list[Any] = ["ha"]
    for _ in range(60):
        laughs = [laughs] * 10
    return laughs


def nested(opening: bytes, closing: bytes, depth: int = 200_000) -> bytes:
    """A value within a value within a value, as a pickle's text without its begin and end."""
    return opening * depth + closing * depth


def snapshot_text(segment: bytes) -> bytes:
    """A pickle of one segment, given as the pickled text of what fills its dictionary."""
    return b"\x80\x04}(X\x08\x00\x00\x00segments](}(" + segment + b"ueu."


def entry(**changes: Any) -> dict[str, Any]:
    block = {"size": 512, "requested_size": 512, "state": "active_allocated", "frames": []}
    segment = {"address": 4096, "total_size": 4096, "blocks": [block]}
    event = {"action": "alloc", "addr": 4096, "size": 512, "time_us": 1, "frames": []}
    mark = {"name": "ProfilerStep#1", "stage": "START", "device": 0, "time_us": 1}
    snapshot = {
        "segments": [segment], "device_traces": [[event]], "external_annotations": [mark],
        "allocator_settings": {},
    }  # fmt: skip
    for kind, values in changes.items():
        {"block": block, "segment": segment, "event": event, "mark": mark, "all": snapshot}[
            kind
        ].update(values)
    return snapshot


FIELDS = [
    *(("block", key) for key in ("address", "size", "requested_size", "state", "frames", "category", "history")),
    *(("segment", key) for key in (
        "address", "total_size", "blocks", "stream", "device", "segment_pool_id", "is_expandable")),
    *(("event", key) for key in (
        "action", "addr", "size", "time_us", "stream", "frames", "device_free", "category")),
    *(("mark", key) for key in ("name", "stage", "device", "time_us")),
    *(("all", key) for key in ("segments", "device_traces", "external_annotations", "allocator_settings")),
]  # fmt: skip


def told_within_limits(status: int, text: str) -> bool:
    """Whether a report or one line came, and not because the reader's limits were reached."""
    is_told = status in (0, 1) or (status == 2 and text.count("\n") == 1)
    return is_told and "size explains" not in text and "internal error" not in text


@pytest.mark.parametrize(("kind", "key"), FIELDS, ids=lambda value: str(value))
def test_a_text_without_an_end_is_never_made_of_any_field(
    kind: str, key: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = dumped(tmp_path / "s.pickle", entry(**{kind: {key: laughing()}}))
    status, text = said(capsys, str(path))
    assert told_within_limits(status, text), text
    assert max(map(len, text.splitlines())) < 400


@pytest.mark.parametrize(
    "value", [holding_itself(), {1: holding_itself()}, "9" * 5000, 10**5000], ids=range(4)
)
def test_no_kind_of_value_is_an_internal_error(
    value: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for kind, key in (("block", "state"), ("segment", "address"), ("event", "time_us")):
        path = dumped(tmp_path / "s.pickle", entry(**{kind: {key: value}}))
        assert told_within_limits(*said(capsys, str(path)))


def test_frames_that_hold_themselves_are_named_by_their_types(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = {"filename": laughing(), "name": holding_itself(), "line": 10**5000}
    own = {"filename": "/home/ml/train.py", "name": laughing(), "line": "9" * 5000}
    path = dumped(tmp_path / "s.pickle", entry(block={"frames": [frame, own]}))
    status, text = said(capsys, str(path))
    assert status == 0 and "ml/train.py list" in text


BOMBS = {
    # A tuple of two of the tuple before, sixty times, as a key: its hash takes 2^60 additions.
    "key": b"\x80\x04}(X\x08\x00\x00\x00segments](}(" + b")" + b"2\x86" * 60 + b"K\x01ueu.",
    "deep key": snapshot_text(nested(b"", b"") + b")" + b"\x85" * 400_000 + b"K\x01"),
    "deep value": snapshot_text(b"X\x07\x00\x00\x00address" + b"]" + b"\x85" * 400_000),
    "deep action": b"\x80\x04}(X\x08\x00\x00\x00segments]X\x0d\x00\x00\x00device_traces]]}"
    b"(X\x06\x00\x00\x00action)" + b"2\x86" * 60 + b"uaau.",
    "one entry many times": b"\x80\x04}(X\x08\x00\x00\x00segments]X\x0d\x00\x00\x00device_traces](](}"
    b"q\x01(X\x06\x00\x00\x00actionX\x05\x00\x00\x00allocu" + b"h\x01" * 200_000 + b"eeu.",
    "one list many times": b"\x80\x04}(X\x08\x00\x00\x00segments]X\x0d\x00\x00\x00device_traces](]q\x02(}"
    b"q\x01(X\x06\x00\x00\x00actionX\x05\x00\x00\x00allocu" + b"h\x01" * 2_000 + b"e"
    + b"h\x02" * 900 + b"eu.",
}  # fmt: skip


@pytest.mark.parametrize("name", BOMBS)
def test_a_small_file_takes_little_time_and_memory(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gputop.features.memory_snapshot.memory_command.READING_S", 0.3)
    (tmp_path / "s.pickle").write_bytes(BOMBS[name])
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    status, text = said(capsys, str(tmp_path / "s.pickle"))
    taken = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert status == 2 and text.count("\n") == 1, text
    assert "damaged" in text or "size explains" in text or "not a memory snapshot" in text
    assert taken.ru_utime - before.ru_utime < 3.0


def test_blocks_that_share_nothing_are_all_read(tmp_path: Path) -> None:
    """The smallest entries that PyTorch writes are above the bound on a file's entries."""
    blocks = [{"size": 512, "state": "inactive"} for _ in range(5000)]
    segment = {"address": 4096, "total_size": 512 * 5000, "blocks": blocks}
    (read,) = read_snapshot(str(dumped(tmp_path / "s.pickle", [segment]))).devices[0].segments
    assert len(read.blocks) == 5000


# --- Windows --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("windows", "linux"),
    [
        (r"C:\Users\ml\venv\Lib\site-packages\torch", "/home/ml/venv/lib/python3.12/site-packages/torch"),
        (r"D:\miniconda3\envs\train\lib\site-packages\torch", "/opt/conda/lib/python3.12/site-packages/torch"),
        (r"\\server\share\venv\Lib\site-packages\torch", "/mnt/venv/lib/python3.12/site-packages/torch"),
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "standard",
    [
        r"C:\Users\ml\AppData\Local\Programs\Python\Python312\Lib\contextlib.py",
        r"D:\miniconda3\envs\train\lib\contextlib.py",
        r"C:\Users\ml\.pyenv\pyenv-win\versions\3.12.1\Lib\contextlib.py",
    ],
)
def test_paths_of_windows_give_the_same_places_and_categories(
    windows: str, linux: str, standard: str, tmp_path: Path
) -> None:
    def rows(torch: str, own: str, contextlib: str, join: str) -> list[tuple[str, str, Any]]:
        memory = Allocator()
        for parts in (
            ("nn/functional.py", "linear"), ("optim/adamw.py", "step"), ("autograd/__init__.py", "backward"),
            ("utils/data/_utils/pin_memory.py", "pin"), ("nn/init.py", "normal_"),
        ):  # fmt: skip
            library = join.join((torch, *parts[0].split("/")))
            memory.alloc(
                MIB,
                frames((library, parts[1], 7), (contextlib, "inner", 81), (own, "step", 44)),
            )
        return [
            (row.place, row.category, row.frames)
            for row in device(tmp_path, memory.snapshot()).alive
        ]

    on_windows = rows(windows, r"C:\Users\ml\proj\train.py", standard, "\\")
    on_linux = rows(linux, "/home/ml/proj/train.py", "/usr/lib/python3.12/contextlib.py", "/")
    assert {place for place, _, _ in on_windows} == {"proj/train.py:44 step"}
    assert [row[:2] for row in on_windows] == [row[:2] for row in on_linux]
    assert len({category for _, category, _ in on_windows}) == 5
