"""``gputop pick``: the least used GPUs, in the form that CUDA_VISIBLE_DEVICES takes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from gputop.cli import main
from gputop.commands.pick import least_used, passed_over, usable
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
        (_snapshot(_gpu(0, 90), _gpu(1, 0, 0.3), _gpu(2, 0, 0.1)), 0, False, [2, 1, 0]),
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
        gpu.set(util=util, mem_used_bytes=GIB if util else 0, power_w=400 if util else 70)
        gpu.gpm[2] = 25 if util else 0
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
    done = _run(scenario, "--free", "600G")
    assert (done.returncode, done.stdout) == (1, "")
    assert "0 GPUs with 600G free of the 1 asked for" in done.stderr


H100 = {"power_limit_w": 700.0, "power_w": 70.0}


@pytest.mark.parametrize(
    ("troubled", "words", "is_idle"),
    [
        (_gpu(0, 0, ecc_uncorrected_volatile=3), "3 uncorrected ECC errors", True),
        (_gpu(0, 0, ecc_uncorrected=1), "1 uncorrected ECC error", True),
        (_gpu(0, 0, remap_pending=True), "waits for a reset to be remapped", True),
        (_gpu(0, 0, remap_failed=True), "could not be remapped", True),
        (_gpu(0, 0, throttle_reasons=0x48), "slowed down: hardware slowdown, hardware thermal", True),
        (_gpu(0, 0, throttle_reasons=0x80), "slowed down: power brake", True),
        (_gpu(0, 0, temp_c=92.0, temp_slowdown_c=90.0), "92 °C", True),
        (_gpu(0, 0, 30), "30 GiB of its memory are held by processes", False),
        (_gpu(0, 0, power_w=300.0, power_limit_w=700.0), "is doubtful: it draws 300 of 700 W", False),
        (_gpu(0, 0, sm_active_pct=40.0, sm_source="gpm"), "is doubtful: its SMs are active", False),
    ],
)  # fmt: skip
def test_a_gpu_with_a_fault_goes_last_and_the_reason_is_said(
    troubled: GpuSample, words: str, is_idle: bool
) -> None:
    snapshot = _snapshot(troubled, _gpu(1, 99, **H100), busy=(1,))
    choices = usable(snapshot)
    assert [choice.gpu.static.index for choice in choices] == [1, 0]
    assert [gpu.static.index for gpu in least_used(snapshot, idle=True)] == [0] * is_idle
    (line,) = passed_over(choices, choices[:1])
    assert line.startswith("GPU 0 passed over: ") and words in line
    (line,) = passed_over(choices, choices)
    assert line.startswith("GPU 0 picked all the same: ") and words in line


@pytest.mark.parametrize(
    "sound",
    [
        _gpu(0, 0, 0.9, **H100),
        _gpu(0, 0, throttle_reasons=0x5, **H100),
        _gpu(0, 0, power_w=122.0, power_limit_w=700.0),
        _gpu(0, 0, sm_active_pct=40.0, sm_source="dcgm-exporter"),
        _gpu(0, None, asleep=True),
    ],
)
def test_an_idle_gpu_without_a_fault_is_not_accused(sound: GpuSample) -> None:
    (choice,) = usable(_snapshot(sound))
    assert choice.is_idle and choice.concerns == ()


def test_a_gpu_that_works_in_one_of_two_readings_is_at_work() -> None:
    first, second = _snapshot(_gpu(0, 80), _gpu(1, 0)), _snapshot(_gpu(0, 0), _gpu(1, 3))
    assert [gpu.static.index for gpu in least_used(second, first=first)] == [1, 0]
    assert [gpu.static.index for gpu in least_used(second, first=first, idle=True)] == [1]


@pytest.mark.nvml
def test_two_readings_decide_and_faults_are_told_on_stderr(
    nvml_scenario: Callable[..., Scenario],
) -> None:
    scenario = nvml_scenario(gpus=4)
    for gpu in scenario.gpus:
        gpu.set(util=0, power_w=70, mem_used_bytes=4 << 20)
        gpu.gpm.update(dict.fromkeys(gpu.gpm, 0))
    scenario.gpus[0].set(power_w=300)
    scenario.gpus[1].set(ecc_uncorrected=3, ecc_uncorrected_volatile=3, temp_c=92)
    scenario.gpus[2].set(mem_used_bytes=30 * GIB)
    scenario.write()
    done = _run(scenario, "--index")
    assert (done.returncode, done.stdout) == (0, "3\n")
    lines = [line for line in done.stderr.splitlines() if "passed over" in line]
    words = ("draws 300 of 700 W", "3 uncorrected ECC errors", "held by processes")
    assert [word in line for word, line in zip(words, sorted(lines), strict=True)] == [True] * 3
    assert scenario.calls()["nvmlDeviceGetUtilizationRates"] == 8
    done = _run(scenario, "--idle", "-n", "3", "--index")
    assert (done.returncode, done.stdout) == (1, "")
    assert "2 idle GPUs of the 3 asked for" in done.stderr


@pytest.mark.parametrize(
    "words", [("-n", "0"), ("-n", "x"), ("-n", "9" * 5000), ("--free", "much"), ("--redact",)]
)
def test_wrong_words_are_refused_in_a_line(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:

    assert main(["pick", *words]) == 2
    assert capsys.readouterr().err.count("\n") == 1
