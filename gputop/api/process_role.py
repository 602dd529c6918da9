"""Role of a process in its job: which one samples."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from gputop.model.run_ranks import Started, run_of
from gputop.sources.procfs import relatives_of

if TYPE_CHECKING:
    pass
from gputop.api.watch_options import Ranks

_LOCAL = (
    "LOCAL_RANK",
    "SLURM_LOCALID",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "MPI_LOCALRANKID",
    "PALS_LOCAL_RANKID",
)
_GLOBAL = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PALS_RANKID")
_THIS_MACHINE = ("localhost", "127.0.0.1", "::1")
"""Where all ranks meet on one machine, a rank is its local rank as well."""
LOADER_WORKER = "a loader's worker is not watched: watch in the program that starts it"
NO_RANK = (
    "a child of multiprocessing is not watched unless it is a rank: watch after init_process_group, or with "
    "gputop.watch(children=True)"
)


class Role(Struct, frozen=True):
    """The part of this process: it samples GPUs, or counts steps only.

    ``reason`` says why it does not sample.
    """

    rank: int | None
    local_rank: int | None
    samples: bool
    reason: str | None = None


def role_of(ranks: Ranks, environ: Mapping[str, str]) -> Role:
    """The role of the process with this environment."""
    local, rank = _first(_LOCAL, environ), _first(_GLOBAL, environ)
    rank = _group_rank() if rank is None else rank
    if local is None and environ.get("MASTER_ADDR") in _THIS_MACHINE:
        local = rank
    if ranks == "node" and local not in (None, 0):
        return Role(
            rank,
            local,
            False,
            f"local rank {local} counts its steps; local rank 0 samples this node's GPUs",
        )
    if ranks == "0" and rank not in (None, 0):
        return Role(rank, local, False, f"rank {rank} counts its steps; rank 0 samples")
    return Role(rank, local, True)


def own_run(environ: Mapping[str, str]) -> str:
    """The run whose rank this process is."""
    process = sys.modules.get("multiprocessing.process")
    parent = None if process is None else process.parent_process()
    started = Started(
        os.geteuid(),
        os.uname().nodename,
        _name_for_good(os.getpid()),
        None if parent is None or parent.pid is None else _name_for_good(parent.pid),
        _group_rank() is not None,
    )
    return run_of(environ, started)


def _name_for_good(pid: int) -> str:
    """Return a name that no other process ever has: pid and start."""
    relatives = relatives_of(pid)
    return f"{pid} {relatives and relatives.starttime}"


def unwatched_child(environ: Mapping[str, str], *, children: bool) -> str | None:
    """Return why this process is not watched; None where it is.

    A child of multiprocessing is watched if it is a rank: ``mp.spawn``, Lightning's ``ddp_spawn`` and a notebook's
    launcher start their ranks so. A loader's worker never counts: it is a daemon, or says so itself, and inherits the
    environment of the rank whose batches it makes.
    """
    process = sys.modules.get("multiprocessing.process")
    if process is None or process.parent_process() is None:
        return None
    worker_info = getattr(sys.modules.get("torch.utils.data"), "get_worker_info", lambda: None)
    if process.current_process().daemon or worker_info() is not None:
        return LOADER_WORKER
    is_rank = "RANK" in environ or "LOCAL_RANK" in environ or _group_rank() is not None
    return None if is_rank or children else NO_RANK


def _group_rank() -> int | None:
    """Return the rank in torch's process group, if there is one."""
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
