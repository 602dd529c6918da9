"""Traces that cannot be: each ends soon, with a report that leaves out what is false, or with one line."""

from __future__ import annotations

import gzip
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from gputop.features.traces import nsys
from gputop.features.traces.columns import NumberedTexts
from gputop.output.document import Bar, Document, Table
from gputop.output.html import stacked_bar
from gputop.output.plain_document import plain
from tests.features.traces.test_trace_nsys import METRICS, NEW, export, job
from tests.support.command import trace_said
from tests.support.synthetic_trace import planted, written

SM = "sm__cycles_active.avg.pct_of_peak_sustained_elapsed"
YEAR_US = 365 * 86_400 * 10**6


def kernel(begin: float, us: float = 400, **args: Any) -> dict[str, Any]:
    """A kernel without a launch, as a profile of the GPU alone holds it."""
    place = {"device": 0, "stream": 7, **args}
    return {"ph": "X", "cat": "kernel", "name": "add", "ts": begin, "dur": us, "args": place}


def sequence(many: int = 40, **args: Any) -> list[dict[str, Any]]:
    return [kernel(1000 + 500 * number, **args) for number in range(many)]


def told(
    events: list[dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str], **beside: Any
) -> tuple[int, dict[str, Any]]:
    """The exit status and the JSON object of a trace of these events; empty for an error's line."""
    path = written(tmp_path / "t.json", {**beside, "traceEvents": events})
    status, text = trace_said(capsys, str(path), "--json")
    if status == 2:
        assert text.count("\n") == 1, text
        return status, {"error": text}
    return status, json.loads(text)["ranks"][0]


@pytest.mark.parametrize("false", [-500, -0.01, 100.5, 1e308, "-7"])
def test_sm_activity_outside_of_its_scale_is_left_out_and_counted(
    false: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    samples = [
        {"ph": "C", "cat": "hardware_counters", "pid": "GPU 0", "ts": t, "args": {SM: value}}
        for t, value in ((2000, 60), (3000, false), (4000, 100), (5000, false))
    ]
    _, rank = told(sequence() + samples, tmp_path, capsys)
    (gpu,) = rank["gpus"]
    assert gpu["sm_active_pct"] == 80.0 and rank["dropped_events"] == 2
    assert rank["notes"] == ["2 samples of SM activity outside of 0 to 100 % left out"]


def test_sm_activity_outside_of_its_scale_in_an_export_is_left_out_and_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = job(METRICS)
    false = [(t * 1000, 256 << 8, 12, value) for t, value in ((5, -500), (6, 101), (7, 10**15))]
    rows["GPU_METRICS"] = [*rows["GPU_METRICS"], *false]
    path = export(tmp_path / "x.sqlite", METRICS, rows)
    _, text = trace_said(capsys, str(path), "--json")
    (rank,) = json.loads(text)["ranks"]
    assert rank["gpus"][0]["sm_active_pct"] == 20.0
    assert rank["notes"] == ["3 samples of SM activity outside of 0 to 100 % left out"]


def test_events_of_more_than_a_day_are_damage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ages = [{**event, "dur": 146 * YEAR_US} for event in sequence()]
    status, said = told(ages, tmp_path, capsys)
    assert status == 2 and "a day and more between them" in said["error"]
    status, rank = told(sequence() + ages[:3], tmp_path, capsys)
    assert status == 0 and rank["notes"] == ["3 damaged events were left out"]
    assert rank["gpus"][0]["window_ms"] == pytest.approx(19.9)


@pytest.mark.parametrize("where", [3_000_000_000_000_000, -3_000_000_000_000_000, 90_000_000_000])
@pytest.mark.parametrize("first", [True, False])
def test_what_lies_a_day_from_the_other_events_is_left_out_and_told(
    where: int, first: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    step = {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#0", "dur": 10, "ts": where}
    far = [kernel(where, 50), step]
    events = far + sequence() if first else sequence() + far
    _, rank = told(events, tmp_path, capsys)
    (gpu,) = rank["gpus"]
    assert gpu["window_ms"] == pytest.approx(19.9, abs=0.01)
    assert "2 events a day and more from the others: left out" in gpu["notes"]


def test_an_export_s_times_are_checked_likewise(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = job(NEW)
    kernels = list(rows["CUPTI_ACTIVITY_KIND_KERNEL"])
    long = [(begin, begin + 10**18, *rest) for begin, _, *rest in kernels[:2]]
    far = [(begin + 10**18, end + 10**18, *rest) for begin, end, *rest in kernels[:3]]
    rows["CUPTI_ACTIVITY_KIND_KERNEL"] = [*kernels, *long, *far]
    path = export(tmp_path / "x.sqlite", NEW, rows)
    _, text = trace_said(capsys, str(path), "--json")
    (rank,) = json.loads(text)["ranks"]
    assert rank["notes"] == ["2 damaged events were left out"]
    (gpu,) = rank["gpus"]
    assert gpu["window_ms"] < 11.0
    assert "3 events a day and more from the others: left out" in gpu["notes"]


@pytest.mark.parametrize("own_correlations", [False, True])
def test_events_that_the_file_repeats_count_once(
    own_correlations: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = planted("busy")
    _, once = told(document["traceEvents"], tmp_path, capsys)
    repeated = []
    for copy in range(5):
        for event in json.loads(json.dumps(document["traceEvents"])):
            if own_correlations and "correlation" in event.get("args", {}):
                event["args"]["correlation"] += 10**7 * copy
            repeated.append(event)
    _, rank = told(repeated, tmp_path, capsys)
    (was,), (now,) = once["gpus"], rank["gpus"]
    assert now["kernels"] == was["kernels"] and now["categories"] == was["categories"]
    assert any("in the file more than once: counted once" in note for note in now["notes"])


def test_kernels_that_overlap_on_one_stream_are_told_and_fill_no_more_than_the_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shifted = [
        {**event, "ts": event["ts"] + copy / 1000} for event in sequence() for copy in range(30)
    ]
    tangled = [kernel(1000 + number * 20, 30_000) for number in range(40)]
    for events in (shifted, tangled):
        _, rank = told(events, tmp_path, capsys)
        (gpu,) = rank["gpus"]
        assert gpu["kernels"][0]["share_pct"] <= 100.0
        assert gpu["categories"][0]["share_pct"] <= 100.0
        assert any("events of 1 stream overlap" in note for note in gpu["notes"])
    assert gpu["kernels"][0]["mean_us"] == pytest.approx(30_000)


def test_a_bar_ends_at_100_percent() -> None:
    rows = tuple(
        (name, Bar((("compute", name, share),))) for name, share in (("a", 100), ("b", 4e6))
    )
    text = plain(Document("t", (Table(("", ""), rows, "<="),)), 80)
    full, over = text.splitlines()[-2:]
    assert full.count("█") == over.count("█") > 20
    assert "width:100.000%" in str(stacked_bar([("compute", "words", 4e6)]))


@pytest.mark.parametrize("digits", [20, 400, 5000])
def test_numbers_of_thousands_of_digits_cost_their_value_and_no_more(
    digits: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = [
        {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{'9' * digits}", "ts": 1000,
         "dur": 10_000, "tid": 1},
    ]  # fmt: skip
    counter = {"ph": "C", "cat": "hardware_counters", "pid": "GPU 0", "args": {SM: 50}}
    document = {
        "baseTimeNanoseconds": "HUGE",
        "distributedInfo": {"rank": "HUGE", "world_size": "HUGE"},
        "deviceProperties": [{"id": "HUGE", "numSms": "HUGE"}, {"id": 0, "numSms": "HUGE"}],
        "traceEvents": [*sequence(), *steps, {**counter, "ts": "HUGE"}, kernel(5000, stream="HUGE")],
    }  # fmt: skip
    for value in ("9" * digits, "1e999", "-1e999"):
        path = tmp_path / "t.json"
        path.write_text(json.dumps(document).replace('"HUGE"', value))
        for words in ((), ("--json",), ("--steps", "0-1")):
            status, text = trace_said(capsys, str(path), *words)
            assert status in (0, 1) or (status == 2 and text.count("\n") == 1), text
            assert "internal error" not in text


def test_more_gpus_than_a_machine_has_are_left_out_and_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, rank = told(
        sequence() + [kernel(1000, device=number) for number in range(256, 5000)], tmp_path, capsys
    )
    assert [gpu["index"] for gpu in rank["gpus"]] == [0]
    assert rank["notes"] == ["4744 events of GPUs beyond number 255 left out"]
    assert rank["dropped_events"] == 4744
    rows = job(NEW)
    kernels = list(rows["CUPTI_ACTIVITY_KIND_KERNEL"])
    others = [(*row[:2], 256 + place, *row[3:]) for place, row in enumerate(kernels)]
    rows["CUPTI_ACTIVITY_KIND_KERNEL"] = kernels + others
    path = export(tmp_path / "x.sqlite", NEW, rows)
    _, text = trace_said(capsys, str(path), "--json")
    (rank,) = json.loads(text)["ranks"]
    assert len(rank["gpus"]) == 1
    assert rank["notes"] == ["10 events of GPUs beyond number 255 left out"]


def test_a_pattern_is_tried_on_each_name_once_however_many_gpus_ask() -> None:
    names = NumberedTexts()
    asked: list[str] = []

    def matches(text: str) -> bool:
        asked.append(text)
        return text == "b"

    for text in "abc":
        _ = names[text]
    assert names.matching(matches) == names.matching(matches) == {1}
    _ = names["d"]
    assert names.matching(matches) == {1}
    assert asked == ["a", "b", "c", "d"]


def test_a_packed_file_of_nothing_is_refused_in_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "t.json.gz"
    path.write_bytes(gzip.compress(b'{"traceEvents":[' + b"{}," * 2_000_000 + b"{}]}"))
    status, text = trace_said(capsys, str(path))
    assert status == 2 and "unpacks to more than 100 times its size" in text


def test_events_that_hold_nothing_are_refused_before_they_fill_the_memory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(b'{"traceEvents":[' + b'{"x":1},' * 200_000 + b"{}]}")
    status, text = trace_said(capsys, str(path))
    assert status == 2 and "holds empty events by the million" in text


def logged(path: Path) -> Path:
    """An export whose second half is still in the log beside it, as a program that was killed leaves it."""
    rows = job(NEW)
    kernels = list(rows["CUPTI_ACTIVITY_KIND_KERNEL"])
    rows["CUPTI_ACTIVITY_KIND_KERNEL"] = kernels[:5]
    living = export(path.with_suffix(".living"), NEW, rows)
    database = sqlite3.connect(living)
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("PRAGMA wal_autocheckpoint=0")
    places = ",".join("?" * len(kernels[0]))
    database.executemany(f"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ({places})", kernels[5:])
    database.commit()
    path.write_bytes(living.read_bytes())
    Path(f"{path}-wal").write_bytes(Path(f"{living}-wal").read_bytes())
    database.close()
    return path


def test_what_is_still_in_the_log_beside_an_export_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "made").mkdir()
    path = logged(tmp_path / "made" / "x.sqlite")
    folder = tmp_path / "alone"
    folder.mkdir()
    for name in ("x.sqlite", "x.sqlite-wal"):
        (folder / name).write_bytes((path.parent / name).read_bytes())
    _, text = trace_said(capsys, str(folder / "x.sqlite"), "--json")
    (rank,) = json.loads(text)["ranks"]
    assert rank["gpus"][0]["kernels"][0]["calls"] == 10 and rank["notes"] == []
    assert sorted(file.name for file in folder.iterdir()) == ["x.sqlite", "x.sqlite-wal"]


def test_a_log_that_is_not_read_is_told_with_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nsys, "_MOST_COPIED", 1000)
    path = logged(tmp_path / "x.sqlite")
    _, text = trace_said(capsys, str(path), "--json")
    (rank,) = json.loads(text)["ranks"]
    assert rank["gpus"][0]["kernels"][0]["calls"] == 5
    (note,) = rank["notes"]
    assert "x.sqlite-wal is not read" in note and "PRAGMA wal_checkpoint(TRUNCATE)" in note


def test_json_holds_names_escaped_and_with_the_same_values(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "train\x9b2J\u202egnp.\u2066\x85é"
    events = [{**event, "name": name} for event in sequence()]
    path = str(written(tmp_path / "t.json", {"traceEvents": events}))
    for words in ((path,), ("--compare", path, path)):
        _, text = trace_said(capsys, *words, "--json")
        assert "\x9b" not in text and "\u202e" not in text and "\u2066" not in text
    assert json.loads(text)["before"]["kernels"][0]["name"] == name
