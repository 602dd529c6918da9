"""Observations of threads in waits: the only record that the sampler's thread hands over."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from gputop.model.feeders import Via
from gputop.sources.processes.look.wait_state import LOCAL, WaitState
from gputop.sources.processes.tree.process_facts import RunRank

INSIDE = ("lock", "queue", "sleep", "other", LOCAL)
"""Waits of a main thread that its own process's threads may cause."""


class WaitTarget(Struct, frozen=True, gc=False):
    """Wait target of a thread, see ``WaitEnd``, and its activity.

    ``written``: the named processes were seen to write. ``activity`` is the state of a process at the other end, or of
    its own target; None if the wait is the thread's own. ``evidence`` says what resolved it, ``active_pid`` which
    process it is; None if that is not on this machine or not known.
    """

    via: Via
    pids: tuple[int, ...] = ()
    detail: str = ""
    written: bool = False
    is_only: bool = False
    """The poll covers a single connection, as with a timeout on a socket: nothing else can end the wait."""
    activity: WaitState | None = None
    evidence: str | None = None
    active_pid: int | None = None


class WaitObservation(Struct, frozen=True, gc=False):
    """State and wait target of one thread at one moment.

    ``t`` is monotonic s. Observations of a process's other threads at the same moment follow the main thread's, and
    have a ``name``.
    """

    t: float
    pid: int
    tid: int
    state: WaitState
    target: WaitTarget | None = None
    name: str = ""


class Job(Struct, frozen=True):
    """Possible wait targets: the other processes of one GPU process.

    ``loaders`` are named as loaders; if PyTorch's workers are among them, only these. ``threads`` are the tids of the
    GPU process that could delay its main thread.
    """

    pids: tuple[int, ...] = ()
    loaders: frozenset[int] = frozenset()
    threads: Sequence[str] = ()
    root: int | None = None
    """The GPU process, if the wait of another process is followed."""
    rank: RunRank | None = None
    """The GPU process's rank in a run of several."""
    is_rank: bool = False
    """Whether its threads or its environment show that it is one of several ranks."""
    torch: frozenset[int] = frozenset()
    """Worker processes of PyTorch's DataLoader."""
    absent: str = ""
    """Missing ranks, in words."""
    backward: Sequence[str] = ()
    """Threads in which the GPU process computes gradients: its main thread waits for them by a lock."""
