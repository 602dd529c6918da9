"""Loaders judged by their means: all that recordings made before feeders were measured have."""

from __future__ import annotations

from gputop.diagnosis.attribution import IDLE_PCT, MOSTLY, NOT_THIS, at_least, at_most
from gputop.diagnosis.rules.base import Told
from gputop.diagnosis.rules.feeding_remedies import CORES_FREE, QUEUED, THROTTLED
from gputop.diagnosis.rules.starved import CHECKPOINT_BYTES, starved_level
from gputop.diagnosis.signals import Signals
from gputop.model.quantity import rate, share

# --- CPU-bound ------------------------------------------------------------------------------------------------------


def cpu(s: Signals) -> bool:
    """Loaders runnable in most of the idle time."""
    return (
        s.idle >= IDLE_PCT
        and s.loaders > 0
        and s.workers is not None
        and at_least(s.workers, s.u) >= MOSTLY
        and (s.main is None or at_least(s.main, s.u) < MOSTLY)
    )


def tell_cpu(s: Signals) -> Told:
    """Evidence and remedy of CPU-bound loaders."""
    workers = s.workers or 0.0
    runnable = round(s.loaders * workers)
    line = f"GPU idle {s.idle:.0f} %: {runnable}/{s.loaders} workers runnable"
    line += f" (cpu {share(s.running)}, queued {share(s.queued)}), main waits"
    queued = s.queue_share or 0.0
    if s.throttled is not None and s.throttled >= THROTTLED:
        remedy = f"raise the cgroup's CPU limit ({share(s.throttled)} of its periods cut short), not num_workers"
        short = "raise the CPU limit"
    elif queued >= QUEUED:
        remedy = "not more workers: free cores, OMP_NUM_THREADS=1, cheaper transforms"
        short = "free cores, not workers"
    elif s.host_cpu is None or s.host_cpu < CORES_FREE:
        remedy = (
            f"raise num_workers (now {s.loaders}; `gputop loader` finds how many), move decoding and augmentation to "
            "the GPU (DALI, torchvision v2), cache decoded data"
        )
        short = "num_workers, DALI"
    else:
        remedy = "no core is free: cheaper transforms, decode on the GPU (DALI, torchvision v2), cache decoded data"
        short = "DALI, cheaper transforms"
    notes = () if s.main is not None else ("the main thread could not be measured",)
    return Told(starved_level(s), (line,), remedy, short, "high" if s.main is not None else "medium", notes)


# --- I/O-bound ------------------------------------------------------------------------------------------------------

MAIN_DISK = 0.4
"""Share of the idle time that the main thread spends in disk wait where there are no loaders."""
ASLEEP = 0.2
SPINS_WITHIN = 0.1
"""A main thread within this of the GPU's busy share is spinning on the GPU, and asleep while it idles."""
WAITING = 0.5


def disk(s: Signals) -> bool:
    """Loaders, or a main thread without any, in disk wait."""
    if s.idle < IDLE_PCT or s.swapping is not None:
        return False
    if s.loaders:
        return s.disk is not None and at_least(s.disk, s.u) >= MOSTLY
    if s.main_disk is None or s.main_disk / (s.idle / 100.0) < MAIN_DISK:
        return False
    writes = s.write_bytes_per_s or 0.0
    return writes < CHECKPOINT_BYTES or writes < (s.read_bytes_per_s or 0.0)


def network(s: Signals) -> bool:
    """Loaders that wait for network or pipe while main is asleep."""
    return (
        s.idle >= IDLE_PCT
        and s.loaders > 0
        and s.workers is not None
        and s.workers < ASLEEP
        and s.network is not None
        and s.network >= WAITING
        and s.main is not None
        and (at_most(s.main, s.u) < NOT_THIS or abs(s.main - s.u / 100.0) <= SPINS_WITHIN)
    )


def tell_io(s: Signals) -> Told:
    """Evidence and remedy of loaders that wait for data."""
    if s.loaders and disk(s):
        where = "network file wait" if s.network is not None and s.network >= WAITING else "disk wait"
        line = f"GPU idle {s.idle:.0f} %: workers in {where} {share(s.disk)}"
        if s.io_known and s.read_bytes_per_s:
            line += f", reading {rate(s.read_bytes_per_s)}"
        confidence = "high"
    elif s.loaders:
        line = (
            f"GPU idle {s.idle:.0f} %: workers wait for network or pipe {share(s.network)}, on CPU {share(s.workers)}"
        )
        confidence = "medium"
    else:
        line = f"GPU idle {s.idle:.0f} %: main thread in disk wait {share(s.main_disk)}, no workers"
        confidence = "high"
    notes = () if s.io_known else ("disk evidence needs root: read rates of this process are denied",)
    return Told(
        starved_level(s),
        (line,),
        "shard small files (webdataset, Parquet), local NVMe cache, prefetch_factor=4 or more, more workers",
        "shards, local NVMe",
        "high" if confidence == "high" else "medium",
        notes,
    )
