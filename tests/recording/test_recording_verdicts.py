"""Record, replay: the same verdicts at the same times as live; and what small recordings end with."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gputop.model.snapshot import Snapshot
from gputop.monitor import Frame, Monitor
from gputop.recording.reader import read_snapshots
from gputop.recording.writer import RecordingWriter
from gputop.session.frame_events import FrameEvents
from gputop.sources.simulation.simulated import snapshot_at
from tests.support.examples import looks
from tests.support.recording_frames import T0, recorded_events, rounded


def shown(frame: Frame) -> object:
    return (frame.snapshot.t, frame.diagnoses, frame.findings, frame.waste)


def assert_replay_shows_what_live_showed(snapshots: Iterator[Snapshot], path: Path) -> None:
    live, events, writer = Monitor(charts=False), FrameEvents(), RecordingWriter(str(path))
    expected, verdicts = [], []
    for snapshot in map(rounded, snapshots):
        frame = live.feed(snapshot)
        derived = events.events(frame)
        verdicts += derived
        expected.append(shown(frame))
        writer.write(snapshot, derived)
    writer.close()
    replay = Monitor(charts=False)
    for k, snapshot in enumerate(read_snapshots(str(path))):
        assert shown(replay.feed(snapshot)) == expected[k]
    assert k == len(expected) - 1
    assert [event for event in recorded_events(path) if event.kind == "verdict"] == [
        replace(event, t=round(event.t, 3)) for event in verdicts if event.kind == "verdict"
    ]


@pytest.mark.parametrize("scenario", ["node", pytest.param("sixteen", marks=pytest.mark.slow)])
def test_a_simulated_machine_is_diagnosed_alike(tmp_path: Path, scenario: str) -> None:
    snapshots = (snapshot_at(T0 + k, scenario=scenario, started=T0 - 3600) for k in range(40))
    assert_replay_shows_what_live_showed(snapshots, tmp_path / "r.jsonl.gz")


PHASES = st.lists(
    st.tuples(
        st.integers(5, 60),
        st.sampled_from([0.0, 4.999, 49.99996, 50.0, 79.99996, 80.0, 97.0]),
        st.sampled_from([None, 0.9999999, 14.99996, 23.99996, 29.99996, 30.0, 85.0]),
        st.sampled_from([0.0, 59.99996, 60.0, 78.0]),
        st.sampled_from([0.0, 49.99996, 50.0, 100.0]),
    ),
    min_size=1,
    max_size=5,
)


@looks(3)
@given(phases=PHASES, seed=st.integers(0, 2**16))
def test_values_at_the_very_thresholds_are_diagnosed_alike(
    tmp_path: Path, phases: list[tuple[int, float, float | None, float, float]], seed: int
) -> None:
    path = tmp_path / "r.jsonl.gz"
    path.unlink(missing_ok=True)
    assert_replay_shows_what_live_showed(course(phases, random.Random(seed)), path)


def course(
    phases: list[tuple[int, float, float | None, float, float]], draw: random.Random
) -> Iterator[Snapshot]:
    t = T0
    for length, util, sm, dram, run in phases:
        for _ in range(length):
            t += draw.choice([0.99999, 1.0, 1.00001, 1.0004])
            base = snapshot_at(t, gpus=1, started=T0 - 3600)
            gpu = replace(
                base.gpus[0], util_pct=util, sm_active_pct=sm, sm_source="none" if sm is None else "gpm",
                dram_active_pct=dram,
            )  # fmt: skip
            rows = tuple(
                replace(process, main_run_pct=run, run_pct=run) for process in base.processes
            )
            yield replace(base, gpus=(gpu,), processes=rows)


INPUTS = Path(__file__).parents[1] / "inputs"
FOUND = {
    "low_clock": "low_clock", "p8_stuck": "low_clock", "frozen_power": "low_clock", "device_map": "take_turns",
    "device_map_fast": "take_turns", "pcie_x1": "pcie_transfer", "hbm_hot": "memory_hot",
}  # fmt: skip


@pytest.mark.parametrize("name", FOUND)
def test_a_small_recording_after_a_public_report_ends_with_its_verdict_or_badge(name: str) -> None:
    monitor = Monitor(charts=False)
    for snapshot in read_snapshots(str(INPUTS / f"{name}.gputop.jsonl.gz")):
        frame = monitor.feed(snapshot)
    for d in frame.diagnoses:
        assert FOUND[name] in (d.verdict, *(badge.id for badge in d.badges)), d
