"""One GPU in the helper: takes its counters when it is told to, says what they count, and gives them back."""

from __future__ import annotations

import os
import threading
from functools import partial
from time import monotonic

from msgspec import Struct

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
from gputop.sources.activity.counters.protocol import VERSION, GpuLine, SampleLine, State, encode
from gputop.sources.activity.counters.sampler import Place, Sampler

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
    INSUFFICIENT_DRIVER: ("unsupported", "the driver is too old for this version of NVIDIA's counter library"),
}

_output = threading.Lock()


def say(line: Struct) -> None:
    """Write one whole line to stdout. If the reader has gone, this process ends, too."""
    data = encode(line)
    with _output:
        try:
            os.write(1, data)
        except OSError:
            os._exit(0)


class Worker(threading.Thread):
    """Takes one GPU's counters when it is told to, and says what they count."""

    def __init__(self, host: Library, target: Library, place: Place, interval_s: float) -> None:
        super().__init__(name=f"counters-{place.pci}", daemon=True)
        self.place, self.interval_s = place, interval_s
        self._sampler = Sampler(host, target, place)
        self._changed = threading.Condition()
        self._wanted = self._ending = False
        self._barred: str | None = None

    def want(self, *, wanted: bool) -> None:
        with self._changed:
            self._wanted = wanted
            self._changed.notify()

    def bar(self, why: str | None) -> None:
        """Leave the counters to others for this reason; None: the reason is gone."""
        with self._changed:
            if why != self._barred:
                self._barred = why
                self._changed.notify()

    def end(self) -> None:
        with self._changed:
            self._ending = True
            self._changed.notify()

    def run(self) -> None:
        told = "released"
        while not self._ending:
            why = self._why_not()
            if why is None:
                told = ""
                wait_s = self._hold()
                with self._changed:
                    self._changed.wait_for(lambda: self._why_not() is not None, wait_s)
                continue
            if why != told:
                told = why
                self._tell("released", why)
            with self._changed:
                self._changed.wait_for(partial(self._differs, told))

    def _differs(self, told: str) -> bool:
        return self._ending or self._why_not() != told

    def _why_not(self) -> str | None:
        """Why the counters are not to be taken now; None when they are."""
        if self._ending:
            return "told to end"
        return self._barred if self._wanted else "released"

    def _hold(self) -> float:
        """Take the counters and report samples until they are to be given back. Returns the wait before another try."""
        try:
            try:
                self._sampler.begin()
                self._tell("ok", "")
                self._watch()
            finally:
                self._sampler.end()
        except NvperfError as error:
            state, why = _STATES.get(error.status or 0, ("lost", str(error)))
            self._tell(state, why, error.status)
            # The other refusals last until the program or the machine is restarted.
            return BUSY_AGAIN_S if state == "busy" else LOST_AGAIN_S if state == "lost" else NEVER_S
        return 0.0

    def _watch(self) -> None:
        self._sampler.trigger()
        due = monotonic() + self.interval_s
        dry = 0
        while True:
            with self._changed:
                if self._changed.wait_for(lambda: self._why_not() is not None, max(0.0, due - monotonic())):
                    return
            sample = self._sampler.sample()
            if sample is None or "sm" not in sample.values:
                dry += 1
                if dry >= MOST_DRY_TRIES:
                    raise NvperfError("no sample of SM activity", None)
            else:
                dry = 0
                say(SampleLine(VERSION, self.place.pci, sample.t0 / 1e9, sample.t1 / 1e9, **sample.values))
            # After a stall, go on from now: samples in quick succession would cover no time.
            due = max(due + self.interval_s, monotonic() + self.interval_s / 2)

    def _tell(self, state: State, why: str, code: int | None = None) -> None:
        metrics = self._sampler.metrics if state == "ok" else ()
        latest = self._sampler.keep_latest if state == "ok" else None
        say(GpuLine(VERSION, self.place.pci, state, why, code, metrics, latest))
