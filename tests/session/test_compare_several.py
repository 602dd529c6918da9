"""Several recordings in one table, for people, scripts and pipelines."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gputop.cli import main
from tests.session.test_report_acts import moments, several
from tests.support.recording_frames import recorded


def made(tmp_path: Path) -> list[str]:
    """Three runs of a job: a middling one, a fast one, a slow one whose kernels are small."""
    runs = {
        "middle": moments(40, step_s=0.100, held_gib=20.0),
        "fast": moments(40, step_s=0.080, held_gib=30.0),
        "slow": moments(40, step_s=0.125, util=95.0, sm=8.0, held_gib=10.0),
    }
    return [str(recorded(tmp_path / f"{name}.jsonl", found)) for name, found in runs.items()]


def test_several_runs_are_one_table_with_the_best_and_the_worst_marked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = made(tmp_path)
    assert main(["compare", *files]) == 0
    text = capsys.readouterr().out
    lines = text.splitlines()
    assert lines[0] == "best: fast.jsonl (12.5 steps/s), worst: slow.jsonl (8.0 steps/s)"
    middle, fast, slow = (
        next(line for line in lines if line.startswith(f"  {name}"))
        for name in ("middle", "fast", "slow")
    )
    assert "12.5 best" in fast and "30.0 GiB" in fast
    assert "8.0 worst" in slow and "10.0 GiB" in slow and "GPU-s" in slow
    assert "worst" not in middle and "12.5" not in middle
    assert "wasted: small kernels" in " ".join(text.split())
    assert main(["compare", *files, "--markdown"]) == 0
    assert capsys.readouterr().out.count("worst") >= 2


def test_several_runs_as_json_have_each_measure_and_the_difference_from_the_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", *made(tmp_path), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert [run["run"] for run in data["runs"]] == ["middle.jsonl", "fast.jsonl", "slow.jsonl"]
    assert data["extremes"]["steps_per_s"] == {"best": 1, "worst": 2}
    first, fast, slow = data["runs"]
    assert first["slower_than_first_pct"] == 0 and first["more_waste_than_first_points"] == 0
    assert fast["slower_than_first_pct"] == pytest.approx(-20.0)
    assert slow["slower_than_first_pct"] == pytest.approx(25.0)
    assert slow["wasted_share"] == pytest.approx(sum(slow["wasted_by_cause"].values()))
    assert slow["wasted_by_cause"]["small_kernels"] > 0.5
    assert slow["working_share"] == pytest.approx(1.0 - slow["wasted_share"])
    assert slow["energy_kwh"] == pytest.approx(500.0 * 39 / 3.6e6, rel=0.05)
    assert fast["memory_peak_bytes"] == 30 * 2**30


def test_a_pipeline_fails_where_any_run_is_worse_than_the_first(tmp_path: Path) -> None:
    middle, fast, slow = made(tmp_path)
    assert main(["compare", middle, fast, slow, "--fail-on", "slower:5"]) == 1
    assert main(["compare", middle, slow, fast, "--fail-on", "slower:5"]) == 1
    assert main(["compare", slow, fast, middle, "--fail-on", "slower:5"]) == 0
    assert main(["compare", middle, fast, slow, "--fail-on", "waste:10"]) == 1
    assert main(["compare", middle, fast, middle, "--fail-on", "waste:10"]) == 0
    silent = str(recorded(tmp_path / "silent.jsonl", moments(40)))
    assert main(["compare", middle, fast, silent, "--fail-on", "slower:5"]) == 3


def test_runs_that_are_alike_are_not_marked_and_names_stay_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    middle, *_ = made(tmp_path)
    assert main(["compare", middle, middle, middle]) == 0
    text = capsys.readouterr().out
    assert text.startswith("3 runs, none clearly better than another")
    assert text.count(Path(middle).name) == 3
    assert main(["--redact", "compare", middle, middle, middle]) == 0
    text = capsys.readouterr().out
    assert "run 3" in text and "middle" not in text


def test_the_run_of_each_recording_can_be_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep = str(recorded(tmp_path / "s.jsonl", several(("s.py", 0.1, 0), ("t.py", 0.2, 0))))
    files = [sweep, sweep, sweep]
    assert main(["compare", *files, "--run", "s.py", "--run", "t.py", "--run", "s.py"]) == 0
    text = capsys.readouterr().out
    assert "10.0 best" in text and "5.0 worst" in text
    assert "different jobs: s.py, t.py" in text
    assert main(["compare", *files, "--run", "s.py", "--run", "t.py"]) == 2
    assert "once for each of the 3 recordings" in capsys.readouterr().err
    assert main(["compare", *files, "--run", "u.py"]) == 2
    assert "--run u.py" in capsys.readouterr().err
