"""What a recording says of the time that a trace covers: the screen's numbers and verdict beside the profiler's."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import mean

from msgspec import Struct

from gputop.diagnosis.engine import Diagnoser
from gputop.diagnosis.signals import WINDOW_S
from gputop.model.snapshot import Snapshot


class RecordedGpu(Struct, frozen=True):
    """One GPU: means over the trace's time, None where nothing was measured; the verdict at its end."""

    index: int
    util_pct: float | None
    sm_active_pct: float | None
    verdict: str
    title: str


class RecordedWindow(Struct, frozen=True):
    """A trace's time in a recording; ``reason`` says why there is nothing."""

    gpus: tuple[RecordedGpu, ...] = ()
    samples: int = 0
    seconds: float = 0.0
    reason: str | None = None


def recorded_window(snapshots: Iterable[Snapshot], begin: float | None, end: float | None) -> RecordedWindow:
    """The part of a recording between two Unix times, as the screen showed it."""
    if begin is None or end is None:
        return RecordedWindow(reason="the trace does not say at what time of day it began")
    diagnoser: Diagnoser | None = None
    inside: list[Snapshot] = []
    before = after = False
    for snapshot in snapshots:
        if snapshot.t > end + snapshot.interval_s:
            after = True
            break
        before = before or snapshot.t < begin
        if snapshot.t >= begin - WINDOW_S:
            diagnoser = diagnoser or Diagnoser(snapshot.interval_s)
            diagnoser.take(snapshot)
            if snapshot.t >= begin and diagnoser.believed is not None:
                inside.append(diagnoser.believed)
    if diagnoser is None or not inside:
        where = "after" if after else "before" if before else "apart from"
        return RecordedWindow(reason=f"it holds nothing of the trace's time: the recording lies {where} it")
    rows = []
    for position, diagnosis in enumerate(diagnoser.diagnoses()):
        samples = [snapshot.gpus[position] for snapshot in inside if position < len(snapshot.gpus)]
        util = [sample.util_pct for sample in samples if sample.util_pct is not None]
        sm = [sample.sm_active_pct for sample in samples if sample.sm_active_pct is not None]
        rows.append(
            RecordedGpu(
                diagnosis.index,
                mean(util) if util else None,
                mean(sm) if sm else None,
                diagnosis.verdict,
                diagnosis.title,
            )
        )
    return RecordedWindow(tuple(rows), len(inside), end - begin)
