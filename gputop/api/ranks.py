"""Which process of a job samples: one a node, so that eight ranks cost what one does. Asks the launcher's environment
alone: a collective call could hang the job that is watched."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

Ranks = Literal["node", "0", "all"]
RANKS: tuple[Ranks, ...] = ("node", "0", "all")
_LOCAL = ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "PALS_LOCAL_RANKID")
_GLOBAL = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PALS_RANKID")


class Role(Struct, frozen=True):
    """What this process does: ``samples`` the GPUs or only counts its steps; ``why`` it does not sample, in words."""

    rank: int | None
    local_rank: int | None
    samples: bool
    why: str | None = None


def role_of(ranks: Ranks, environ: Mapping[str, str]) -> Role:
    """The role of the process with this environment. Raises ValueError for an unknown ``ranks``."""
    if ranks not in RANKS:
        raise ValueError(f"ranks must be one of {', '.join(map(repr, RANKS))}, not {ranks!r}")
    local, rank = _first(_LOCAL, environ), _first(_GLOBAL, environ)
    if ranks == "node" and local not in (None, 0):
        return Role(rank, local, False, f"local rank {local} counts its steps; local rank 0 samples this node's GPUs")
    if ranks == "0" and rank not in (None, 0):
        return Role(rank, local, False, f"rank {rank} counts its steps; rank 0 samples")
    return Role(rank, local, True)


def is_multiprocessing_child() -> bool:
    """Whether Python's multiprocessing started this process: a loader's worker, or a script without a main guard."""
    process = sys.modules.get("multiprocessing.process")
    return process is not None and process.parent_process() is not None


def _first(names: tuple[str, ...], environ: Mapping[str, str]) -> int | None:
    for name in names:
        value = environ.get(name, "")
        if value.isascii() and value.isdigit() and len(value) < 10:
            return int(value)
    return None
