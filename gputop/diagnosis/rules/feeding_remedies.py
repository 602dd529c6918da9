"""Remedies for a starving GPU, by cause and by what feeds it: never an option of a library that is not in use.

Versions: ``in_order=False`` needs PyTorch 2.6, ``persistent_workers`` and ``prefetch_factor`` PyTorch 1.7,
``torchdata.nodes`` torchdata 0.10 (their documentation and release notes).
"""

from __future__ import annotations

from gputop.diagnosis.rules.feeding import taken_by
from gputop.diagnosis.signals import Signals
from gputop.model.feeders import Cause, Feeders
from gputop.model.quantity import share

QUEUED = 0.3
"""Share of the runnable time spent queued for a core from which more workers make it worse [measured]."""
CORES_FREE = 90.0
"""Host CPU below this leaves cores for more workers [judged]."""
THROTTLED = 0.1
"""Share of scheduling periods cut short by the cgroup's CPU limit."""

Remedy = tuple[str, str]
BALANCE = "balance the shards over the workers"
OUT_OF_ORDER = "DataLoader(in_order=False) (PyTorch 2.6)"
ON_GPU = "decode and augment on the GPU (DALI, torchvision v2), cache decoded data"
FASTER_STORE = "shard small files (webdataset, Parquet), cache on local NVMe"


def is_dataloader(s: Signals, f: Feeders) -> bool:
    """Whether it is PyTorch's DataLoader, which has options of its own."""
    return f.kind == "workers" and (s.loader_kind == "torch" or bool(s.pin_memory))


def more_of(s: Signals, f: Feeders) -> str:
    """How to have more feeders of this kind."""
    if is_dataloader(s, f):
        return f"raise num_workers (now {f.n}; `gputop loader` finds how many)"
    if "threads" in f.kind:
        return "load in processes: threads share one interpreter lock (torchdata.nodes 0.10 does either)"
    return {
        "child processes": "run several child processes at once, each a few items ahead",
        "helpers": f"run more of them (now {f.n}), each a few batches ahead",
        "processes beside it": f"run more of them (now {f.n})",
        "Ray tasks": f"run more tasks at once (now {f.n})",
    }.get(f.kind, f"more processes in the pool (now {f.n})")


def cpu_remedy(s: Signals, f: Feeders, queued: float) -> Remedy:
    """For feeders that compute. ``queued``: share of their runnable time that they queue for a core."""
    if f.uneven:
        if is_dataloader(s, f):
            return (
                f"{BALANCE}; or {OUT_OF_ORDER}: one slow worker holds up the others",
                "balance the samples, in_order=False",
            )
        return f"balance the work over the {f.kind}: one slow one holds up the others", "balance the work"
    if s.throttled is not None and s.throttled >= THROTTLED:
        return (
            f"raise the cgroup's CPU limit ({share(s.throttled)} of its periods cut short), not the number of loaders",
            "raise the CPU limit",
        )
    if queued >= QUEUED:
        others = taken_by(s.outsiders)
        free = "free cores" if others is None else f"free the cores that {others.split(' ', 1)[0]} takes"
        return f"not more workers: {free}, OMP_NUM_THREADS=1, cheaper transforms", "free cores, not workers"
    if s.host_cpu is None or s.host_cpu < CORES_FREE:
        short = "num_workers, DALI" if is_dataloader(s, f) else "more feeders, DALI"
        return f"{more_of(s, f)}, {ON_GPU}", short
    return f"no core is free: cheaper transforms, {ON_GPU}", "DALI, cheaper transforms"


def io_remedy(s: Signals, f: Feeders, cause: Cause) -> Remedy:
    """For feeders that wait for data."""
    if f.uneven:
        if is_dataloader(s, f):
            return (
                f"{BALANCE}; or {OUT_OF_ORDER}: one slow worker holds up the others",
                "balance the samples, in_order=False",
            )
        return f"balance the data over the {f.kind}: one slow one holds up the others", "balance the data"
    if cause == "pipe":
        return "speed up what writes the pipe, or read the data directly; let it run ahead into a buffer", "faster pipe"
    ahead = "prefetch_factor=4 or more, more num_workers" if is_dataloader(s, f) else _more_in_flight(f)
    if cause == "disk":
        return f"{FASTER_STORE}, {ahead}", "shards, local NVMe"
    return f"more requests in flight ({ahead}), larger objects (shards), a local cache", "more in flight, cache"


def _more_in_flight(f: Feeders) -> str:
    if "threads" in f.kind:
        return "more threads, each a few items ahead"
    what = "worker processes" if f.kind == "workers" else f.kind
    return f"more {what} (now {f.n}), each a few batches ahead"
