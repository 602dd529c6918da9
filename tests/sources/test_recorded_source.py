"""A recording entered anywhere and played: index, seeking, stepping, speed. The clock is the test's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from gputop.diagnosis.engine import Diagnoser
from gputop.model.snapshot import Snapshot
from gputop.recording.reader import Recording
from gputop.sources.recorded import RecordedSource
from tests.session.test_report import moment as snapshot_of
from tests.support.exported import Clock
from tests.support.recording_frames import T0, written


@pytest.fixture(scope="module", params=["r.jsonl.gz", "r.jsonl"])
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(written(tmp_path_factory.mktemp("recording") / request.param, 200))


def polled(source: RecordedSource) -> list[float]:
    found = []
    while (snapshot := source.next_due()) is not None:
        found.append(snapshot.t - T0)
    return found


@pytest.mark.parametrize(
    "begin",
    [59.5, 250.0, *(pytest.param(begin, marks=pytest.mark.slow) for begin in (-5.0, 60.0, 199.0))],
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
            yield replace(
                last, t=T0 + k, repeats=("nvml",), stale={"nvml": float(k % reading_every)}
            )


def test_repeats_are_no_samples_of_a_verdict() -> None:
    slow, plain = Diagnoser(), Diagnoser()
    for snapshot in stream(60, 8, **BAD):
        (judged,) = slow.diagnose(snapshot)
    assert (judged.n, judged.verdict) == (4, "collecting")
    for k in range(60):
        (of_all,) = plain.diagnose(snapshot_of(k, **BAD))
    assert (of_all.n, of_all.busy_not_working) == (30, "A")
