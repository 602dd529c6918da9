"""This machine as a source: NVML, SM activity and /proc joined into snapshots.

Whatever hangs, snapshots go on and say what is late or lost. Draws nothing and judges nothing.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

from msgspec.structs import replace

from gputop.model.sm import NO_OPTIONS, SmOptions, sm_options
from gputop.model.snapshot import NOT_READ_YET, NOTHING_LATE, Collector, HostSample, Machine, ProcessSample, Snapshot
from gputop.model.source import CLOSE_S, Source, SourceError
from gputop.sources.activity.choose_sources import SmReaders
from gputop.sources.gpu_process import unseen
from gputop.sources.machine_reader import HostReading, MachineReader
from gputop.sources.nvml.gpu_device import GpusReading
from gputop.sources.nvml.nvml_session import LOOK_S
from gputop.sources.one_reading import SLOW_S, WAIT_S, OneReading, incomplete, waiting_for
from gputop.sources.own_process import OwnCostMeter
from gputop.sources.procfs import make_room, read_small
from gputop.sources.readers import HUNG_S, Readers, ReadTwice, Schedule

START_WAIT_S = 1.0
"""How long ``start`` waits for NVML: normally milliseconds, seconds when the driver first has to wake the GPUs."""
HUNG_ONCE_S = 0.8
"""When a driver call counts as hung for a command that reads once: the other GPUs are read in the meantime."""
SM_READER_WAIT_S = 3.0
"""How long such a command waits for the first answer of an exporter."""
MOST_WAITING = 600
"""Snapshots kept for a reader that is late: minutes of them. What is older than these is dropped."""


class LocalSource:
    """The live source. ``open`` may be called early, so that reading begins while a screen still loads."""

    def __init__(
        self,
        interval_s: float = 1.0,
        gpus: str | None = None,
        visible: bool = False,
        sm: SmOptions = NO_OPTIONS,
        environ: Mapping[str, str] = os.environ,
        proc: str = "/proc",
        clock: Callable[[], float] = time.time,
        hung_s: float = HUNG_S,
        look_s: float = LOOK_S,
        own_process: bool = True,
        sys: str = "/sys",
        lets_sleep: bool = False,
    ) -> None:
        """``gpus`` is the value of --gpus; ``visible`` honours CUDA_VISIBLE_DEVICES; ``clock`` gives Unix time.

        ``sm`` is what was asked of the sources of SM activity. After ``hung_s`` a driver call counts as hung. Without
        ``own_process`` gputop's own cost is not measured: in another program it would be that program's, and
        not every output shows it. ``look_s`` is how often the list of GPUs is refreshed, in seconds. With
        ``lets_sleep`` the driver is closed after five minutes without a program on any GPU, where those can sleep.
        Raises UsageError for an invalid address.
        """
        self.interval_s = interval_s
        self._clock = clock
        url = sm.dcgm_url or environ.get("GPUTOP_DCGM_URL", "")
        sm_readers = SmReaders(interval_s, proc, replace(sm, dcgm_url=url))
        cuda_visible = environ.get("CUDA_VISIBLE_DEVICES") if visible else None
        self._reader = MachineReader(
            interval_s,
            gpus,
            cuda_visible,
            sm_readers,
            proc,
            clock,
            look_s=look_s,
            sys=sys,
            lets_sleep=lets_sleep,
        )
        self._hung_s = hung_s
        self._schedule: Schedule | None = None
        self._twice: ReadTwice | None = None
        self._own_cost = OwnCostMeter() if own_process else None
        self._hostname, self._boot_id = os.uname().nodename, _boot_id(proc)
        self._notify: Callable[[], None] | None = None
        self._waiting: deque[Snapshot] = deque(maxlen=MOST_WAITING)
        self._has_published = False
        self._last_t = float("-inf")
        self._last_reading: GpusReading | None = None
        self._last_around: HostReading | None = None
        self._begun = self._closed = False
        self._has_told = False
        """Whether the user was told what is being waited for."""

    def open(self) -> None:
        """Ask the driver, and return at once; /proc is read from ``start`` on. ``start`` raises errors, but for the
        SourceError of a clock that cannot be read.

        Python runs one thread at a time: two that read while a third imports cost more than one after the other.
        """
        if self._schedule is None:
            self._check_clock()
            self._schedule = Schedule(self.interval_s, self._reader, self._publish, self._hung_s)
            self._schedule.ask_driver()

    def look(self, wait_s: float = WAIT_S, slow: Callable[[str], None] | None = None) -> None:
        """The first of the two looks that ``read_once`` takes, for who imports something before the second one.

        Arguments and errors as of ``read_once``.
        """
        if self._twice is not None:
            return
        self._check_clock()
        self._twice = twice = ReadTwice(self.interval_s, self._reader, min(self._hung_s, HUNG_ONCE_S))
        twice.begin()
        if self._wait_for(twice, lambda: twice.looked, wait_s, slow):
            # Its only use is that what counts from one snapshot to the next has begun.
            self._join(twice)

    def _check_clock(self) -> None:
        """Raises SourceError for a clock that Python cannot read, whose counts of nanoseconds end in the year 2262."""
        try:
            self._clock()
        except OverflowError:
            raise SourceError("this machine's clock is set beyond the year 2262: set it to today") from None

    def start(self, notify: Callable[[], None]) -> None:
        """As ``Source.start``. When the driver does not answer within a second, snapshots begin without its GPUs."""
        self._notify = notify
        self.open()
        if self._schedule is not None and not self._begun:
            self._begun = True
            self._schedule.start()
        self._reader.looked.wait(START_WAIT_S)
        self._raise_failure()
        if self._has_published:
            notify()

    def poll(self) -> Snapshot | None:
        """The oldest snapshot that was not handed out yet, or None."""
        return self._waiting.popleft() if self._waiting else None

    def read_once(self, wait_s: float = WAIT_S, slow: Callable[[str], None] | None = None) -> OneReading:
        """The first complete reading: two looks at every GPU, the host and its processes, as rates need.

        ``wait_s`` after the first one began it returns what there is, with what is missing and why. ``slow`` is told
        once, after a second, what is being waited for. Raises SourceError and UsageError. Close the source afterwards.
        """
        self.look(wait_s, slow)
        twice = self._twice
        assert twice is not None
        if self._wait_for(twice, lambda: twice.complete and not self._awaits_activity(twice), wait_s, slow):
            return OneReading(self._join(twice))
        return incomplete(self._join(twice), self._reader.session.progress(), wait_s, twice.readings > 0)

    def _wait_for(
        self, twice: ReadTwice, done: Callable[[], bool], wait_s: float, slow: Callable[[str], None] | None
    ) -> bool:
        """Take the steps of ``twice`` until it has come so far; False where that is not so in time."""
        while not done():
            spent = time.monotonic() - twice.begun
            if spent >= wait_s:
                return False
            if slow is None or self._has_told:
                remaining_s = wait_s - spent
            elif spent < SLOW_S:
                remaining_s = min(wait_s, SLOW_S) - spent
            else:
                self._has_told = True
                slow(waiting_for(self._reader.session.progress(), wait_s, twice.readings > 0))
                continue
            twice.step()
            twice.wait(remaining_s)
            self._raise_failure()
        return True

    def _awaits_activity(self, twice: ReadTwice) -> bool:
        if time.monotonic() - twice.begun >= SM_READER_WAIT_S:
            return False
        return self._reader.sm_readers.awaits_activity(twice.newest.gpus)

    def close(self) -> None:
        """Stop everything and shut NVML down; threads that hang are left behind after 0.2 s."""
        readers = self._schedule or self._twice
        if readers is not None and not self._closed:
            self._closed = True
            self._reader.stop()
            readers.stop(CLOSE_S)

    def toggle_counters(self) -> str:
        """Give the hardware counters back, or take them again; what was done, in words."""
        return self._reader.sm_readers.toggle_counters()

    @property
    def nvml_version(self) -> str | None:
        """Version of the NVML library, once it is open."""
        return self._reader.session.nvml_version

    def _raise_failure(self) -> None:
        failure = self._reader.failure
        if failure is not None:
            self.close()
            raise failure

    def _publish(self) -> None:
        assert self._schedule is not None
        self._waiting.append(self._join(self._schedule))
        self._has_published = True
        if self._notify is not None:
            self._notify()

    def _join(self, readers: Readers) -> Snapshot:
        """The newest values of both threads as one snapshot. Times only ever rise, unless the clock is set back."""
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
            Machine(self._hostname, self._boot_id, self._reader.session.driver),
            reading.gpus,
            _processes(reading, around),
            around.host if around is not None else HostSample(),
            self.interval_s,
            reading.events if new else (),
            None if self._own_cost is None else self._own_cost.read(self._reader.sm_readers.helper_cost()),
            readers.stale() or NOTHING_LATE,
            tuple(notices),
            tuple(repeats),
            fabric_ports=around.ports if around is not None else (),
        )


def _processes(reading: GpusReading, around: HostReading | None) -> tuple[ProcessSample, ...]:
    """The processes that /proc shows; of those that only the driver has named so far, what it says."""
    if around is not None and around.knew_gpus:
        return around.processes
    host_processes = () if around is None else around.processes
    host_pids = {process.pid for process in host_processes if process.role == "gpu"}
    return (
        *[unseen(process, NOT_READ_YET) for process in reading.processes if process.pid not in host_pids],
        *host_processes,
    )


def _boot_id(proc: str) -> str | None:
    try:
        return read_small(f"{proc}/sys/kernel/random/boot_id").decode("ascii", "replace").strip() or None
    except OSError:
        return None


# This machine as the user's settings want it watched: the one place that makes a local source from settings.

NOT_LOOKED_AT = ""
"""In place of /sys: no card is there, so none sleeps."""


class MachineSettings(Protocol):
    """The settings that a local source depends on beside ``SmOptions``, see ``config.Settings``. An empty text is
    none.
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
) -> LocalSource:
    """The source of this machine; ``interval_s`` in place of the setting. No thread runs before its ``open`` or
    ``start``.

    ``lets_sleep``: whether GPUs that are not used are released, so that they fall asleep: for watching, not for
    recording. ``wakes``: whether sleeping GPUs are asked all the same, for a command that is about to use one. Without
    ``own_process`` its snapshots do not say what gputop itself costs, for callers that do not show that. Raises
    UsageError for an invalid address of an exporter.
    """
    make_room()
    return LocalSource(
        settings.interval if interval_s is None else interval_s,
        settings.gpus or None,
        settings.visible,
        sm_options(settings),
        own_process=own_process,
        lets_sleep=lets_sleep,
        sys=NOT_LOOKED_AT if wakes else "/sys",
    )


def with_servers_of(source: Source, settings: MachineSettings) -> Source:
    """The source with what the settings' inference servers say; itself where none is named. Raises UsageError."""
    if not settings.server_url:
        return source
    from gputop.sources.serving_reader import with_servers

    return with_servers(source, settings.server_url)


@contextmanager
def servers_asked(settings: MachineSettings) -> Iterator[Callable[[Snapshot], Snapshot]]:
    """Asks the settings' inference servers from now on; gives what adds their rows to one snapshot, which waits for
    their rates as long as ``RATES_WAIT_S``. Raises UsageError."""
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
