"""Recordings in which the clock was set back: every time is found where it was recorded, and nothing is lost."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from gputop.recording.reader import Recording
from gputop.sources.recorded import RecordedSource
from tests.support.recording_frames import T0, frame
from tests.support.recording_frames import recorded as file_of

A_THEN_B = [*range(100), *range(40, 160)]
"""A clock that runs wrong from 0 to 99, is set back by a minute, and runs to 159."""


def recorded(path: Path, times: list[int]) -> str:
    """A recording of frames at these seconds."""
    path.write_bytes(_bytes_of(path.name, tuple(times)))
    return str(path)


@cache
def _bytes_of(name: str, times: tuple[int, ...]) -> bytes:
    with TemporaryDirectory() as folder:
        return file_of(
            Path(folder, name), (frame(t, gpus=1, processes=0) for t in times)
        ).read_bytes()


NAMES = ["r.jsonl.gz"]


@pytest.fixture(params=NAMES)
def path(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return recorded(tmp_path / request.param, A_THEN_B)


def seconds(snapshots: object) -> list[float]:
    return [snapshot.t - T0 for snapshot in snapshots]  # type: ignore[attr-defined]


def test_segments_are_found_where_the_clock_was_set_back(path: str) -> None:
    recording = Recording(path)
    assert [(s.begin - T0, s.end - T0) for s in recording.segments] == [(0, 99), (40, 159)]
    assert (recording.begin - T0, recording.end - T0, recording.last_t - T0) == (0, 159, 159)
    assert seconds(recording.snapshots()) == A_THEN_B
    gaps = [
        s.t - T0 for s in recording.snapshots() if any(event.kind == "gap" for event in s.events)
    ]
    assert gaps == [40]
    recording.close()


@pytest.mark.parametrize(
    ("t", "segment", "found"),
    [
        (-5, 0, 0),
        (0, 0, 0),
        (39.5, 0, 39),
        (40, 1, 40),
        (70.2, 1, 70),
        (99, 1, 99),
        (120, 1, 120),
        (500, 1, 159),
    ],
)
def test_a_time_is_looked_up_in_the_segment_that_holds_it(
    path: str, t: float, segment: int, found: float
) -> None:
    """Where two hold it, the later one counts: the clock was set back because it had been wrong."""
    recording = Recording(path)
    assert recording.segment_at(T0 + t) == segment
    at, snapshot = next(recording.play(segment, T0 + t))
    assert (at, snapshot.t - T0) == (segment, found)
    recording.close()


def test_a_part_of_it_has_every_frame_of_that_time_in_the_order_of_recording(path: str) -> None:
    recording = Recording(path)
    assert seconds(recording.snapshots(T0 + 90, T0 + 110)) == [*range(90, 100), *range(90, 111)]
    assert seconds(recording.snapshots(T0 + 30, T0 + 45)) == [*range(30, 46), *range(40, 46)]
    assert seconds(recording.snapshots(T0 + 130, None)) == list(range(130, 160))
    assert seconds(recording.segment_frames(0, T0 + 50, T0 + 52)) == [50, 51, 52]
    after = list(recording.snapshots(T0 + 90, T0 + 110))[10]
    assert [event.text.partition(" by ")[0] for event in after.events] == ["the clock was set back"]
    recording.close()


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def polled(source: RecordedSource) -> list[float]:
    found = []
    while (snapshot := source.next_due()) is not None:
        found.append(snapshot.t - T0)
    return found


def test_a_replay_plays_every_segment_and_steps_back_over_the_seam(path: str) -> None:
    clock = Clock()
    source = RecordedSource(path, speed=1000.0, clock=clock)
    got = []
    for _ in range(300):
        clock.now += 1.0
        got += polled(source)
    assert got == A_THEN_B
    source.to_begin()
    assert polled(source)[:1] == [0]
    source.pause()
    source.to_end()
    assert polled(source) == [159]
    source.seek(T0 + 41)
    assert polled(source) == [41]
    assert source.step(-1) is True
    assert polled(source) == [40]
    source.step(-1)
    assert polled(source) == [99]
    assert source.step(-10) is True
    assert polled(source) == [89], (
        "still where the clock ran wrong, though the time was recorded again later"
    )
    source.seek(T0 + 80)
    assert polled(source) == [80]
    source.step(1)
    assert polled(source) == [81]
    source.close()
