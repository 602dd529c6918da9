"""``gputop pick``: the least used GPUs, in the form that CUDA_VISIBLE_DEVICES takes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from gputop.cli import main
from gputop.commands.pick import least_used
from gputop.model.snapshot import GpuSample, GpuStatic, ProcessSample, Snapshot
from tests.nvml.stand_in import Process, Scenario
from tests.support.frames import demo_frame
from tests.support.pty_program import ROOT

GIB = 2**30


def _gpu(index: int, util: float | None, used_gib: float = 0.0, **more: object) -> GpuSample:
    static = GpuStatic(index, f"GPU-{index}", "H100", mig_enabled=bool(more.pop("split", False)))
    return GpuSample(
        static, util_pct=util, mem_used_bytes=used_gib * GIB, mem_total_bytes=80.0 * GIB, **more  # type: ignore[arg-type]
    )  # fmt: skip


def _snapshot(*gpus: GpuSample, busy: tuple[int, ...] = ()) -> Snapshot:
    processes = tuple(ProcessSample(pid=100 + gpu, gpu=gpu, role="gpu") for gpu in busy)
    return replace(demo_frame().snapshot, gpus=gpus, processes=processes)


@pytest.mark.parametrize(
    ("snapshot", "free", "idle", "picked"),
    [
        (_snapshot(_gpu(0, 90), _gpu(1, 0, 3), _gpu(2, 0, 1)), 0, False, [2, 1, 0]),
        (_snapshot(_gpu(0, 0), _gpu(1, 50), busy=(0,)), 0, False, [1, 0]),
        (_snapshot(_gpu(0, 0, 70), _gpu(1, 90, 10)), 20 * GIB, False, [1]),
        (_snapshot(_gpu(0, 0), _gpu(1, 4.9), _gpu(2, 5), busy=(0,)), 0, True, [1]),
        (_snapshot(_gpu(0, None), _gpu(1, 99), _gpu(2, None, asleep=True)), 0, False, [2, 1, 0]),
        (
            _snapshot(_gpu(0, None, lost_reason="Xid 79"), _gpu(1, 0, split=True), _gpu(2, 99)),
            0,
            False,
            [2],
        ),
    ],
)
def test_the_least_used_gpus_that_cuda_can_use_come_first(
    snapshot: Snapshot, free: int, idle: bool, picked: list[int]
) -> None:
    assert [gpu.static.index for gpu in least_used(snapshot, free, idle=idle)] == picked


def _run(scenario: Scenario, *words: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, **scenario.environment(), "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-m", "gputop", "pick", *words],
        capture_output=True,
        text=True,
        env=environ,
    )


@pytest.mark.nvml
def test_uuids_go_to_stdout_and_too_few_gpus_are_an_exit_status(
    nvml_scenario: Callable[..., Scenario],
) -> None:
    scenario = nvml_scenario(gpus=3)
    for gpu, util in zip(scenario.gpus, (95, 0, 30), strict=True):
        gpu.set(util=util)
        gpu.processes = [Process(os.getpid(), GIB)] if util else []
    scenario.write()
    done = _run(scenario, "-n", "2", "--index")
    assert (done.returncode, done.stdout) == (0, "1,2\n")
    assert "CUDA_DEVICE_ORDER=PCI_BUS_ID" in done.stderr
    done = _run(scenario, "--idle")
    assert done.returncode == 0 and done.stdout.startswith("GPU-") and done.stdout.count(",") == 0
    done = _run(scenario, "--idle", "-n", "2")
    assert (done.returncode, done.stdout) == (1, "")
    assert "1 idle GPU of the 2 asked for" in done.stderr


@pytest.mark.parametrize("words", [("-n", "0"), ("-n", "x"), ("--free", "much"), ("--redact",)])
def test_wrong_words_are_refused_in_a_line(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:

    assert main(["pick", *words]) == 2
    assert capsys.readouterr().err.count("\n") == 1
