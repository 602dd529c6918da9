"""A recording that begins in the middle of a run, and the second file of a long one, know since when what holds has
held: their verdicts and durations are those of the live screen."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from gputop.diagnosis.types import GpuDiagnosis
from gputop.model.snapshot import OngoingConditions, Snapshot
from gputop.monitor import Monitor
from gputop.recording.reader import Recording, read_snapshots
from gputop.recording.recorder import Recorder
from gputop.session.session import Session
from gputop.sources.simulation.simulated import snapshot_at
from tests.support.frames import MOMENT

IDLE, NO_TENSORS = "idle_holding_memory", "no_tensor_cores"
FIRST_VERDICT = 15
"""By so many samples a replay has its first verdicts."""


def recorded_from(
    path: Path, scenario: str, begin: int, end: int
) -> list[tuple[GpuDiagnosis, ...]]:
    """Watch a scenario from the start, record it from ``begin`` on; the live diagnoses of the recorded frames."""
    session, live = Session(Monitor(charts=False)), []
    for second in range(end):
        if second == begin:
            session.record(recorder := Recorder(str(path)))
        frame = session.take(snapshot_at(MOMENT + second, scenario=scenario, started=MOMENT))
        if second >= begin:
            live.append(frame.diagnoses)
    recorder.close()
    return live


def replayed(snapshots: Sequence[Snapshot]) -> list[tuple[GpuDiagnosis, ...]]:
    monitor = Monitor(charts=False)
    return [monitor.feed(snapshot).diagnoses for snapshot in snapshots]


@pytest.mark.parametrize(("scenario", "begin"), [(IDLE, 330), (NO_TENSORS, 100)])
def test_a_recording_begun_later_says_what_the_screen_said(
    tmp_path: Path, scenario: str, begin: int
) -> None:
    path = tmp_path / "later.gputop.jsonl.gz"
    live = recorded_from(path, scenario, begin, begin + 70)
    recording = Recording(str(path))
    again = replayed(list(recording.snapshots()))
    recording.close()
    # How long the main thread has been in one wait is no part of what a recording knows of the time before it.
    said = [[(d.verdict, d.title, d.level, d.evidence[:1]) for d in at] for at in live]
    assert [[(d.verdict, d.title, d.level, d.evidence[:1]) for d in at] for at in again][
        30:
    ] == said[30:]
    assert [d.verdict for d in again[FIRST_VERDICT]] == [d.verdict for d in live[FIRST_VERDICT]]


def test_a_later_file_of_a_recording_knows_what_lasted_before_it(tmp_path: Path) -> None:
    path = tmp_path / "later.gputop.jsonl"
    recorded_from(path, IDLE, 330, 470)
    lines = path.read_bytes().splitlines(keepends=True)
    (*_, last) = [place for place, line in enumerate(lines) if b'"k":"machine"' in line]
    assert last > 0
    (tmp_path / "second.gputop.jsonl").write_bytes(b"".join(lines[last:]))
    again = replayed(list(read_snapshots(str(tmp_path / "second.gputop.jsonl"))))
    assert IDLE in {d.verdict for d in again[-1]}


def test_what_lasted_is_no_claim_about_a_gpu_that_works() -> None:
    def node(second: int, ongoing: tuple[OngoingConditions, ...] = ()) -> Snapshot:
        return replace(
            snapshot_at(MOMENT + second, scenario="healthy", started=MOMENT), ongoing=ongoing
        )

    claimed = tuple(OngoingConditions(gpu, quiet_since=MOMENT - 4000.0) for gpu in range(8))
    frames = [node(0, claimed), *(node(second) for second in range(1, 60))]
    assert {d.verdict for d in replayed(frames)[-1]} == {"healthy"}
