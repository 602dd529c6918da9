"""A session: one way from a snapshot to its frame, the last minutes and a recording."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

from gputop.model.snapshot import Event, Snapshot
from gputop.model.steps import StepRow
from gputop.monitor import Monitor
from gputop.recording.reader import read_snapshots
from gputop.recording.recent_past import OlderFrames
from gputop.recording.recorder import Recorder
from gputop.session.session import Session
from gputop.sources.simulation.scenarios import SCENARIOS
from gputop.sources.simulation.simulated import SimulatedSource
from tests.support.recording_frames import T0, frame, recorded_events, rounded


def fine(k: int) -> Snapshot:
    """A snapshot with more digits than a recording keeps."""
    snapshot = frame(k)
    return replace(snapshot, gpus=tuple(replace(gpu, power_w=312.34567) for gpu in snapshot.gpus))


def undoubted(snapshot: Snapshot) -> Snapshot:
    """Without what is found when it is judged: a recording holds what was measured."""
    return replace(snapshot, gpus=tuple(replace(gpu, doubts={}) for gpu in snapshot.gpus))


def test_what_is_shown_while_recording_is_what_the_file_holds(tmp_path: Path) -> None:
    session = Session(Monitor(charts=False))
    assert undoubted(session.take(fine(0)).snapshot) == fine(0)
    recorder = Recorder(str(tmp_path / "r.jsonl.gz"))
    session.record(recorder)
    shown = [undoubted(session.take(fine(k)).snapshot) for k in range(1, 6)]
    assert session.stop_recording() is recorder and session.recorder is None
    recorder.close()
    assert shown == [rounded(fine(k)) for k in range(1, 6)] != [fine(k) for k in range(1, 6)]
    found = list(read_snapshots(str(tmp_path / "r.jsonl.gz")))
    assert [snapshot.gpus for snapshot in found] == [snapshot.gpus for snapshot in shown]
    assert undoubted(session.take(fine(6)).snapshot) == fine(6)


def test_each_recording_begins_with_the_verdicts_that_stand_and_holds_what_came_with_no_snapshot(
    tmp_path: Path,
) -> None:
    session = Session(Monitor(charts=False))
    for name in ("a.jsonl.gz", "b.jsonl.gz"):
        recorder = Recorder(str(tmp_path / name))
        session.record(recorder)
        session.take(frame(ord(name[0])))
        session.note(Event(T0 + 200, "mark", "the end"))
        session.stop_recording()
        session.note(Event(T0 + 201, "mark", "after it"))
        recorder.close()
        events = recorded_events(tmp_path / name)
        assert [event.kind for event in events] == ["verdict"] * (len(events) - 1) + ["mark"]
        assert len(events) > 1 and events[-1].text == "the end"


def test_nothing_is_remembered_unless_it_is_asked_for_and_then_from_the_newest_snapshot_on() -> (
    None
):
    session = Session(Monitor(charts=False))
    session.take(frame(0))
    session.take(frame(1))
    assert session.past() is None
    session.remember()
    session.take(frame(2))
    past = session.past()
    assert past is not None
    assert [snapshot.t for snapshot in past.snapshots()] == [T0 + 1, T0 + 2]


def _earlier() -> list[OlderFrames]:
    """Nine frames, made when they are looked at."""
    return [
        OlderFrames(frame(k).t, frame(k + 2).t, partial(list, map(frame, range(k, k + 3))))
        for k in (0, 3, 6)
    ]


def test_the_past_before_the_start_is_not_made_before_somebody_looks_at_it() -> None:
    made: list[int] = []

    def make(k: int) -> list[Snapshot]:
        made.append(k)
        return [frame(k)]

    session = Session(
        Monitor(charts=False),
        lambda: [OlderFrames(frame(k).t, frame(k).t, partial(make, k)) for k in range(9)],
    )
    session.take(frame(9))
    session.remember()
    past = session.past()
    assert past is not None
    assert (past.begin, made) == (frame(0).t, [])
    assert [s.t for s in past.segment_frames(0, frame(7).t, frame(9).t)] == [
        frame(k).t for k in (7, 8, 9)
    ]
    assert min(made) >= 5


def test_a_source_that_knows_what_was_before_lets_a_pause_go_back_before_the_start() -> None:
    session = Session(Monitor(charts=False), _earlier)
    session.take(frame(9))
    session.remember()
    session.take(frame(10))
    past = session.past()
    assert past is not None and [s.t for s in past.snapshots()] == [frame(k).t for k in range(11)]
    assert not [event for s in past.snapshots() for event in s.events if event.kind == "gap"]
    far = Session(Monitor(charts=False), _earlier)
    far.remember()
    far.take(frame(40))
    past = far.past()
    assert past is not None and past.begin == frame(40).t, "nothing is put before a hole"


KEPT = ("node", "hang", "memory_leak", "lost_gpu", "worker_restart", "step_time")


@pytest.mark.parametrize(
    "scenario", [pytest.param(n, marks=() if n in KEPT else pytest.mark.slow) for n in SCENARIOS]
)
def test_a_judgement_can_be_kept_and_gone_on_from(scenario: str) -> None:
    monitor, source = Monitor(1.0, charts=False), SimulatedSource(scenario, clock=lambda: T0)
    *before, now = source.past(45)
    for snapshot in before:
        monitor.feed(snapshot)
    frames = [
        each.feed(now) for each in (Monitor(1.0, charts=False, after=monitor.judgement()), monitor)
    ]
    later, straight = [
        (f.diagnoses, f.findings, f.waste, f.steps, f.periods, f.look_first) for f in frames
    ]
    assert later == straight


STEP = StepRow(100, 0, 0, "train", 10, 1.0, *[0.1] * 4)


def test_a_recording_keeps_its_interval_while_a_source_measures_more_often_and_loses_no_event(
    tmp_path: Path,
) -> None:
    session = Session(Monitor(charts=False))
    recorder = Recorder(str(tmp_path / "r.jsonl.gz"))
    session.record(recorder)
    quarters = [replace(frame(0), t=T0 + 0.25 * n, interval_s=0.25) for n in range(11)]
    marks = [
        replace(s, events=(Event(s.t, "mark", f"m{n}"),), steps=(STEP,))
        for n, s in enumerate(quarters)
    ]
    for snapshot in [*marks, replace(frame(0), t=T0 + 3.5)]:
        session.take(snapshot)
    session.stop_recording()
    recorder.close()
    found = list(read_snapshots(str(tmp_path / "r.jsonl.gz")))
    assert [snapshot.t - T0 for snapshot in found] == [0.0, 1.0, 2.0, 3.5]
    assert {snapshot.interval_s for snapshot in found} == {1.0}
    told = [event.text for snapshot in found for event in snapshot.events if event.kind == "mark"]
    assert told == [f"m{n}" for n in range(11)]
    assert sum(len(snapshot.steps) for snapshot in found) == 11
