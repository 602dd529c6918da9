"""Real processes that /proc shows badly: in disk wait, of another user, of another PID namespace."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gputop.sources.gpu_process import GpuProcess
from gputop.sources.processes.collector import ProcessCollector
from tests.nvml.stand_in import GIB, Process, Scenario
from tests.proc_trees.one_job import sample, without_thread
from tests.proc_trees.running import running
from tests.support.scenes import Watch, gpu, snap

pytestmark = pytest.mark.slow
NOBODY = 65534
STUCK = "#include <unistd.h>\nint main(void) { if (!vfork()) { sleep(60); _exit(0); } return 0; }\n"
"""A parent waits for its vforked child in state D, as others wait for a disk."""
WAITS = (
    "import subprocess, sys; subprocess.Popen([sys.argv[1]], stdout=subprocess.PIPE).stdout.read()"
)
LOOKS = """
import json, sys, time
from gputop.sources.gpu_process import GpuProcess
from gputop.sources.processes.collector import ProcessCollector
collector = ProcessCollector(clock=time.monotonic)
for _ in range(3):
    samples = collector.read(time.monotonic(), [GpuProcess(0, int(sys.argv[1]))], {0: 10.0})
    time.sleep(0.4)
keys = ("pid", "role", "run_pct", "wait_pct", "state", "unavailable")
print(json.dumps([{key: getattr(s, key) for key in keys} for s in samples], default=dict))
"""


def test_state_d_that_is_no_disk_accuses_no_disk(tmp_path: Path) -> None:
    (tmp_path / "stuck.c").write_text(STUCK)
    # PyTorch's workers are known by this name.
    worker = tmp_path / "pt_data_worker"
    subprocess.run(["cc", "-o", str(worker), str(tmp_path / "stuck.c")], check=True)
    with subprocess.Popen(
        [sys.executable, "-c", WAITS, str(worker)], start_new_session=True
    ) as job:
        collector = without_thread(ProcessCollector())
        try:
            until, now = time.monotonic() + 10.0, -1000.0
            while "D" not in {
                sample.state for sample in collector.read(now, [GpuProcess(0, job.pid)])
            }:
                assert time.monotonic() < until
                # Later than before by as much as trees are found anew: the worker may be born while they are.
                now += 4.0
                time.sleep(0.05)
            watch = Watch()
            for second in range(1, 60):
                sample(collector, second - 0.5, 4)
                samples = collector.read(
                    float(second), [GpuProcess(0, job.pid, 9 * GIB, "C")], {0: 20.0}
                )
                found = watch.feed([snap(second, gpu(util=20.0, sm=15.0), samples)])
        finally:
            collector.close()
            os.killpg(job.pid, 9)
    assert (found.verdict, found.cause) == ("starved_unattributed", "unknown")


def _python_of_everybody() -> str:
    """A Python of this version that any user may run, with the libraries of this one."""
    paths = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    for python in (
        sys.executable,
        f"/usr/bin/python3.{sys.version_info.minor}",
        "/usr/bin/python3",
    ):
        try:
            words = [python, "-c", "import gputop.sources.processes.collector"]
            subprocess.run(
                words,
                user=NOBODY,
                group=NOBODY,
                extra_groups=[],
                env=paths,
                capture_output=True,
                check=True,
            )
        except (OSError, subprocess.CalledProcessError):
            continue
        return python
    pytest.skip("no Python here that another user may run")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can look as another user")
def test_another_users_job_is_seen_to_compute_and_what_is_closed_says_so() -> None:
    python = _python_of_everybody()
    with running("fork", "1", "burn") as tree:
        ran = subprocess.run(
            [python, "-c", LOOKS, str(tree.pid)], user=NOBODY, group=NOBODY, extra_groups=[],
            env={"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}, text=True, capture_output=True, check=False,
        )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    seen: list[dict[str, Any]] = json.loads(ran.stdout)
    (worker,) = [process for process in seen if process["role"] == "loader"]
    assert worker["run_pct"] + worker["wait_pct"] > 60.0
    assert "run as root" in worker["unavailable"]["read_bytes_per_s"]
    assert all("run as root" in p["unavailable"]["waiting_on"] for p in seen if p["state"] == "S")


def test_from_within_another_pid_namespace_a_job_is_not_taken_for_somebody_else(
    nvml_scenario: Callable[..., Scenario],
) -> None:
    apart = ["unshare", "--pid", "--fork", "--mount-proc"]
    if (
        shutil.which(apart[0]) is None
        or subprocess.run([*apart, "true"], capture_output=True, check=False).returncode
    ):
        pytest.skip("no PID namespace can be made here")
    scenario = nvml_scenario(1)
    scenario.gpus[0].processes = [Process(os.getpid(), GIB, sm=40), Process(1, GIB, sm=10)]
    scenario.write()
    words = [*apart, sys.executable, "-m", "gputop", "once", "--json"]
    ran = subprocess.run(
        words, env=scenario.environment(), capture_output=True, text=True, check=True
    )
    # The host's 1 is not the 1 of this namespace, which is gputop itself.
    found = json.loads(ran.stdout)["processes"]
    assert [(p["pid"], p["command"], p["gpu_mem_bytes"]) for p in found] == [
        (os.getpid(), None, GIB),
        (1, None, GIB),
    ]
    assert all("another PID namespace" in process["unavailable"]["run_pct"] for process in found)
