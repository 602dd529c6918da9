"""Ranks of one run: only their steps may be summed or compared."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from gputop.model.steps import DIGITS

_LOOPBACK = ("localhost", "127.0.0.1", "::1", "[::1]")
_RANKS = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PALS_RANKID")
_JOBS = (("slurm", "SLURM_JOB_ID"), ("pbs", "PBS_JOBID"), ("lsf", "LSB_JOBID"))


class Started(Struct, frozen=True):
    """Origin of this process.

    ``own`` and ``parent`` identify one process each for good, such as its pid and start; ``parent`` is None unless
    ``multiprocessing`` started the process. ``is_rank``: a process group gave it a rank.
    """

    uid: int
    host: str
    own: str
    parent: str | None = None
    is_rank: bool = False


def allocation_of(environ: Mapping[str, str]) -> str:
    """Return cluster, scheduler and id of an environment's batch job; empty without one.

    The cluster is empty if the scheduler does not name itself.
    """
    for scheduler, name in _JOBS:
        if job := environ.get(name):
            cluster = environ.get("SLURM_CLUSTER_NAME", "") if scheduler == "slurm" else ""
            return f"{cluster}/{scheduler}/{job}"
    return ""


def run_of(environ: Mapping[str, str], started: Started) -> str:
    """Return the identity of a process's run, shared by all ranks of this run only.

    It reveals nothing else. Ranks are identified by torchrun's id, else by their rendezvous address, else by their
    launcher. A process without a rank is a run of its own.
    """
    is_step = (
        environ.get("SLURM_STEP_ID", "").isdigit()
        and environ.get("SLURM_STEP_NUM_TASKS", "1") != "1"
    )
    is_rank = started.is_rank or is_step or any(environ.get(name, "").isdigit() for name in _RANKS)
    elastic, address, port = (
        environ.get(name, "") for name in ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT")
    )
    alone = f"process {started.host} {started.own}"
    if not is_rank:
        key = alone
    elif elastic not in ("", "none"):
        key = f"torchrun {elastic}"
    elif address and port:
        key = f"meets {started.host if address in _LOOPBACK else address}:{port}"
    elif is_step:
        key = f"step {environ['SLURM_STEP_ID']}"
    elif namespace := environ.get("PMIX_NAMESPACE"):
        key = f"mpi {namespace}"
    else:
        key = alone if started.parent is None else f"child {started.host} {started.parent}"
    return digest(allocation_of(environ), str(started.uid), key)


def digest(*parts: str) -> str:
    """A hash of these parts as ``DIGITS`` hex digits."""
    from hashlib import blake2b  # loads OpenSSL, which a start has no use for

    text = "\0".join(parts).encode("utf-8", "surrogateescape")
    return blake2b(text, digest_size=DIGITS // 2).hexdigest()
