"""Feeders in the words of the screen: the busiest one beside the mean, the main thread's waits, who takes the cores."""

from __future__ import annotations

from collections.abc import Sequence

from gputop.diagnosis.rules.feeding import WORTH_SAYING, feeder_words, kind_of, taken_by
from gputop.diagnosis.types import Attribution, GpuDiagnosis
from gputop.model.feeders import Feeders, MainWaits
from gputop.model.quantity import share
from gputop.model.snapshot import ProcessSample
from gputop.model.text import terminal_safe
from gputop.paint.numbers import Field

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
        found.append((terminal_safe(f"{_who(a, a.feeders)}: {feeder_words(a.feeders.busiest)}"), "text"))
    if a.main_waits is not None:
        waits = _waits(a.main_waits)
        if waits:
            found.append((f"main waits: {waits}", "dim"))
    taken = taken_by(a.outsiders)
    if taken is not None:
        found.append((terminal_safe(f"taken by others: {taken}"), "level.yellow"))
    return found


def _who(a: Attribution, feeders: Feeders) -> str:
    """``4 torch workers, the busiest``, ``1 of 4 torch workers``, ``6 host threads, the busiest``."""
    kind = kind_of(feeders)
    if a.loader_kind and feeders.kind == "workers":
        kind = f"{a.loader_kind} {kind}"
    if feeders.uneven:
        return f"{feeders.active} of {feeders.n} {kind}"
    return f"{feeders.n} {kind}" + (", the busiest" if feeders.n > 1 else "")


def _waits(waits: MainWaits) -> str:
    """The two things that the main thread waited for most."""
    parts = [(getattr(waits, name), name) for name in MainWaits.__struct_fields__]
    said = sorted((part for part in parts if part[0] >= WORTH_SAYING), reverse=True)[:2]
    return ", ".join(f"{name} {share(value)}" for value, name in said)


def thread_words(process: ProcessSample, workers: Sequence[ProcessSample]) -> str | None:
    """``threads 6 R2``: host threads that feed a GPU process without workers, and how many cores' worth of them run."""
    if workers or not process.feeder_threads:
        return None
    running = round((process.pool_run_pct or 0.0) / 100.0)
    return f"threads {round(process.feeder_threads)}" + (f" R{running}" if running else "")
