"""What real GPUs did, as others recorded it, gets the verdict that is true of it, at these thresholds and near them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from gputop.diagnosis import thresholds
from gputop.diagnosis.types import GpuDiagnosis
from gputop.model.snapshot import Snapshot
from gputop.monitor import Monitor
from gputop.output.verdicts_page import RECORDED
from gputop.recording.reader import read_snapshots

TELEMETRY = Path(__file__).parents[1] / "telemetry"
EXPECTED: dict[str, dict[str, Any]] = json.loads((TELEMETRY / "expected.json").read_text())
WELL = ("train_tuned", "vllm_0.2rps", "sglang_gemma3_rtx50", "h200_train", "h200_loader")
"""Loads with which nothing is wrong."""
NOT_WELL = {"train_untuned": (80, 91), "t4_hollow_gemm": (45, 110)}
"""Loads with which something is, and when that must have been said."""


@cache
def recorded(name: str) -> list[Snapshot]:
    return list(read_snapshots(str(TELEMETRY / f"{name}.gputop.jsonl.gz")))


def said_of(name: str) -> list[GpuDiagnosis]:
    """The diagnosis after each second."""
    monitor = Monitor(charts=False)
    return [monitor.feed(snapshot).diagnoses[0] for snapshot in recorded(name)]


def changes(said: list[GpuDiagnosis]) -> Iterator[tuple[str, str | None]]:
    """Verdict and flag each time that they change, without the beginning."""
    before: tuple[str, str | None] | None = None
    for now in ((d.verdict, d.busy_not_working) for d in said):
        if now != before and before is not None and before[0] != "collecting":
            yield now
        before = now


def test_every_recording_has_its_truth_and_the_reverse() -> None:
    assert {path.name.removesuffix(".gputop.jsonl.gz") for path in TELEMETRY.glob("*.gz")} == set(
        EXPECTED
    )


def test_the_published_evidence_is_what_the_recordings_are_held_to() -> None:
    held = {(name, verdict) for name, row in EXPECTED.items() for verdict in row["spans"][-1][2]}
    assert held <= {(name, verdict) for name, verdict, *_ in RECORDED}
    judged = {
        (name, verdict)
        for name, row in EXPECTED.items()
        for span in row["spans"]
        for verdict in span[2]
    }
    assert {(name, verdict) for name, verdict, *_ in RECORDED} <= judged


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_a_real_load_is_called_what_it_is_and_no_verdict_comes_and_goes(name: str) -> None:
    said = said_of(name)
    for first, last, verdicts, level, confidence in EXPECTED[name]["spans"]:
        for d in said[first : last + 1]:
            assert (d.verdict in verdicts, d.level, d.confidence) == (True, level, confidence), d
    assert len(list(changes(said))) == EXPECTED[name]["flips"]


def test_a_util_that_is_a_moment_of_each_second_is_no_work_that_stops_and_starts() -> None:
    """It falls from 100 to 0 and rises again while the engine counts cycles in 52 to 68 % of each second."""
    assert not any(
        badge.id == "stop_start" for d in said_of("h200_loader_cpu") for badge in d.badges
    )


def test_workers_that_end_before_their_job_are_counted_in_its_last_verdict() -> None:
    last = said_of("h200_loader_cpu")[-1]
    assert (
        last.feeders is not None
        and last.feeders.count == 4
        and "num_workers (now 4" in (last.remedy or "")
    )


def test_adding_tiny_vectors_is_hollow_and_counted_as_no_work() -> None:
    said = said_of("t4_hollow_gemm")[100]
    assert (said.busy_not_working, said.state) == ("C", "busy_not_working")
    assert any("hollow" in note for note in said.notes)


def test_a_server_without_visible_processes_is_idle_and_nobody_is_accused() -> None:
    said = said_of("vllm_0.2rps")[-1]
    assert (
        said.state == "idle"
        and "why is not visible without processes" in said.title
        and said.short != said.title
    )
    seconds = said.seconds or {}
    assert seconds["starved"] == 0.0 and seconds["idle"] > 0.0
    assert not any(d.badges for d in said_of("vllm_0.2rps"))


SELDOM = (pytest.mark.slow, pytest.mark.weekly)
"""One threshold by itself: all of them together are moved each time."""
THRESHOLDS = sorted(name for name in vars(thresholds) if name.isupper())


def moved(monkeypatch: pytest.MonkeyPatch, name: str, factor: float) -> None:
    """Move a threshold together with the one at which the rule leaves."""
    bound = getattr(thresholds, name)
    leaves = isinstance(bound, thresholds.Threshold)
    now = (
        thresholds.Threshold(bound * factor, leave=bound.leave * factor)
        if leaves
        else bound * factor
    )
    monkeypatch.setattr(thresholds, name, now)


@pytest.mark.parametrize("factor", [0.9, 1.1])
@pytest.mark.parametrize(
    "name", [*(pytest.param(name, marks=SELDOM) for name in THRESHOLDS), "all"]
)
def test_a_threshold_a_tenth_off_gives_no_false_all_clear_and_no_healthy_load_turns_red(
    name: str, factor: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    for one in THRESHOLDS if name == "all" else [name]:
        moved(monkeypatch, one, factor)
    for well in WELL:
        assert all(d.level != "red" and d.state != "busy_not_working" for d in said_of(well))
    for bad, (first, last) in NOT_WELL.items():
        for d in said_of(bad)[first : last + 1]:
            assert not (d.level == "green" and d.confidence == "high"), d
            assert d.verdict not in ("healthy", "memory_bandwidth"), d


def test_a_main_thread_that_launches_small_kernels_gets_cuda_graphs_first_and_loaders_last() -> (
    None
):
    said = [d for d in said_of("h200_small_steps") if d.verdict == "main_process"]
    assert said and all(
        d.remedy.index("CUDA graphs") < d.remedy.index("DataLoader") for d in said[1:]
    )
    computes = [d for d in said_of("h200_main_cpu") if d.verdict == "main_process"]
    assert computes and all(d.remedy.startswith("DataLoader") for d in computes)
