"""End to end: real training jobs, real /proc, the real NVML binding; only the GPU is pretended.

With PyTorch in the environment the jobs are real training loops over real DataLoaders, without it the same on plain
multiprocessing. gputop watches from outside and must name what each job suffers from.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.machine import ROOT, Machine
from tests.nvml.stand_in import Scenario

EXPECTED = {
    "dataloader_cpu": "dataloader_cpu",
    "dataloader_io_socket": "dataloader_io",
    "dataloader_io_fifo": "dataloader_io",
    "main_process": "main_process",
    "healthy": "healthy",
}
STARTUP_S = 60.0
"""A job younger than this is said to be starting, whatever it does: gputop must be believed only after it."""
WATCH_S = 30.0
FINDINGS = 1
"""The exit code of a diagnosis that found something."""

pytestmark = [pytest.mark.nvml, pytest.mark.slow]


@pytest.fixture(scope="module")
def diagnosed(nvml_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What gputop says of five jobs that ran together, by the job's variant."""
    directory = tmp_path_factory.mktemp("e2e")
    scenario = Scenario(directory, nvml_dir, gpus=len(EXPECTED))
    with Machine(directory, scenario, tuple(EXPECTED)) as machine:
        time.sleep(STARTUP_S)
        command = [sys.executable, "-m", "gputop", "diagnose", "--for", f"{WATCH_S:.0f}s", "--json"]
        done = subprocess.run(
            command, cwd=ROOT, env=scenario.environment(), capture_output=True, text=True, timeout=WATCH_S + 30.0
        )
        assert not machine.dead_jobs(), (directory / "jobs.log").read_text()
    assert done.returncode == FINDINGS, done.stderr
    report = json.loads(done.stdout)
    return dict(zip(EXPECTED, report["gpus"], strict=True))


@pytest.mark.parametrize("variant", EXPECTED)
def test_a_real_job_is_named_right(diagnosed: dict[str, Any], variant: str) -> None:
    found = diagnosed[variant]
    assert found["verdict"] == EXPECTED[variant], found
    assert found["busy_not_working"] is None
    assert found["evidence"] and any(char.isdigit() for char in found["evidence"][0]), found
