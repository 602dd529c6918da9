"""This machine as a source: NVML, SM activity and /proc joined into snapshots.

Whatever hangs, snapshots go on and say what is late or lost. Draws nothing and judges nothing.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from gputop.model.snapshot import NOTHING_LATE, GpuStatic, HostSample, Machine, ProcessSample, Snapshot
from gputop.model.source import SourceError, UsageError
from gputop.sources.activity.dcgm_exporter import DcgmExporter, Exporter, entity_of
from gputop.sources.activity.ladder import Rung
from gputop.sources.host import HostCollector
from gputop.sources.nvml.inventory import kernel_gpus
from gputop.sources.nvml.session import LOOK_S, NvmlSession, Reading
from gputop.sources.own_cost import OwnCostMeter
from gputop.sources.processes.collector import ProcessCollector
from gputop.sources.schedule import HUNG_S, PAIR_S, Schedule

if TYPE_CHECKING:
    from gputop.sources.activity.dcgmi import Dmon

START_WAIT_S = 1.0
"""How long ``start`` waits for NVML: normally milliseconds, seconds when the driver first has to wake the GPUs."""
HUNG_ONCE_S = 0.8
"""When a driver call counts as hung for a command that has two seconds in all."""
CLOSE_S = 0.2


class _HostReading(Struct, frozen=True):
    host: HostSample
    processes: tuple[ProcessSample, ...]
    notices: tuple[str, ...]


class LocalSource:
    """The live source. ``open`` may be called early, so that the work begins while a screen still loads."""

    def __init__(
        self,
        interval_s: float = 1.0,
        gpus: str | None = None,
        visible: bool = False,
        dcgm_url: str | None = None,
        environ: Mapping[str, str] = os.environ,
        proc: str = "/proc",
        clock: Callable[[], float] = time.time,
        hung_s: float = HUNG_S,
        dcgmi: bool = False,
        look_s: float = LOOK_S,
    ) -> None:
        """``gpus`` is the value of --gpus; ``visible`` honours CUDA_VISIBLE_DEVICES; ``clock`` gives Unix time.

        ``dcgm_url`` is where a dcgm-exporter answers; None takes GPUTOP_DCGM_URL, or looks once at the usual place.
        After ``hung_s`` a driver call counts as hung. ``dcgmi`` allows to run ``dcgmi dmon`` where all else fails.
        Every ``look_s`` seconds is looked which GPUs there are.
        Raises UsageError for an address that is none.
        """
        self.interval_s = interval_s
        self._clock = clock
        self._proc = proc
        self._exporter = Exporter(dcgm_url or environ.get("GPUTOP_DCGM_URL") or None)
        self._dmon: Dmon | None = None
        if dcgmi:
            from gputop.sources.activity.dcgmi import Dmon

            self._dmon = Dmon(interval_s)
        cuda_visible = environ.get("CUDA_VISIBLE_DEVICES") if visible else None
        self._session = NvmlSession(interval_s, gpus, cuda_visible, self._more_rungs, lambda: kernel_gpus(proc), look_s)
        self._schedule: Schedule[_HostReading] = Schedule(
            interval_s,
            self._session,
            self._read_nvml,
            self._after_nvml,
            self._read_proc,
            self._publish,
            self._close_proc,
        )
        self._schedule.hung_s = hung_s
        self._collectors: tuple[HostCollector, ProcessCollector] | None = None
        self._host, self._host_at = HostSample(), float("-inf")
        self._own = OwnCostMeter()
        self._hostname, self._boot_id = os.uname().nodename, _boot_id(proc)
        self._notify: Callable[[], None] | None = None
        self._failure: SourceError | UsageError | None = None
        self._looked, self._fresh = threading.Event(), threading.Event()
        self._lock = threading.Lock()
        self._slot: Snapshot | None = None
        self._published = 0
        self._last_t = float("-inf")
        self._last_reading: Reading | None = None
        self._opened = False

    def open(self) -> None:
        """Start all threads and return at once. What cannot work is told by ``start`` and ``read_once``."""
        if not self._opened:
            self._opened = True
            self._schedule.start()

    def start(self, notify: Callable[[], None]) -> None:
        """As ``Source.start``. When the driver does not answer within a second, snapshots begin without its GPUs."""
        self._notify = notify
        self.open()
        self._looked.wait(START_WAIT_S)
        self._raise_failure()
        if self._published:
            notify()

    def poll(self) -> Snapshot | None:
        """The newest snapshot that was not handed out yet, or None."""
        with self._lock:
            snapshot, self._slot = self._slot, None
        return snapshot

    def read_once(self, timeout_s: float = 2.0) -> Snapshot:
        """One snapshot with SM activity and rates: the second read, a quarter of a second after the first.

        When ``timeout_s`` is over, what there is, with reasons. Raises SourceError and UsageError. Close it after.
        """
        deadline = time.monotonic() + timeout_s
        self._schedule.hung_s = min(self._schedule.hung_s, HUNG_ONCE_S)
        self.open()
        while (self._published < 2 or self._a_rung_begins()) and (left := deadline - time.monotonic()) > 0.0:
            self._fresh.wait(left)
            self._fresh.clear()
            self._raise_failure()
        return self.poll() or self._join()

    def close(self) -> None:
        """Stop everything and shut NVML down; threads that hang are left behind after 0.2 s."""
        if self._opened:
            self._opened = False
            self._exporter.stop()
            if self._dmon is not None:
                self._dmon.stop()
            self._schedule.stop(CLOSE_S)

    def _more_rungs(self, gpu: GpuStatic) -> list[Rung]:
        """What may measure a GPU without GPM."""
        entity = entity_of(gpu)
        rungs: list[Rung] = [] if entity is None else [DcgmExporter(self._exporter, entity)]
        if self._dmon is not None:
            from gputop.sources.activity.dcgmi import Dcgmi

            rungs.append(Dcgmi(self._dmon, gpu))
        return rungs

    def _a_rung_begins(self) -> bool:
        """Whether a GPU waits for the first answer of an exporter, or for its first value of dcgmi."""
        with self._lock:
            gpus = self._slot.gpus if self._slot is not None else ()
        if self._exporter.kept_waiting:
            return True
        return any(gpu.sm_source == "dcgmi" and gpu.sm_active_pct is None for gpu in gpus)

    @property
    def nvml_version(self) -> str | None:
        """Version of the NVML library, once it is open."""
        return self._session.nvml_version

    def _raise_failure(self) -> None:
        if self._failure is not None:
            self.close()
            raise self._failure

    def _read_nvml(self, ticket: int) -> Reading:
        session = self._session
        if not session.ready:
            try:
                session.look(ticket, self._clock())
            except (SourceError, UsageError) as failure:
                self._failure = failure
                raise
            finally:
                self._looked.set()
                self._fresh.set()
            self._failure = None
        return session.read(ticket, self._clock())

    def _after_nvml(self, ticket: int) -> None:
        self._session.ask_seldom(ticket, self._clock())

    def _read_proc(self) -> _HostReading:
        """Host and processes. The very first read comes before the GPUs are known: it is the base of the rates."""
        if self._collectors is None:
            self._collectors = HostCollector(self._proc), ProcessCollector(self._proc)
        host, processes = self._collectors
        # Not the clock of the snapshots: rates must not feel it when that one is set, or when the machine has slept.
        now = time.monotonic()
        if now - self._host_at >= PAIR_S / 2:
            self._host, self._host_at = host.read(now), now
        reading = self._schedule.reading
        samples = processes.read(now, reading.processes if reading is not None else ())
        return _HostReading(self._host, samples, tuple(processes.notices))

    def _close_proc(self) -> None:
        if self._collectors is not None:
            self._collectors[1].close()

    def _publish(self) -> None:
        snapshot = self._join()
        with self._lock:
            self._slot = snapshot
        self._published += 1
        self._fresh.set()
        if self._notify is not None:
            self._notify()

    def _join(self) -> Snapshot:
        """The newest values of both threads as one snapshot. Times only ever rise, unless the clock is set back."""
        reading, around = self._schedule.reading, self._schedule.proc
        new = reading is not None and reading is not self._last_reading
        t = reading.t if reading is not None and new and reading.t > self._last_t else self._clock()
        self._last_t, self._last_reading = t, reading
        notices = [*self._schedule.troubles()]
        if reading is not None:
            notices += reading.notices
        if around is not None:
            notices += around.notices
        return Snapshot(
            t,
            Machine(self._hostname, self._boot_id, self._session.driver),
            reading.gpus if reading is not None else (),
            around.processes if around is not None else (),
            around.host if around is not None else HostSample(),
            self.interval_s,
            reading.events if reading is not None and new else (),
            self._own.read(),
            self._schedule.stale() or NOTHING_LATE,
            tuple(notices),
        )


def _boot_id(proc: str) -> str | None:
    try:
        return Path(proc, "sys/kernel/random/boot_id").read_text().strip() or None
    except OSError:
        return None
