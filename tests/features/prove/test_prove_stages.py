"""The stages of `gputop prove`, and what is concluded from samples that a test gives; its table and picture."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from gputop.features.prove.experiment import (
    Stage,
    StageSample,
    result,
    stages,
    tolerance_pct,
    verdict,
)
from gputop.features.prove.prove_report import text
from gputop.features.prove.prove_run import Proof
from gputop.model.sm import SmSource
from tests.features.prove.test_prove import cuda
from tests.support.frames import demo_frame
from tests.tools.hardware_page import NoReport, page, read_report


def samples(sm: float | None, util: float = 100.0, source: SmSource = "gpm") -> list[StageSample]:
    return [
        StageSample(float(t), util, None if sm is None else sm + t * 0.1, source, None, 100.0)
        for t in range(3)
    ]


def results(
    read: Callable[[Stage], float | None], n: int = 132, source: SmSource = "gpm"
) -> list[Any]:
    return [
        result(stage, samples(read(stage), 0.0 if stage.kind == "idle" else 100.0, source), n)
        for stage in stages(n)
    ]


def truth(stage: Stage) -> float:
    return stage.expected_pct if stage.expected_pct is not None else 7.0


def test_the_stages_go_from_nothing_to_the_whole_chip() -> None:
    assert [stage.blocks for stage in stages(132) if stage.kind == "spin"] == [1, 33, 66, 132]
    assert [stage.expected_pct for stage in stages(4) if stage.kind == "spin"] == [
        25.0,
        50.0,
        100.0,
    ]
    assert [stage.blocks for stage in stages(1) if stage.kind == "spin"] == [1]
    assert stages(132)[0].expected_pct == 0.0
    assert (tolerance_pct(132), tolerance_pct(14)) == (2.0, pytest.approx(7.14, abs=0.01))


def test_counters_that_say_what_ran_are_right() -> None:
    found = verdict(results(truth))
    assert found.exit_status == 0
    assert found.words.startswith(
        "SM activity is right within 0.1 points. Utilisation was at least 95 % in 6 of 6"
    )


@pytest.mark.parametrize(
    ("read", "reason"),
    [
        (lambda stage: truth(stage) * 0.5, "held up"),
        (lambda stage: 0.0, "reads 0 at work"),
        (lambda stage: truth(stage) + 20.0, "not idle while gputop ran nothing on it"),
        (lambda stage: 100.0 if stage.kind == "spin" else truth(stage), "another process"),
    ],
)
def test_counters_that_say_something_else_are_caught(
    read: Callable[[Stage], float], reason: str
) -> None:
    found = verdict(results(read))
    assert found.exit_status == 1 and "points off" in found.words and reason in found.reason


def test_without_a_measurement_only_a_bound_is_known() -> None:
    found = verdict(results(truth, source="bound"), "Ampere has no GPM counters")
    assert (found.exit_status, found.reason) == (3, "Ampere has no GPM counters")
    partly = verdict(results(lambda stage: None if stage.blocks == 66 else truth(stage)))
    assert partly.exit_status == 1 and "66 of 132" in partly.words


@pytest.mark.parametrize("read", [truth, lambda stage: 0.5 * truth(stage), lambda stage: None])
def test_the_table_fits_the_narrowest_terminal(read: Callable[[Stage], float | None]) -> None:
    gpu = demo_frame().snapshot.gpus[0]
    gpu = replace(
        gpu,
        sm_source="bound",
        power_w=1200.0,
        static=replace(gpu.static, name="NVIDIA H100 80GB HBM3 NVL"),
    )
    found = results(read)
    why = (
        "Ampere has no GPM counters (Hopper and newer have); run dcgm-exporter with "
        "DCGM_FI_PROF_SM_ACTIVE enabled"
    )
    lines = text(
        Proof(gpu, "580.95.05", 132, 13000, ("python (4194304)",), tuple(found)),
        verdict(found, why),
    )
    assert max(map(len, lines.splitlines())) <= 80
    assert "← nvidia-smi: 100" in lines and "used by python (4194304)" in lines


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
    assert (
        "| NVIDIA X | 580.65.06 | gpm | right | 0.4 points | 0.2.0 | 2026-11-23 | ana/‹b>" in text
    )
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
