"""The step of a job that does not announce it: found from the GPUs' rhythm, told with its source, recorded."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from itertools import islice
from math import pi, sin
from pathlib import Path
from typing import cast

import pytest
from msgspec import Struct
from msgspec.structs import replace

from gputop.diagnosis.host.job_steps import StepPeriods, period
from gputop.diagnosis.phase_growth import grown
from gputop.model.snapshot import (
    Event,
    GpuSample,
    GpuStatic,
    Machine,
    ProcessSample,
    ProcessStatic,
    Snapshot,
)
from gputop.model.step_pace import StepPeriod
from gputop.model.steps import Phase, StepRow
from gputop.monitor import Frame, Monitor
from gputop.output.report_text import report_data, report_text
from gputop.paint.step_words import step_words
from gputop.recording.reader import read_snapshots
from gputop.recording.recorder import Recorder
from gputop.recording.writer import RecordingWriter
from gputop.report.job_report import report_recording
from gputop.session.session import Session
from gputop.sources.simulation.scenarios import STEP_S
from gputop.sources.simulation.simulated import snapshot_at
from tests.support.recording_frames import read_back

NOW = 1_780_000_000.0
QUARTER = 0.25


def pulses(
    step_s: float, n: int = 240, spacing_s: float = QUARTER, share: float = 0.2, noise: float = 0.0
) -> list[float]:
    """A burst at the end of each step, as gradients over NVLink make it; each sample is the mean since the last one, as
    counters are."""
    draw = random.Random(7)
    return [
        5.0 + 85.0 * (burst_s((k + 1) * spacing_s, step_s, share) - burst_s(k * spacing_s, step_s, share)) / spacing_s
        + noise * draw.gauss(0.0, 1.0)
        for k in range(n)
    ]  # fmt: skip


def burst_s(t: float, step_s: float, share: float) -> float:
    """Seconds of bursts until a time."""
    whole, rest = divmod(t, step_s)
    return whole * share * step_s + max(0.0, rest - (1.0 - share) * step_s)


@pytest.mark.parametrize("step_s", [2.0, 3.46, 5.8, 9.7, 14.9, 19.0])
def test_the_step_is_found_to_three_percent_from_two_seconds_to_a_third_of_the_window(
    step_s: float,
) -> None:
    found = period(pulses(step_s, noise=4.0), QUARTER)
    assert found == pytest.approx(step_s, rel=0.03)


@pytest.mark.parametrize("step_s", [0.3, 0.7, 1.0, 1.1, 1.3, 1.5, 1.7, 1.85, 1.9])
def test_a_step_below_two_seconds_is_not_found_nor_any_multiple_of_it(step_s: float) -> None:
    found = period(pulses(step_s, share=0.5), QUARTER)
    assert found is None


def test_noise_drift_constants_and_single_pulses_have_no_period() -> None:
    draw = random.Random(1)
    walk = [0.0]
    for _ in range(239):
        walk.append(walk[-1] + draw.gauss(0.0, 1.0))
    for series in (
        [5.0] * 240, [draw.gauss(50.0, 20.0) for _ in range(240)], walk, [float(k) for k in range(240)],
        [90.0 if k in (30, 130, 190) else 5.0 for k in range(240)], pulses(5.8, 20), [],
    ):  # fmt: skip
        assert period(series, QUARTER) is None


def test_the_first_peak_counts_and_not_a_multiple_of_it() -> None:
    alternating = [
        a * (1.0 if int(k * QUARTER / 4.0) % 2 else 0.95) for k, a in enumerate(pulses(4.0))
    ]
    assert period(alternating, QUARTER) == pytest.approx(4.0, rel=0.03)


Reading = Callable[[float], float]


def moments(
    reading: Reading,
    seconds: float = 130.0,
    interval_s: float = QUARTER,
    *,
    server: str | None = None,
    gpus: int = 1,
) -> Iterator[Snapshot]:
    """A job on one GPU or more, whose NVLink traffic is ``reading`` of the time."""
    static = ProcessStatic(job_key="job", server=server)
    held = tuple(ProcessSample(100 + i, 1, gpu=i, static=static) for i in range(gpus))
    for k in range(int(seconds / interval_s)):
        t = k * interval_s
        cards = tuple(
            GpuSample(
                GpuStatic(i, f"GPU-{i}", "NVIDIA H100 80GB HBM3"), util_pct=98.0, sm_active_pct=88.0, sm_source="gpm",
                tensor_active_pct=50.0, power_w=600.0,
                nvlink_rx_bytes_per_s=reading(t), nvlink_tx_bytes_per_s=reading(t),
            )
            for i in range(gpus)
        )  # fmt: skip
        yield Snapshot(NOW + t, Machine("node"), cards, held, interval_s=interval_s)


def burst(step_s: float) -> Reading:
    return lambda t: 90e9 if t % step_s > 0.8 * step_s else 4e9


def last_frame(given: Iterator[Snapshot], monitor: Monitor | None = None) -> Frame:
    monitor = monitor or Monitor(QUARTER, charts=False)
    for snapshot in given:
        monitor.feed(snapshot)
    assert monitor.latest is not None
    return monitor.latest


def test_two_windows_that_agree_give_the_step_of_the_job_in_its_title() -> None:
    monitor, given = Monitor(QUARTER, charts=False), moments(burst(5.8), gpus=2)
    early = last_frame(islice(given, int(100.0 / QUARTER)), monitor)
    assert early.periods == (), "one window alone may be chance"
    frame = last_frame(given, monitor)
    (found,) = frame.periods
    assert (found.gpus, found.source, found.grown_t) == ((0, 1), "nvlink", None)
    assert found.period_s == pytest.approx(5.8, abs=0.06)
    assert step_words(frame, frame.snapshot.gpus[1]) == "step ≈ 5.8 s (from NVLink)"
    assert step_words(frame, frame.snapshot.gpus[1], 12) == "step ≈ 5.8 s"


def test_at_one_sample_a_second_nothing_is_said() -> None:
    assert last_frame(moments(burst(5.8), 300.0, 1.0), Monitor(charts=False)).periods == ()


def test_a_server_is_not_said_to_step() -> None:
    assert last_frame(moments(burst(5.8), server="vllm")).periods == ()


def test_windows_that_disagree_and_windows_with_a_hole_show_nothing() -> None:
    assert last_frame(moments(lambda t: burst(5.8)(t) if t < 61.0 else burst(7.5)(t))).periods == ()
    holed = (snapshot for snapshot in moments(burst(5.8)) if not 50.0 < snapshot.t - NOW < 52.0)
    assert last_frame(holed).periods == ()


def test_a_step_that_the_job_announces_wins() -> None:
    given = list(moments(burst(5.8)))
    row = StepRow(100, 0, 0, "train", 1, 5.8, 5.8, 5.8, 5.8, 5.8)
    frame = last_frame(iter([*given[:-1], replace(given[-1], steps=(row,))]))
    assert frame.periods and step_words(frame, frame.snapshot.gpus[0]).startswith("5.80 s a step")


def grows(t: float) -> float:
    return burst(5.0)(t) if t < 122.0 else burst(5.8)(t)


def test_a_step_that_grows_by_a_tenth_is_a_finding_with_its_time_and_less_is_none() -> None:
    frame = last_frame(moments(grows, 260.0))
    (found,) = frame.periods
    assert found.first_s == pytest.approx(5.0, rel=0.02) and found.period_s == pytest.approx(
        5.8, rel=0.02
    )
    assert found.grown_t is not None and 180.0 < found.grown_t - NOW < 250.0
    (badge,) = [badge for badge in frame.diagnoses[0].badges if badge.id == "step_growth"]
    assert badge.level == "yellow" and "16 % longer than the 5.0" in badge.evidence.replace(
        "5.00", "5.0"
    )
    steady = last_frame(moments(lambda t: burst(5.0 if t < 122.0 else 5.3)(t), 260.0))
    assert steady.periods and not [b for b in steady.diagnoses[0].badges if b.id == "step_growth"]


def test_a_multiple_of_the_step_is_not_growth() -> None:
    frame = last_frame(moments(lambda t: burst(5.0)(t) if t < 122.0 else burst(10.0)(t), 260.0))
    assert frame.periods[0].grown_t is None


@lru_cache(maxsize=1)
def simulated() -> Frame:
    monitor = Monitor(QUARTER, charts=False)
    for k in range(int(130 / QUARTER)):
        monitor.feed(
            snapshot_at(NOW + QUARTER * k, scenario="step_time", started=NOW, interval_s=QUARTER)
        )
    assert monitor.latest is not None
    return monitor.latest


def test_the_demo_has_such_a_job_and_its_step_is_found() -> None:
    frame = simulated()
    assert frame.periods[0].period_s == pytest.approx(STEP_S, rel=0.03)
    assert "(from NVLink)" in step_words(frame, frame.snapshot.gpus[0])


@pytest.mark.parametrize("scenario", ["communication", "low_demand"])
def test_no_step_is_found_where_no_job_steps(scenario: str) -> None:
    periods = StepPeriods()
    for k in range(int(190 / QUARTER)):
        periods.observe(
            snapshot_at(NOW + QUARTER * k, scenario=scenario, started=NOW, interval_s=QUARTER)
        )
        assert periods.periods == ()


class Direct(Struct):
    """Writes what a recorder is offered at once, so that nothing is dropped however fast it comes."""

    writer: RecordingWriter

    def offer(
        self, snapshot: Snapshot, derived: Iterable[Event] = (), interval_s: float = 0.0
    ) -> None:
        self.writer.write(snapshot, derived)


def test_a_recording_keeps_the_value_and_its_report_and_replay_have_it_without_the_samples(
    tmp_path: Path,
) -> None:
    path = tmp_path / "run.gputop.jsonl"
    session, recorder = Session(Monitor(QUARTER, charts=False)), Direct(RecordingWriter(str(path)))
    session.record(cast("Recorder", recorder))
    for snapshot in moments(grows, 260.0):
        frame = session.take(snapshot)
    recorder.writer.close()
    back = list(read_snapshots(str(path)))
    kept = back[-1].periods[0]
    assert kept == replace(
        frame.periods[0], period_s=kept.period_s, first_s=kept.first_s, grown_t=kept.grown_t
    )
    assert kept.period_s == pytest.approx(frame.periods[0].period_s, abs=1e-3)
    # A jump to the end feeds a new monitor with less than the two windows that it took to find.
    after_a_jump = Monitor(QUARTER, charts=False)
    for snapshot in back[-20:]:
        shown = after_a_jump.feed(snapshot)
    assert "step ≈ 5.8 s (from NVLink)" in step_words(shown, shown.snapshot.gpus[0])
    report = report_recording(str(path))
    assert "Step on GPU 0: about 5.8 s (from NVLink), 5.0 s at first" in report_text(report)
    assert any(finding.id == "step_growth" for finding in report.findings)
    assert report_data(report)["step_periods"][0]["source"] == "nvlink"


def test_the_length_of_a_step_is_read_back_with_its_frame() -> None:
    given = replace(
        next(moments(burst(3.0))), periods=(StepPeriod((0, 1), 5.812, "power", 5.1, NOW),)
    )
    assert read_back(given)[0].periods == given.periods


def test_a_sine_is_found_too_as_power_swings() -> None:
    assert period(
        [500.0 + 100.0 * sin(2 * pi * k * QUARTER / 7.3) for k in range(240)], QUARTER
    ) == pytest.approx(7.3, rel=0.01)


@pytest.mark.parametrize("share", [0.15, 0.3, 0.5, 0.8])
def test_of_every_step_length_either_the_step_is_found_or_nothing(share: float) -> None:
    """Never a multiple, never a part: also of steps that are no whole number of samples."""
    for hundredths in range(30, 1900, 13):
        found = period(pulses(hundredths / 100.0, share=share), QUARTER)
        assert found is None or found == pytest.approx(hundredths / 100.0, rel=0.03), (
            hundredths,
            found,
        )


@pytest.mark.parametrize(("longer", "phase"), [(1.3, "forward"), (1.15, None), (0.5, None)])
def test_a_phase_has_grown_where_the_last_third_of_the_steps_is_a_fifth_longer(
    longer: float, phase: str | None
) -> None:
    steps: list[dict[Phase, float]] = [
        {"forward": 0.1 * (longer if at > 25 else 1.0), "backward": 0.001} for at in range(39)
    ]
    found = grown(steps)
    assert (None if found is None else found.phase) == phase
    assert grown(steps[:32]) is None, "too few steps"
