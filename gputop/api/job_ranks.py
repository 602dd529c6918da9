"""Which process of a job samples: one a node, so that eight ranks cost what one does. Asks the launcher's environment,
and the process group what this process knows of it: a collective call could hang the job that is watched.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct

from gputop.model.steps import Started, run_of
from gputop.sources.procfs import parse_stat, read_small

Ranks = Literal["node", "0", "all"]
RANKS: tuple[Ranks, ...] = ("node", "0", "all")
_LOCAL = ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "PALS_LOCAL_RANKID")
_GLOBAL = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PALS_RANKID")
_THIS_MACHINE = ("localhost", "127.0.0.1", "::1")
"""Where all ranks meet on one machine, a rank is its local rank as well."""
LOADER_WORKER = "a loader's worker is not watched: watch in the program that starts it"
NO_RANK = (
    "a child of multiprocessing is not watched unless it is a rank: watch after init_process_group, or with "
    "gputop.watch(children=True)"
)


class Role(Struct, frozen=True):
    """What this process does: ``samples`` the GPUs or only counts its steps; ``why`` it does not sample, in words."""

    rank: int | None
    local_rank: int | None
    samples: bool
    why: str | None = None


def role_of(ranks: Ranks, environ: Mapping[str, str]) -> Role:
    """The role of the process with this environment."""
    local, rank = _first(_LOCAL, environ), _first(_GLOBAL, environ)
    if rank is None:
        rank = _group_rank()
    if local is None and environ.get("MASTER_ADDR") in _THIS_MACHINE:
        local = rank
    if ranks == "node" and local not in (None, 0):
        return Role(rank, local, False, f"local rank {local} counts its steps; local rank 0 samples this node's GPUs")
    if ranks == "0" and rank not in (None, 0):
        return Role(rank, local, False, f"rank {rank} counts its steps; rank 0 samples")
    return Role(rank, local, True)


def own_run(environ: Mapping[str, str]) -> str:
    """The run whose rank this process is."""
    process = sys.modules.get("multiprocessing.process")
    parent = None if process is None else process.parent_process()
    pid = os.getpid()
    started = Started(
        os.geteuid(), os.uname().nodename, f"{pid} {_began(pid)}",
        None if parent is None else f"{parent.pid} {_began(parent.pid)}", _group_rank() is not None,
    )  # fmt: skip
    return run_of(environ, started).id


def _began(pid: int | None) -> int | None:
    """When a process began, in the kernel's ticks: with it a pid is a name for good."""
    try:
        stat = parse_stat(read_small(f"/proc/{pid}/stat"))
    except OSError:
        return None
    return None if stat is None else stat.starttime


def unwatched_child(environ: Mapping[str, str], *, children: bool) -> str | None:
    """Why this process is not watched, where multiprocessing started it and it is no rank; None where it is watched.

    ``mp.spawn``, Lightning's ``ddp_spawn`` and a notebook's launcher start their ranks as it does. A loader's worker
    never counts: it is a daemon, or says so itself, and inherits the environment of the rank whose batches it makes.
    """
    process = sys.modules.get("multiprocessing.process")
    if process is None or process.parent_process() is None:
        return None
    if process.current_process().daemon or _is_loader_worker():
        return LOADER_WORKER
    is_rank = "RANK" in environ or "LOCAL_RANK" in environ or _group_rank() is not None
    return None if is_rank or children else NO_RANK


def _is_loader_worker() -> bool:
    worker_info = getattr(sys.modules.get("torch.utils.data"), "get_worker_info", None)
    return callable(worker_info) and worker_info() is not None


def _group_rank() -> int | None:
    """The rank in torch's process group, where the program has begun one; asks nobody else."""
    distributed: Any = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return int(distributed.get_rank())


def _first(names: tuple[str, ...], environ: Mapping[str, str]) -> int | None:
    for name in names:
        value = environ.get(name, "")
        if value.isascii() and value.isdigit() and len(value) < 10:
            return int(value)
    return None
