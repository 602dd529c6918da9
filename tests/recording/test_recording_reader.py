"""Recordings that were torn, flipped, forged or made by another hand: read as far as they are true, never further."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from gputop.recording.format import RecordingError
from gputop.recording.moments import moment
from gputop.recording.reader import read_snapshots
from gputop.recording.writer import RecordingWriter
from tests.support.recording_frames import T0, frame, frames, rounded, times, written

GOLDEN = Path(__file__).parents[1] / "golden"


@pytest.mark.parametrize("name", ["r.gputop.jsonl.gz", "r.jsonl"])
def test_what_was_written_is_read_whatever_the_file_is_called(tmp_path: Path, name: str) -> None:
    path = written(tmp_path / name, 130).rename(tmp_path / "renamed")
    back = list(read_snapshots(str(path)))
    assert [replace(s, machine=frame(0).machine) for s in back] == [rounded(s) for s in frames(130)]


def test_a_directory_is_read_in_the_order_of_time(tmp_path: Path) -> None:
    for name, begin in (("node-17-20261120T081500Z-9", 4000), ("node-17-20261120T071500Z-10", 0)):
        writer = RecordingWriter(str(tmp_path / f"{name}.gputop.jsonl.gz"))
        for k in range(3):
            writer.write(frame(begin + k))
        writer.close()
    assert times(tmp_path) == [0, 1, 2, 4000, 4001, 4002]


def test_a_directory_of_two_machines_is_refused(tmp_path: Path) -> None:
    for host in ("node-17", "node-18"):
        written(tmp_path / f"{host}-20261120T081500Z-9.gputop.jsonl.gz", 1)
    with pytest.raises(RecordingError, match=r"several machines.*name one file"):
        list(read_snapshots(str(tmp_path)))


def test_what_is_not_a_regular_file_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(RecordingError, match="not a regular file"):
            list(read_snapshots(str(path)))
    with pytest.raises(RecordingError, match="No such file"):
        list(read_snapshots(str(tmp_path / "none")))
    with pytest.raises(RecordingError, match="no recording in this directory"):
        list(read_snapshots(str(tmp_path)))


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("v2*.jsonl*")), ids=lambda path: path.name)
def test_the_golden_recordings_are_read(path: Path) -> None:
    expected = json.loads((GOLDEN / "v2.expected.json").read_text())[path.name]
    found = list(read_snapshots(str(path)))
    assert len(found) == expected["frames"]
    last = found[-1]
    assert [last.t, last.interval_s, last.machine.hostname] == expected["last"]
    assert [
        [g.static.uuid, g.util_pct, g.sm_active_pct, g.sm_source, g.mem_used_bytes]
        for g in last.gpus
    ] == expected["gpus"]
    assert [[p.pid, p.role, p.static.command, p.run_pct] for p in last.processes] == expected[
        "processes"
    ]
    assert [[e.kind, e.text] for s in found for e in s.events] == expected["events"]
    assert dict(last.gpus[0].unavailable) == expected["unavailable"]


def test_times_as_people_write_them_count_from_either_end_and_stay_within() -> None:
    begin, end = T0, T0 + 7200.0
    times_of = {
        "-10": 7190.0, "-10m": 6600.0, "-1h": 3600.0, "-2d": 0.0, "+10": 10.0, "+1.5min": 90.0, "+3h": 7200.0,
        str(T0 + 70): 70.0, "2026-05-28T20:36:40Z": 600.0, "2026-05-28T22:36:40+02:00": 600.0,
    }  # fmt: skip
    assert {text: moment(text, begin, end) - T0 for text in times_of} == times_of
    assert moment("-10m", begin, end, T0 + 3600.0) == T0 + 3000.0
    with pytest.raises(ValueError, match="not a time"):
        moment("soon", begin, end)
