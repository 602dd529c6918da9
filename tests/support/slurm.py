"""A Slurm of one node: the distribution's munged, slurmctld and slurmd, on free ports, below a directory of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.support.engines import free_port
from tests.support.started import started
from tests.support.waiting import until

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "scontrol")
START_S = 60.0


def no_slurm() -> str:
    """Why a test with Slurm is skipped, or nothing."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    absent = [name for name in PROGRAMS if shutil.which(name, path=path) is None]
    if absent:
        return f"no {absent[0]} on this machine"
    return "" if os.getuid() == 0 else "slurmd and munged start as root alone"


class Slurm:
    """A running Slurm. ``node`` is the name of its node; ``environment`` is what its commands need."""

    def __init__(self, node: str, environment: Mapping[str, str]) -> None:
        self.node, self.environment = node, environment

    def run(self, *command: str) -> str:
        """What a command of Slurm's prints."""
        done = subprocess.run(
            command,
            env=dict(self.environment),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, (command, done.stderr)
        return done.stdout.strip()

    def until(self, words: str, *command: str, within_s: float = 60.0) -> str:
        """The first answer of a command that holds these words."""
        deadline = time.monotonic() + within_s
        while words not in (told := self.run(*command)):
            assert time.monotonic() < deadline, f"{command}: {told}"
            time.sleep(0.1)
        return told


@contextlib.contextmanager
def slurm(folder: Path, more: str = "") -> Iterator[Slurm]:
    """``more`` are further lines of slurm.conf."""
    folder.mkdir(mode=0o755, exist_ok=True)
    node = socket.gethostname().partition(".")[0]
    for name in ("munge", "state", "spool"):
        (folder / name).mkdir(mode=0o755)
    key, door, conf = folder / "munge.key", folder / "munge" / "socket", folder / "slurm.conf"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    conf.write_text(
        f"ClusterName=test\nSlurmctldHost={node}(127.0.0.1)\nSlurmUser=root\nSlurmctldPort={free_port()}\n"
        f"SlurmdPort={free_port()}\nAuthType=auth/munge\nAuthInfo=socket={door}\nStateSaveLocation={folder}/state\n"
        f"SlurmdSpoolDir={folder}/spool\nSlurmctldPidFile={folder}/ctld.pid\nSlurmdPidFile={folder}/slurmd.pid\n"
        "ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nSelectType=select/cons_tres\n"
        "SelectTypeParameters=CR_CPU\nJobAcctGatherType=jobacct_gather/none\nMpiDefault=none\nReturnToService=2\n"
        f"NodeName={node} NodeAddr=127.0.0.1 CPUs={os.cpu_count() or 1} RealMemory=100\n"
        f"PartitionName=all Nodes=ALL Default=YES State=UP\n{more}"
    )
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    running = Slurm(node, {**os.environ, "PATH": path, "SLURM_CONF": str(conf)})
    daemons = [
        ["munged", "--foreground", "--force", f"--key-file={key}", f"--socket={door}",
         f"--pid-file={folder}/munge/pid", f"--log-file={folder}/munge/log", f"--seed-file={folder}/munge/seed"],
        ["slurmctld", "-D", "-f", str(conf)],
        ["slurmd", "-D", "-f", str(conf)],
    ]  # fmt: skip
    with contextlib.ExitStack() as stack:
        for command in daemons:
            log = stack.enter_context((folder / f"{command[0]}.log").open("w"))
            stack.enter_context(started(command, log, env=running.environment))
            until(lambda ready=door if command[0] == "munged" else folder: ready.exists(), START_S)
        _until_idle(running, folder)
        try:
            yield running
        finally:
            running.run("scancel", "--signal=KILL", "--full", f"--user={os.getuid()}")
            running.run("scancel", f"--user={os.getuid()}")
            deadline = time.monotonic() + 30.0
            while running.run("squeue", "--noheader") and time.monotonic() < deadline:
                time.sleep(0.1)


def _until_idle(running: Slurm, folder: Path) -> None:
    def is_idle() -> bool:
        done = subprocess.run(
            ["sinfo", "--noheader", "--format=%T"], env=dict(running.environment), capture_output=True, text=True,
            timeout=60, check=False,
        )  # fmt: skip
        return done.stdout.strip() == "idle"

    try:
        until(is_idle, START_S)
    except AssertionError:
        logs = [
            (folder / f"{name}.log").read_text()[-1000:]
            for name in ("munged", "slurmctld", "slurmd")
        ]
        raise AssertionError(logs) from None
