"""Hardware reports: what `gputop prove --report` writes, and the page that is made of what others wrote."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.features.prove.test_prove import Cuda, Proving, cuda, gpu
from tests.nvml.stand_in import Scenario, uuid_of
from tests.tools.hardware_page import NoReport, page, read_report

__all__ = ["cuda"]


def report(**changes: Any) -> dict[str, Any]:
    stage = {"title": "33 of 132", "expected_pct": 25.0, "util_pct": 100.0, "sm_pct": 25.4, "dram_pct": 0.0,
             "power_w": 210.0, "ok": True}  # fmt: skip
    return {
        "kind": "gputop hardware report", "schema": 1, "gputop": "0.2.0", "date": "2026-11-23", "gpu": "NVIDIA X",
        "architecture": "hopper", "multiprocessors": 132, "driver": "580.65.06", "kernel": "6.8.0", "sm_source": "gpm",
        "exit_status": 0, "words": "SM activity is right", "stages": [stage], "sources": [], **changes,
    }  # fmt: skip


def test_a_report_is_a_row_with_card_driver_source_and_error(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(report(by="ana|<b>\x1b[31m")))
    text = page(tmp_path)
    assert "| NVIDIA X | 580.65.06 | gpm | right | 0.4 points | 0.2.0 | 2026-11-23 | ana/‹b>" in text
    assert "\x1b" not in text


@pytest.mark.parametrize(
    "data",
    [
        b"", b"[]", b"{}", b"\xff\xfe", b"[" * 100_000, json.dumps(report(exit_status=7)).encode(),
        json.dumps(report(stages=[{}])).encode(), json.dumps(report(kind="other")).encode(), b" " * (1 << 20),
        json.dumps(report(gpu=5)).encode(),
    ],
    ids=lambda data: str(data[:12]),
)  # fmt: skip
def test_what_is_no_report_is_one_line(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(NoReport, match=r"^no hardware report: ") as said:
        read_report(data)
    assert "\n" not in str(said.value)
    (tmp_path / "a.json").write_bytes(data)
    with pytest.raises(SystemExit, match=r"^a\.json: no hardware report"):
        page(tmp_path)


@pytest.mark.slow
@pytest.mark.nvml
@pytest.mark.weekly
def test_prove_writes_a_report_that_names_neither_host_nor_gpu(
    nvml_scenario: Callable[..., Scenario], cuda: Cuda, tmp_path: Path
) -> None:
    path = tmp_path / "report.json"
    scenario = nvml_scenario(1)
    with gpu(scenario, cuda):
        status, _, err = Proving(scenario, cuda, "--report", str(path)).done()
    assert status == 0, err
    found = read_report(path.read_bytes())
    assert (found.gpu, found.exit_status, found.sm_source) == ("NVIDIA H100 80GB HBM3", 0, "gpm")
    assert {source.source: source.ok for source in found.sources}["gpm"]
    assert all(stage.ok is not False for stage in found.stages) and len(found.stages) > 4
    assert uuid_of(0) not in path.read_text() and os.uname().nodename not in path.read_text()
