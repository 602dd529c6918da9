"""Joins NVML, SM activity and /proc of this machine into snapshots.

Whatever hangs, snapshots go on and name late or lost parts. Draws nothing and judges nothing.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event
from typing import Protocol

from gputop.model.sm import sm_options
from gputop.model.snapshot import (
    NOT_READ_YET,
    NOTHING_LATE,
    Collector,
    HostSample,
    Machine,
    ProcessSample,
    Snapshot,
)
from gputop.model.source import CLOSE_S, Source, SourceError
from gputop.sources.gpu_process import unseen
from gputop.sources.machine_reader import HostReading, MachineReader
from gputop.sources.nvml.gpu_device import GpusReading
from gputop.sources.one_reading import SLOW_S, WAIT_S, OneReading, incomplete, waiting_for
from gputop.sources.own_process import OwnCostMeter
from gputop.sources.procfs import make_room, text_of
from gputop.sources.readers import LOOK_AGAIN_S, Readers
from gputop.sources.selection import MachineOptions

START_WAIT_S = 1.0
"""How long ``start`` waits for NVML: normally milliseconds, seconds when the driver first has to wake the GPUs."""
SM_READER_WAIT_S = 3.0
"""How long a command that reads once waits for the first answer of an exporter."""
MOST_WAITING = 600
"""Snapshots kept for a reader that is late: minutes of them. What is older than these is dropped."""


class LocalSource:
    """The live source of this machine.

    ``open`` may be called early, so that reading begins while a screen still loads.
    """

    def __init__(self, options: MachineOptions, *, own_process: bool = True) -> None:
        """gputop's own cost is not measured without ``own_process``.

        In another program it would be that program's cost. Raises UsageError for an invalid address.
        """
        self.interval_s = options.interval_s
        self._options, self._clock = options, options.clock
        self._reader = MachineReader(options)
        self._readers: Readers | None = None
        self._opened_at = 0.0
        self._own_cost = OwnCostMeter() if own_process else None
        self._hostname = os.uname().nodename
        self._boot_id = text_of(f"{options.proc}/sys/kernel/random/boot_id") or None
        self._notify: Callable[[], None] | None = None
        self._waiting: deque[Snapshot] = deque(maxlen=MOST_WAITING)
        self._has_published = False
        self._news = Event()
        """Set at each tick of a source that is read once."""
        self._last_t = float("-inf")
        self._last_reading: GpusReading | None = None
        self._last_around: HostReading | None = None
        self._has_told = False
        """Whether the user was told what is being waited for."""

    def open(self) -> None:
        """Ask the driver and return at once; ``start`` reads /proc.

        ``start`` raises the errors, except the SourceError of a clock that cannot be read. Python runs one thread at a
        time: two that read while a third imports cost more than one after the other.
        """
        if self._readers is None:
            self._begin(self._publish, once=False)

    def _begin(self, publish: Callable[[], object], *, once: bool) -> Readers:
        """Create the readers and ask the driver.

        Raises SourceError for a clock that Python cannot read: its counts of nanoseconds end in the year 2262.
        """
        try:
            self._clock()
        except OverflowError:
            raise SourceError(
                "this machine's clock is set beyond the year 2262: set it to today"
            ) from None
        self._opened_at = time.monotonic()
        self._readers = Readers(self._options, self._reader, publish, once=once)
        self._readers.ask_driver()
        return self._readers

    def start(self, notify: Callable[[], None]) -> None:
        """Start as ``Source.start``.

        When the driver does not answer within a second, snapshots begin without its GPUs.
        """
        self._notify = notify
        self.open()
        assert self._readers is not None
        self._readers.start()
        self._reader.looked.wait(START_WAIT_S)
        self._raise_failure()
        if self._has_published:
            notify()

    def poll(self) -> Snapshot | None:
        """Return the oldest snapshot not handed out yet, or None."""
        return self._waiting.popleft() if self._waiting else None

    def look(
        self, wait_s: float = WAIT_S, slow: Callable[[str], None] | None = None
    ) -> Snapshot | None:
        """Take and return the first of the two readings of ``read_once``.

        None where it was taken before, or did not come. For commands that compare the two, or import something before
        the second one. Arguments and errors as of ``read_once``.
        """
        if self._readers is not None:
            return None
        readers = self._begin(self._news.set, once=True)
        readers.start()
        if not self._wait_for(lambda: readers.published_readings > 0, wait_s, slow):
            return None
        # What counts from one snapshot to the next has begun.
        return self._join(readers)

    def read_once(
        self, wait_s: float = WAIT_S, slow: Callable[[str], None] | None = None
    ) -> OneReading:
        """Return the first complete reading: two of every GPU, host and processes.

        After ``wait_s`` returns the partial reading with reasons. ``slow`` gets one message after a second of waiting.
        Raises SourceError and UsageError. Close the source afterwards.
        """
        self.look(wait_s, slow)
        readers = self._readers
        assert readers is not None
        if self._wait_for(
            lambda: readers.complete and not self._awaits_activity(readers), wait_s, slow
        ):
            return OneReading(self._join(readers))
        return incomplete(
            self._join(readers), self._reader.session.progress(), wait_s, readers.readings > 0
        )

    def _wait_for(
        self, done: Callable[[], bool], wait_s: float, slow: Callable[[str], None] | None
    ) -> bool:
        """Wait until ``done``; False after ``wait_s``."""
        readers = self._readers
        assert readers is not None
        while True:
            self._raise_failure()
            if done():
                return True
            spent, until = time.monotonic() - self._opened_at, wait_s
            if spent >= wait_s:
                return False
            if slow is not None and not self._has_told:
                until = min(wait_s, SLOW_S)
                if spent >= SLOW_S:
                    self._has_told = True
                    slow(waiting_for(self._reader.session.progress(), wait_s, readers.readings > 0))
                    continue
            # Now and then also without news: a driver that cannot be read at all publishes nothing.
            self._news.wait(min(until - spent, LOOK_AGAIN_S))
            self._news.clear()

    def _awaits_activity(self, readers: Readers) -> bool:
        is_early = time.monotonic() - self._opened_at < SM_READER_WAIT_S
        return is_early and readers.newest.awaits_activity

    def close(self) -> None:
        """Stop all threads and shut NVML down.

        Threads that hang are left behind after 0.2 s.
        """
        if self._readers is not None:
            self._reader.sm_readers.stop()
            self._readers.stop(CLOSE_S)

    @property
    def nvml_version(self) -> str | None:
        """Version of the NVML library, once it is open."""
        return self._reader.session.inventory.nvml_version

    def _raise_failure(self) -> None:
        failure = self._reader.failure
        if failure is not None:
            self.close()
            raise failure

    def _publish(self) -> None:
        assert self._readers is not None
        self._waiting.append(self._join(self._readers))
        self._has_published = True
        if self._notify is not None:
            self._notify()

    def _join(self, readers: Readers) -> Snapshot:
        """Return the newest values of both threads as one snapshot.

        Times only rise, unless the clock is set back.
        """
        reading, around = readers.reading, readers.host
        new = reading is not None and reading is not self._last_reading
        t = reading.t if reading is not None and new and reading.t > self._last_t else self._clock()
        repeats: list[Collector] = ["nvml"] if reading is not None and not new else []
        if around is not None and around is self._last_around:
            repeats.append("proc")
        self._last_t, self._last_reading, self._last_around = t, reading, around
        reading = readers.newest if reading is None else reading
        notices = [*readers.troubles(), *reading.notices]
        if around is not None:
            notices += around.notices
        return Snapshot(
            t,
            Machine(self._hostname, self._boot_id, self._reader.session.inventory.driver),
            reading.gpus,
            _processes(reading, around),
            around.host if around is not None else HostSample(),
            readers.interval_s,
            reading.events if new else (),
            None
            if self._own_cost is None
            else self._own_cost.read(self._reader.sm_readers.helper_cost()),
            readers.stale() or NOTHING_LATE,
            tuple(notices),
            tuple(repeats),
            fabric_ports=around.ports if around is not None else (),
        )


def _processes(reading: GpusReading, around: HostReading | None) -> tuple[ProcessSample, ...]:
    """Return /proc's processes, and those that only the driver lists."""
    if around is not None and around.knew_gpus:
        return around.processes
    host_processes = () if around is None else around.processes
    host_pids = {process.pid for process in host_processes if process.role == "gpu"}
    return (
        *[
            unseen(process, NOT_READ_YET)
            for process in reading.processes
            if process.pid not in host_pids
        ],
        *host_processes,
    )


NOT_LOOKED_AT = ""
"""In place of /sys: no card is there, so none sleeps."""


class MachineSettings(Protocol):
    """Protocol of the settings of a local source; empty text is none.

    See ``SmOptions`` for the others.
    """

    @property
    def interval(self) -> float: ...
    @property
    def gpus(self) -> str: ...
    @property
    def visible(self) -> bool: ...
    @property
    def server_url(self) -> str: ...


def open_local(
    settings: MachineSettings,
    interval_s: float | None = None,
    *,
    own_process: bool = True,
    lets_sleep: bool = False,
    wakes: bool = False,
    is_quick: bool = False,
    pair_s: float = 0.0,
) -> LocalSource:
    """Return the source of this machine; no thread runs yet.

    ``interval_s`` replaces the setting. ``lets_sleep`` releases unused GPUs, so that they fall asleep: for watching,
    not for recording. ``wakes`` asks sleeping GPUs all the same, for a command that is about to use one. Without
    ``own_process`` snapshots do not say what gputop itself costs. Raises UsageError for an invalid address of an
    exporter. With ``is_quick`` it measures four times a second for some seconds after the start, and after a job's
    first kernels. ``pair_s`` is the least distance of the two readings of a command that reads once, in seconds.
    """
    make_room()
    options = MachineOptions(
        interval_s=settings.interval if interval_s is None else interval_s,
        gpus=settings.gpus or None,
        visible=settings.visible,
        sm=sm_options(settings),
        lets_sleep=lets_sleep,
        is_quick=is_quick,
        pair_s=pair_s,
        sys=NOT_LOOKED_AT if wakes else "/sys",
    )
    return LocalSource(options, own_process=own_process)


def with_servers_of(source: Source, settings: MachineSettings) -> Source:
    """Add the settings' inference servers to a source.

    Returns the source itself where none is named. Raises UsageError.
    """
    if not settings.server_url:
        return source
    from gputop.sources.serving_reader import with_servers

    return with_servers(source, settings.server_url)


@contextmanager
def servers_asked(settings: MachineSettings) -> Iterator[Callable[[Snapshot], Snapshot]]:
    """Ask the settings' inference servers within the block.

    Yields a function that adds their rows to one snapshot; it waits for their rates up to ``RATES_WAIT_S``. Raises
    UsageError.
    """
    if not settings.server_url:
        yield lambda snapshot: snapshot
        return
    from gputop.sources.serving_reader import RATES_WAIT_S, ServerWatch, addresses, with_rows

    watch = ServerWatch(addresses(settings.server_url))
    watch.start()
    try:
        yield lambda snapshot: with_rows(snapshot, watch.rates(RATES_WAIT_S))
    finally:
        watch.close()
