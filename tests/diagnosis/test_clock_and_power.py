"""Readings of one GPU checked against each other: a clock far below its maximum, and power that cannot be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from gputop.cli import main
from gputop.diagnosis.types import GpuDiagnosis
from gputop.diagnosis.verdict.summary import in_sample
from gputop.model.derived import (
    APPLICATION_CLOCKS,
    HARDWARE_THERMAL,
    POWER_BRAKE,
    POWER_CAP,
    SOFTWARE_THERMAL,
)
from gputop.recording.writer import RecordingWriter
from gputop.report.gpu_account import GpuAccount
from tests.support.scenes import Watch, assert_told, gpu, snap, train

LOW: dict[str, Any] = {
    "util": 99.0, "sm": 92.0, "tensor_active_pct": 50.0, "power_w": 150.0, "sm_clock_mhz": 345.0, "main": 100.0,
}  # fmt: skip
FROZEN: dict[str, Any] = {
    "util": 99.0, "sm_source": "none", "sm": None, "tensor_active_pct": None, "dram": None, "temp_c": 48.0,
    "power_w": 588.7, "power_limit_w": 35.0, "sm_clock_mhz": 210.0, "sm_clock_max_mhz": 3105.0, "energy_j": 1000.0,
    "throttle_reasons": POWER_CAP | SOFTWARE_THERMAL,
}  # fmt: skip


def watched(seconds: int = 60, **values: Any) -> Watch:
    main = values.pop("main", 10.0)
    watch = Watch()
    watch.feed(snap(tick, gpu(**values), [train(main=main)]) for tick in range(seconds))
    return watch


def told_of(**values: Any) -> GpuDiagnosis:
    return watched(**values).said[-1][1]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, "345 of 1980 MHz (17 %), reason: none given"),
        ({"throttle_reasons": APPLICATION_CLOCKS}, "reason: application clocks"),
        ({"pstate": 8}, "reason: P8"),
        ({"throttle_reasons": None}, "not readable"),
        ({"sm_clock_mhz": 989.0}, "989 of 1980 MHz"),
        ({"util": 90.0, "sm": 80.0}, "345 of 1980"),
        ({"sm": None, "sm_source": "none", "tensor_active_pct": None, "dram": None}, "345 of 1980"),
        ({"sm": 92.0, "tensor_active_pct": 1.0, "fp32_active_pct": 60.0}, "345 of 1980"),
    ],
)
def test_a_low_clock_without_heat_or_power_is_yellow_and_named(
    changes: dict[str, Any], reason: str
) -> None:
    said = told_of(**{**LOW, **changes})
    assert_told(
        said,
        {
            "verdict": "low_clock",
            "level": "yellow",
            "badges": {"low_clock": "yellow"},
            "says": reason,
        },
    )
    assert said.evidence[0] == said.badges[0].evidence and "nvidia-smi -rgc" in said.remedy


@pytest.mark.parametrize(
    "changes",
    [
        {"sm_clock_mhz": 990.0}, {"util": 89.0, "sm": 80.0}, {"power_w": 595.0}, {"throttle_reasons": SOFTWARE_THERMAL},
        {"throttle_reasons": HARDWARE_THERMAL}, {"throttle_reasons": POWER_BRAKE}, {"throttle_reasons": POWER_CAP},
        {"sm_clock_max_mhz": None}, {"sm_clock_mhz": None}, {"throttle_reasons": None, "power_w": None},
    ],
)  # fmt: skip
def test_a_clock_with_a_reason_or_near_its_maximum_is_not_accused(changes: dict[str, Any]) -> None:
    said = told_of(**{**LOW, **changes})
    assert_told(said, {"lacks": "low_clock"})
    assert said.verdict != "low_clock"


def test_a_desktop_that_rests_at_a_low_clock_is_not_accused() -> None:
    desktop = replace(train(), type="G")
    watch = Watch()
    said = watch.feed(
        snap(tick, gpu(**{k: v for k, v in LOW.items() if k != "main"}), [desktop])
        for tick in range(60)
    )
    assert_told(said, {"lacks": "low_clock"})


def test_the_missing_share_of_the_clock_is_lost() -> None:
    watch = watched(160, **LOW)
    lost = watch.said[-1][1].lost or {}
    assert lost["low_clock"] == pytest.approx(120 * (1.0 - 345.0 / 1980.0), rel=0.3)
    (_, before), (_, now) = watch.said[-2], watch.said[-1]
    assert lost["low_clock"] - (before.lost or {})["low_clock"] == pytest.approx(
        1.0 - 345.0 / 1980.0
    )
    assert now.charged_s > 0.0


def test_a_busy_gpu_that_does_not_work_keeps_its_verdict_beside_a_low_clock() -> None:
    said = told_of(**{**LOW, "sm": 10.0, "tensor_active_pct": 1.0, "dram": 5.0})
    assert_told(said, {"verdict": "small_kernels", "has": "low_clock"})


def test_impossible_power_is_no_evidence_and_the_clock_is_the_finding() -> None:
    watch = watched(**FROZEN)
    said = watch.said[-1][1]
    assert_told(
        said,
        {
            "verdict": "low_clock", "badges": {"low_clock": "yellow"}, "never": ("1682 %", "airflow", "raise", "lower"),
            "says": ("210 of 3105 MHz (7 %)", "589 W is not possible with a limit of 35 W", "cold boot"),
        },
    )  # fmt: skip
    believed = watch.diagnoser.believed
    assert believed is not None
    sample = believed.gpus[0]
    assert (sample.power_w, sample.energy_j) == (None, None) and "589 W" in sample.unavailable[
        "power_w"
    ]


def test_energy_is_not_counted_from_impossible_power() -> None:
    watch = Watch()
    account = None
    for tick in range(90):
        wrong = 30 <= tick < 60
        counter_j = 400.0 * tick + 9000.0 * min(max(tick - 30, 0), 30)
        said = watch.feed([snap(tick, gpu(power_w=9000.0 if wrong else 400.0, energy_j=counter_j))])
        assert watch.diagnoser.believed is not None
        sample = watch.diagnoser.believed.gpus[0]
        account = account or GpuAccount(sample)
        account.add(sample, said, 1.0)
    assert account is not None
    energy = account.report().energy_kwh
    assert energy is not None and energy * 3.6e6 == pytest.approx(400.0 * 59, rel=0.03)


@pytest.mark.parametrize("watts", [700.0, 770.0, 840.0])
def test_power_that_swings_around_its_limit_is_measured(watts: float) -> None:
    watch = watched(20, power_w=watts)
    assert (
        watch.diagnoser.believed is not None and watch.diagnoser.believed.gpus[0].power_w == watts
    )


def test_heat_and_the_power_limit_never_ask_for_opposite_things() -> None:
    said = told_of(throttle_reasons=POWER_CAP | SOFTWARE_THERMAL, sm_clock_mhz=628.0, temp_c=90.0)
    words = " ".join(badge.remedy for badge in said.badges)
    assert "lower the power limit" in words and "raise the power limit" not in words


def test_one_sample_shows_a_low_clock_too() -> None:
    low = gpu(**{key: value for key, value in LOW.items() if key != "main"})
    assert in_sample(low)[0] == "low clock"
    assert in_sample(replace(low, throttle_reasons=SOFTWARE_THERMAL))[0] != "low clock"
    assert in_sample(gpu())[0] == "working"


def test_a_report_tells_a_low_clock_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    writer = RecordingWriter(str(tmp_path / "low.jsonl.gz"))
    values = {key: value for key, value in LOW.items() if key != "main"}
    for tick in range(90):
        writer.write(snap(tick, gpu(**values), [train(main=100.0)]))
    writer.close()
    main(["report", str(tmp_path / "low.jsonl.gz")])
    told = capsys.readouterr().out
    assert told.count("345 of 1980 MHz") == 1 and "wasted: low clock" in told
