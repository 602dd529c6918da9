"""The report proposes the smallest card that holds a job and keeps up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from gputop.cli import main
from gputop.model.snapshot import Snapshot
from tests.session.test_report_acts import moments
from tests.support.recording_frames import recorded


def proposed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], found: list[Snapshot]
) -> tuple[list[dict[str, Any]], str]:
    """Smaller cards as JSON, and the report as text."""
    spread = [
        replace(each, t=found[0].t + 10.0 * k, interval_s=10.0) for k, each in enumerate(found)
    ]
    file = str(recorded(tmp_path / "r.jsonl", spread))
    assert main(["report", file, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert main(["report", file]) == 0
    return data["smaller_cards"], " ".join(capsys.readouterr().out.split())


def test_the_smallest_card_that_holds_the_peak_and_keeps_up_is_named_with_its_source(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (card,), text = proposed(tmp_path, capsys, moments(64, sm=15.0, held_gib=19.0, dram=5.0))
    # 15 % of an H100's 67 TFLOPS is 32 % of an A10's 31.2; its 10 % of tensor cores is 79 % of an A10's.
    assert (card["card"], card["keeps_up"]) == ("A100 40 GB", True)
    assert card["source"] == "NVIDIA A100 data sheet, 2026-11"
    assert "Another card" in text and "at most 19.0 GiB held: A100 40 GB (40 GB) would do" in text


def test_a_card_that_holds_the_job_and_is_slower_is_called_slower(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (card,), text = proposed(tmp_path, capsys, moments(64, sm=95.0, held_gib=19.0, dram=90.0))
    assert card["keeps_up"] is False and "would hold it, but be slower" in text


def test_without_a_measurement_it_cannot_be_told_whether_a_card_keeps_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = [
        replace(each, gpus=tuple(replace(gpu, dram_active_pct=None) for gpu in each.gpus))
        for each in moments(64, held_gib=10.0)
    ]
    (card,), text = proposed(tmp_path, capsys, found)
    assert card["keeps_up"] is None and "cannot tell whether it keeps up: DRAM not measured" in text


def test_no_card_is_proposed_for_a_short_or_full_or_unlisted_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for found in (
        moments(40),
        moments(64, held_gib=75.0),
        moments(64, name="NVIDIA GeForce RTX 4090"),
    ):
        cards, text = proposed(tmp_path, capsys, found)
        assert cards == [] and "Another card" not in text
        (tmp_path / "r.jsonl").unlink()
