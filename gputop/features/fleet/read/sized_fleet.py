"""A fleet of any size: read GPU by GPU, or by recorded sums where it is large."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from msgspec.structs import replace

from gputop.features.fleet.fleet_reading import (
    FleetError,
    FleetReading,
    FleetSource,
    GpuReading,
    History,
    LastHour,
)
from gputop.features.fleet.read.engine import Client
from gputop.features.fleet.read.prometheus_fleet import PrometheusFleet
from gputop.features.fleet.read.recorded_fleet import RecordedFleet

SIZE_EVERY = 40
"""Refreshes between two looks at how large the fleet is."""


class SizedFleet(FleetSource):
    """Passes every question to a ``PrometheusFleet`` or a ``RecordedFleet``.

    The second one answers if the rules record more than ``most_gpus`` GPUs, and as long as they are evaluated.
    """

    def __init__(
        self,
        client: Client,
        source: str,
        select: str,
        clock: Callable[[], float],
        *,
        most_gpus: int,
    ) -> None:
        self.source = source
        self._most_gpus = most_gpus
        self._gpu_by_gpu = PrometheusFleet(client, source, select, clock)
        self._recorded = RecordedFleet(client, source, select, clock)
        self._chosen: FleetSource = self._gpu_by_gpu
        self._refreshes = 0
        self._past: float | None = None

    @property
    def interval_s(self) -> float:  # type: ignore[override]
        """Seconds between two refreshes."""
        return self._chosen.interval_s

    def settle(self) -> None:
        self._gpu_by_gpu.settle()

    def ask(self, at: float | None = None) -> FleetReading:
        if at != self._past:
            self._past, self._refreshes = at, 0
        if self._refreshes % SIZE_EVERY == 0:
            self._choose(at)
        self._refreshes += 1
        if self._chosen is self._recorded:
            reading = self._recorded.ask(at)
            if reading.shares:
                return reading
            # Without shares the rules are not evaluated any more.
            self._chosen = self._gpu_by_gpu
        reading = self._gpu_by_gpu.ask(at)
        n_gpus = len(reading.gpus)
        if n_gpus <= self._most_gpus:
            return reading
        advice = f"{n_gpus:,} GPUs one by one: with the rules of `gputop fleet deploy` their sums are read"
        return replace(reading, problems=(*reading.problems, advice))

    def _choose(self, at: float | None) -> None:
        """Choose by the size; an engine that does not tell it changes nothing."""
        with suppress(FleetError):
            is_large = self._recorded.size(at) > self._most_gpus
            self._chosen = self._recorded if is_large else self._gpu_by_gpu

    def hour(self, t: float) -> LastHour | None:
        return self._chosen.hour(t)

    def look(self, hosts: Sequence[str], at: float | None) -> Sequence[GpuReading] | None:
        return self._chosen.look(hosts, at)

    def history(self, host: str, t: float) -> History:
        return self._chosen.history(host, t)

    def details(self, host: str, at: float | None) -> Mapping[str, Mapping[str, float]]:
        return self._chosen.details(host, at)

    def close(self) -> None:
        self._chosen.close()
