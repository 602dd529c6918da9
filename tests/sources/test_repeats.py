"""What a source repeats for want of anything newer is marked, and is no sample: live, recorded and played."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from gputop.diagnosis.engine import Diagnoser
from gputop.model.snapshot import Event, Snapshot
from gputop.monitor import Monitor
from gputop.output.recording_dump import dump
from gputop.output.snapshot_data import snapshot_data
from gputop.recording.encode import Encoder
from gputop.recording.reader import read_snapshots
from gputop.recording.writer import RecordingWriter
from gputop.report.job_report import ReportBuilder, report_recording
from tests.nvml.stand_in import Scenario
from tests.recording.test_recording_verdicts import assert_replay_shows_what_live_showed
from tests.session.test_report import moment
from tests.support.local_run import Run
from tests.support.recording_frames import T0, frame, rounded

BAD = {"util": 95.0, "sm": 5.0}


def stream(seconds: int, reading_every: int, **given: float) -> Iterator[Snapshot]:
    """A frame a second; only each so many seconds the GPUs were really read, in between they are repeated."""
    last = moment(0, **given)
    for k in range(seconds):
        if k % reading_every == 0:
            last = moment(k, **given)
            yield last
        else:
            yield replace(last, t=T0 + k, repeats=("nvml",), stale={"nvml": float(k % reading_every)})


def test_repeats_are_no_samples_of_a_verdict() -> None:
    slow, plain = Diagnoser(), Diagnoser()
    for snapshot in stream(60, 8, **BAD):
        (judged,) = slow.observe(snapshot)
    assert (judged.n, judged.verdict) == (4, "collecting")
    for k in range(60):
        (of_all,) = plain.observe(moment(k, **BAD))
    assert (of_all.n, of_all.busy_not_working) == (30, "A")


def test_repeats_between_readings_change_nothing() -> None:
    """Twice as many frames, half of them repeats: verdict, evidence and seconds are those of the readings alone."""
    mixed, alone = Monitor(charts=False), Monitor(charts=False)
    for k in range(90):
        reading = moment(k, 95.0 if k > 40 else 60.0, 5.0)
        mixed.feed(reading)
        expected = alone.feed(reading)
        got = mixed.feed(replace(reading, t=T0 + k + 0.5, repeats=("nvml",)))
        assert (got.diagnoses, got.findings, got.waste) == (expected.diagnoses, expected.findings, expected.waste)
    uuid = reading.gpus[0].static.uuid
    assert got.history.recent(uuid, "util_pct", 100) == expected.history.recent(uuid, "util_pct", 100.5)


def test_what_is_seen_for_the_first_time_is_a_reading() -> None:
    """A replay may begin among repeats: what they repeat was measured, once."""
    diagnoser = Diagnoser()
    for k in range(20):
        (judged,) = diagnoser.observe(replace(moment(k), repeats=("nvml",)))
    assert judged.n == 1


def test_a_repeat_of_other_gpus_is_not_believed() -> None:
    diagnoser = Diagnoser()
    diagnoser.observe(moment(0))
    other = replace(frame(1, gpus=3), repeats=("nvml",))
    assert len(diagnoser.observe(other)) == 3


def test_a_repeated_host_is_no_sample_of_what_it_does() -> None:
    busy, slow = Diagnoser(), Diagnoser()
    process = replace(moment(0).processes[0], main_run_pct=100.0)
    for k in range(40):
        reading = replace(moment(k, 20.0, 15.0), processes=(process,))
        (judged,) = busy.observe(reading)
        (unjudged,) = slow.observe(reading if k % 8 == 0 else replace(reading, repeats=("proc",)))
    assert judged.verdict == "main_process"
    assert (unjudged.n, unjudged.verdict) == (30, "starved_unattributed")


def test_marks_among_repeats_are_kept() -> None:
    monitor, builder = Monitor(), ReportBuilder()
    mark = Event(T0 + 1, "mark", "epoch 1")
    builder.add(monitor.feed(moment(0)))
    shown = monitor.feed(replace(moment(1), repeats=("nvml",), events=(mark,)))
    builder.add(shown)
    assert [text for _, _, text in shown.history.marks] == ["epoch 1"]
    assert builder.report().marks == (mark,)


def test_a_report_weighs_readings_and_not_their_repeats(tmp_path: Path) -> None:
    path = str(tmp_path / "r.jsonl")
    writer = RecordingWriter(path)
    # 90 % is read once and shown for 9 s more, then 10 % is read each second.
    for k in range(10):
        writer.write(replace(moment(k, 90.0), repeats=("nvml",) if k else ()))
    for k in range(10, 21):
        writer.write(moment(k, 10.0))
    writer.close()
    report = report_recording(path)
    (gpu,) = report.gpus
    assert (report.frames, gpu.util_pct, gpu.measured_s) == (21, 10.0, 11.0)


def test_a_recording_says_what_it_repeats_under_a_key_that_other_readers_skip(tmp_path: Path) -> None:
    repeated = replace(frame(1), repeats=("nvml", "proc"))
    encoder = Encoder()
    encoder.key_lines(frame(0))
    first, second = (json.loads(encoder.frame_lines(s)[-1]) for s in (frame(1), repeated))
    assert second.pop("repeats") == ["nvml", "proc"]
    assert first == second
    assert rounded(repeated).repeats == ("nvml", "proc")
    path = tmp_path / "r.jsonl"
    writer = RecordingWriter(str(path))
    writer.write(frame(0))
    writer.write(repeated)
    writer.close()
    for given in (b'["nvml","more"]', b'"nvml proc"', b'{"nvml":1}', b"[[],1]", b"7", b"null", b'["\\u001b[2J"]'):
        hostile = path.read_bytes().replace(b'["nvml","proc"]', given)
        (tmp_path / "h.jsonl").write_bytes(hostile)
        for snapshot in read_snapshots(str(tmp_path / "h.jsonl")):
            assert set(snapshot.repeats) <= {"nvml", "proc"}


def test_played_repeats_are_judged_as_live_ones(tmp_path: Path) -> None:
    assert_replay_shows_what_live_showed(stream(90, 3, **BAD), tmp_path / "r.jsonl.gz")


def test_data_marks_a_repeat_and_columns_leave_it_empty(tmp_path: Path) -> None:
    path = str(tmp_path / "r.jsonl.gz")
    writer = RecordingWriter(path)
    writer.write(frame(0))
    writer.write(replace(frame(1), repeats=("nvml",)))
    writer.write(replace(frame(2), repeats=("proc",)))
    writer.close()
    assert [snapshot_data(s)["repeats"] for s in read_snapshots(path)] == [[], ["nvml"], ["proc"]]
    out = io.StringIO()
    dump(path, out, "csv", columns=["name", "util_pct", "host.cpu_pct"])
    rows = [row for row in csv.DictReader(io.StringIO(out.getvalue())) if row["index"] == "0"]
    assert [bool(row["util_pct"]) for row in rows] == [True, False, True]
    assert [bool(row["host.cpu_pct"]) for row in rows] == [True, True, False]
    assert all(row["name"] and row["t"] for row in rows)


@pytest.mark.nvml
@pytest.mark.slow
def test_a_slow_driver_marks_what_it_repeats(nvml_scenario: Callable[..., Scenario]) -> None:
    scenario = nvml_scenario(1)
    # Each reading takes some 1.6 s, and a tick comes each second.
    scenario.latency_us = 100_000
    run = Run(scenario, "live", "7")
    seen = [s for s in run.snapshots if s["gpus"]]
    repeated = ["nvml" in s["repeats"] for s in seen]
    assert not repeated[0] and True in repeated and False in repeated[1:]
    assert all(s["stale"] for s, again in zip(seen, repeated, strict=True) if again), "a screen says how old it is"
    for before, after, again in zip(seen, seen[1:], repeated[1:], strict=False):
        assert not again or after["gpus"] == before["gpus"]
