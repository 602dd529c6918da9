"""The program's own calls, ``on_frame`` and ``on_finding``, which must not end the watching."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from gputop.api.loggers import NOTICES

if TYPE_CHECKING:
    from gputop.diagnosis.types import Finding
    from gputop.monitor import Frame

MOST_FINDINGS_KNOWN = 1024


class UserCalls:
    """Calls those given; one that raises is reported once and not called again."""

    def __init__(
        self, on_frame: Callable[[Frame], object] | None, on_finding: Callable[[Finding], object] | None
    ) -> None:
        self._on_frame, self._on_finding = on_frame, on_finding
        self._known: deque[object] = deque(maxlen=MOST_FINDINGS_KNOWN)
        self._broken: set[str] = set()

    def tell(self, frame: Frame) -> None:
        """Pass on one more frame, and its findings that were not reported yet."""
        self._call("on_frame", self._on_frame, frame)
        if self._on_finding is None:
            return
        for finding in frame.findings:
            key = (finding.t, finding.gpu, finding.kind, finding.id)
            if key not in self._known:
                self._known.append(key)
                self._call("on_finding", self._on_finding, finding)

    def _call(self, name: str, call: Callable[..., object] | None, given: object) -> None:
        """The user's own call, which must not end the watching."""
        if call is None or name in self._broken:
            return
        try:
            call(given)
        except Exception as error:  # noqa: BLE001 — somebody else's code
            self._broken.add(name)
            NOTICES.warning("gputop: %s raised %s: %s; it is not called again", name, type(error).__name__, error)
