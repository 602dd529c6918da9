"""What speaks against a device itself: recovery, memory errors, links, memory without an owner.

``DeviceWatch`` follows one GPU and gives ``DeviceSigns``; the badges of device health are made from them. Like the
hardware errors they hold whether or not the GPU can be judged.
"""

from __future__ import annotations

from collections import deque

from msgspec import Struct

from gputop.model.snapshot import GpuSample

ECC_RATE, ECC_FOR_S = 100.0, 60.0
"""Corrected errors a second, and for how long, from which on memory is called failing [judged]. A healthy GPU has a few
in its life; one that was taken out of service had 17,700 a second (DCGM#313)."""
MOST_ROWS_OF_A_BANK = 8
"""Remapped rows from which on one bank may have none left: each has eight spare rows (NVIDIA, GPU Memory Error
Management)."""
UNOWNED_BYTES, UNOWNED_S = 2.0**30, 15.0
"""Device memory in use without a process, and for how long: a process that ends gives its memory back in seconds
[judged]."""
LONGEST_STEP_S = 30.0
"""Counters are read every five seconds; over a longer time without them no rate is known."""
NONE_DOWN = "none"


class CorrectedErrors(Struct, frozen=True):
    """Corrected memory errors over the last minute."""

    per_s: float
    in_life: int | None
    """Errors in the GPU's life, where the driver counts them."""


class LinksDown(Struct, frozen=True):
    """NVLinks that are down."""

    names: str
    """Their numbers, separated by commas."""
    number: int
    total: int | None
    is_fault: bool
    """Whether they should be up: all may be down where none was ever connected."""


class DeviceSigns(Struct, frozen=True):
    """All that speaks against the device at one moment."""

    recovery_action: int | None = None
    corrected: CorrectedErrors | None = None
    rows: int = 0
    """Rows of the memory that are remapped."""
    new_rows: int = 0
    """Those of them that were remapped while the GPU was watched."""
    links: LinksDown | None = None
    unowned_bytes: float | None = None
    """Device memory in use without any process after an Xid."""


NO_SIGNS = DeviceSigns()


class _ErrorCount(Struct, frozen=True):
    t: float
    total: float


class DeviceWatch:
    """Follows the health of one GPU."""

    def __init__(self) -> None:
        self._counts: deque[_ErrorCount] = deque()
        self._first_rows: int | None = None
        self._most_up = 0
        """The most NVLinks that were up at one time."""
        self._unowned_since: float | None = None
        self.signs = NO_SIGNS

    def add_sample(
        self, t: float, gpu: GpuSample, *, has_processes: bool, had_xid: bool, links_expected: bool
    ) -> None:
        """Take one sample in.

        ``links_expected``: an equal GPU of this machine has NVLinks that are up.
        """
        rows = sum(filter(None, (gpu.remapped_rows_corrected, gpu.remapped_rows_uncorrected)))
        is_read = gpu.remapped_rows_corrected is not None
        if is_read and self._first_rows is None:
            self._first_rows = rows
        new_rows = 0 if self._first_rows is None else max(0, rows - self._first_rows)
        self.signs = DeviceSigns(
            recovery_action=gpu.recovery_action or None,
            corrected=self._corrected(t, gpu),
            rows=rows,
            new_rows=new_rows,
            links=self._links(gpu, links_expected),
            unowned_bytes=self._unowned(t, gpu, has_processes, had_xid),
        )

    def _corrected(self, t: float, gpu: GpuSample) -> CorrectedErrors | None:
        """Return the rate of corrected errors if it has been high for a minute."""
        total = gpu.ecc_corrected
        if total is None:
            total = gpu.ecc_corrected_volatile
        if total is None:
            return None
        counts = self._counts
        if counts and not follows(counts[-1], t, total):
            counts.clear()
        counts.append(_ErrorCount(t, total))
        while len(counts) > 1 and counts[1].t <= t - ECC_FOR_S:
            counts.popleft()
        first, last = counts[0], counts[-1]
        if last.t - first.t < ECC_FOR_S:
            return None
        # In both halves: a burst of one moment is no rate.
        middle = next(count for count in counts if count.t >= t - ECC_FOR_S / 2)
        early, late = _rate(first, middle), _rate(middle, last)
        if min(early, late) <= ECC_RATE:
            return None
        return CorrectedErrors(_rate(first, last), gpu.ecc_corrected)

    def _links(self, gpu: GpuSample, links_expected: bool) -> LinksDown | None:
        """Return the NVLinks that are down; None if all are up or nothing is known."""
        up, down = gpu.nvlink_active, gpu.nvlink_down
        if up is None:
            return None
        self._most_up = max(self._most_up, up)
        number = (gpu.nvlink_count or 0) - up
        if number <= 0:
            return None
        was_up = up < self._most_up
        # Bridges of cards for a slot connect some of their links, or none.
        is_partly_up = up > 0 and not is_bridged(gpu.static.name)
        names = "" if down is None or down == NONE_DOWN else down
        is_fault = was_up or is_partly_up or (up == 0 and links_expected)
        return LinksDown(names, number, gpu.nvlink_count, is_fault)

    def _unowned(
        self, t: float, gpu: GpuSample, has_processes: bool, had_xid: bool
    ) -> float | None:
        """Return the memory that nobody holds after an Xid."""
        used = gpu.mem_used_bytes
        may_be_held = has_processes or "processes" in gpu.unavailable
        if may_be_held or not had_xid or used is None or used < UNOWNED_BYTES:
            self._unowned_since = None
            return None
        if self._unowned_since is None or t < self._unowned_since:
            self._unowned_since = t
        return used if t - self._unowned_since >= UNOWNED_S else None


_BRIDGED = ("pcie", "nvl", "rtx", "quadro", "titan", "geforce", "a40", "a30", "a10", "l40")


def is_bridged(name: str) -> bool:
    """True if a card's NVLinks depend on bridges that may be missing."""
    lowered = name.lower()
    return any(mark in lowered for mark in _BRIDGED) and "sxm" not in lowered


def follows(before: _ErrorCount, t: float, total: float) -> bool:
    """True if a count comes after another without a gap or a reset."""
    return 0.0 <= t - before.t <= LONGEST_STEP_S and total >= before.total


def _rate(before: _ErrorCount, now: _ErrorCount) -> float:
    """Errors a second between two counts."""
    span_s = now.t - before.t
    return 0.0 if span_s <= 0.0 else (now.total - before.total) / span_s
