"""Creates the sources below GPM that the settings ask for."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from gputop.model.sm import NO_OPTIONS, SM_SOURCES, SmChoice, SmOptions
from gputop.model.snapshot import GpuSample, GpuStatic
from gputop.sources.activity.fallback_chain import SharedReader, SmReader

if TYPE_CHECKING:
    from gputop.sources.activity.counters.counters_client import CountersClient
    from gputop.sources.activity.dcgm_exporter import Exporter
    from gputop.sources.activity.dcgmi import Dmon


def exporter_url(options: SmOptions) -> str | None:
    """Return the configured address of a dcgm-exporter, else None."""
    return options.dcgm_url or os.environ.get("GPUTOP_DCGM_URL") or None


class SmReaders:
    """Exporter, dcgmi and counters of one machine.

    The last two exist only where they were asked for.
    """

    def __init__(self, interval_s: float, proc: str, options: SmOptions = NO_OPTIONS) -> None:
        """Raises UsageError for an invalid address."""
        self.options = options
        self._exporter: Exporter | None = None
        self._is_stopped = False
        if exporter_url(options) is not None:
            self._made_exporter()
        self._dmon: Dmon | None = None
        self._counters: CountersClient | None = None
        if options.dcgmi or options.sm_source == "dcgmi":
            from gputop.sources.activity.dcgmi import Dmon

            self._dmon = Dmon(interval_s)
        if options.perf or options.sm_source == "counters":
            from gputop.sources.activity.counters.counters_client import CountersClient

            self._counters = CountersClient(interval_s, options.perf_lib or None, proc)

    def readers_for(self, gpu: Callable[[], GpuStatic]) -> list[SmReader]:
        """Return the sources below GPM for one GPU, best first.

        ``gpu`` gives the GPU's facts as known when called. Runs on the thread that reads the GPUs.
        """
        static = gpu()
        sm_readers: list[SmReader] = []
        if self._wants("dcgm-exporter"):
            from gputop.sources.activity.dcgm_exporter import entity_of

            if (entity := entity_of(static)) is not None:
                sm_readers.append(
                    SharedReader("dcgm-exporter", partial(self._made_exporter().activity, entity))
                )
        if self._dmon is not None and self._wants("dcgmi"):
            from gputop.sources.activity.dcgmi import dcgmi_reader

            sm_readers.append(dcgmi_reader(self._dmon, static))
        if (counters := self._counters) is not None and self._wants("counters"):
            read, close = (
                (lambda now: counters.activity(gpu(), now)),
                (lambda: counters.forget(gpu())),
            )
            sm_readers.append(SharedReader("counters", read, close))
        return sm_readers

    def _made_exporter(self) -> Exporter:
        """Return the shared exporter.

        Raises UsageError for an invalid address.
        """
        exporter = self._exporter
        if exporter is None:
            from gputop.sources.activity.dcgm_exporter import Exporter

            exporter = self._exporter = Exporter(exporter_url(self.options))
            if self._is_stopped:
                exporter.stop()
        return exporter

    def _wants(self, name: SmChoice) -> bool:
        return self.options.sm_source in ("auto", name)

    def awaits_activity(self, gpus: Sequence[GpuSample]) -> bool:
        """Whether a GPU waited for the first answer of a source in the reading that has just ended."""
        if self._exporter is not None and self._exporter.kept_waiting:
            self._exporter.kept_waiting = False
            return True
        return any(SM_SOURCES[gpu.sm_source].program and gpu.sm_active_pct is None for gpu in gpus)

    def helper_cost(self) -> tuple[float, float] | None:
        """Return the counter helper's CPU (percent of one core) and bytes."""
        cost = self._counters.cost if self._counters is not None else None
        return None if cost is None else (cost.cpu_pct, cost.rss)

    def stop(self) -> None:
        """End all sources within half a second."""
        self._is_stopped = True
        for shared in (self._exporter, self._dmon, self._counters):
            if shared is not None:
                shared.stop()
