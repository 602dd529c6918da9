"""`gputop prove`: its stages and verdict as values, and the whole of it against libraries that a test scripts."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gputop.cli import main
from gputop.features.prove.cuda_program import KERNELS
from gputop.recording.reader import read_snapshots
from tests.cuda import stand_in as cuda_stand_in
from tests.cuda.stand_in import Cuda, Gpu, library_path
from tests.nvml.stand_in import Process, Scenario
from tests.nvperf.stand_in import Counters

MakeScenario = Callable[..., Scenario]
A100 = "NVIDIA A100-SXM4-80GB"
NOBODY = "http://127.0.0.1:1/metrics"
slow = pytest.mark.slow


@slow
@pytest.mark.parametrize("architecture", [75, 80, 86, 89, 90, 100, 120])
def test_the_kernels_assemble_for_every_architecture(tmp_path: Path, architecture: int) -> None:
    ptxas = shutil.which("ptxas") or next(map(str, Path(sys.prefix).rglob("bin/ptxas")), None)
    if ptxas is None:
        pytest.skip(
            "ptxas is not here: it comes with the CUDA toolkit, or with the wheel nvidia-cuda-nvcc"
        )
    (tmp_path / "k.ptx").write_bytes(KERNELS.rstrip(b"\0"))
    command = [
        ptxas,
        f"-arch=sm_{architecture}",
        str(tmp_path / "k.ptx"),
        "-o",
        str(tmp_path / "k.o"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "is not defined for option 'gpu-name'" in done.stderr:
        pytest.skip(f"this ptxas knows no sm_{architecture}")
    assert done.returncode == 0, done.stderr


# -- the whole, end to end ---------------------------------------------------------------------------------------------


@pytest.fixture
def cuda(run_dir: Path, tmp_path: Path) -> Cuda:
    if shutil.which("cc") is None:
        pytest.skip("the stand-in CUDA library needs a C compiler (cc)")
    directory = tmp_path / "libcuda"
    directory.mkdir()
    cuda_stand_in.build(directory)
    return Cuda(directory, tmp_path)


class Proving:
    """A running `gputop prove` on a GPU that says what runs on it."""

    def __init__(
        self,
        scenario: Scenario,
        cuda: Cuda,
        *options: str,
        stage_s: float = 2.4,
        silent_s: float = 5.0,
        only: str | None = None,
        libcuda: bool = True,
    ) -> None:
        """``only`` is the kind of the one stage that there is."""
        scenario.write()
        folders = [scenario.library_directory, *([cuda.libraries] if libcuda else [])]
        environment = {
            **os.environ, **scenario.environment(), **cuda.environment(), "LD_LIBRARY_PATH": library_path(*folders),
        }  # fmt: skip
        code = (
            "import sys; from gputop.features.prove import prove_run as run; from gputop.cli import main;"
            f"run.Experiment.__init__.__defaults__ = ({stage_s},); run.SILENT_S = {silent_s}; every = run.stages;"
            f"run.stages = lambda n: [stage for stage in every(n) if {only!r} in (None, stage.kind)];"
            "sys.exit(main())"
        )
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, "prove", "--dcgm-url", NOBODY, *options],
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def done(self) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=120.0)
        return self.process.returncode, out, err


@contextlib.contextmanager
def gpu(
    scenario: Scenario, cuda: Cuda, says: Callable[[float], float] = lambda true: true
) -> Iterator[Gpu]:
    with Gpu(cuda, scenario, 132, says) as running:
        yield running


@slow
@pytest.mark.nvml
def test_a_true_counter_is_proved_right(
    nvml_scenario: MakeScenario, cuda: Cuda, tmp_path: Path
) -> None:
    picture, recording = tmp_path / "p.svg", tmp_path / "r.jsonl.gz"
    scenario = nvml_scenario()
    with gpu(scenario, cuda) as running:
        status, out, err = Proving(
            scenario, cuda, "-o", str(picture), "--record", str(recording)
        ).done()
    assert status == 0, (out, err)
    assert (
        "1 of 132 multiprocessors spins" in out
        and "← nvidia-smi: 100" in out
        and out.count("✓") == 5
    )
    assert "SM activity is right within" in out and "6 of 6" in out
    assert {
        ("spin", 1),
        ("spin", 33),
        ("spin", 66),
        ("spin", 132),
        ("tiny", 1),
        ("copy", 0),
    } <= running.seen
    assert "<svg" in picture.read_text() and stat.S_IMODE(picture.stat().st_mode) == 0o600
    events = [
        e.text
        for snapshot in read_snapshots(str(recording))
        for e in snapshot.events
        if e.kind == "mark"
    ]
    assert (
        events[:2] == ["prove: nothing runs", "prove: 1 of 132 multiprocessors spins"]
        and len(events) == 7
    )


@slow
@pytest.mark.nvml
def test_a_counter_that_lies_is_caught(nvml_scenario: MakeScenario, cuda: Cuda) -> None:
    scenario = nvml_scenario()
    with gpu(scenario, cuda, lambda true: true * 0.6):
        status, out, err = Proving(scenario, cuda, "--json").done()
    report = json.loads(out)
    assert (status, report["exit_status"]) == (1, 1), err
    assert (
        report["reason"] and [len(stage["samples"]) > 0 for stage in report["stages"]] == [True] * 7
    )


@slow
@pytest.mark.nvml
@pytest.mark.parametrize(
    ("truth_told", "expected"), [(True, 0), pytest.param(False, 1, marks=pytest.mark.weekly)]
)
def test_the_hardware_counters_are_proved(
    nvml_scenario: MakeScenario, cuda: Cuda, counters: Counters, truth_told: bool, expected: int
) -> None:
    scenario = nvml_scenario(1, A100)
    scenario.gpus[0].pci = "00000000:01:00.0"
    scenario.driver = "610.12" if truth_told else "565.57.01"

    def says(true: float) -> float:
        counters.write(sm=true if truth_told else 41.2)
        return true

    options = ("--sm-source", "counters", "--perf-lib", str(counters.libraries), "--json")
    with gpu(scenario, cuda, says):
        status, out, err = Proving(scenario, cuda, *options, stage_s=3.0).done()
    report = json.loads(out)
    assert (status, report["sm_source"]) == (expected, "counters"), (
        report["verdict"],
        report["reason"],
        err,
    )


@pytest.mark.nvml
def test_a_gpu_that_others_use_is_left_alone(
    nvml_scenario: MakeScenario, cuda: Cuda, tmp_path: Path
) -> None:
    scenario = nvml_scenario()
    scenario.gpus[0].processes.append(Process(os.getpid(), 1 << 30))
    kept = tmp_path / "proof.jsonl"
    status, _, err = Proving(scenario, cuda, "--record", str(kept)).done()
    assert status == 2 and not kept.exists()
    assert f"({os.getpid()})" in err and "--force" in err and cuda.running() == ("idle", 0)


@pytest.mark.nvml
@pytest.mark.parametrize(
    ("words", "why"),
    [
        ({"cuCtxCreate": 2}, "CUDA_ERROR_OUT_OF_MEMORY (2)"),
        pytest.param({"cuLaunchKernel_crash": 1}, "ended by SIGSEGV", marks=slow),
        pytest.param({"cuInit": 100}, "CUDA_ERROR_NO_DEVICE (100)", marks=slow),
        pytest.param({"cuModuleLoadData": 222}, "cuModuleLoadData", marks=slow),
        pytest.param({"cuLaunchKernel": 719}, "cuLaunchKernel: CUDA_ERROR (719)", marks=slow),
        pytest.param({"cuStreamSynchronize_hang": 1}, "has not ended for", marks=slow),
    ],
)
def test_kernels_that_cannot_run_end_in_one_line(
    nvml_scenario: MakeScenario, cuda: Cuda, words: dict[str, object], why: str
) -> None:
    cuda.write(**words)
    status, _, err = Proving(nvml_scenario(), cuda, stage_s=0.2, silent_s=0.8, only="spin").done()
    assert status == 3 and why in err and "Traceback" not in err, err
    assert len([line for line in err.splitlines() if "kernels cannot run" in line]) == 1


@pytest.mark.nvml
def test_without_libcuda_it_says_where_that_comes_from(
    nvml_scenario: MakeScenario, cuda: Cuda
) -> None:
    status, out, err = Proving(nvml_scenario(), cuda, stage_s=0.2, libcuda=False).done()
    assert (
        status == 3
        and out == ""
        and "libcuda.so.1: not found: it comes with NVIDIA's driver" in err
    )


def test_a_file_that_cannot_be_made_is_refused_before_anything_runs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:

    assert main(["prove", "-o", "x.pdf"]) == 2
    assert "cannot make a .pdf" in capsys.readouterr().err
