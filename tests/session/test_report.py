"""Reports and comparisons: time, energy and findings add up, and what is unknown is said to be."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from gputop.cli import main
from gputop.diagnosis.types import STATES
from gputop.model.redaction import Redactor
from gputop.model.snapshot import (
    Event,
    GpuSample,
    GpuStatic,
    Machine,
    ProcessSample,
    ProcessStatic,
    Snapshot,
)
from gputop.output.comparison import compare
from gputop.output.comparison_document import compare_data, compare_document, compare_json
from gputop.output.plain_document import plain
from gputop.output.report_document import NO_TIME
from gputop.output.report_text import (
    report_as,
    report_data,
    report_json,
    report_markdown,
    report_text,
)
from gputop.report.job_report import ReportBuilder, report_recording, report_snapshots
from gputop.sources.simulation.simulated import SimulatedSource
from tests.support.recording_frames import T0, recorded

STATIC = GpuStatic(0, "GPU-0", "NVIDIA H100 80GB HBM3", "hopper", 132)
TRAINING = ProcessSample(
    4000, 700, 1, "gpu", 0, 20 << 30, run_pct=100.0, wait_pct=0.0, main_run_pct=100.0, main_wait_pct=0.0, state="R",
    rss_bytes=1 << 30, age_s=3600.0, static=ProcessStatic("ml", "python train.py", "python"),
)  # fmt: skip


def moment(k: float, util: float = 90.0, sm: float | None = 85.0, **given: object) -> Snapshot:
    gpu = GpuSample(
        STATIC, util_pct=util, sm_active_pct=sm, sm_source="none" if sm is None else "gpm", tensor_active_pct=50.0,
        dram_active_pct=40.0, mem_used_bytes=20 << 30, mem_total_bytes=80 << 30, power_w=360.0, power_limit_w=700.0,
        energy_j=1e9 + 360.0 * k,
    )  # fmt: skip
    return Snapshot(T0 + k, Machine("node-17"), (replace(gpu, **given),), (TRAINING,))


def test_states_add_up_to_the_time_that_was_watched() -> None:
    report = report_snapshots(
        [moment(k) for k in range(61)] + [moment(k, 95.0, 5.0) for k in range(61, 181)]
    )
    (gpu,) = report.gpus
    assert set(gpu.seconds) == set(STATES)
    assert sum(gpu.seconds.values()) == pytest.approx(180.0, abs=1.5)
    assert gpu.seconds["busy_not_working"] > 60
    assert report.time.all_s == pytest.approx(180.0, abs=1.5)
    assert gpu.util_pct == pytest.approx((60 * 90 + 120 * 95) / 180, abs=0.5)
    assert gpu.efficiency_pct == pytest.approx(
        100 * (60 * 85 + 120 * 5) / (60 * 90 + 120 * 95), abs=1
    )


def test_a_clock_set_back_does_not_lose_the_time_before() -> None:
    report = report_snapshots([moment(k) for k in range(100)] + [moment(k) for k in range(50, 150)])
    assert sum(report.gpus[0].seconds.values()) == pytest.approx(199.0, abs=4.0)


@pytest.mark.parametrize(
    "seconds", [[5], [5, 5], [5, 5, 5, 5], [5, 4], [5, 4, 3, 2, 1], [5, 5, 4, 4]]
)
def test_frames_between_which_no_time_passes_are_reported(
    seconds: list[int], tmp_path: Path
) -> None:
    report = report_recording(str(recorded(tmp_path / "r.jsonl.gz", map(moment, seconds))))
    (gpu,) = report.gpus
    assert (report.frames, report.duration_s) == (len(seconds), 0.0)
    assert (gpu.util_pct, gpu.sm_pct, gpu.power_w) == (90.0, 85.0, 360.0)
    assert NO_TIME in report_text(report) and NO_TIME in report_markdown(report)
    assert "nan" not in report_text(report).lower()
    assert json.loads(report_json(report))["duration_s"] == 0.0
    compared = compare(report, report)
    assert plain(compare_document(compared)) and json.loads(compare_json(compared))


def test_what_happened_after_a_clock_was_set_back_is_counted_by_the_time_that_had_passed() -> None:
    report = report_snapshots(
        [moment(k) for k in range(3600, 3700)] + [moment(k, 95.0, 5.0) for k in range(100)]
    )
    finding = next(f for f in report.findings if f.id.endswith(" A"))
    assert report.duration_s == 198.0
    assert 99.0 <= finding.first_after_s < 130.0


def test_energy_is_the_difference_of_the_counter_else_the_integral_of_power() -> None:
    counted = report_snapshots([moment(0), moment(1000), moment(2000)])
    assert counted.gpus[0].energy_kwh == pytest.approx(360.0 * 2000 / 3.6e6)
    assert counted.gpus[0].energy_from == "counter"
    integrated = report_snapshots([moment(k, energy_j=None) for k in range(101)])
    assert integrated.gpus[0].energy_kwh == pytest.approx(360.0 * 100 / 3.6e6)
    assert integrated.gpus[0].energy_from == "power"
    assert "~ energy is the integral of power" in report_text(integrated)
    seldom = report_snapshots([moment(k, energy_j=1e9 + 360.0 * (k // 5 * 5)) for k in range(2004)])
    assert seldom.gpus[0].energy_kwh == pytest.approx(360.0 * 2003 / 3.6e6)
    unknown = report_snapshots([moment(k, energy_j=None, power_w=None) for k in range(3)])
    assert (unknown.gpus[0].energy_kwh, unknown.gpus[0].energy_from) == (None, None)
    again = report_snapshots(
        [moment(0), moment(10), moment(11, energy_j=5.0), moment(12, energy_j=365.0)]
    )
    assert again.gpus[0].energy_kwh == pytest.approx((3600 + 360) / 3.6e6), (
        "a restart adds nothing negative"
    )


def test_what_was_not_measured_is_none_and_said() -> None:
    report = report_snapshots([moment(k, sm=None) for k in range(60)])
    (gpu,) = report.gpus
    assert (gpu.sm_pct, gpu.work_pct, gpu.efficiency_pct) == (None, None, None)
    assert "SM n/a" in report_text(report)
    assert json.loads(report_json(report))["gpus"][0]["sm_pct"] is None


def test_a_finding_says_how_long_since_when_and_what_to_do() -> None:
    bad = [moment(k, 95.0, 5.0) for k in range(100)]
    good = [moment(k) for k in range(100, 200)]
    again = [moment(k, 95.0, 5.0) for k in range(200, 300)]
    report = report_snapshots([*bad, *good, *again])
    finding = next(f for f in report.findings if f.id.endswith(" A"))
    assert finding.spells == 2
    assert 120 < finding.seconds < 210
    assert finding.level == "red"
    assert T0 < finding.first_t < T0 + 20
    assert finding.remedy and [fix.remedy for fix in report.fixes()] == [finding.remedy]
    text = report_text(report)
    assert "busy, not working" in text and "in 2 spells" in text and "What to change" in text


def test_time_in_collectives_is_busy_not_working_and_the_report_says_what_was_wasted_by_cause() -> (
    None
):
    talking = {"tensor_active_pct": 4.0, "dram_active_pct": 8.0, "nvlink_rx_bytes_per_s": 400e9}
    linked = replace(STATIC, nvlink_peak_bytes_per_s=450e9)
    waits = [moment(k, 96.0, 18.0, static=linked, **talking) for k in range(100)]
    tiny = [moment(k, 95.0, 5.0, static=linked) for k in range(100, 200)]
    report = report_snapshots([*waits, *tiny])
    (gpu,) = report.gpus
    assert set(gpu.causes) == {"communication", "small_kernels"}
    assert sum(gpu.causes.values()) == pytest.approx(gpu.seconds["busy_not_working"])
    assert sum(gpu.seconds.values()) == pytest.approx(199.0)
    assert gpu.lost["communication"] == pytest.approx(0.82 * gpu.causes["communication"], rel=0.03)
    assert gpu.lost["small_kernels"] == pytest.approx(0.95 * gpu.causes["small_kernels"])
    text = report_text(report)
    assert "wasted: communication" in text and "wasted: small kernels" in text
    data = report_data(report)
    assert sum(data["busy_not_working_s"].values()) == pytest.approx(
        data["state_s"]["busy_not_working"]
    )
    assert data["gpus"][0]["busy_not_working_seconds"] == gpu.causes
    assert data["gpus"][0]["lost_seconds"] == gpu.lost
    assert data["lost_share"] == pytest.approx(
        sum(gpu.lost.values()) / (199.0 - gpu.seconds["unmeasured"])
    )


def test_money_is_shown_only_at_the_readers_price_also_for_what_was_not_judged() -> None:
    snapshots = [moment(k) for k in range(61)]
    free = report_snapshots(snapshots)
    assert "a GPU-hour" not in report_text(free) and all(
        row["cost"] is None for row in report_data(free)["time"]
    )
    priced = report_snapshots(snapshots, price=3.6)
    assert "at 3.6 a GPU-hour" in report_text(priced)
    rows = report_data(priced)["time"]
    assert [row["key"] for row in rows] == ["worked", "unmeasured"]
    assert all(row["cost"] == pytest.approx(3.6 * row["gpu_s"] / 3600.0) for row in rows)


def test_a_file_of_two_hosts_names_both() -> None:
    other = [
        replace(each, machine=replace(each.machine, hostname="node-18"))
        for each in map(moment, range(61, 120))
    ]
    report = report_snapshots([*map(moment, range(61)), *other])
    (head, *_) = report_text(report).splitlines()
    assert "on node-17, node-18, " in head and report_data(report)["host"] == "node-17"


def test_marks_and_gaps_are_in_the_report() -> None:
    mark = replace(
        moment(3),
        events=(Event(T0 + 3, "mark", "epoch 3"), Event(T0 + 3, "gap", "no data for 9 s")),
    )
    report = report_snapshots([moment(0), moment(1), mark])
    assert "epoch 3" in report_text(report)
    assert "1 gap in the recording" in report_text(report)


def test_a_run_says_command_exit_code_and_that_no_gpu_was_used() -> None:
    report = ReportBuilder().report(
        command="make", exit_code=2, run_s=75.2, notes=["the job used no GPU"]
    )
    assert (
        report_text(report) == "gputop: make: ran 1 min 15 s, exit code 2\n  the job used no GPU\n"
    )
    assert report_data(report)["exit_code"] == 2
    assert report_data(report)["lost_share"] is None


def test_a_report_takes_its_form_from_the_name() -> None:
    report = report_snapshots([moment(k) for k in range(20)])
    assert json.loads(report_as(report, "r.json"))["schema"] == 1
    assert report_as(report, "r.md").startswith(
        "# node-17: 0 of 7 GPU-s wasted (0 % of judged time), 12 GPU-s not judged\n"
    )
    assert report_as(report, "r.txt") == report_text(report)
    with pytest.raises(ValueError, match=r"\.md, \.json or \.txt"):
        report_as(report, "r.pdf")


def test_a_recording_reports_what_its_frames_report(tmp_path: Path) -> None:
    snapshots = [moment(k, 95.0, 5.0) for k in range(90)]
    assert report_recording(str(recorded(tmp_path / "r.jsonl.gz", snapshots))) == report_snapshots(
        snapshots
    )


def test_a_fix_is_called_better_and_its_reverse_worse() -> None:
    slow = report_snapshots([moment(k, 95.0, 5.0) for k in range(120)])
    fast = report_snapshots([moment(k) for k in range(240)])
    there, back = compare(slow, fast), compare(fast, slow)
    directions = {d.key: d.direction for d in there.differences}
    assert (
        directions["sm_pct"]
        == directions["efficiency_pct"]
        == directions["share.working"]
        == "better"
    )
    assert directions["share.busy_not_working"] == "better"
    assert directions["power_w"] == "same"
    assert {d.key: d.direction for d in back.differences}["sm_pct"] == "worse"
    assert there.gone and not there.new and back.new == there.gone
    assert plain(compare_document(there)).splitlines()[0].startswith("Better: ")
    assert plain(compare_document(back)).splitlines()[0].startswith("Worse: ")
    assert compare_data(there)["verdict"] in plain(compare_document(there))


def test_equal_recordings_are_the_same_and_unknown_stays_unknown() -> None:
    report = report_snapshots([moment(k, sm=None) for k in range(60)])
    same = compare(report, report)
    assert {d.direction for d in same.differences} <= {"same", "unknown"}
    assert next(d for d in same.differences if d.key == "sm_pct").direction == "unknown"
    assert json.loads(compare_json(same))["differences"]


def test_a_newcomer_tries_both_commands_on_the_demo_and_each_form_says_that_it_is_simulated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gputop.command_line.demo_node.PAST_S", 60.0)
    for words, status in (("diagnose", 1), ("report", 0)):
        assert main([words, "demo", "dataloader_io"]) == status
        text = capsys.readouterr().out
        assert "node-17 (simulated)" in text and "starved: dataloader, I/O-bound" in text
        assert main([words, "demo", "dataloader_io", "--json", "--redact"]) == status
        shown = json.loads(capsys.readouterr().out)
        assert (shown["simulated"], shown["host"], len(shown["gpus"])) == (True, "host1", 1)
        assert main([words, str(tmp_path), "dataloader_io"]) == 2
        assert f"a scenario belongs to `{words} demo`" in capsys.readouterr().err
    assert main(["report", "demo", "healthy", "--html"]) == 0
    assert "node-17 (simulated):" in capsys.readouterr().out
    path = recorded(tmp_path / "r.jsonl", SimulatedSource("healthy").past(5.0))
    assert report_recording(str(path), recording_filter=Redactor()).is_simulated, (
        "nor is a recording a measurement"
    )


def test_a_short_recording_is_not_called_worse_for_what_was_not_judged() -> None:
    source = SimulatedSource("healthy", clock=lambda: T0)
    compared = compare(
        report_snapshots(source.recent(300.0)), report_snapshots(source.recent(60.0))
    )
    (working,) = (d for d in compared.differences if d.key == "share.working")
    assert (working.earlier, working.later, working.direction) == (100.0, 100.0, "same")


def test_equal_shares_of_time_still_say_how_hard_the_gpu_worked() -> None:
    slow, fast = (report_snapshots(SimulatedSource(name, clock=lambda: T0).recent(120.0))
                  for name in ("no_tensor_cores", "healthy"))  # fmt: skip
    compared = compare(slow, fast)
    assert ", but WORK went from" in plain(compare_document(compared))
    # SM says that warps are resident; where WORK says otherwise, a lower SM is no loss.
    assert {d.key: d.direction for d in compared.differences}["sm_pct"] in ("changed", "same")


def test_a_gpu_that_mig_has_split_is_counted_as_its_instances() -> None:
    report = report_snapshots(SimulatedSource("mig", clock=lambda: T0).recent(120.0))
    assert [gpu.label for gpu in report.gpus] == ["0", "1/1/0", "2/2/0"]
    assert [gpu.label for gpu in report.counted] == ["1/1/0", "2/2/0"]
    assert report.time.all_s == pytest.approx(2 * 3 / 7 * report.duration_s, rel=0.001), (
        "two instances of 3 slices"
    )
    assert report.time.unjudged_s < 0.15 * report.time.all_s
    priced = replace(report, price=7.0)
    assert sum(row["cost"] for row in report_data(priced)["time"]) == pytest.approx(
        6.0 * report.duration_s / 3600.0
    )
    assert "2 GPUs" in report_text(report) and "cannot be seen there" not in report_text(report)


def test_a_gpu_without_a_counter_is_told_how_sm_is_measured() -> None:
    report = report_snapshots(SimulatedSource("no_sm_counter", clock=lambda: T0).recent(60.0))
    assert any("--perf" in note for note in report.notes)
