"""What people read: shares of 100 that end at 100, units that fit, one and many, and what was judged or measured."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from gputop.cli import main
from gputop.model.durations import duration, duration_of, energy_words, gpu_time, length, seconds
from gputop.model.quantity import file_size, mfu_words, numbers
from gputop.model.snapshot import Snapshot
from gputop.monitor import Frame, Monitor
from gputop.output.ansi import plain_text
from gputop.output.snapshot_data import gpu_csv, snapshot_data
from gputop.paint.main_screen import main_screen
from gputop.paint.view import View
from tests.support.recording_frames import recorded
from tests.support.scenes import gpu, snap, train


def test_runs_of_gpus_are_joined() -> None:
    runs = ([], [3], [1, 0], [0, 1, 2], [7, 5, 6, 1, 9, 6])
    assert [numbers(indices) for indices in runs] == ["", "3", "0, 1", "0-2", "1, 5-7, 9"]


def test_short_times_keep_what_matters_and_a_length_below_a_second_is_not_zero() -> None:
    assert [seconds(value) for value in (0.0, 0.25, 0.2501, 0.5, 0.999, 1.0, 12.34)] == [
        "0 s", "0.25 s", "0.25 s", "0.5 s", "1.0 s", "1.0 s", "12.3 s",
    ]  # fmt: skip
    assert [length(value) for value in (0.0, 0.25, 0.75, 1.2, 42.4, 723.0)] == [
        "0 s", "0.25 s", "0.75 s", "1 s", "42 s", "12 min 3 s",
    ]  # fmt: skip


def test_durations_are_rounded_not_cut() -> None:
    seconds_in = {"s": 1.0, "min": 60.0, "h": 3600.0}
    shown = [
        45.4,
        89.7,
        90.0,
        91.0,
        119.0,
        119.9,
        225.0,
        599.0,
        7100.0,
        7199.0,
        7200.0,
        9000.0,
        360_000.0,
    ]
    assert [duration(value) for value in shown] == [
        "45 s", "90 s", "90 s", "1.5 min", "2 min", "2 min", "3.8 min", "10 min", "118 min", "2 h", "2 h", "2.5 h",
        "100 h",
    ]  # fmt: skip
    assert [duration(value, whole=True) for value in (45.0, 119.0, 225.0, 9000.0)] == [
        "45 s",
        "2 min",
        "4 min",
        "2 h",
    ]
    for tenths in range(0, 1_000_000, 7):
        value = tenths / 10.0
        amount, unit = duration(value).split()
        digit = seconds_in[unit] * (
            0.1 if unit == "h" or (unit == "min" and value < 597.0) else 1.0
        )
        assert abs(float(amount) * seconds_in[unit] - value) <= digit / 2 + 1e-6, value
    assert [length(value) for value in (59.7, 3599.6, 11_099.0)] == [
        "1 min 0 s",
        "1 h 0 min",
        "3 h 5 min",
    ]
    assert [duration_of(*times) for times in ((0.4, 60.0), (70.0, 105.0), (130.0, 105.0), (5000.0, 9000.0))] == [
        "60 s", "1.2 of 1.8 min", "1.8 of 1.8 min", "1.4 of 2.5 h",
    ]  # fmt: skip


def test_sizes_of_files_have_a_unit_that_fits() -> None:
    assert [file_size(size) for size in (0, 999, 28_300, 999_600, 1_234_567, 3.4e9, 5e14)] == [
        "0 B", "999 B", "28 kB", "1.0 MB", "1.2 MB", "3.4 GB", "500 TB",
    ]  # fmt: skip


def test_gpu_time_has_one_unit_and_is_never_shown_as_nothing() -> None:
    assert [gpu_time(s) for s in (0.0, 0.4, 8.0, 1799.0, 1800.0, 90_000.0)] == [
        "0 GPU-s", "< 1 GPU-s", "8 GPU-s", "1799 GPU-s", "0.50 GPU-h", "25.00 GPU-h",
    ]  # fmt: skip
    assert [gpu_time(s, 7200.0) for s in (0.0, 8.0, 18.0, 90.0)] == [
        "0.00 GPU-h", "< 0.01 GPU-h", "0.01 GPU-h", "0.03 GPU-h",
    ]  # fmt: skip
    assert [energy_words(kwh, 1.2) for kwh in (0.0416, 1.2)] == ["0.04 kWh", "1.20 kWh"], (
        "a column has one unit"
    )


def test_a_cell_is_empty_where_nothing_was_measured_and_0_where_that_was() -> None:
    (row,) = csv.DictReader(gpu_csv(snap(0, gpu(fan_pct=None, encoder_pct=0.0))).splitlines())
    assert (row["encoder_pct"], row["fan_pct"]) == ("0.0", "")


def test_what_was_read_before_is_said_to_be_in_the_data() -> None:
    late = snapshot_data(
        replace(snap(0, gpu(power_w=412.3456789)), repeats=("nvml",), stale={"nvml": 2.123456789})
    )
    assert (late["repeats"], late["stale"]) == (["nvml"], {"nvml": 2.123457})
    assert late["gpus"][0]["power_w"] == 412.345679, "six decimals"


def test_more_flops_than_a_gpu_can_do_are_not_believed() -> None:
    assert [mfu_words(value) for value in (4.14, 41.4, 100.0, 101.0)] == [
        "MFU 4.1 %", "MFU 41 %", "MFU 100 %", "MFU n/a (101 % is impossible: check the FLOPs of a step)",
    ]  # fmt: skip


def bursts(util: float = 32.0, sm: float = 36.8, count: int = 60) -> list[Snapshot]:
    """Two counters that do not see the same bursts: SM / util is 1.15."""
    return [snap(tick, gpu(util=util, sm=sm), [train(main=1.0)]) for tick in range(count)]


@pytest.fixture
def recording(tmp_path: Path) -> str:
    return str(recorded(tmp_path / "r.jsonl", bursts()))


def test_people_never_read_an_efficiency_above_a_hundred(
    recording: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments in (
        ["diagnose", recording],
        ["report", recording],
        ["compare", recording, recording],
    ):
        main(arguments)
        shown = capsys.readouterr().out
        assert "115" not in shown
        assert "100" in shown
    frames = _frames(bursts())
    for width, height in ((160, 48), (80, 24)):
        assert "efficiency 115" not in plain_text(
            main_screen(frames[-1], View(), width, height).rows
        )
    for arguments in (["diagnose", recording, "--json"], ["report", recording, "--json"]):
        main(arguments)
        assert re.search(r'"efficiency_pct": 11[45]\.', capsys.readouterr().out)


def _frames(snapshots: list[Snapshot]) -> list[Frame]:
    monitor = Monitor()
    return [monitor.feed(snapshot) for snapshot in snapshots]


def test_time_without_a_verdict_is_called_not_judged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(recorded(tmp_path / "r.jsonl", (snap(tick, gpu(), [train()]) for tick in range(5))))
    for arguments in (["report", path], ["report", path, "--markdown"], ["compare", path, path]):
        main(arguments)
        shown = capsys.readouterr().out
        assert "not judged" in shown
        assert "not measured" not in shown
    main(["report", path, "--json"])
    assert '"unmeasured"' in capsys.readouterr().out
