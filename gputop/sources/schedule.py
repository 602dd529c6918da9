"""Keeps time for the two collecting threads of what goes on, such as a screen: when to ask, when a tick is complete.

Calls no driver and reads no file, so it goes on whatever happens to those who do.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic

from gputop.model.source import SourceError
from gputop.sources.machine_reader import MachineReader
from gputop.sources.readers import HUNG_S, LOOK_AGAIN_S, PAIR_S, Readers

PROC_GRACE_S = 0.15
"""How long a finished NVML read waits for /proc, so that both belong to one tick."""
FIRST_RETRY_S, LAST_RETRY_S = 5.0, 60.0
"""Back-off while the driver does not start."""


class Schedule(Readers):
    """Asks both threads once an interval, on a thread of its own.

    ``publish`` is called on that thread when a tick is complete, and once an interval while NVML is late.
    """

    second_s = PAIR_S
    with_host = False
    """Not before the first snapshot is out."""

    def __init__(
        self, interval_s: float, reader: MachineReader, publish: Callable[[], None], hung_s: float = HUNG_S
    ) -> None:
        super().__init__(interval_s, reader, hung_s)
        self._publish = publish
        self._stopping = False
        self._nvml_reads = 0
        self._proc_asked_at: float | None = None
        self._proc_due = False
        self._is_owed = False
        """Whether a snapshot went out before the first pass over the GPUs' processes: one follows as soon as it ends.
        """
        self._retry_at, self._retry_s = 0.0, FIRST_RETRY_S
        self._thread = threading.Thread(target=self._run, name="gputop-schedule", daemon=True)

    def ask_driver(self) -> None:
        """Start the first reading of the GPUs, and nothing else yet.

        What the GPUs are asked seldom waits then, unless the driver is slow: the first picture does not show it, the
        second one does, and meanwhile what draws is imported.
        """
        self._nvml.start()

    def start(self) -> None:
        """Start the reading of /proc, and keep time from here on.

        Where the driver has answered, the first pass knows the GPUs' processes. Where it has not, a pass that does not
        know them finds all others meanwhile, which is most of the work.
        """
        self._proc.start(reads=not self._nvml.reads)
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """End all threads; those that hang are left behind after ``timeout_s`` in all."""
        begun = monotonic()
        self._stopping = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        super().stop(timeout_s - (monotonic() - begun))

    def _run(self) -> None:
        due = monotonic() + self._interval_s
        paired = False
        while not self._stopping:
            now = monotonic()
            if self._nvml.reads != self._nvml_reads:
                self._take_reading(now)
            if self._proc_due and self._proc.busy_since is None:
                self._proc_due = False
                self._proc.ask()
            asked = self._proc_asked_at
            done = not self._proc_due and self._proc.busy_since is None
            if (done and self._is_owed) or (asked is not None and (done or now - asked >= PROC_GRACE_S)):
                self._proc_asked_at = None
                self._is_owed = not done and self.reading is not None and not self._knows_processes
                self._publish()
                self.with_host = True
                if not paired and self.reading is not None:
                    paired = True
                    due = min(due, max(now, self._reading_at + PAIR_S))
            if now >= due:
                # A late thread skips ticks: it never tries to catch up.
                due = max(due + self._interval_s, now)
                self._tick(now)
            if self._set_hung_aside():
                self._nvml_reads = 0
            soonest = due
            if self._proc_asked_at is not None:
                soonest = min(soonest, self._proc_asked_at + PROC_GRACE_S)
            if self._nvml.busy_since is not None:
                soonest = min(soonest, now + LOOK_AGAIN_S)
            self._wake.wait(max(0.0, soonest - monotonic()))
            self._wake.clear()

    def _tick(self, now: float) -> None:
        if self._nvml.busy_since is not None:
            if self._is_late(self._nvml.busy_since, now):
                self._ask_proc(now)
        elif now < self._retry_at:
            self._ask_proc(now)
        else:
            self._nvml.ask()

    def _take_reading(self, now: float) -> None:
        """NVML has finished: read /proc next, so that it knows this tick's GPU processes."""
        self._nvml_reads = self._nvml.reads
        if self._nvml.error is None:
            self.reading, self._reading_at = self._nvml.latest, self._nvml.latest_at
            self._retry_s = FIRST_RETRY_S
        elif isinstance(self._nvml.error, SourceError):
            self._retry_at = now + self._retry_s
            self._retry_s = min(LAST_RETRY_S, 2 * self._retry_s)
        self._ask_proc(now)

    @property
    def _knows_processes(self) -> bool:
        """Whether a pass over /proc has ended that knew the GPUs' processes."""
        return self.host is not None and self.host.knew_gpus

    def _ask_proc(self, now: float) -> None:
        self._proc_asked_at = now
        self._proc_due = True
        self._wake.set()
