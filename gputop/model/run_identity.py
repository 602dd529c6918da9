"""Which processes are ranks of one run: whose steps may be summed or compared. Pure.

An allocation pays for processes, a run is what a launcher has started as one program. A name is never an identity, nor
is a process group: eight seeds of one script are eight runs, in one batch job and in one shell too.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

DIGITS = 16
"""Of a run's name on the wire: hex digits of a hash, so that no address travels."""
_LOOPBACK = ("localhost", "127.0.0.1", "::1", "[::1]")
_RANKS = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PALS_RANKID")
_JOBS = (("slurm", "SLURM_JOB_ID"), ("pbs", "PBS_JOBID"), ("lsf", "LSB_JOBID"))


class Allocation(Struct, frozen=True):
    """Who pays: a job of a scheduler; ``cluster`` is empty where the scheduler does not name itself."""

    cluster: str
    scheduler: str
    id: str


class Run(Struct, frozen=True):
    """One start of one program. ``key`` tells it from others of its user within the allocation."""

    allocation: Allocation | None
    uid: int
    key: str

    @property
    def id(self) -> str:
        """The same for all ranks, and for no other run; says nothing else."""
        paid = self.allocation
        where = "" if paid is None else f"{paid.cluster}/{paid.scheduler}/{paid.id}"
        return digest(where, str(self.uid), self.key)


class Started(Struct, frozen=True):
    """How this process came to be. ``own`` and ``parent`` name one process each for good, such as its pid and start;
    ``parent`` is None unless ``multiprocessing`` started it. ``is_rank``: a process group gave it a rank."""

    uid: int
    host: str
    own: str
    parent: str | None = None
    is_rank: bool = False


def allocation_of(environ: Mapping[str, str]) -> Allocation | None:
    """The batch job of an environment."""
    for scheduler, name in _JOBS:
        if job := environ.get(name):
            return Allocation(environ.get("SLURM_CLUSTER_NAME", "") if scheduler == "slurm" else "", scheduler, job)
    return None


def run_of(environ: Mapping[str, str], started: Started) -> Run:
    """The run of a process: by torchrun's id, else where its ranks meet, else its launcher; without a rank it is a run
    of its own."""
    is_step = environ.get("SLURM_STEP_ID", "").isdigit() and environ.get("SLURM_STEP_NUM_TASKS", "1") != "1"
    is_rank = started.is_rank or is_step or any(environ.get(name, "").isdigit() for name in _RANKS)
    elastic, address, port = (environ.get(name, "") for name in ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT"))
    if not is_rank:
        key = f"process {started.host} {started.own}"
    elif elastic not in ("", "none"):
        key = f"torchrun {elastic}"
    elif address and port:
        key = f"meets {started.host if address in _LOOPBACK else address}:{port}"
    elif is_step:
        key = f"step {environ['SLURM_STEP_ID']}"
    elif namespace := environ.get("PMIX_NAMESPACE"):
        key = f"mpi {namespace}"
    elif started.parent is not None:
        key = f"child {started.host} {started.parent}"
    else:
        key = f"process {started.host} {started.own}"
    return Run(allocation_of(environ), started.uid, key)


def digest(*parts: str) -> str:
    """A hash of these parts as ``DIGITS`` hex digits."""
    from hashlib import blake2b  # loads OpenSSL, which a start has no use for

    text = "\0".join(parts).encode("utf-8", "surrogateescape")
    return blake2b(text, digest_size=DIGITS // 2).hexdigest()
