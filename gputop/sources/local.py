"""Joins NVML, SM activity and /proc of this machine into snapshots.

Whatever hangs, snapshots go on and name late or lost parts. Draws nothing and judges nothing.
"""

from __future__ import annotations

import os
import time
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
from gputop.sources.nvml.gpu_device import GpusReading
from gputop.sources.one_reading import SLOW_S, WAIT_S, OneReading, incomplete, waiting_for
from gputop.sources.own_process import OwnCostMeter
from gputop.sources.pollers.machine import MachinePoller
from gputop.sources.pollers.nvml import LOOK_AGAIN_S
from gputop.sources.pollers.process import HostReading
from gputop.sources.procfs import make_room, text_of
from gputop.sources.selection import MachineOptions
from gputop.system.awaited import run_here
from gputop.system.worker import once

START_WAIT_S = 1.0
"""How long ``begin`` waits for NVML: normally milliseconds, seconds when the driver first has to wake the GPUs."""
SM_READER_WAIT_S = 3.0
"""How long a command that reads once waits for the first answer of an exporter."""


class LocalSource:
    """The live source of this machine.

    ``open`` may be called early, so that reading begins while a screen still loads.
    """

    def __init__(self, options: MachineOptions, *, own_process: bool = True) -> None:
        """gputop's own cost is not measured without ``own_process``.

        In another program it would be that program's cost. Raises UsageError for an invalid address.
        """
        self.interval_s = options.interval_s
        self._clock = options.clock
        self._poller = MachinePoller(options)
        self._reads_once = self._is_open = False
        self._opened_at = 0.0
        self._own_cost = OwnCostMeter() if own_process else None
        self._hostname = os.uname().nodename
        self._boot_id = text_of(f"{options.proc}/sys/kernel/random/boot_id") or None
        self._news = Event()
        """Set at each tick of a source that is read once."""
        self._last_t = float("-inf")
        self._last_reading: GpusReading | None = None
        self._last_around: HostReading | None = None
        self._has_told = False
        """Whether the user was told what is being waited for."""

    def open(self) -> None:
        """Ask the driver and return at once; ``begin`` reads /proc.

        ``begin`` raises the errors, except the SourceError of a clock that cannot be read: Python's counts of
        nanoseconds end in the year 2262. Python runs one thread at a time: two that read while a third imports cost
        more than one after the other.
        """
        if self._is_open:
            return
        try:
            self._clock()
        except OverflowError:
            raise SourceError(
                "this machine's clock is set beyond the year 2262: set it to today"
            ) from None
        self._opened_at = time.monotonic()
        self._is_open = True
        self._poller.ask_driver()

    def begin(self, wait_s: float) -> Snapshot | None:
        """Begin as ``Source.begin``.

        When the driver does not answer within a second, snapshots begin without its GPUs.
        """
        self.open()
        until = time.monotonic() + wait_s
        has_first = run_here(self._poller.ticks(until))
        if not has_first:
            self._poller.nvml.looked.wait(START_WAIT_S - (time.monotonic() - self._opened_at))
        self._raise_failure()
        return self._join() if has_first else None

    async def run(self, deliver: Callable[[Snapshot], object]) -> None:
        """Deliver a snapshot at each tick, until closed or cancelled."""
        await self._poller.run(lambda: deliver(self._join()))

    def look(
        self, wait_s: float = WAIT_S, slow: Callable[[str], None] | None = None
    ) -> Snapshot | None:
        """Take and return the first of the two readings of ``read_once``.

        None where it was taken before, or did not come. For commands that compare the two, or import something before
        the second one. Arguments and errors as of ``read_once``.
        """
        if self._reads_once:
            return None
        self._reads_once = True
        self._poller.read_twice()
        self.open()
        # On a thread, so that the second reading comes while this one imports.
        once("pollers", lambda: run_here(self._tell_ticks()))
        if not self._wait_for(lambda: self._poller.published_readings > 0, wait_s, slow):
            return None
        # What counts from one snapshot to the next has begun.
        return self._join()

    async def _tell_ticks(self) -> None:
        while not self._poller.is_stopped:
            await self._poller.ticks()
            self._news.set()

    def read_once(
        self, wait_s: float = WAIT_S, slow: Callable[[str], None] | None = None
    ) -> OneReading:
        """Return the first complete reading: two of every GPU, host and processes.

        After ``wait_s`` returns the partial reading with reasons. ``slow`` gets one message after a second of waiting.
        Raises SourceError and UsageError. Close the source afterwards.
        """
        self.look(wait_s, slow)
        if self._wait_for(self._has_whole_reading, wait_s, slow):
            return OneReading(self._join())
        return incomplete(self._join(), self._progress(), wait_s, self._was_read)

    def _wait_for(
        self, done: Callable[[], bool], wait_s: float, slow: Callable[[str], None] | None
    ) -> bool:
        """Wait until ``done``; False after ``wait_s``."""
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
                    slow(waiting_for(self._progress(), wait_s, self._was_read))
                    continue
            # Now and then also without news: a driver that cannot be read at all has no tick.
            self._news.wait(min(until - spent, LOOK_AGAIN_S))
            self._news.clear()

    def _has_whole_reading(self) -> bool:
        """Whether nothing is missing any more, an exporter's first answer included."""
        if not self._poller.is_complete:
            return False
        is_early = time.monotonic() - self._opened_at < SM_READER_WAIT_S
        return not (is_early and self._poller.newest.awaits_activity)

    @property
    def _was_read(self) -> bool:
        """Whether all GPUs were read at least once."""
        return self._poller.nvml.readings > 0

    def _progress(self) -> GpusReading:
        return self._poller.nvml.session.progress()

    def close(self) -> None:
        """Stop all threads and shut NVML down.

        Threads that hang are left behind after 0.2 s.
        """
        if self._is_open:
            self._poller.stop(CLOSE_S)

    @property
    def nvml_version(self) -> str | None:
        """Version of the NVML library, once it is open."""
        return self._poller.nvml.session.inventory.nvml_version

    def _raise_failure(self) -> None:
        failure = self._poller.nvml.failure
        if failure is not None:
            self.close()
            raise failure

    def _join(self) -> Snapshot:
        """Return the newest values of both threads as one snapshot.

        Times only rise, unless the clock is set back.
        """
        poller = self._poller
        reading, around = poller.nvml.reading, poller.host
        new = reading is not None and reading is not self._last_reading
        t = reading.t if reading is not None and new and reading.t > self._last_t else self._clock()
        repeats: list[Collector] = ["nvml"] if reading is not None and not new else []
        if around is not None and around is self._last_around:
            repeats.append("proc")
        self._last_t, self._last_reading, self._last_around = t, reading, around
        reading = poller.newest if reading is None else reading
        notices = [*poller.troubles(), *reading.notices]
        if around is not None:
            notices += around.notices
        own_cost = None
        if self._own_cost is not None:
            own_cost = self._own_cost.read(poller.nvml.sm_readers.helper_cost())
        return Snapshot(
            t,
            Machine(self._hostname, self._boot_id, poller.nvml.session.inventory.driver),
            reading.gpus,
            _processes(reading, around),
            around.host if around is not None else HostSample(),
            poller.beat.interval_s,
            reading.events if new else (),
            own_cost,
            poller.stale() or NOTHING_LATE,
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
