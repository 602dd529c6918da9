"""Loader processes and threads of a GPU process, and their states.

A feeder is a loader process, a helper that works like one, or a thread of the GPU's process or of a loader. Its time is
divided into nine states that add up to 1. Pure data.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal, Protocol, get_args

from msgspec import Meta, Struct

from gputop.model.bounds import Count, Number, Text

Cause = Literal[
    "cpu", "queued", "disk", "network", "fetch", "lock", "sleep", "pipe", "transfer", "startup", "data", "unknown",
    "stopped", "ranks", "mount", "collective", "turns", "compiling", "front",
]  # fmt: skip
"""Cause of starvation or idle time.

``fetch`` is an unseen source outside; ``transfer`` the PCIe link; ``stopped`` a signal; ``ranks`` the other processes
of the job; ``mount`` a file system that does not answer; ``collective`` a missing rank, for processes that wait inside
a kernel; ``turns`` the turns of other GPUs; ``compiling`` running compilers; ``front`` the process that takes an
inference server's requests.
"""


class FeederShares(Struct, frozen=True):
    """Shares of the window that a feeder spent in each state.

    Shares are 0 to 1, of one feeder or the mean of several.
    """

    run: float = 0.0
    queued: float = 0.0
    disk: float = 0.0
    network: float = 0.0
    lock: float = 0.0
    sleep: float = 0.0
    poll: float = 0.0
    other: float = 0.0
    """Other waits: for work, for a reader, for a local process."""
    unread: float = 0.0
    """Asleep in a wait that is unknown or may not be seen."""

    @property
    def cpu(self) -> float:
        """Runnable: on a core, or queued for one."""
        return self.run + self.queued

    @property
    def useful(self) -> float:
        """Share of time that goes into the next batch.

        Runnable, waiting for a disk, or waiting for the network.
        """
        return self.run + self.queued + self.disk + self.network


class Owner(Protocol):
    """A process that holds a context on a GPU."""

    @property
    def pid(self) -> int: ...
    @property
    def type(self) -> str | None: ...
    @property
    def gpu_mem_bytes(self) -> float | None: ...


def rank_among_owners(owner: Owner) -> tuple[bool, float, int]:
    """Return the sort key of a GPU's owners.

    The highest owner has its main thread diagnosed: one that computes, with most memory.
    """
    return owner.type != "G", owner.gpu_mem_bytes or 0.0, -owner.pid


Via = Literal[
    "pipe", "socket", "child", "thread", "network", "file", "lock", "gpu", "timer", "stopped", "name", "unknown",
]  # fmt: skip
"""Kind of a wait target.

``pipe`` and ``socket`` lead to processes of this machine, ``network`` to another one, ``thread`` to threads of the
same process, ``file`` to a disk or a mount. ``name``: the process was not seen, and ``pids`` are the processes
classified as loaders.
"""
FeederKind = Literal["workers", "helpers", "beside", "ray", "children", "threads", "front"]
"""Kind of feeder.

Loaders proper, other descendants that work, processes beside the tree, Ray tasks, children that live for a moment
each, threads of the GPU process, and the process that takes an inference server's requests.
"""


SERVED_BY_PARENT = "parent listens"
"""Explanation of a GPU process without sockets of its own.

Its parent takes the requests.
"""
STATES = FeederShares.__struct_fields__


class Feeders(Struct, frozen=True):
    """The feeders of one GPU over the window.

    ``kind`` names them in the plural for people (``workers``, ``host threads``), ``feeder_kind`` is what they are.
    ``busiest`` is the one with most useful time, ``pid`` its process. ``active`` of them are at least half as much as
    it in the state that is named. ``any_disk`` is the share of the samples in which at least one of them waited for a
    disk. ``resolved_by`` says what resolved waits of the busiest one; ``rx_bytes_per_s`` is what its sockets received,
    where that was measured.
    """

    count: int
    kind: str
    busiest: FeederShares
    mean: FeederShares
    leading: Literal["cpu", "disk", "network"] = "cpu"
    """Largest part of the busiest feeder's useful time.

    It changes only when another part is clearly larger.
    """
    pid: int | None = None
    active: int = 0
    uneven: bool = False
    any_disk: float = 0.0
    resolved_by: str | None = None
    rx_bytes_per_s: float | None = None
    why_blind: str | None = None
    """Reason for missing evidence, such as unreadable sockets or pipes."""
    feeder_kind: FeederKind = "workers"
    any_unread: float = 0.0
    """Share of the latest sample with a wait that is not known yet.

    No conclusion follows from that share.
    """
    mount: str | None = None
    """Networked file system that the busiest feeder waits for."""
    cores: float | None = None
    """Cores for the busiest feeder and its like, by CPU masks.

    None if unknown.
    """
    address: str = ""
    """Address of the busiest feeder's connection, as ``10.0.0.7:443``.

    Empty if not seen.
    """
    name: str = ""
    """Program of the busiest feeder."""
    beside: tuple[str, ...] = ()
    """Programs beside the job that feed it, each with its pid, as ``tokenizer.py (pid 4711)``; the busiest first."""
    child: str = ""
    """Program and pid of the child that works for the busiest feeder."""
    via: Via | None = None
    """Kind of the main thread's wait for the feeders.

    None if no wait was seen, or if the target is unknown.
    """

    @property
    def key(self) -> int | None:
        """Pid of the busiest feeder.

        The pid is negative if the feeder is the threads or children of that process.
        """
        return (
            -self.pid
            if self.pid is not None and self.feeder_kind in ("threads", "children")
            else self.pid
        )


class MainWaits(Struct, frozen=True):
    """Waits of a GPU process's main thread, shares 0 to 1."""

    disk: float = 0.0
    network: float = 0.0
    lock: float = 0.0
    sleep: float = 0.0
    poll: float = 0.0
    pipe: float = 0.0
    write: float = 0.0
    """Waits for the reader of a full pipe."""
    other: float = 0.0
    unread: float = 0.0


LookState = Literal[
    "run", "queue", "network", "pipe", "write", "disk", "sleep", "lock", "gpu", "stopped", "other",
]  # fmt: skip
"""State of a thread in one observation.

On a core or queued for one, else the wait.
"""
LOOK_STATES: frozenset[str] = frozenset(get_args(LookState))


class MainLooks(Struct, frozen=True):
    """Number of observations of a main thread in each state.

    Covers the time between two readings. The state that was seen first comes first.
    """

    counts: Annotated[tuple[tuple[LookState, Count], ...], Meta(max_length=64)] = ()

    def count_of(self, state: LookState) -> int:
        """Return the number of observations in this state."""
        return next((count for name, count in self.counts if name == state), 0)

    @property
    def total(self) -> int:
        """Number of observations."""
        return sum(count for _, count in self.counts)

    @property
    def waiting(self) -> int:
        """Number of observations of a waiting thread."""
        return self.total - self.count_of("run")

    @property
    def words(self) -> str:
        """The counts as a text: ``queue 2, run 1``."""
        return ", ".join(f"{state} {count}" for state, count in self.counts)


def main_looks(counted: Iterable[tuple[str, int]]) -> MainLooks:
    """Sum observations by state; unknown states count as ``other``."""
    counts: dict[Any, int] = {}
    for name, count in counted:
        state = name if name in LOOK_STATES else "other"
        counts[state] = counts.get(state, 0) + count
    return MainLooks(tuple(counts.items()))


MOST_PIDS_IN_WORDS = 4
OTHER_RANKS = "other ranks of its job"
"""Prefix of a ``detail`` if a rank waits for no other visible target."""
RANKS_SEEN = " ranks seen"
HANDED_OVER = "batches handed over"
"""``detail`` of a wait for PyTorch DataLoader workers.

They send descriptors of shared memory.
"""
WHERE_RANKS_MEET = ", where its ranks meet"
"""Suffix of an address in a ``detail``.

The ranks of the job meet there, by the environment. Ranks that were not seen follow.
"""


PIN_MEMORY_THREAD = "pt_data_pin"
"""Prefix of the name of DataLoader's pin-memory thread."""


class WaitEnd(Struct, frozen=True, omit_defaults=True):
    """One wait target of a main thread.

    ``pct`` is the percentage of observations that saw it. ``pids`` are the processes at the other end; together they
    are one feeder, since no observation shows which of them will deliver next. Each has its activity in its own sample.
    Children that live for a moment each have no number here; their activity is in the sample of the process that waits
    for them (its ``feed_by`` is ``child``). ``detail`` is an address, a mount with the operation on it, or the reason
    why nothing more is known.

    Observations of a GPU process that no target accounts for found the thread on a core, or queued for one. Other
    processes list only targets outside the job, on the network or in a file: there a feeder waits.
    """

    via: Via
    pct: Number
    pids: Annotated[tuple[Count, ...], Meta(max_length=4096)] = ()
    detail: Text = ""

    @property
    def words(self) -> str:
        """Wait as a text: ``80 % pipe 4011 4012``.

        More examples: ``67 % pipe 64 processes``, ``40 % network 10.0.0.7:443``.
        """
        many = len(self.pids) > MOST_PIDS_IN_WORDS
        named = (f"{len(self.pids)} processes",) if many else map(str, self.pids)
        return " ".join((f"{self.pct:.0f} %", self.via, *named, *filter(None, (self.detail,))))


class Outsider(Struct, frozen=True, omit_defaults=True):
    """Process outside the GPUs' trees that uses the cores.

    A job of another GPU is named by its pid and the GPU's index. ``cpu_pct`` is percent of one core.
    """

    user: Text
    name: Text
    cpu_pct: Number
    pid: Count | None = None
    gpu: Count | None = None


def outsider_words(outsiders: Iterable[Outsider]) -> str:
    """Join outsiders as a text: ``user name percent``, with semicolons."""
    return "; ".join(f"{o.user} {o.name.replace(';', ' ')} {o.cpu_pct:.0f}" for o in outsiders)
