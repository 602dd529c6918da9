"""Watches for Xid errors while gputop runs."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import Any

import pynvml

from gputop.model.clean_text import clean_text
from gputop.sources.nvml.handle import RETRY_S, Handle
from gputop.sources.nvml.nvml_errors import reason

MOST_EVENTS_A_POLL = 32
NONE_SEEN = "none seen while watching"


class XidWatch:
    """Last Xid by UUID, from an event set polled without waiting.

    ``stuck`` is set by the session while the poll hangs.
    """

    def __init__(self) -> None:
        self.handle = Handle(None)
        self.stuck = False
        self._set: Any = None
        self._last: dict[str, int] = {}
        self._why: dict[str, str] = {}
        self._dead: str | None = "not watched yet"
        self._gpus: tuple[tuple[str, Any], ...] = ()
        self._retry_at = inf

    def open(self, gpus: Iterable[tuple[str, Any]]) -> None:
        """Watch these GPUs (UUID, handle).

        Never raises: a refusal becomes the reason of ``state``.
        """
        self._gpus = tuple(gpus)
        self._why.clear()
        try:
            self._set = self.handle.run_bare("nvmlEventSetCreate")
        except pynvml.NVMLError as error:
            self._dead, self._retry_at = reason(error.value), inf
            return
        self._dead = None
        for uuid, raw in self._gpus:
            try:
                self.handle.run_bare(
                    "nvmlDeviceRegisterEvents", raw, pynvml.nvmlEventTypeXidCriticalError, self._set
                )
            except pynvml.NVMLError as error:
                self._why[uuid] = reason(error.value)

    def poll(self, now: float) -> list[tuple[str, int]]:
        """Return (UUID, Xid) since the last poll, at most 32.

        ``now`` is monotonic.
        """
        xids: list[tuple[str, int]] = []
        if now >= self._retry_at:
            self.close()
            self.open(self._gpus)
        if self._dead is not None:
            return xids
        for _ in range(MOST_EVENTS_A_POLL):
            try:
                event = self.handle.run_bare("nvmlEventSetWait_v2", self._set, 0)
                uuid = clean_text(
                    str(self.handle.run_bare("nvmlDeviceGetUUID", event.device))
                ).strip()
            except pynvml.NVMLError as error:
                if error.value == pynvml.NVML_ERROR_TIMEOUT:
                    break
                # A lost GPU makes the whole set fail: a new set, which that GPU no longer enters, serves the others.
                self._dead, self._retry_at = reason(error.value), now + RETRY_S
                break
            if event.eventType == pynvml.nvmlEventTypeXidCriticalError:
                self._last[uuid] = int(event.eventData)
                xids.append((uuid, int(event.eventData)))
        return xids

    def state(self, uuid: str) -> int | str:
        """Return the last Xid of a GPU, or why there is none."""
        last = self._last.get(uuid)
        if last is not None:
            return last
        return self._dead or self._why.get(uuid, NONE_SEEN)

    def close(self) -> None:
        event_set, self._set, self._dead, self._retry_at = self._set, None, "closed", inf
        if event_set is not None:
            try:
                self.handle.run_bare("nvmlEventSetFree", event_set)
            except pynvml.NVMLError as error:
                self._dead = reason(error.value)
