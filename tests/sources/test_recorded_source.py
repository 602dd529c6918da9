"""A recording entered anywhere and played: index, seeking, stepping, speed. The clock is the test's."""

from __future__ import annotations

import csv
import io
import json
import threading
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

import pytest
from msgspec.structs import replace

from gputop.diagnosis.engine import Diagnoser
from gputop.model.snapshot import Event, Snapshot
from gputop.monitor import Monitor
from gputop.output.recording_dump import dump
from gputop.output.snapshot_data import snapshot_data
from gputop.recording.moments import moment
from gputop.recording.reader import Recording, read_snapshots
from gputop.recording.writer import RecordingWriter
from gputop.report.job_report import ReportBuilder, report_recording
from gputop.sources.recorded import RecordedSource
from tests.nvml.stand_in import Scenario
from tests.recording.test_recording_verdicts import assert_replay_shows_what_live_showed
from tests.session.test_report import moment as snapshot_of
from tests.support.local_reader import Run
from tests.support.recording_frames import T0, frame, frames, lines_of, rounded, written


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(scope="module", params=["r.jsonl.gz", "r.jsonl"])
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(written(tmp_path_factory.mktemp("recording") / request.param, 200))


def polled(source: RecordedSource) -> list[float]:
    found = []
    while (snapshot := source.poll()) is not None:
        found.append(snapshot.t - T0)
    return found


@pytest.mark.parametrize(
    "begin", [59.5, 250.0, *(pytest.param(begin, marks=pytest.mark.slow) for begin in (-5.0, 60.0, 199.0))]
)
def test_reading_from_a_time_gives_what_reading_all_gives(path: str, begin: float) -> None:
    recording = Recording(path)
    everything = list(recording.snapshots())
    assert [s.t - T0 for s in everything] == list(range(200))
    for end in (None, T0 + begin + 70):
        expected = [s for s in everything if s.t >= T0 + begin and (end is None or s.t <= end)]
        assert list(recording.snapshots(T0 + begin, end)) == expected
    assert (recording.begin, recording.end) == (T0, T0 + 199)
    recording.close()


def test_a_process_introduced_between_keys_is_known_after_a_seek(tmp_path: Path) -> None:
    for name in ("r.jsonl", "r.jsonl.gz"):
        writer = RecordingWriter(str(tmp_path / name))
        for k in range(150):
            more = (replace(frame(k).processes[0], pid=77),) if k >= 30 else ()
            writer.write(replace(frame(k), processes=(*frame(k).processes, *more)))
        writer.close()
        recording = Recording(str(tmp_path / name))
        for k in (35, 61, 149):
            found = next(recording.snapshots(T0 + k))
            assert found.processes[-1].static.command == "python train.py --rank 0"
        recording.close()


def test_frames_come_at_their_distance_times_the_speed(path: str) -> None:
    clock = Clock()
    source = RecordedSource(path, clock=clock)
    assert polled(source) == [0]
    clock.now = 0.9
    assert polled(source) == []
    clock.now = 1.0
    assert polled(source) == [1]
    source.set_speed(60.0)
    clock.now = 1.5
    assert polled(source) == list(range(2, 32))
    assert source.position == T0 + 31
    source.close()


def test_every_frame_is_handed_out_even_when_the_consumer_is_late(path: str) -> None:
    clock = Clock()
    source = RecordedSource(path, speed=60.0, clock=clock)
    got: list[float] = []
    for now in (0.0, 0.7, 1.4, 3.0, 5.0, 7.0, 9.0, 11.0):
        clock.now = now
        got += polled(source)
    assert got == list(range(200))
    assert source.at_end and not source.playing
    source.close()


def test_a_pause_holds_and_a_step_moves_by_frames(path: str) -> None:
    clock = Clock()
    source = RecordedSource(path, at=T0 + 100.4, clock=clock)
    assert polled(source) == [100]
    source.pause()
    clock.now = 50.0
    assert polled(source) == []
    assert source.step(2) is False
    assert polled(source) == [101, 102]
    assert source.step(-50) is True
    assert polled(source) == [52]
    assert source.step(-500) is True
    assert polled(source) == [0]
    source.play()
    assert polled(source) == [1]
    source.close()


def test_after_a_seek_the_past_leads_up_to_the_next_frame(path: str) -> None:
    source = RecordedSource(path, clock=Clock())
    source.seek(T0 + 150.5)
    assert [s.t - T0 for s in source.past(30.0)] == list(range(120, 150))
    assert polled(source) == [150]
    assert source.position == T0 + 150
    source.seek(T0 - 1000)
    assert polled(source) == [0]
    source.seek(T0 + 1000)
    assert polled(source) == [199]
    assert [s.t - T0 for s in source.past(3.0)] == [196, 197, 198, 199]
    assert [s.t - T0 for _, s in source.frames()] == list(range(200))
    source.close()


def test_a_gap_is_not_sat_through(tmp_path: Path) -> None:
    writer = RecordingWriter(str(tmp_path / "r.jsonl.gz"))
    for k in (0, 1, 30_000, 30_001):
        writer.write(frame(k))
    writer.close()
    clock = Clock()
    source = RecordedSource(str(tmp_path / "r.jsonl.gz"), clock=clock)
    assert polled(source) == [0]
    clock.now = 2.0
    assert polled(source) == [1, 30_000]
    source.close()


def test_at_the_end_it_stops_or_begins_again(path: str) -> None:
    for loop, expected in ((False, []), (True, [0, 1])):
        clock = Clock()
        source = RecordedSource(path, at=T0 + 199, loop=loop, clock=clock)
        assert polled(source) == [199]
        clock.now = 2.0
        assert polled(source) == expected
        source.close()
    source = RecordedSource(path, at=T0 + 199, clock=Clock())
    polled(source)
    source.play()
    assert polled(source) == [0]
    source.close()


def test_the_consumer_is_woken_whenever_a_frame_is_due(tmp_path: Path) -> None:
    writer = RecordingWriter(str(tmp_path / "r.jsonl.gz"))
    for k in range(70):
        writer.write(frame(k))
    writer.close()
    woken = threading.Event()
    source = RecordedSource(str(tmp_path / "r.jsonl.gz"), speed=1000.0)
    source.start(woken.set)
    got: list[float] = []
    while len(got) < 70:
        assert woken.wait(10)
        woken.clear()
        got += polled(source)
    source.close()
    assert got == list(range(70))


def test_played_frames_are_the_recorded_ones(path: str) -> None:
    clock = Clock()
    source = RecordedSource(path, clock=clock)
    got: list[Snapshot] = []
    for now in range(200):
        clock.now = float(now)
        while (snapshot := source.poll()) is not None:
            got.append(replace(snapshot, machine=frame(0).machine))
    source.close()
    assert got == [rounded(s) for s in frames(200)]


@pytest.mark.parametrize(
    ("text", "now", "expected"),
    [
        ("-10m", None, 6600.0), ("+1m", None, 60.0), ("-30", 100.0, 70.0), ("+0.5h", 100.0, 1900.0), ("-9d", None, 0.0),
        (str(T0 + 5), None, 5.0), ("2026-05-28T20:30:00Z", None, 200.0), ("2026-05-28T20:30:00+00:00", None, 200.0),
    ],
)  # fmt: skip
def test_times_are_understood_as_people_write_them(text: str, now: float | None, expected: float) -> None:
    given = None if now is None else T0 + now
    assert moment(text, T0, T0 + 7200, given) - T0 == expected


def test_a_time_of_day_is_the_first_one_in_the_recording() -> None:
    # As local time shows it, whatever the zone of this machine is.
    for seconds in (0, 200, 3600):
        text = datetime.fromtimestamp(T0 + seconds).strftime("%H:%M:%S")
        assert T0 + seconds <= moment(text, T0, T0 + 7200) < T0 + seconds + 1.0
    with pytest.raises(ValueError, match="not a time of day"):
        moment("25:00", T0, T0 + 1)
    with pytest.raises(ValueError, match="write 12:03"):
        moment("soon", T0, T0 + 1)


# What a source repeats for want of anything newer is marked, and is no sample: live, recorded and played.

BAD = {"util": 95.0, "sm": 5.0}


def stream(seconds: int, reading_every: int, **given: float) -> Iterator[Snapshot]:
    """A frame a second; only each so many seconds the GPUs were really read, in between they are repeated."""
    last = snapshot_of(0, **given)
    for k in range(seconds):
        if k % reading_every == 0:
            last = snapshot_of(k, **given)
            yield last
        else:
            yield replace(last, t=T0 + k, repeats=("nvml",), stale={"nvml": float(k % reading_every)})


def test_repeats_are_no_samples_of_a_verdict() -> None:
    slow, plain = Diagnoser(), Diagnoser()
    for snapshot in stream(60, 8, **BAD):
        (judged,) = slow.observe(snapshot)
    assert (judged.n, judged.verdict) == (4, "collecting")
    for k in range(60):
        (of_all,) = plain.observe(snapshot_of(k, **BAD))
    assert (of_all.n, of_all.busy_not_working) == (30, "A")


def test_repeats_between_readings_change_nothing() -> None:
    """Twice as many frames, half of them repeats: verdict, evidence and seconds are those of the readings alone."""
    mixed, alone = Monitor(charts=False), Monitor(charts=False)
    for k in range(90):
        reading = snapshot_of(k, 95.0 if k > 40 else 60.0, 5.0)
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
        (judged,) = diagnoser.observe(replace(snapshot_of(k), repeats=("nvml",)))
    assert judged.n == 1


def test_a_repeat_of_other_gpus_is_not_believed() -> None:
    diagnoser = Diagnoser()
    diagnoser.observe(snapshot_of(0))
    other = replace(frame(1, gpus=3), repeats=("nvml",))
    assert len(diagnoser.observe(other)) == 3


def test_a_repeated_host_is_no_sample_of_what_it_does() -> None:
    busy, slow = Diagnoser(), Diagnoser()
    process = replace(snapshot_of(0).processes[0], main_run_pct=100.0)
    for k in range(40):
        reading = replace(snapshot_of(k, 20.0, 15.0), processes=(process,))
        (judged,) = busy.observe(reading)
        (unjudged,) = slow.observe(reading if k % 8 == 0 else replace(reading, repeats=("proc",)))
    assert judged.verdict == "main_process"
    assert (unjudged.n, unjudged.verdict) == (30, "starved_unattributed")


def test_marks_among_repeats_are_kept() -> None:
    monitor, builder = Monitor(), ReportBuilder()
    mark = Event(T0 + 1, "mark", "epoch 1")
    builder.add(monitor.feed(snapshot_of(0)))
    shown = monitor.feed(replace(snapshot_of(1), repeats=("nvml",), events=(mark,)))
    builder.add(shown)
    assert [text for _, _, text in shown.history.marks] == ["epoch 1"]
    assert builder.report().marks == (mark,)


def test_a_report_weighs_readings_and_not_their_repeats(tmp_path: Path) -> None:
    path = str(tmp_path / "r.jsonl")
    writer = RecordingWriter(path)
    # 90 % is read once and shown for 9 s more, then 10 % is read each second.
    for k in range(10):
        writer.write(replace(snapshot_of(k, 90.0), repeats=("nvml",) if k else ()))
    for k in range(10, 21):
        writer.write(snapshot_of(k, 10.0))
    writer.close()
    report = report_recording(path)
    (gpu,) = report.gpus
    assert (report.frames, gpu.util_pct, gpu.measured_s) == (21, 10.0, 11.0)


def test_a_recording_says_what_it_repeats_under_a_key_that_other_readers_skip(tmp_path: Path) -> None:
    repeated = replace(frame(1), repeats=("nvml", "proc"))
    first, second = (json.loads(lines_of(s)[-1]) for s in (frame(1), repeated))
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
