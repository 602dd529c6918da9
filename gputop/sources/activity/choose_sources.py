"""The sources below GPM, as the user's settings want them: what they share, and one of each for every GPU."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from gputop.model.sm import NO_OPTIONS, SM_SOURCES, SmChoice, SmOptions
from gputop.model.snapshot import GpuSample, GpuStatic
from gputop.sources.activity.fallback_chain import SmReader

if TYPE_CHECKING:
    from gputop.sources.activity.counters.counters_client import CountersClient
    from gputop.sources.activity.dcgm_exporter import Exporter
    from gputop.sources.activity.dcgmi import Dmon


def exporter_url(options: SmOptions) -> str | None:
    """Where a dcgm-exporter answers, as the user says; None where nothing was said."""
    return options.dcgm_url or os.environ.get("GPUTOP_DCGM_URL") or None


class SmReaders:
    """Exporter, dcgmi and counters of one machine. The last two exist only where they were asked for."""

    def __init__(self, interval_s: float, proc: str, options: SmOptions = NO_OPTIONS) -> None:
        """Raises UsageError for an invalid address."""
        self.options = options
        self._exporter: Exporter | None = None
        self._is_stopped = False
        if exporter_url(options) is not None:
            self._made_exporter()
        self._dmon: Dmon | None = None
        self._counters: CountersClient | None = None
        if self._asked("dcgmi", options.dcgmi):
            from gputop.sources.activity.dcgmi import Dmon

            self._dmon = Dmon(interval_s)
        if self._asked("counters", options.perf):
            from gputop.sources.activity.counters.counters_client import CountersClient

            self._counters = CountersClient(interval_s, options.perf_lib or None, proc)

    def of(self, gpu: Callable[[], GpuStatic]) -> list[SmReader]:
        """The sources that may measure a GPU without GPM, best first; ``gpu`` gives its facts as known when called.

        Called on the thread that reads the GPUs, for each GPU that needs one.
        """
        static = gpu()
        sm_readers: list[SmReader] = []
        if self._wants("dcgm-exporter"):
            from gputop.sources.activity.dcgm_exporter import DcgmExporter, entity_of

            entity = entity_of(static)
            if entity is not None:
                sm_readers.append(DcgmExporter(self._made_exporter(), entity))
        if self._dmon is not None and self._wants("dcgmi"):
            from gputop.sources.activity.dcgmi import Dcgmi

            sm_readers.append(Dcgmi(self._dmon, static))
        if self._counters is not None and self._wants("counters"):
            from gputop.sources.activity.counters.counters_client import CounterReader

            sm_readers.append(CounterReader(self._counters, gpu))
        return sm_readers

    def _made_exporter(self) -> Exporter:
        """The exporter that all GPUs share. Raises UsageError for an invalid address."""
        exporter = self._exporter
        if exporter is None:
            from gputop.sources.activity.dcgm_exporter import Exporter

            exporter = self._exporter = Exporter(exporter_url(self.options))
            if self._is_stopped:
                exporter.stop()
        return exporter

    def _wants(self, name: SmChoice) -> bool:
        return self.options.sm_source in ("auto", name)

    def _asked(self, name: SmChoice, opted_in: bool) -> bool:
        """Whether a source was asked for that is never used unasked: by its own option, or by its name."""
        return opted_in or self.options.sm_source == name

    def awaits_activity(self, gpus: Sequence[GpuSample]) -> bool:
        """Whether a GPU waits for the first answer of an exporter, or for the first value of a program."""
        if self._exporter is not None and self._exporter.kept_waiting:
            return True
        return any(SM_SOURCES[gpu.sm_source].program and gpu.sm_active_pct is None for gpu in gpus)

    def toggle_counters(self) -> str:
        """Give the hardware counters back, or take them again; what was done, in words."""
        if self._counters is None:
            return "the GPU counters are not in use: start gputop with --perf"
        return self._counters.toggle()

    def helper_cost(self) -> tuple[float, float] | None:
        """What the helper for the hardware counters takes: CPU in percent of one core, resident memory in bytes."""
        cost = self._counters.cost if self._counters is not None else None
        return None if cost is None else (cost.cpu_pct, cost.rss)

    def stop(self) -> None:
        """End whatever else measures. Takes at most half a second."""
        self._is_stopped = True
        for shared in (self._exporter, self._dmon, self._counters):
            if shared is not None:
                shared.stop()
