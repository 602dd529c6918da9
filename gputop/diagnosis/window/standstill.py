"""Frozen readings: equal to the last digit while a GPU is said to work.

Power of a GPU at work differs from second to second. A driver that hangs, a reader that repeats its last answer or an
exporter that serves old values gives the same numbers for minutes, and each of them looks right.
"""

from __future__ import annotations

from datetime import datetime, timezone
from operator import attrgetter
from typing import Any

from msgspec import Struct

from gputop.model.snapshot import GpuSample

STANDS_S, LEAST_SAMPLES = 60.0, 20
"""How long, and over how many samples, all values must be equal [judged]. Power of an RTX 4090 at work has hundredths
of a watt; of 3,189 equal seconds in a public log none was a measurement."""
LEAST_MOVES = 10
"""Samples that must have moved before: of a GPU whose values never did, nothing is known."""
AS_BEFORE = 0.8
"""Share of the power drawn before that must still be drawn [judged]. Readings that freeze keep the values of work. A
job that hangs draws less than before, and then evenly: that is another finding, and not a reading's fault."""
LEAST_POWER = 0.3
"""Share of the limit that counts as work where nothing is known from before [judged]."""
MEMORY_OF_POWER = 0.1
"""Part by which the mean power before follows each sample."""
STANDING = "the readings stand still"
"""How the reason begins."""
MOVING_KEYS = (
    "util_pct", "mem_util_pct", "power_w", "energy_j", "temp_c", "sm_clock_mhz", "mem_clock_mhz", "fan_pct",
    "mem_used_bytes", "sm_active_pct", "tensor_active_pct", "dram_active_pct", "pcie_rx_bytes_per_s",
    "pcie_tx_bytes_per_s", "nvlink_rx_bytes_per_s", "nvlink_tx_bytes_per_s", "ecc_corrected",
)  # fmt: skip
"""One of these moves while a GPU works."""
NOT_BELIEVED = (
    "util_pct", "mem_util_pct", "power_w", "energy_j", "temp_c", "sm_clock_mhz", "mem_clock_mhz", "sm_active_pct",
)  # fmt: skip
"""Values that are not shown as measured while they stand still."""
_VALUES_OF = attrgetter(*MOVING_KEYS)


class Standstill(Struct):
    """Follows how long one GPU's values have been the same."""

    since: float | None = None
    last_t: float = 0.0
    samples: int = 0
    values: tuple[Any, ...] = ()
    moves: int = 0
    moving_w: float | None = None
    """Power, as a mean over the last samples that moved."""

    def add_sample(self, t: float, gpu: GpuSample, longest_gap_s: float) -> None:
        """Take one sample in; one after a gap begins anew."""
        values = _VALUES_OF(gpu)
        has_moved = values != self.values
        is_after_gap = not 0.0 < t - self.last_t <= longest_gap_s
        self.last_t = t
        if has_moved or is_after_gap:
            self.moves += has_moved
            self.since, self.samples, self.values = t, 1, values
            self._note_power(gpu.power_w)
        else:
            self.samples += 1

    def _note_power(self, power_w: float | None) -> None:
        if power_w is None:
            return
        before = power_w if self.moving_w is None else self.moving_w
        self.moving_w = before + MEMORY_OF_POWER * (power_w - before)

    def _draws_as_before(self, gpu: GpuSample) -> bool:
        """Whether power is what the GPU drew while its values moved."""
        if gpu.power_w is None:
            return False
        limit_w = 0.0 if gpu.power_limit_w is None else gpu.power_limit_w
        before_w = 0.0 if self.moving_w is None else AS_BEFORE * self.moving_w
        return gpu.power_w >= max(LEAST_POWER * limit_w, before_w)

    def reason(self, t: float, gpu: GpuSample) -> str | None:
        """Return why the values are not believed; None where they are."""
        # An idle GPU may draw the same power for hours, and without temperature too little is known to say it.
        can_tell = gpu.util_pct and gpu.power_w and gpu.temp_c is not None
        if not can_tell or self.since is None or not self._draws_as_before(gpu):
            return None
        if self.moves < LEAST_MOVES:
            return None
        if t - self.since < STANDS_S or self.samples < LEAST_SAMPLES:
            return None
        begun = datetime.fromtimestamp(self.since, timezone.utc)
        return (
            f"{STANDING}: all are equal to the last digit since {begun:%H:%M} UTC; see whether nvidia-smi moves, "
            "restart what reads or exports them, else reload the driver"
        )
