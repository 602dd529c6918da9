"""Slurm's prolog and epilog, run by a real slurmstepd."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gputop.features.fleet.deploy.deploy_command import files
from tests.nvml.stand_in import Scenario
from tests.support.slurm import Slurm, no_slurm, slurm

pytestmark = [
    pytest.mark.slow,
    pytest.mark.nvml,
    pytest.mark.skipif(bool(no_slurm()), reason=no_slurm() or "it is here"),
]
ROOT = Path(__file__).parents[3]


class Place:
    """A Slurm whose jobs are recorded, and where the recordings go."""

    def __init__(self, running: Slurm, told: Path, gputop: Path) -> None:
        self.slurm, self.told, self.gputop = running, told, gputop

    def submit(self, folder: Path, text: str) -> str:
        script = folder / "job.sh"
        script.write_text(f"#!/bin/sh\n{text}\n")
        return self.slurm.run(
            "sbatch", "--parsable", "--requeue", f"--output={folder}/out.txt", str(script)
        )

    def state(self, job: str, state: str) -> None:
        self.slurm.until(f"JobState={state}", "scontrol", "show", "job", job, within_s=180.0)

    def recorded_s(self, name: str) -> float:
        command = [str(self.gputop), "report", "--json", str(self.told / f"{name}.jsonl.gz")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return float(json.loads(done.stdout)["duration_s"])


@pytest.fixture(scope="module")
def place(nvml_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("p")
    told, tools, nvml = folder / "told", folder / "bin", folder / "nvml"
    for one in (told, tools, nvml):
        one.mkdir()
    scenario = Scenario(nvml, nvml_dir, 1)
    scenario.write()
    gputop = tools / "gputop"
    gputop.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m gputop "$@"\n')
    gputop.chmod(0o755)
    for name in ("prolog.sh", "epilog.sh"):
        (folder / name).write_text(files("gputop")[f"slurm/{name}"])
        (folder / name).chmod(0o755)
    more = f"TaskProlog={folder}/prolog.sh\nTaskEpilog={folder}/epilog.sh\n"
    with slurm(folder / "s", more) as running:
        running.environment = {
            **running.environment, **scenario.environment(), "SLURM_CONF": running.environment["SLURM_CONF"],
            "PATH": f"{tools}:{running.environment['PATH']}", "GPUTOP_RECORDINGS": str(told),
        }  # fmt: skip
        yield Place(running, told, gputop)


def test_a_batch_job_is_recorded_over_all_its_steps_and_judged_at_its_end(
    place: Place, tmp_path: Path
) -> None:
    job = place.submit(tmp_path, "srun sleep 3\nsrun sleep 3\nsleep 2")
    place.state(job, "COMPLETED")
    name = f"job-{job}-{place.slurm.node}"
    assert sorted(path.name for path in place.told.glob(f"job-{job}-*")) == [
        f"{name}.jsonl.gz", f"{name}.log", f"{name}.txt",
    ]  # fmt: skip
    assert "GPU 0" in (place.told / f"{name}.txt").read_text() and place.recorded_s(name) >= 6.0
    assert all(path.stat().st_mode & 0o077 == 0 for path in place.told.iterdir())


def test_steps_without_a_batch_script_have_a_recording_each(place: Place) -> None:
    told = place.slurm.run("salloc", "sh", "-c", "echo $SLURM_JOB_ID; srun sleep 3; srun sleep 3")
    name = f"job-{told.splitlines()[0]}-{place.slurm.node}"
    assert {path.name for path in place.told.glob(f"{name}*.txt")} == {
        f"{name}.txt",
        f"{name}-2.txt",
    }
    assert place.recorded_s(f"{name}-2") >= 2.0


def test_the_recording_of_a_job_that_is_cancelled_or_requeued_ends_and_is_not_written_over(
    place: Place, tmp_path: Path
) -> None:
    job = place.submit(tmp_path, "sleep 600")
    name = f"job-{job}-{place.slurm.node}"
    first = _recorder(place, name)
    place.slurm.run("scontrol", "requeue", job)
    place.slurm.until("Restarts=1", "scontrol", "show", "job", job)
    assert _is_gone(first) and (place.told / f"{name}.jsonl.gz").exists()
    # A requeued job waits two minutes for its turn, unless an operator begins it.
    place.slurm.until("JobState=PENDING", "scontrol", "show", "job", job)
    place.slurm.run("scontrol", "update", f"JobId={job}", "StartTime=now")
    place.state(job, "RUNNING")
    second = _recorder(place, name)
    place.slurm.run("scancel", job)
    place.state(job, "CANCELLED")
    assert _is_gone(second) and place.recorded_s(f"{name}-2") >= 0.0
    assert not list(place.told.glob("*.pid"))


def _recorder(place: Place, name: str) -> int:
    """The pid of the recorder of a job, once it has written something."""
    deadline = time.monotonic() + 60.0
    path = place.told / f"{name}.pid"
    while (
        not path.exists()
        or len(words := path.read_text().split()) < 3
        or not Path(f"{words[2]}.jsonl.gz").exists()
    ):
        assert time.monotonic() < deadline, list(place.told.iterdir())
        time.sleep(0.1)
    return int(words[0])


def _is_gone(pid: int) -> bool:
    deadline = time.monotonic() + 60.0
    while Path(f"/proc/{pid}").exists() and Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z":
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True
