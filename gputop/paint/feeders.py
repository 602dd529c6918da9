"""Feeders in the words of the screen: the busiest one beside the mean, the main thread's waits, who takes the cores."""

from __future__ import annotations

from collections.abc import Sequence

from gputop.diagnosis.types import Attribution, GpuDiagnosis
from gputop.model.feeders import Feeders, FeederShares, MainWaits, Outsider
from gputop.model.quantity import share
from gputop.model.snapshot import ProcessSample
from gputop.model.text import terminal_safe
from gputop.paint.numbers import Field

LEAST_SHARE = 0.05
"""What a feeder did for less of its time is not worth a word."""
STANDS_OUT = 0.1
"""The busiest feeder is shown beside the mean of all from this difference on."""
LANE_STATES = {
    "loader_run_pct": "run",
    "loader_wait_pct": "queued",
    "loader_disk_pct": "disk",
    "loader_network_pct": "network",
}
"""Series of a lane → the state of a feeder that it is the mean of."""


def busiest_share(d: GpuDiagnosis, series: str) -> float | None:
    """What the busiest feeder did of a lane's state, 0–1, where it stands out from the mean; else None."""
    feeders = d.attribution.feeders if d.attribution is not None else None
    state = LANE_STATES.get(series)
    if feeders is None or state is None or feeders.n < 2:
        return None
    most: float = getattr(feeders.busiest, state)
    return most if most - getattr(feeders.mean, state) >= STANDS_OUT else None


def feeder_fields(a: Attribution) -> list[Field]:
    """Who feeds the GPU and what the busiest of them did, what main waited for, who else takes the cores."""
    found: list[Field] = []
    if a.feeders is not None and a.feeders.n:
        found.append((f"{_who(a)}: {_did(a.feeders.busiest)}", "text"))
    if a.main_waits is not None:
        waits = _waits(a.main_waits)
        if waits:
            found.append((f"main waits: {waits}", "dim"))
    if a.outsiders:
        found.append((f"cores taken by {_taken(a.outsiders)}", "level.yellow"))
    return found


def _who(a: Attribution) -> str:
    """``4 torch workers, the busiest``, ``1 of 4 torch workers``, ``6 host threads, the busiest``."""
    feeders = a.feeders
    assert feeders is not None
    kind = _kind(feeders, a.loader_kind)
    if feeders.uneven:
        return f"{feeders.active} of {feeders.n} {kind}"
    return f"{feeders.n} {kind}" + (", the busiest" if feeders.n > 1 else "")


def _kind(feeders: Feeders, loader: str | None) -> str:
    kind = feeders.kind if feeders.n != 1 else feeders.kind.removesuffix("s").replace("processe", "process")
    return f"{terminal_safe(loader)} {kind}" if loader and feeders.kind == "workers" else kind


def _did(shares: FeederShares) -> str:
    return _largest([(name, getattr(shares, name)) for name in FeederShares.__struct_fields__]) or "idle"


def _waits(waits: MainWaits) -> str:
    return _largest([(name, getattr(waits, name)) for name in MainWaits.__struct_fields__])


def _largest(parts: list[tuple[str, float]]) -> str:
    """The two largest, ``queued 64 %, run 36 %``."""
    said = sorted((part for part in parts if part[1] >= LEAST_SHARE), key=lambda part: -part[1])[:2]
    return ", ".join(f"{name} {share(value)}" for name, value in said)


def _taken(outsiders: tuple[Outsider, ...]) -> str:
    return ", ".join(
        f"{terminal_safe(o.name)} ({terminal_safe(o.user)}) {o.cpu_pct / 100.0:.1f}" for o in outsiders[:3]
    )


def thread_words(process: ProcessSample, workers: Sequence[ProcessSample]) -> str | None:
    """``threads 6 R2``: host threads that feed a GPU process without workers, and how many cores' worth of them run."""
    if workers or not process.feeder_threads:
        return None
    running = round((process.pool_run_pct or 0.0) / 100.0)
    return f"threads {round(process.feeder_threads)}" + (f" R{running}" if running else "")
