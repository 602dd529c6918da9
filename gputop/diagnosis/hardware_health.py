"""New hardware errors: ECC, row remapping, Xid.

Aggregates from before gputop started never count.

Old aggregates never count.
"""

from __future__ import annotations

from gputop.model.snapshot import Event, GpuSample

HARDWARE_XIDS = frozenset((48, 63, 64, 74, 79, 94, 95))
"""Xid errors that mean memory, NVLink or bus trouble: double-bit ECC, row remap, NVLink, off the bus, contained and
uncontained errors (NVIDIA's Xid catalogue)."""
MOST_KEPT = 8


class Health:
    """Collects what happened since the last acknowledgement."""

    def __init__(self) -> None:
        self._ecc: int | None = None
        self._remaps: dict[str, bool] = {}
        self._xid: int | None = None
        self.errors: tuple[str, ...] = ()
        """Hardware errors in words, oldest first."""
        self.xids: tuple[str, ...] = ()
        """Xid errors that point at software, in words."""

    def observe(self, gpu: GpuSample, events: tuple[Event, ...]) -> None:
        """Compare with the last sample."""
        ecc = gpu.ecc_uncorrected
        if ecc is not None:
            if self._ecc is not None and ecc > self._ecc:
                new = ecc - self._ecc
                self._error(
                    f"{new} new uncorrected ECC error{'s' * (new != 1)} ({ecc} in the GPU's life)"
                )
            self._ecc = ecc
        if gpu.remap_failed or gpu.remap_pending or self._remaps:
            self._remap("remap_failed", gpu.remap_failed, "a row remap has failed")
            self._remap("remap_pending", gpu.remap_pending, "a row remap waits for a GPU reset")
        if not gpu.xid:
            self._xid = None
        self._saw_xid(gpu.xid)
        for event in events:
            if event.gpu == gpu.static.index and event.kind == "ecc":
                self._error(event.text)
            elif event.gpu == gpu.static.index and event.kind == "xid":
                self._saw_xid(event.xid)

    def acknowledge(self, badge_id: str) -> None:
        """Forget errors; only something new raises the badge again."""
        if badge_id == "ecc":
            self.errors = ()
        elif badge_id == "xid":
            self.xids = ()

    def _remap(self, key: str, now: bool | None, words: str) -> None:
        if now is None:
            return
        if now and not self._remaps.get(key, False):
            self._error(words)
        self._remaps[key] = now

    def _saw_xid(self, xid: int | None) -> None:
        if not xid or xid == self._xid:
            return
        self._xid = xid
        if xid in HARDWARE_XIDS:
            self._error(f"Xid {xid}")
        else:
            self.xids = (*self.xids, f"Xid {xid}")[-MOST_KEPT:]

    def _error(self, words: str) -> None:
        self.errors = (*self.errors, words)[-MOST_KEPT:]
