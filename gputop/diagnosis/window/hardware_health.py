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
        self._last_xid: int | None = None
        """The last Xid of the samples."""
        self._has_events = False
        self._from_events: set[int] = set()
        """The Xids that events have told since that one came."""
        self.errors: tuple[str, ...] = ()
        """Hardware errors in words, oldest first."""
        self.xids: tuple[str, ...] = ()
        """Xid errors that point at software, in words."""

    def observe(self, gpu: GpuSample, events: tuple[Event, ...]) -> None:
        """Compare with the last sample.

        Every event is an error, in their order. A sample keeps the last Xid: it is one more error only where no event
        has told it.
        """
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
        for event in events:
            if event.gpu != gpu.static.index:
                continue
            if event.kind == "ecc":
                self._error(event.text)
            elif event.kind == "xid" and event.xid:
                self._has_events = True
                self._from_events.add(event.xid)
                self._add_xid(event.xid)
        self._note_last_xid(gpu.xid)

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

    def _note_last_xid(self, xid: int | None) -> None:
        """Add the last Xid of a sample, unless an event has told it."""
        is_gone = not xid
        if is_gone and self._has_events:
            # A GPU that could not be read for a while comes back with an old Xid: a new one would be an event.
            return
        before, self._last_xid = self._last_xid, xid
        if not xid or xid == before:
            return
        if xid not in self._from_events:
            self._add_xid(xid)
        self._from_events.clear()

    def _add_xid(self, xid: int) -> None:
        """Add one Xid error; the same one again is another error."""
        if xid in HARDWARE_XIDS:
            self._error(f"Xid {xid}")
        else:
            self.xids = (*self.xids, f"Xid {xid}")[-MOST_KEPT:]

    def _error(self, words: str) -> None:
        self.errors = (*self.errors, words)[-MOST_KEPT:]
