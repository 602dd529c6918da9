"""Call a program's own functions without ending training or watch."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from gputop.api.watch_options import NOTICES
from gputop.model.clean_text import error_words

if TYPE_CHECKING:
    from gputop.diagnosis.types import Finding
    from gputop.monitor import Frame

MOST_FINDINGS_KNOWN = 1024


def error_of(call: Callable[[], object]) -> BaseException | None:
    """Call a function; return the error that it raises.

    SystemExit and a test framework's outcome are errors, too. Ctrl+C is meant for the program, and Python raises it on
    its main thread alone: there it passes.
    """
    try:
        call()
    except BaseException as error:
        if (
            isinstance(error, KeyboardInterrupt)
            and threading.current_thread() is threading.main_thread()
        ):
            raise
        return error
    return None


class UserCalls:
    """Calls ``on_frame`` and ``on_finding``.

    One that raises is reported once and not called again.
    """

    def __init__(
        self,
        on_frame: Callable[[Frame], object] | None,
        on_finding: Callable[[Finding], object] | None,
    ) -> None:
        self._on_frame, self._on_finding = on_frame, on_finding
        self._called_findings: deque[object] = deque(maxlen=MOST_FINDINGS_KNOWN)
        self._broken: set[str] = set()

    def tell(self, frame: Frame) -> None:
        """Pass on a frame, and its findings that are new."""
        self._call("on_frame", self._on_frame, frame)
        if self._on_finding is None:
            return
        for finding in frame.findings:
            key = (finding.t, finding.gpu, finding.kind, finding.id)
            if key not in self._called_findings:
                self._called_findings.append(key)
                self._call("on_finding", self._on_finding, finding)

    def _call(self, name: str, call: Callable[..., object] | None, argument: object) -> None:
        if call is None or name in self._broken:
            return
        error = error_of(lambda: call(argument))
        if error is not None:
            self._broken.add(name)
            NOTICES.warning(
                "gputop: %s raised %s; it is not called again", name, error_words(error)
            )
