"""The hardware counters as a rung of one GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from gputop.model.snapshot import GpuStatic
from gputop.sources.activity.counters.client import Counters
from gputop.sources.activity.ladder import Activity, RungFailed, Waiting


class CounterRung:
    """The rung of one GPU; of a split one it only says why there is nothing."""

    def __init__(self, counters: Counters, gpu: Callable[[], GpuStatic]) -> None:
        """``gpu`` gives the facts as they are known by then: the PCI address comes after the first reading."""
        self._counters, self._gpu = counters, gpu

    @property
    def name(self) -> Literal["counters"]:
        return "counters"

    def read(self, now: float) -> Activity | Waiting:
        gpu = self._gpu()
        if gpu.mig_enabled or gpu.mig_parent is not None:
            raise RungFailed("GPU counters are not read under MIG: they are of the whole GPU", forever=True)
        return self._counters.activity(gpu, now)

    def close(self) -> None:
        self._counters.forget(self._gpu())
