"""Derives events from frames: changed verdicts, lost GPUs, throttling, memory errors.

They mark places in a recording to jump to; a replay derives its own again.
"""

from __future__ import annotations

from gputop.diagnosis.types import GpuDiagnosis
from gputop.model.derived import POWER_BRAKE, THERMAL, throttle_words
from gputop.model.snapshot import Event, EventKind, GpuSample
from gputop.monitor import MOST_GPUS, Frame, SmSources

_SLOWED = THERMAL | POWER_BRAKE
"""Thermal slowdown and power brake; a power cap is how a busy GPU normally runs."""


class FrameEvents:
    """Derives each frame's events from the frame before it."""

    def __init__(self) -> None:
        self._verdicts: dict[str, tuple[str, str | None]] = {}
        self._standing: set[tuple[EventKind, str]] = set()
        """What holds of which GPU, by its UUID."""
        self._errors: dict[str, int] = {}
        self._sources = SmSources()

    def events(self, frame: Frame) -> list[Event]:
        """Return the events since the frame before.

        Events that the source has reported itself are left out.
        """
        t = frame.snapshot.t
        reported = {(event.kind, event.gpu) for event in frame.snapshot.events}
        events: list[Event] = []
        for gpu, diagnosis in zip(frame.snapshot.gpus, frame.diagnoses, strict=False):
            index = gpu.static.index
            events += [Event(t, kind, text, index) for kind, text in self._health(gpu)]
            events += self._verdict(t, index, diagnosis)
            if (switch := self._sources.switch(gpu)) is not None:
                events.append(Event(t, "mark", switch, index))
        if len(self._verdicts) > max(MOST_GPUS, len(frame.snapshot.gpus)):
            self._forget_all_but({gpu.static.uuid for gpu in frame.snapshot.gpus})
        return [event for event in events if (event.kind, event.gpu) not in reported]

    def _forget_all_but(self, uuids: set[str]) -> None:
        self._standing = {(kind, uuid) for kind, uuid in self._standing if uuid in uuids}
        for uuid in self._verdicts.keys() - uuids:
            del self._verdicts[uuid]
            self._errors.pop(uuid, None)
            self._sources.forget(uuid)

    def _verdict(self, t: float, gpu: int, diagnosis: GpuDiagnosis) -> list[Event]:
        now = verdict, flag = diagnosis.verdict, diagnosis.busy_not_working
        if self._verdicts.get(diagnosis.uuid) == now:
            return []
        self._verdicts[diagnosis.uuid] = now
        words = verdict if flag is None else f"{verdict} {flag}"
        return [Event(t, "verdict", words, gpu, verdict=verdict, flag=flag)]

    def _health(self, gpu: GpuSample) -> list[tuple[EventKind, str]]:
        uuid = gpu.static.uuid
        events: list[tuple[EventKind, str]] = []
        if self._begins("gpu_lost", uuid, holds=gpu.lost_reason is not None):
            events.append(("gpu_lost", gpu.lost_reason or ""))
        slowed = (gpu.throttle_reasons or 0) & _SLOWED
        if self._begins("throttle", uuid, holds=slowed != 0):
            events.append(("throttle", ", ".join(throttle_words(slowed))))
        if gpu.ecc_uncorrected is not None:
            before = self._errors.get(uuid)
            self._errors[uuid] = gpu.ecc_uncorrected
            if before is not None and gpu.ecc_uncorrected > before:
                events.append(
                    ("ecc", f"{gpu.ecc_uncorrected - before} new uncorrected memory errors")
                )
        return events

    def _begins(self, kind: EventKind, uuid: str, *, holds: bool) -> bool:
        """Whether a condition has begun to hold."""
        held = (kind, uuid) in self._standing
        (self._standing.add if holds else self._standing.discard)((kind, uuid))
        return holds and not held
