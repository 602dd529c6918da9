"""Watches for Xid errors while gputop runs."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import Any

import pynvml

from gputop.model.clean_text import clean_text
from gputop.sources.nvml.handle import FIRST_RETRY_S, RETRY_S, RETRY_TIMES, Handle
from gputop.sources.nvml.nvml_errors import LOST_CODES, NEVER_CODES, reason

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
        self._retry_s = FIRST_RETRY_S

    def open(self, gpus: Iterable[tuple[str, Any]], now: float) -> None:
        """Watch these GPUs (UUID, handle) from monotonic time ``now`` on.

        Never raises: a refusal becomes the reason of ``state``.
        """
        self._gpus = tuple(gpus)
        self._why.clear()
        try:
            self._set = self.handle.run_bare("nvmlEventSetCreate")
        except pynvml.NVMLError as error:
            self._dead, self._retry_at = reason(error.value), inf
            if error.value not in NEVER_CODES:
                self._retry_later(now)
            return
        self._dead = None
        may_end = False
        for uuid, raw in self._gpus:
            try:
                self.handle.run_bare(
                    "nvmlDeviceRegisterEvents", raw, pynvml.nvmlEventTypeXidCriticalError, self._set
                )
            except pynvml.NVMLError as error:
                self._why[uuid] = reason(error.value)
                if error.value not in NEVER_CODES | LOST_CODES:
                    may_end = True
        if may_end:
            self._retry_later(now)

    def poll(self, now: float) -> list[tuple[str, int]]:
        """Return (UUID, Xid) since the last poll, at most 32.

        ``now`` is monotonic.
        """
        xids: list[tuple[str, int]] = []
        if now >= self._retry_at:
            self.close()
            self.open(self._gpus, now)
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
                    if not self._why:
                        self._retry_s = FIRST_RETRY_S
                    break
                # A lost GPU makes the whole set fail: a new set, which that GPU no longer enters, serves the others.
                self._dead = reason(error.value)
                self._retry_later(now)
                break
            if event.eventType == pynvml.nvmlEventTypeXidCriticalError:
                self._last[uuid] = int(event.eventData)
                xids.append((uuid, int(event.eventData)))
        return xids

    def _retry_later(self, now: float) -> None:
        """Open the set again after a while that grows with each failure."""
        self._retry_at = now + self._retry_s
        self._retry_s = min(RETRY_S, RETRY_TIMES * self._retry_s)

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
