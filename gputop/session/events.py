"""Frames to events worth a line in a recording: what changed, was lost, slowed down or erred.

They mark places in a recording to jump to; a replay derives its own again. Pure.
"""

from __future__ import annotations

from gputop.diagnosis.types import GpuDiagnosis
from gputop.model.snapshot import Event, EventKind, GpuSample
from gputop.model.throttle import POWER_BRAKE, THERMAL, throttle_words
from gputop.monitor import MOST_GPUS, Frame, SmSources

_SLOWED = THERMAL | POWER_BRAKE
"""Thermal slowdown and power brake; a power cap is how a busy GPU normally runs."""


class FrameEvents:
    """Takes frames in order and gives the events that each adds to those of its snapshot."""

    def __init__(self) -> None:
        self._verdicts: dict[str, tuple[str, str | None]] = {}
        self._lost: set[str] = set()
        self._slowed: set[str] = set()
        self._errors: dict[str, int] = {}
        self._sources = SmSources()

    def of(self, frame: Frame) -> list[Event]:
        """The events between the frame before and this one. Those that the source reported are not repeated."""
        t = frame.snapshot.t
        known = {(event.kind, event.gpu) for event in frame.snapshot.events}
        found: list[tuple[EventKind, int, str]] = []
        for gpu, diagnosis in zip(frame.snapshot.gpus, frame.diagnoses, strict=False):
            found += [(kind, gpu.static.index, text) for kind, text in self._health(gpu)]
            found += [("verdict", gpu.static.index, text) for text in self._verdict(diagnosis)]
            if (switch := self._sources.switch(gpu)) is not None:
                found.append(("mark", gpu.static.index, switch))
        if len(self._verdicts) > max(MOST_GPUS, len(frame.snapshot.gpus)):
            self._forget_all_but({gpu.static.uuid for gpu in frame.snapshot.gpus})
        return [Event(t, kind, text, gpu) for kind, gpu, text in found if (kind, gpu) not in known]

    def _forget_all_but(self, uuids: set[str]) -> None:
        self._lost &= uuids
        self._slowed &= uuids
        for uuid in self._verdicts.keys() - uuids:
            del self._verdicts[uuid]
            self._errors.pop(uuid, None)
            self._sources.forget(uuid)

    def _verdict(self, diagnosis: GpuDiagnosis) -> list[str]:
        now = (diagnosis.verdict, diagnosis.busy_not_working)
        if self._verdicts.get(diagnosis.uuid) == now:
            return []
        self._verdicts[diagnosis.uuid] = now
        return [diagnosis.verdict if now[1] is None else f"{diagnosis.verdict} {now[1]}"]

    def _health(self, gpu: GpuSample) -> list[tuple[EventKind, str]]:
        uuid = gpu.static.uuid
        events: list[tuple[EventKind, str]] = []
        if _begins(self._lost, uuid, gpu.lost_reason is not None):
            events.append(("gpu_lost", gpu.lost_reason or ""))
        mask = gpu.throttle_reasons or 0
        if _begins(self._slowed, uuid, bool(mask & _SLOWED)):
            events.append(("throttle", ", ".join(throttle_words(mask & _SLOWED))))
        if gpu.ecc_uncorrected is not None:
            before = self._errors.get(uuid)
            self._errors[uuid] = gpu.ecc_uncorrected
            if before is not None and gpu.ecc_uncorrected > before:
                events.append(("ecc", f"{gpu.ecc_uncorrected - before} new uncorrected memory errors"))
        return events


def _begins(standing: set[str], uuid: str, holds: bool) -> bool:
    """Whether a condition has begun to hold."""
    if not holds:
        standing.discard(uuid)
        return False
    if uuid in standing:
        return False
    standing.add(uuid)
    return True
