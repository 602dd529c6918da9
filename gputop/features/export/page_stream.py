"""Pages on stdout, one every few seconds, each ended by ``# EOF``: for a reader at the other end of an ssh.

The far end ends with its reader, whatever becomes of that: at the end of stdin, when nobody reads stdout, and when no
byte came for so long as ``--until-silent`` says. So it needs no port and nothing is left running.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable

PAGE_S = 5.0
"""Seconds between two pages."""
END = "# EOF\n"
_LOOK_S = 0.5
_STDIN, _STDOUT = 0, 1


class PageStream:
    """Writes pages until ``stop`` is set, which it sets itself where the reader is gone."""

    def __init__(
        self, page: Callable[[], str], has_frame: Callable[[], bool], stop: threading.Event, silent_s: float | None
    ) -> None:
        self._page, self._has_frame, self._stop, self._silent_s = page, has_frame, stop, silent_s
        self._unsent = b""
        self._due = time.monotonic() + PAGE_S
        self._is_first = True

    def run(self) -> None:
        """Until ``stop``. A reader that takes nothing gets no newer page, and is not waited for."""
        os.set_blocking(_STDOUT, False)
        heard_at = time.monotonic()
        try:
            while not self._stop.is_set():
                now = time.monotonic()
                if self._silent_s is not None and now - heard_at > self._silent_s:
                    break
                # The first page comes with the first values: before that there is nothing to say.
                if now >= self._due or (self._is_first and self._has_frame()):
                    self._is_first, self._due = False, now + PAGE_S
                    self._unsent = self._unsent or (self._page() + END).encode()
                listened = [] if self._silent_s is None else [_STDIN]
                readable, writable, _ = select.select(listened, [_STDOUT] if self._unsent else [], [], _LOOK_S)
                if readable:
                    if not os.read(_STDIN, 4096):
                        break
                    heard_at = time.monotonic()
                if writable:
                    self._unsent = self._unsent[os.write(_STDOUT, self._unsent) :]
        except OSError:
            # Nobody reads any more.
            pass
        finally:
            self._stop.set()
