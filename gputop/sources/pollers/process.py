"""Polls the processes of the GPUs, and with them the host."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from gputop.model.snapshot import FabricPort, HostSample, ProcessSample
from gputop.sources.nvml.gpu_device import GpusReading
from gputop.sources.pollers.host import HostPoller
from gputop.sources.pollers.nvml import LOOK_AGAIN_S, never
from gputop.system.awaited import Awaited, News

if TYPE_CHECKING:
    from gputop.sources.processes.collector import ProcessCollector


class KnownGpus(Struct, frozen=True):
    """What a pass over /proc knows of the GPUs.

    ``is_read`` says whether their processes are known by then.
    """

    reading: GpusReading
    is_read: bool


class HostReading(Struct, frozen=True):
    """One pass over the host and its processes.

    ``knew_gpus`` says whether the GPUs' processes were known by then.
    """

    host: HostSample
    processes: tuple[ProcessSample, ...]
    notices: tuple[str, ...]
    knew_gpus: bool
    ports: tuple[FabricPort, ...] = ()


class ProcessPoller:
    """Makes passes over /proc when asked, on a daemon thread of its own.

    A pass reads the host, where that is wanted, and the processes that the newest reading of the GPUs names.
    """

    def __init__(
        self,
        proc: str,
        known_gpus: Callable[[], KnownGpus],
        *,
        news: News,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``clock`` gives monotonic seconds; ``news`` are set at each end of a pass."""
        self.reads_host = False
        """Whether a pass reads the host: it opens files that a first picture must not wait for."""
        self._proc, self._known_gpus, self._clock = proc, known_gpus, clock
        self._host = HostPoller(proc)
        self._collector: ProcessCollector | None = None
        self._begun = 0
        """The number of the newest pass that has begun."""
        self._pass: Awaited[HostReading] = Awaited(
            "proc", self._numbered, close=self._close, news=news, clock=clock
        )

    @property
    def latest(self) -> HostReading | None:
        """Return the newest pass, or None."""
        return self._pass.latest

    @property
    def latest_at(self) -> float:
        """Return when the newest pass ended, monotonic s; 0 before the first."""
        return self._pass.latest_at

    @property
    def busy_since(self) -> float | None:
        """Return since when a pass is under way, monotonic s."""
        return self._pass.busy_since

    @property
    def error(self) -> Exception | None:
        """Return what the newest pass raised, or None."""
        return self._pass.error

    def ask(self) -> None:
        """Start a pass, or one more after the present one."""
        self._pass.ask()

    def begin_pass(self) -> int:
        """Ask for a pass and return its number, for ``reads``.

        A pass under way does not count: it may not know the newest processes.
        """
        number = self._begun + 1
        self._pass.ask()
        return number

    async def reads(
        self,
        number: int,
        until: float,
        unless: Callable[[], bool] = never,
        meanwhile: Callable[[], object] = never,
    ) -> bool:
        """Wait for the end of a pass; False at monotonic ``until``.

        Also False as soon as ``unless`` says so. ``meanwhile`` is called now and then.
        """
        while self._pass.turns < number:
            left_s = min(until - self._clock(), LOOK_AGAIN_S)
            if await self._pass.ended(left_s, unless=unless):
                continue
            meanwhile()
            if self._clock() >= until or self._pass.stopping.is_set():
                return False
            if unless():
                return False
        return True

    def stop(self, wait_s: float = 0.0) -> None:
        """End the thread; wait at most ``wait_s`` for it."""
        self._pass.stop(wait_s)

    def _numbered(self) -> HostReading:
        self._begun = self._pass.turns + 1
        return self.read()

    def read(self) -> HostReading:
        """Read the host and the processes; on their thread."""
        known = self._known_gpus()
        if self._collector is None:
            # Imported on this thread while another one asks the driver, which does not need it.
            from gputop.sources.processes.collector import ProcessCollector

            self._collector = ProcessCollector(self._proc, clock=time.monotonic)
        # Not the snapshots' clock: rates must not change when that is set, or after a suspend. And taken after the
        # import, which takes longer than a reading: the counters are read now.
        now = time.monotonic()
        host = self._host.read(now, is_wanted=self.reads_host)
        util = {gpu.static.index: gpu.util_pct for gpu in known.reading.gpus}
        samples = self._collector.read(now, known.reading.processes, util)
        host = replace(
            host,
            outsiders=self._collector.outsiders,
            cpu_outsiders_pct=self._collector.cpu_outsiders_pct,
        )
        notices = tuple(self._collector.notices)
        return HostReading(host, samples, notices, known.is_read, self._host.ports)

    def _close(self) -> None:
        if self._collector is not None:
            self._collector.close()
        self._host.close()
