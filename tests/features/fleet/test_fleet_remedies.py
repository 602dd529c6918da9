"""Nodes with failing GPUs are set aside: printed first, done when told, once for each rise, by one at a time."""

from __future__ import annotations

import fcntl
import json
import os
import time
from pathlib import Path

import pytest

from gputop.cli import main
from gputop.features.fleet.fleet_frame import fleet_frame
from gputop.features.fleet.fleet_reading import FleetReading, GpuReading
from gputop.features.fleet.remedies import due, remedies
from tests.features.fleet.test_fleet_histories import Series, dcgm, gpu_of, lines, merged
from tests.support.engines import backfill, missing, prometheus


def _frame(*gpus: GpuReading) -> object:
    return fleet_frame(FleetReading(1.0, "x", gpus))


def test_a_lost_gpu_and_a_rise_of_errors_are_answered_once_each_and_a_verdict_never() -> None:
    idle = GpuReading("n3", "0", "GPU-3", own_state="busy_not_working")
    frame = _frame(GpuReading("n1", "7", "GPU-7", is_lost=True), idle, GpuReading("a/n2", "0", "GPU-2", is_lost=True))
    found, odd = remedies(frame, {("n3", "0"): ("GPU-3", 4)}, "slurm")  # type: ignore[arg-type]
    assert [one.host for one in found] == ["n1", "n3"] and odd == ["a/n2"]
    assert found[0].command == ("scontrol", "update", "NodeName=n1", "State=DRAIN", "Reason=gputop: GPU 7 lost")
    assert found[1].keys == ("ecc GPU-3 4",)
    done = dict.fromkeys([key for one in found for key in one.keys], 1.0)
    assert due(found, done) == []
    again, _ = remedies(frame, {("n3", "0"): ("GPU-3", 5)}, "kubernetes")  # type: ignore[arg-type]
    assert [one.command for one in due(again, done)] == [("kubectl", "cordon", "n3")]


@pytest.mark.parametrize("name", ["-n1", "n 1", "n1,n2", "n[1-99]", "", "n1;reboot", "n1\n"])
def test_a_host_that_a_scheduler_could_take_for_something_else_is_named_and_left_alone(name: str) -> None:
    found, odd = remedies(_frame(GpuReading(name, "0", "u", is_lost=True)), {}, "slurm")  # type: ignore[arg-type]
    assert not found and odd == [name]


@pytest.mark.slow
@pytest.mark.skipif(bool(missing("prometheus")), reason="no prometheus")
def test_nothing_is_done_before_it_is_told_and_then_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()
    errors = "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL"
    series: Series = merged(
        *(dcgm(gpu_of("n1", gpu), 98.0, 90.0) for gpu in range(3)),
        dcgm(gpu_of("n1", 3), lambda back: 98.0 if back >= 1500.0 else None, 90.0),
        *(dcgm(gpu_of(f"n{n}", 0), 98.0, 90.0) for n in (2, 3)),
        {f"{errors}{{{gpu_of('n2', 0)}}}": lambda back: 5.0 if back < 600.0 else 3.0,
         f"{errors}{{{gpu_of('n3', 0)}}}": lambda back: 7.0},
        {f'up{{instance="n{n}:9400",job="dcgm"}}': lambda back: 1.0 for n in (1, 2, 3)},
    )  # fmt: skip
    monkeypatch.setattr("tests.features.fleet.test_fleet_histories.END", now)
    backfill(tmp_path / "engine", lines(series, 3600.0))
    tools, calls, state = tmp_path / "bin", tmp_path / "calls", tmp_path / "state.json"
    tools.mkdir()
    scontrol = tools / "scontrol"
    scontrol.write_text(f'#!/bin/sh\necho "$@" >>{calls}\n[ ! -e {tmp_path}/fails ]\n')
    scontrol.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    with prometheus(tmp_path / "engine") as url:
        asked = ["fleet", "remedy", "--prom", url, "--by", "slurm"]
        assert main(asked) == 1
        out = capsys.readouterr().out
        assert "NodeName=n1" in out and "NodeName=n2" in out and "n3" not in out and "nothing was done" in out
        assert not calls.exists()
        (tmp_path / "fails").touch()
        assert main([*asked, "--act", str(state), "--most", "1"]) == 1
        assert "failed" in capsys.readouterr().out and json.loads(state.read_text()) == {}
        (tmp_path / "fails").unlink()
        calls.unlink()
        assert main([*asked, "--act", str(state), "--most", "1"]) == 1
        assert "1 node more, n2 first" in capsys.readouterr().out
        assert main([*asked, "--act", str(state)]) == 1 and main([*asked, "--act", str(state)]) == 0
        told = calls.read_text().splitlines()
        assert [line.split()[1] for line in told] == ["NodeName=n1", "NodeName=n2"]
        assert all("State=DRAIN" in line for line in told)
        assert (state.stat().st_mode & 0o077) == 0
        with state.open() as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            assert main([*asked, "--act", str(state)]) == 2
        assert "one at a time" in capsys.readouterr().err
        state.write_text("not ours")
        assert main([*asked, "--act", str(state)]) == 2 and state.read_text() == "not ours"
