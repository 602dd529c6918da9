"""New hardware errors: ECC, row remapping, Xid.

Aggregates from before gputop started never count.

Old aggregates never count.
"""

from __future__ import annotations

from gputop.model.snapshot import Event, GpuSample
from gputop.model.xid_catalogue import REPORT_IF_AGAIN, SEE_OTHER_LINK_ERRORS, XIDS

_NOTHING_AT_ONCE = (REPORT_IF_AGAIN, SEE_OTHER_LINK_ERRORS)
_UNCORRECTED = (171, 172)
"""Uncorrected memory errors, for which the catalogue has no action."""
HARDWARE_XIDS = frozenset(
    number
    for number, xid in XIDS.items()
    if xid.cause != "program" and (xid.action not in _NOTHING_AT_ONCE or number in _UNCORRECTED)
)
"""Xid errors of the device, its driver, its links or its memory for which NVIDIA asks to do something."""
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
        """Other Xid errors, in words: of the program, or without anything to do at once."""
        self.hardware_xids: tuple[int, ...] = ()
        self.other_xids: tuple[int, ...] = ()
        """Numbers of the Xids among each, oldest first."""
        self.had_xid = False
        """Whether any Xid was seen, acknowledged or not."""

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
        if gpu.remap_failed or gpu.remap_pending or gpu.retired_pending or self._remaps:
            self._remap("remap_failed", gpu.remap_failed, "a row remap has failed")
            self._remap("retired_pending", gpu.retired_pending, "a page waits for its retirement")
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
            self.errors, self.hardware_xids = (), ()
        elif badge_id == "xid":
            self.xids, self.other_xids = (), ()

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
        self.had_xid = True
        if xid in HARDWARE_XIDS:
            self._error(f"Xid {xid}")
            self.hardware_xids = (*self.hardware_xids, xid)[-MOST_KEPT:]
        else:
            self.other_xids = (*self.other_xids, xid)[-MOST_KEPT:]
            self.xids = (*self.xids, f"Xid {xid}")[-MOST_KEPT:]

    def _error(self, words: str) -> None:
        self.errors = (*self.errors, words)[-MOST_KEPT:]
