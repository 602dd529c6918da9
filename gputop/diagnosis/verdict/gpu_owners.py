"""Owner of each GPU, and its words."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from posixpath import basename

from gputop.diagnosis.types import (
    GpuOwner,
)
from gputop.model.feeders import rank_among_owners
from gputop.model.snapshot import ProcessSample


class Owners:
    """Owner of each GPU: the process with most memory there.

    Kept until it ends.
    """

    def __init__(self) -> None:
        self._identities: dict[int, tuple[int, int | None]] = {}
        self._owners: dict[int, GpuOwner] = {}

    def observe(self, processes: Iterable[ProcessSample]) -> None:
        """Look at the processes of a snapshot."""
        holding: dict[int, list[ProcessSample]] = {}
        for p in processes:
            if p.role == "gpu" and p.gpu is not None:
                holding.setdefault(p.gpu, []).append(p)
        identities: dict[int, tuple[int, int | None]] = {}
        self._owners = {}
        for gpu, members in holding.items():
            kept = self._identities.get(gpu)
            stays = [p for p in members if (p.pid, p.starttime) == kept]
            first = max(stays or members, key=rank_among_owners)
            identities[gpu] = (first.pid, first.starttime)
            static = first.static
            self._owners[gpu] = GpuOwner(
                first.pid, static.user, static.command or static.name, static.job, len(members) - 1
            )
        self._identities = identities

    def owner_of(self, gpu: int) -> GpuOwner | None:
        """The owner of the GPU with that index.

        None where no process is seen there.
        """
        return self._owners.get(gpu)


def program(command: str) -> str:
    """Program of a command in a word.

    Of an interpreter its script or module, else the program's own name.
    """
    words = command.split()
    if not words:
        return ""
    name = basename(words[0])
    if not name.startswith(("python", "torchrun", "accelerate", "deepspeed")):
        return name
    for before, word in pairwise(words):
        if before == "-m" or (not word.startswith("-") and word.endswith(".py")):
            return basename(word)
    return name


def owner_words(owner: GpuOwner) -> str:
    """``rl.py (rl, pid 4711, slurm 8830) and 2 more``.

    Without what cannot be read.
    """
    return _named(owner, f"pid {owner.pid}") + (f" and {owner.others} more" if owner.others else "")


def _named(owner: GpuOwner, pid: str) -> str:
    facts = ", ".join(filter(None, (owner.user, pid, owner.job)))
    name = program(owner.command) if owner.command else ""
    return f"{name} ({facts})" if name and facts else name or facts


MOST_JOBS = 3


def whose_words(owners: Iterable[GpuOwner | None]) -> str:
    """Owners of several GPUs in words.

    A single owner with its pid, else each job once, so many at most.
    """
    distinct = list(dict.fromkeys(owner for owner in owners if owner is not None))
    if len(distinct) == 1:
        return owner_words(distinct[0])
    jobs = list(dict.fromkeys(_named(owner, "") or owner_words(owner) for owner in distinct))
    more = f" and {len(jobs) - MOST_JOBS} more" if len(jobs) > MOST_JOBS else ""
    return ", ".join(jobs[:MOST_JOBS]) + more
