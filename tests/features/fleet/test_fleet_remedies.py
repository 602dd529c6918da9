"""Nodes with failing GPUs are set aside: printed first, done when told, once for each rise, by one at a time."""

from __future__ import annotations

import fcntl
import json
import os
import time
from pathlib import Path

import pytest

from gputop.cli import main
from gputop.features.fleet.fleet_frame import FleetFrame, fleet_frame
from gputop.features.fleet.fleet_reading import Down, FleetReading, GpuReading, Grounds
from gputop.features.fleet.remedy_command import acts_in, apply, due, forget, remedies
from tests.features.fleet.test_fleet_histories import Series, dcgm, gpu_of, lines, merged
from tests.support.engines import backfill, missing, prometheus


def _frame(*gpus: GpuReading, down: dict[str, Down] | None = None) -> FleetFrame:
    return fleet_frame(FleetReading(1.0, "x", gpus, down or {}))


def _lost(host: str, gpu: str, uuid: str, names: str = "gputop", util_pct: float | None = None) -> GpuReading:
    return GpuReading(host, gpu, uuid, names=names, is_lost=True, util_pct=util_pct)


def test_a_lost_gpu_and_a_rise_of_errors_are_answered_once_each_and_a_verdict_never() -> None:
    idle = GpuReading("n3", "0", "GPU-3", own_state="busy_not_working")
    frame = _frame(_lost("n1", "7", "GPU-7"), idle, _lost("a/n2", "0", "GPU-2"))
    found, odd = remedies(frame, Grounds(risen={("n3", "0"): ("GPU-3", 4)}), "slurm")
    assert [one.node for one in found] == ["n1", "n3"] and odd == ["no scheduler has one node of the name a/n2"]
    assert found[0].command == ("scontrol", "update", "NodeName=n1", "State=DRAIN", "Reason=gputop: GPU 7 lost")
    assert found[1].keys == ("ecc GPU-3 4",)
    done = dict.fromkeys([key for one in found for key in one.keys], 1.0)
    assert due(found, done) == []
    again, _ = remedies(frame, Grounds(risen={("n3", "0"): ("GPU-3", 5)}), "kubernetes")
    assert [one.command for one in due(again, done)] == [("kubectl", "cordon", "n3")]


def test_two_gpus_of_a_node_at_once_are_one_command_with_both_reasons() -> None:
    frame = _frame(_lost("n1", "6", "GPU-6"), _lost("n1", "7", "GPU-7"), GpuReading("n1", "0", "GPU-0", util_pct=98.0))
    (one,), _ = remedies(frame, Grounds(risen={("n1", "0"): ("GPU-0", 1)}), "slurm")
    assert one.text == "gputop: GPU 6 lost, GPU 7 lost, GPU 0 counts 1 uncorrected memory errors"
    assert one.keys == ("lost GPU-6", "lost GPU-7", "ecc GPU-0 1")


def test_what_is_over_is_forgotten_and_answered_when_it_comes_again() -> None:
    done = {"lost GPU-7": 1.0, "lost GPU-8": 1.0, "ecc GPU-3 5": 1.0, "ecc GPU-4 5": 1.0, "ecc GPU-5 5": 1.0}
    frame = _frame(GpuReading("n1", "7", "GPU-7", util_pct=50.0), _lost("n1", "8", "GPU-8"))
    # The count of GPU-3 began anew with its driver, that of GPU-4 stands, and nothing is known of GPU-5.
    forget(done, frame, Grounds(counts={"GPU-3": 0, "GPU-4": 5}))
    assert set(done) == {"lost GPU-8", "ecc GPU-4 5", "ecc GPU-5 5"}


def test_a_gpu_that_gave_values_within_five_minutes_or_an_exporter_without_any_gpu_is_no_reason() -> None:
    assert remedies(_frame(_lost("n1", "7", "u", util_pct=98.0)), Grounds(), "slurm")[0] == []
    bare = [_lost("n1", str(n), f"u{n}", "legacy") for n in range(8)]
    found, odd = remedies(_frame(*bare), Grounds(), "slurm")
    assert not found and odd == ["n1: no value of 8 GPUs, and maybe no fault of theirs"]
    found, _ = remedies(
        _frame(*bare[1:], GpuReading("n1", "0", "u0", names="legacy", util_pct=1.0)), Grounds(), "slurm"
    )
    assert [one.node for one in found] == ["n1"]
    down = {"n1": Down(100.0, "the exporter does not answer")}
    assert remedies(_frame(*bare, down=down), Grounds(), "slurm")[0] == []


@pytest.mark.parametrize("name", ["-n1", "n 1", "n1,n2", "n[1-99]", "", "n1;reboot", "n1\n", "ALL", "all", "DEFAULT"])
def test_a_host_that_a_scheduler_could_take_for_something_else_is_named_and_left_alone(name: str) -> None:
    found, odd = remedies(_frame(_lost(name, "0", "u")), Grounds(), "slurm")
    assert not found and odd == [f"no scheduler has one node of the name {name}"]


def test_hosts_without_a_prometheus_get_no_remedy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "c.toml").write_text('[fleet.lab]\nhosts = ["http://127.0.0.1:9"]\n')
    assert main(["fleet", "remedy", "--by", "slurm", "--config", str(tmp_path / "c.toml")]) == 2
    assert "only shown" in capsys.readouterr().err


def test_a_host_that_is_not_in_sight_is_left_alone() -> None:
    found, odd = remedies(_frame(), Grounds(risen={("n3", "0"): ("GPU-3", 4)}), "slurm")
    assert not found and odd == ["no scheduler has one node of the name n3"]


@pytest.mark.parametrize("shown", ["NodeName=n1 State=IDLE\nNodeName=n2 State=IDLE", "NodeName=n2 State=IDLE", ""])
def test_what_slurm_knows_as_no_node_or_as_several_is_left_alone(
    shown: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scontrol = tmp_path / "scontrol"
    scontrol.write_text(f'#!/bin/sh\n[ "$2" = show ] && {{ echo "{shown}"; exit; }}\ntouch {tmp_path}/drained\n')
    scontrol.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    (one,), _ = remedies(_frame(_lost("gpunodes", "0", "u")), Grounds(), "slurm")
    assert apply(one) == ("left", "gpunodes is not the name of one node there")
    assert not (tmp_path / "drained").exists()


def test_a_run_that_is_killed_while_it_writes_leaves_a_file_that_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "acts"
    with acts_in(path) as acts:
        acts.done = {f"lost GPU-{n}": 100.0 for n in range(50)}
        acts.keep(100.0)

    def killed(descriptor: int, size: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("os.ftruncate", killed)
    with pytest.raises(KeyboardInterrupt), acts_in(path) as acts:
        acts.done = {"lost GPU-1": 100.0}
        acts.keep(100.0)
    with acts_in(path) as acts:
        assert acts.done == {"lost GPU-1": 100.0}


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_where_nothing_can_be_remembered_nothing_is_done(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fleet", "remedy", "--by", "slurm", "--prom", "http://127.0.0.1:9", "--act", "/dev/full"]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and "/dev/full" in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--by", "slurm", "--most", "0"], "--most"),
    ],
)
def test_what_cannot_be_done_is_one_line(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fleet", "remedy", "--prom", "http://127.0.0.1:9", *arguments]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and words in err


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
    scontrol.write_text(
        f'#!/bin/sh\n[ -e {tmp_path}/fails ] && exit 1\n[ "$2" = show ] && {{ echo "NodeName=$4 State=IDLE"; exit; }}\n'
        f'echo "$@" >>{calls}\n'
    )
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
        assert not calls.exists()
        assert main([*asked, "--act", str(state), "--most", "1"]) == 1
        assert "1 more, n2 first" in capsys.readouterr().out
        assert main([*asked, "--act", str(state), "--most", "1"]) == 1 and len(calls.read_text().splitlines()) == 1
        assert "1 more, n2 first" in capsys.readouterr().out, "one an hour"
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
