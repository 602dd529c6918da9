"""Device memory in the words of a job: how full it got, whether it grows, and how much larger the batch could be."""

from __future__ import annotations

from msgspec import Struct

from gputop.diagnosis.memory_trend import MemoryTrend
from gputop.model.quantity import duration, memory
from gputop.monitor import Frame
from gputop.report.gpu_account import GpuReport

MARGIN = 0.95
"""The part of the memory that an estimate fills: allocators fragment, and libraries take some when they first run."""
LEAST_GROWTH = 1.05
MOST_PEAKS = 1024


class MemoryReport(Struct, frozen=True):
    """Device memory of one GPU over the run. ``batch_factor`` is an estimate, ``assumption`` its basis."""

    gpu: int
    peak_bytes: float
    total_bytes: float
    leak_bytes_per_min: float | None = None
    full_in_s: float | None = None
    batch_factor: float | None = None
    assumption: str = ""

    @property
    def headroom_bytes(self) -> float:
        return max(0.0, self.total_bytes - self.peak_bytes)

    @property
    def text(self) -> str:
        """One line for people."""
        words = (
            f"GPU {self.gpu}: {memory(self.peak_bytes)} of {memory(self.total_bytes)} at most, "
            f"{memory(self.headroom_bytes)} free"
        )
        if self.leak_bytes_per_min is not None:
            full = "" if self.full_in_s is None else f", full in {duration(self.full_in_s)}"
            return f"{words}; it grows by {self.leak_bytes_per_min / 1e6:.0f} MB a minute{full}"
        if self.batch_factor is not None and self.batch_factor >= LEAST_GROWTH:
            return f"{words}; the batch could grow to about {self.batch_factor:.1f} × ({self.assumption})"
        return words


class MemoryWatch:
    """Takes frames: growth by the rule for leaks, and peaks by the batch size that the loop names with
    ``step(batch_size=…)``."""

    def __init__(self) -> None:
        self._peaks: dict[tuple[int, float], float] = {}
        self._trends: dict[int, MemoryTrend] = {}
        self.batch_size: float | None = None

    def add(self, frame: Frame) -> None:
        """Add one frame."""
        for gpu in frame.snapshot.gpus:
            used, total, index = gpu.mem_used_bytes, gpu.mem_total_bytes, gpu.static.index
            owners = [p for p in frame.snapshot.processes if p.gpu == index and p.role == "gpu"]
            trend = self._trends.setdefault(index, MemoryTrend())
            trend.observe(frame.snapshot.t, owners, None if used is None or total is None else total - used)
            if used is not None and self.batch_size is not None and len(self._peaks) < MOST_PEAKS:
                key = (index, self.batch_size)
                self._peaks[key] = max(self._peaks.get(key, 0.0), used)

    def report(self, gpu: GpuReport) -> MemoryReport | None:
        """The report on one GPU's memory; None where it was not measured."""
        peak, total = gpu.memory_peak_bytes, gpu.memory_total_bytes
        if peak is None or total is None or peak <= 0.0 or total <= 0.0:
            return None
        trend = self._trends.get(gpu.index)
        leak = None if trend is None else trend.leak
        if leak is not None:
            return MemoryReport(gpu.index, peak, total, leak.bytes_per_min, leak.full_in_s)
        sizes = sorted((size, high) for (index, size), high in self._peaks.items() if index == gpu.index)
        factor, assumption = _growth(peak, total, sizes)
        return MemoryReport(gpu.index, peak, total, None, None, factor, assumption)


def _growth(peak: float, total: float, sizes: list[tuple[float, float]]) -> tuple[float | None, str]:
    """How many times as large the batch could be. Memory is a + b · batch; with one batch size, a is taken as 0,
    which errs on the low side."""
    if len(sizes) >= 2:
        (small, low), (large, high) = sizes[0], sizes[-1]
        if high > low and large > small:
            per_item = (high - low) / (large - small)
            most = large + (MARGIN * total - high) / per_item
            words = f"linear in the batch, measured at {small:g} and {large:g}"
            return (most / large if most > 0.0 else None), words
    factor = MARGIN * total / peak
    return (factor if factor >= 1.0 else None), "assuming that all of it is proportional to the batch"
