"""Real launchers: their ranks are one run, and what is started beside them is another."""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from pathlib import Path
from threading import Thread

import pytest

from gputop.report.run_account import RunAccount
from gputop.sources.marks import MarkListener
from tests.support.command import ran
from tests.support.engines import free_port
from tests.support.slurm import no_slurm, slurm

ROOT = Path(__file__).parents[2]
with_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="PyTorch is not installed"
)
SAYS = (
    "import os; from gputop.api.process_role import own_run; os.write(1, (own_run(os.environ) + "
    "'\\n').encode())"
)
PLAIN = {
    name: value
    for name, value in os.environ.items()
    if not name.startswith(("SLURM", "MASTER", "RANK"))
}


@with_torch
@pytest.mark.slow
@pytest.mark.torch
def test_two_starts_of_torchrun_on_one_port_are_two_reports_of_two_ranks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    listener, account, port = MarkListener(), RunAccount(), free_port()
    steps = (
        "import time, gputop\nwith gputop.watch() as w:\n    for _ in range(20): time.sleep(0.1); "
        "w.step()\n"
    )
    for _ in range(2):
        (tmp_path / "program.py").write_text(steps)
        launcher = (
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--nproc-per-node=2",
            f"--master-port={port}",
        )
        environ = {**PLAIN, "XDG_RUNTIME_DIR": str(tmp_path), "OMP_NUM_THREADS": "1"}
        heard = Thread(
            target=ran,
            args=(tmp_path, "program.py"),
            kwargs={"launcher": launcher, "environ": environ},
        )
        heard.start()
        while heard.is_alive():
            heard.join(0.2)
            listener.drain()
            account.add(time.time(), [(row, ()) for row in listener.steps()])
    listener.close()
    assert [(run.ranks, run.attempt) for run in account.report()] == [(2, 1), (2, 2)]
    assert all(run.steps + run.warm_up_steps == 19 for run in account.report())


@pytest.mark.slow
@pytest.mark.skipif(bool(no_slurm()), reason=no_slurm() or "Slurm is here")
def test_the_ranks_of_srun_are_one_run_and_each_step_of_one_job_is_another(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(SAYS)
    with slurm(tmp_path / "slurm") as here:
        said = f"{sys.executable} {tmp_path}/program.py"
        script = tmp_path / "job.sh"
        script.write_text(
            f"#!/bin/sh\nexport PYTHONPATH={ROOT}\ncd {tmp_path}\nsrun -n2 -O {said} >step\n"
            f"srun -n1 {said} >one; srun -n1 {said} >two\n({said} & {said} & wait) >seeds\ntouch done\n"
        )
        here.run("sbatch", "--ntasks=1", "--output=/dev/null", str(script))
        here.until("", "squeue", "--noheader")
        from tests.support.waiting import until

        until((tmp_path / "done").exists)
    step, one, two, seeds = (
        (tmp_path / name).read_text().split() for name in ("step", "one", "two", "seeds")
    )
    assert len(step) == 2 and len(set(step)) == 1
    assert len({*step, *one, *two, *seeds}) == 5, "seeds within one job are runs of their own"
