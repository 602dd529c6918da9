"""A recording as data."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from gputop.cli import main
from gputop.command_line.shared_options import OnlyGpus
from gputop.model.metrics import GPU_METRICS
from gputop.model.source import UsageError
from gputop.output.recording_dump import dump
from gputop.output.snapshot_data import gpu_csv, snapshot_data
from gputop.recording.format import RecordingError
from gputop.recording.reader import read_snapshots
from tests.support.recording_frames import T0, recorded, written
from tests.support.scenes import gpu, snap


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(written(tmp_path_factory.mktemp("recording") / "r.jsonl.gz", 70))


def dumped(path: str, form: Any, **given: Any) -> str:
    out = io.StringIO()
    dump(path, out, form, **given)
    return out.getvalue()


def test_csv_has_a_header_of_catalogue_keys_and_a_row_a_gpu_and_frame(path: str) -> None:
    rows = list(csv.DictReader(io.StringIO(dumped(path, "csv"))))
    assert len(rows) == 140
    assert set(GPU_METRICS) < set(rows[0])
    assert [float(row["t"]) for row in rows[:4]] == [T0, T0, T0 + 1, T0 + 1]
    first = next(read_snapshots(path)).gpus[0]
    assert float(rows[0]["util_pct"]) == first.util_pct
    assert rows[0]["fan_pct"] == ""


def test_json_gives_each_frame_as_once_would_with_its_events(path: str) -> None:
    lines = dumped(path, "json").splitlines()
    assert len(lines) == 70
    given = json.loads(lines[0])
    assert given.pop("events") == []
    assert given == json.loads(json.dumps(snapshot_data(next(read_snapshots(path)))))


def test_time_and_gpus_cut_it_down(path: str) -> None:
    text = dumped(path, "csv", begin=T0 + 10, end=T0 + 12, recording_filter=OnlyGpus("1"))
    rows = csv.DictReader(io.StringIO(text))
    assert [(float(row["t"]), row["index"]) for row in rows] == [
        (T0 + k, "1") for k in (10, 11, 12)
    ]
    (whole,) = dumped(
        path, "json", begin=T0 + 10, end=T0 + 10, recording_filter=OnlyGpus("1")
    ).splitlines()
    assert [gpu["index"] for gpu in json.loads(whole)["gpus"]] == [1]
    assert json.loads(whole)["processes"] == []


def test_what_does_not_exist_is_refused_with_what_does(path: str) -> None:
    with pytest.raises(UsageError, match="this recording has GPUs 0, 1"):
        dumped(path, "csv", recording_filter=OnlyGpus("7"))
    with pytest.raises(RecordingError):
        dumped(path + "x", "csv")


def test_what_the_data_cannot_show_is_said_beside_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(written(tmp_path / "r.jsonl.gz", 70))
    assert main(["dump", path]) == 0
    assert capsys.readouterr().err == ""
    assert main(["dump", path, "--begin", str(T0 + 50), "--end", str(T0 + 10)]) == 0
    assert "no frame of the recording is in this time" in capsys.readouterr().err
    assert main(["dump", path, "--begin", str(T0 + 500)]) == 0
    told = capsys.readouterr()
    assert (
        "no frame of the recording is in this time" in told.err and len(told.out.splitlines()) == 1
    )
    whole = Path(path).read_bytes()
    # A hundred bytes behind what is flushed after a frame: within the next one.
    Path(path).write_bytes(whole[: whole.index(b"\0\0\xff\xff", len(whole) // 2) + 100])
    assert main(["dump", path]) == 0
    assert (
        "1 gap in the recording, the last: the recording is damaged after this: "
        in capsys.readouterr().err
    )


def test_a_name_cannot_become_a_formula_in_a_spreadsheet(tmp_path: Path) -> None:
    hostile = gpu(
        static=replace(gpu().static, name='=HYPERLINK("http://evil.example")', uuid="@uuid")
    )
    frames = [snap(tick, hostile) for tick in range(3)]
    for text in (dumped(str(recorded(tmp_path / "r.jsonl", frames)), "csv"), gpu_csv(frames[0])):
        row = next(csv.DictReader(io.StringIO(text)))
        assert (row["name"], row["uuid"]) == ('\'=HYPERLINK("http://evil.example")', "'@uuid")
        assert float(row["util_pct"]) > 0.0, "a number stays one"
