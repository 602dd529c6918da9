"""The past is whole: a moment shows the same whether it is played, jumped to, pictured or reported."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from math import inf
from pathlib import Path
from random import Random
from typing import cast

import pytest

from gputop.cli import main
from gputop.diagnosis.types import GpuDiagnosis
from gputop.model.snapshot import Snapshot
from gputop.monitor import Frame, Monitor
from gputop.output.ansi import plain_text
from gputop.paint.main_screen import main_screen
from gputop.paint.view import View
from gputop.recording.reader import Recording
from gputop.recording.rounding import rounded
from gputop.recording.writer import RecordingWriter
from gputop.report.job_report import report_recording
from gputop.session.judged import Checkpoint, frame_at
from gputop.session.player import Player
from gputop.session.session import Session
from gputop.sources.recorded import RecordedSource
from gputop.sources.simulation.simulated import snapshot_at
from tests.support.frames import MOMENT

GPUS = 2
LENGTH_S = 300
FREED_AFTER_S = 80
VIEW = View()
JUMPED_TO = (LENGTH_S - 1, 5, 181, 61, 59, 0)
PICTURED = (0, 30, LENGTH_S - 1)
LATE = 230


def node(seconds: int, *, begin: int = 0) -> Iterator[Snapshot]:
    """A node of two GPUs on which a process ends, so that its GPU has been idle for minutes at the end."""
    holder = next(
        p
        for p in snapshot_at(MOMENT, started=MOMENT, gpus=GPUS).processes
        if p.gpu == 0 and p.role == "gpu"
    )
    for k in range(begin, seconds):
        ended = frozenset({holder.pid}) if k >= FREED_AFTER_S else frozenset()
        yield snapshot_at(MOMENT + k, started=MOMENT, gpus=GPUS, ended=ended)


def recorded(path: Path, snapshots: Iterator[Snapshot]) -> str:
    writer = RecordingWriter(str(path))
    for snapshot in snapshots:
        writer.write(snapshot)
    writer.close()
    return str(path)


def judgement(frame: Frame) -> tuple[object, ...]:
    return frame.diagnoses, frame.findings, frame.waste


def shown(frame: Frame) -> tuple[object, ...]:
    """All that a screen tells of a frame: the judgement, and the painted rows."""
    return *judgement(frame), plain_text(main_screen(frame, VIEW, 160, 48).rows)


def finished(player: Player) -> Frame:
    while player.busy:
        player.work(10.0)
    player.take()
    assert player.frame is not None
    return player.frame


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    return recorded(tmp_path_factory.mktemp("r") / "r.jsonl.gz", node(LENGTH_S))


@pytest.fixture(scope="module")
def played(path: str) -> dict[float, tuple[object, ...]]:
    """By time what playing from the beginning shows, at the moments that are looked at."""
    recording = Recording(path)
    monitor, looked_at = (
        Monitor(recording.interval_s),
        {MOMENT + k for k in (*JUMPED_TO, *PICTURED, LATE)},
    )
    found = {}
    for snapshot in recording.snapshots():
        frame = monitor.feed(snapshot)
        if snapshot.t in looked_at:
            found[snapshot.t] = shown(frame)
    recording.close()
    return found


def test_walking_by_jumps_shows_frame_by_frame_what_playing_shows(
    path: str, played: dict[float, tuple[object, ...]]
) -> None:
    player = Player(RecordedSource(path))
    player.source.pause()
    for k in JUMPED_TO:
        player.seek(MOMENT + k)
        player.take()
        frame = finished(player)
        assert frame.snapshot.t == MOMENT + k
        assert shown(frame) == played[frame.snapshot.t], k


def test_a_jump_ahead_of_the_walk_is_judged_again_once_the_walk_has_come_there(
    path: str, played: dict[float, tuple[object, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gputop.session.player.HISTORY_S", 150.0)
    player = Player(RecordedSource(path))
    player.source.pause()
    player.to_end()
    player.take()
    assert player.frame is not None
    assert player.frame.waste != played[MOMENT + LENGTH_S - 1][2], (
        "only the last minutes are known at first"
    )
    assert player.replay().judged_pct is not None
    assert shown(finished(player)) == played[MOMENT + LENGTH_S - 1]
    assert player.replay().judged_pct is None


def test_a_picture_of_a_moment_shows_what_playing_shows(
    path: str, played: dict[float, tuple[object, ...]]
) -> None:
    recording = Recording(path)
    for k in PICTURED:
        frame = frame_at(recording, 0, MOMENT + k, 120.0)
        assert frame is not None
        assert shown(frame) == played[MOMENT + k]
    recording.close()


def test_a_clock_set_back_ahead_of_a_jump_changes_nothing_of_what_is_shown(tmp_path: Path) -> None:
    def back() -> Iterator[Snapshot]:
        yield from node(130)
        yield from node(180, begin=100)

    path = recorded(tmp_path / "back.jsonl.gz", back())
    recording = Recording(path)
    assert len(recording.segments) == 2
    monitor = Monitor(recording.interval_s, charts=False)
    played = [
        judgement(monitor.feed(snapshot)) for _, snapshot in recording.play(0, recording.begin)
    ]
    recording.close()
    player = Player(RecordedSource(path))
    player.source.pause()
    for number, segment, k in (
        (130 + 179 - 100, 1, 179),
        (120, 0, 120),
        (130, 1, 100),
        (130 + 50, 1, 150),
    ):
        player.source.go(segment, MOMENT + k)
        player._jumped = True  # what every jump of the player sets
        player.take()
        assert judgement(finished(player)) == played[number], (segment, k)


def test_random_jumps_into_a_paused_run_longer_than_its_memory_show_what_was_judged_live(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gputop.recording.recent_past.KEPT_S", 160.0)
    session = Session(Monitor(charts=False))
    live = {}
    for k, snapshot in enumerate(node(290)):
        frame = session.take(rounded(snapshot))
        if k == 0:
            session.remember()
        live[snapshot.t] = judgement(frame)
    past = session.past()
    assert past is not None
    assert past.begin > MOMENT + FREED_AFTER_S, "what made the GPU idle is no longer remembered"
    player = Player(
        RecordedSource(past),
        own_past=True,
        checkpoints=[Checkpoint(*place) for place in past.judged],
    )
    player.source.pause()
    for t in (
        past.end,
        past.begin,
        *Random(7).sample(range(round(past.begin), round(past.end)), 5),
    ):
        player.seek(t)
        assert player.take() and player.frame is not None
        assert player.frame.snapshot.t == t
        assert judgement(player.frame) == live[t], "at once"
    assert judgement(finished(player)) == live[t]


def test_a_recording_opens_at_its_first_finding_with_a_whole_chart_before_it_and_says_which(
    path: str,
) -> None:
    player = Player(RecordedSource(path))
    said = player.open(inf)
    player.take()
    frame = finished(player)
    found = next(finding for finding in frame.findings if finding.level in ("red", "yellow"))
    assert found.t - player.source.begin_t < 120.0 == frame.snapshot.t - player.source.begin_t
    assert said.startswith(f"opened at the first finding: GPU {found.gpu} ")
    assert not player.source.playing


def test_a_recording_without_room_for_a_whole_chart_opens_where_its_first_finding_begins(
    tmp_path: Path,
) -> None:
    busy = (snapshot_at(MOMENT + k, scenario="small_kernels", started=MOMENT) for k in range(60))
    player = Player(RecordedSource(recorded(tmp_path / "r.jsonl.gz", busy)))
    said = player.open(inf)
    frame = finished(player)
    assert said.startswith("opened at the first finding: GPU 0 BUSY, NOT WORKING")
    assert frame.snapshot.t == frame.findings[0].t < MOMENT + 40


def past_without_checkpoints(seconds: int) -> tuple[Player, Frame, dict[float, object]]:
    """A paused run whose past came before it: nothing of that was judged with the run."""
    session, live = Session(Monitor()), {}
    for k, snapshot in enumerate(node(seconds)):
        frame = session.take(rounded(snapshot))
        if k == 0:
            session.remember()
        live[snapshot.t] = judgement(frame)
    past = session.past()
    assert past is not None
    last = [Checkpoint(*place) for place in past.judged][-1:]
    player = Player(RecordedSource(past), own_past=True, checkpoints=last)
    player.stand_at_end(frame)
    return player, frame, live


@pytest.mark.parametrize("back", [1, 20, 110])
def test_one_step_back_shows_the_frame_before_until_the_past_is_judged(back: int) -> None:
    player, newest, live = past_without_checkpoints(230)
    player.step(-back)
    for _ in range(100_000):
        player.take()
        assert player.frame is not None
        t = player.frame.snapshot.t
        is_old = player.frame is newest
        assert is_old or judgement(player.frame) == live[t], "half-judged"
        if not is_old or not player.busy:
            break
        player.work(0.0)
    assert finished(player).snapshot.t == newest.snapshot.t - back


def test_a_recording_without_a_finding_or_too_short_to_judge_opens_at_its_end_and_says_so(
    tmp_path: Path,
) -> None:
    well = (snapshot_at(MOMENT + k, scenario="healthy", started=MOMENT) for k in range(60))
    for name, snapshots, words, last in (
        ("short", node(5), "too short to judge", 4), ("well", well, "opened at the end: nothing wrong was seen", 59),
    ):  # fmt: skip
        player = Player(RecordedSource(recorded(tmp_path / f"{name}.jsonl.gz", snapshots)))
        assert words in player.open(inf)
        assert (
            player.take() and player.frame is not None and player.frame.snapshot.t == MOMENT + last
        )


def test_the_next_change_goes_through_all_gpus_and_names_the_gpu(path: str) -> None:
    player = Player(RecordedSource(path))
    player.source.pause()
    player.take()
    finished(player)
    changes = {change.t for change in player.replay().changes if change.t > MOMENT}
    assert {change.gpu for change in player.replay().changes} == set(range(GPUS))
    said, times = [], []
    while "no later" not in (words := player.to_change(1)):
        said.append(words)
        times.append(player.source.position)
        player.take()
    assert times == sorted(changes)
    assert set(re.findall(r"GPU (\d)", " ".join(said))) >= {"0", "1"}
    assert "no later" in player.to_change(1)
    player.to_begin()
    assert "no earlier" in player.to_change(-1)


def test_a_diagnosis_and_a_report_of_the_file_say_what_its_last_moment_shows(
    path: str, played: dict[float, tuple[object, ...]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["diagnose", path, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["gpus"]
    shown_last = cast("tuple[GpuDiagnosis, ...]", played[MOMENT + LENGTH_S - 1][0])
    assert [(gpu["verdict"], gpu["evidence"]) for gpu in told] == [
        (d.verdict, list(d.evidence)) for d in shown_last
    ]
    assert [gpu["timeline"][-1]["t"] for gpu in told] == [d.timeline[-1][0] for d in shown_last]
    report = report_recording(path)
    for gpu, d in zip(report.gpus, shown_last, strict=True):
        assert d.seconds is not None
        for state, seconds in d.seconds.items():
            assert gpu.seconds[state] == pytest.approx(seconds, abs=2.0), (gpu.index, state)
