"""This machine as the user's settings want it watched: the one place that makes a local source from settings."""

from __future__ import annotations

from typing import Protocol

from gputop.model.sm import SmChoice
from gputop.sources.local import LocalSource


class MachineSettings(Protocol):
    """The settings that a local source depends on, see ``config.Settings``. An empty text is none."""

    @property
    def interval(self) -> float: ...
    @property
    def gpus(self) -> str: ...
    @property
    def visible(self) -> bool: ...
    @property
    def dcgm_url(self) -> str: ...
    @property
    def dcgmi(self) -> bool: ...
    @property
    def perf(self) -> bool: ...
    @property
    def perf_lib(self) -> str: ...
    @property
    def sm_source(self) -> SmChoice: ...


def open_local(settings: MachineSettings, interval_s: float | None = None, *, own_process: bool = True) -> LocalSource:
    """The source of this machine; ``interval_s`` in place of the setting. No thread runs before its ``open`` or
    ``start``.

    Without ``own_process`` its snapshots do not say what gputop itself costs, for who does not show that.
    Raises UsageError for an invalid address of an exporter.
    """
    return LocalSource(
        settings.interval if interval_s is None else interval_s,
        settings.gpus or None,
        settings.visible,
        settings.dcgm_url or None,
        dcgmi=settings.dcgmi,
        perf=settings.perf,
        perf_lib=settings.perf_lib or None,
        sm_source=settings.sm_source,
        own_process=own_process,
    )
