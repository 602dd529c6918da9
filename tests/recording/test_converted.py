"""The converted recordings get the verdicts, spans and flips that they had before the conversion."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from gputop.model.snapshot import Snapshot
from gputop.monitor import Monitor
from gputop.recording.reader import read_snapshots
from gputop.recording.rounding import rounded
from tests.support.made_recordings import SCENES, snapshots

ROOT = Path(__file__).parents[1]
JUDGED: dict[str, Any] = json.loads((ROOT / "inputs" / "judged.json").read_text())
FILES = {
    path.name.partition(".jsonl")[0].removesuffix(".gputop"): path
    for folder in ("inputs", "vectors", "telemetry")
    for path in (ROOT / folder).glob("*.jsonl*")
}
FOUND_SINCE = {
    "low_clock": "low_clock", "p8_stuck": "low_clock", "frozen_power": "low_clock", "device_map": "take_turns",
    "device_map_fast": "take_turns", "pcie_x1": "pcie_transfer",
}  # fmt: skip
"""Recordings that were judged wrongly then, with the verdict that is true of them."""


def judged(given: Iterable[Snapshot]) -> dict[str, Any]:
    """The changes of verdict, flag, level and confidence of each GPU, each with the number of its frame."""
    monitor, frames = Monitor(charts=False), 0
    spans: dict[int, list[list[Any]]] = {}
    for snapshot in given:
        for d in monitor.feed(snapshot).diagnoses:
            now = [d.verdict, d.busy_not_working, d.level, d.confidence]
            rows = spans.setdefault(d.index, [])
            if not rows or rows[-1][1:] != now:
                rows.append([frames, *now])
        frames += 1
    return {"frames": frames, "gpus": list(spans.values())}


def test_every_recording_is_compared() -> None:
    assert set(FILES) == set(JUDGED)


@pytest.mark.parametrize("name", sorted(JUDGED))
def test_a_converted_recording_is_judged_as_before(name: str) -> None:
    found = judged(read_snapshots(str(FILES[name])))
    if name in FOUND_SINCE:
        assert found["frames"] == JUDGED[name]["frames"]
        assert {rows[-1][1] for rows in found["gpus"]} == {FOUND_SINCE[name]}
    else:
        assert found == JUDGED[name]


@pytest.mark.parametrize("name", sorted(SCENES))
def test_a_scene_is_judged_as_its_recording(name: str) -> None:
    found = judged(map(rounded, snapshots(SCENES[name])))
    assert found == judged(read_snapshots(str(FILES[name])))
