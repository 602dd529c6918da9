"""Samples one GPU's counters on a thread of the helper."""

from __future__ import annotations

import threading
from time import monotonic

from gputop.model.sm import COUNTERS_DENIED
from gputop.sources.activity.counters.abi import (
    BUSY,
    DENIED,
    INSUFFICIENT_DRIVER,
    NOT_ALLOWED,
    UNSUPPORTED_GPU,
    VIRTUALIZED,
    Library,
    NvperfError,
)
from gputop.sources.activity.counters.helper_protocol import GpuLine, SampleLine, State
from gputop.sources.activity.counters.sampler import CounterGpu, Sampler
from gputop.system.dialogue import say

BUSY_AGAIN_S = 30.0
"""How soon counters that another tool uses are tried again."""
LOST_AGAIN_S = 60.0
"""How soon a GPU is tried again after a call failed for another reason."""
NEVER_S = 3.2e8
"""Ten years: what is denied is tried again only after release and resume."""
MOST_DRY_TRIES = 5
"""Intervals without a sample after which a session is restarted."""
BUSY_WORDS = "GPU counters in use by another tool (ncu, nsys, DCGM)"
_STATES: dict[int, tuple[State, str]] = {
    DENIED: ("denied", COUNTERS_DENIED),
    NOT_ALLOWED: ("denied", COUNTERS_DENIED),
    BUSY: ("busy", BUSY_WORDS),
    UNSUPPORTED_GPU: ("unsupported", "NVIDIA's library cannot sample the counters of this GPU"),
    VIRTUALIZED: ("unsupported", "the counters of a virtual GPU belong to its host"),
    INSUFFICIENT_DRIVER: (
        "unsupported",
        "the driver is too old for this version of NVIDIA's counter library",
    ),
}


ENDING, RELEASED = "told to end", "released"


class CounterThread(threading.Thread):
    """Takes one GPU's counters on request and reports samples."""

    def __init__(
        self, host: Library, target: Library, place: CounterGpu, interval_s: float
    ) -> None:
        super().__init__(name=f"counters-{place.pci}", daemon=True)
        self.place, self.interval_s = place, interval_s
        self._sampler = Sampler(host, target, place)
        self._changed = threading.Condition()
        self._why_not: str | None = RELEASED
        """Why the counters are not to be taken now; None when they are."""

    def leave(self, why: str | None) -> None:
        """Leave the counters to others for this reason; None takes them."""
        with self._changed:
            if why != self._why_not:
                self._why_not = why
                self._changed.notify()

    def run(self) -> None:
        said = RELEASED
        while (why := self._why_not) != ENDING:
            if why is None:
                said = ""
                wait_s = self._hold()
                with self._changed:
                    self._changed.wait_for(lambda: self._why_not is not None, wait_s)
                continue
            if why != said:
                said = why
                self._tell("released", why)
            with self._changed:
                self._changed.wait_for(lambda why=why: self._why_not != why)  # type: ignore[misc]

    def _hold(self) -> float:
        """Report samples until told to stop; return the retry delay."""
        try:
            try:
                self._sampler.begin()
                self._tell("ok")
                self._watch()
            finally:
                self._sampler.end()
        except NvperfError as error:
            state, why = _STATES.get(error.status or 0, ("lost", str(error)))
            self._tell(state, why)
            # The other refusals last until the program or the machine is restarted.
            return BUSY_AGAIN_S if state == "busy" else LOST_AGAIN_S if state == "lost" else NEVER_S
        return 0.0

    def _watch(self) -> None:
        self._sampler.trigger()
        due = monotonic() + self.interval_s
        dry = 0
        while True:
            with self._changed:
                if self._changed.wait_for(
                    lambda: self._why_not is not None, max(0.0, due - monotonic())
                ):
                    return
            sample = self._sampler.sample()
            if sample is None or "sm" not in sample.values:
                dry += 1
                if dry >= MOST_DRY_TRIES:
                    raise NvperfError("no sample of SM activity", None)
            else:
                dry = 0
                say(SampleLine(self.place.pci, sample.t0 / 1e9, sample.t1 / 1e9, **sample.values))
            # After a stall, go on from now: samples in quick succession would cover no time.
            due = max(due + self.interval_s, monotonic() + self.interval_s / 2)

    def _tell(self, state: State, why: str = "") -> None:
        say(GpuLine(self.place.pci, state, why))
