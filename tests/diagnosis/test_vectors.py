"""Recordings with a known diagnosis: what stands at the end of each must be what ``expected.json`` says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gputop.monitor import Monitor
from gputop.recording.reader import read_snapshots

VECTORS = Path(__file__).parents[1] / "vectors"
EXPECTED: dict[str, dict[str, Any]] = json.loads((VECTORS / "expected.json").read_text())


def test_every_recording_has_its_expectation_and_the_reverse() -> None:
    assert {path.stem for path in VECTORS.glob("*.jsonl")} == set(EXPECTED)


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_a_recording_is_diagnosed_as_expected(name: str) -> None:
    expected = EXPECTED[name]
    monitor = Monitor(charts=False)
    for snapshot in read_snapshots(str(VECTORS / f"{name}.jsonl")):
        frame = monitor.feed(snapshot)
    for diagnosis in frame.diagnoses:
        assert diagnosis.verdict == expected["verdict"], diagnosis
        assert diagnosis.busy_not_working == expected["busy_not_working"]
        found = {badge.id for badge in diagnosis.badges}
        assert set(expected["badges"]) <= found
        assert not found & set(expected["not_badges"])
        if expected["efficiency"] is not None:
            assert diagnosis.efficiency_pct == pytest.approx(expected["efficiency"], abs=0.5)
        assert diagnosis.evidence
        assert any(character.isdigit() for character in diagnosis.evidence[0]), (
            "evidence carries numbers"
        )
