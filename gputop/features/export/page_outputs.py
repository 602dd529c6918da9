"""The page for others than scrapers: node_exporter's textfile collector, and a reader at the end of a pipe."""

from __future__ import annotations

import contextlib
import os
import select
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from gputop.model.source import UsageError
from gputop.system.safe_open import is_named_pipe

READABLE = 0o644
"""node_exporter runs as another user; the page holds what any scrape would."""


class TextFile:
    """Writes a page to one place."""

    def __init__(self, path: str, page: Callable[[], str], say: Callable[[str], None]) -> None:
        """Raises UsageError for a name or a folder that cannot be used."""
        self._path = Path(path)
        if self._path.suffix != ".prom":
            raise UsageError(
                f"--textfile must end in .prom, or node_exporter does not read it, not {path!r}"
            )
        if is_named_pipe(path):
            raise UsageError(f"--textfile: {path} is a named pipe: name a file")
        folder = self._path.parent
        if self._path.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
            raise UsageError(
                f"--textfile: cannot write {path}: name a file in a folder that this user can write"
            )
        self._page = page
        self._say = say
        self._failed = ""

    def write(self) -> bool:
        """Replace the last page; a failing disk is reported once."""
        temporary = ""
        try:
            descriptor, temporary = tempfile.mkstemp(
                prefix=f".{self._path.name}.", dir=self._path.parent
            )
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                os.fchmod(file.fileno(), READABLE)
                file.write(self._page())
            os.replace(temporary, self._path)
            self._failed = ""
            return True
        except OSError as error:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            if self._failed != (error.strerror or ""):
                self._failed = error.strerror or ""
                self._say(f"cannot write {self._path}: {self._failed}")
            return False

    def remove(self) -> None:
        """Remove the file: values that are no longer refreshed would stay for ever."""
        with contextlib.suppress(OSError):
            self._path.unlink()


PAGE_S = 5.0
"""Seconds between two pages."""
END = "# EOF\n"
_HEAR_S = 0.5
_STDIN, _STDOUT = 0, 1


class PageStream:
    """Writes pages until ``stop`` is set, or the reader is gone."""

    def __init__(
        self,
        page: Callable[[], str],
        has_frame: Callable[[], bool],
        stop: threading.Event,
        silent_s: float | None,
    ) -> None:
        self._page, self._has_frame, self._stop, self._silent_s = page, has_frame, stop, silent_s
        self._unsent = b""
        self._due = time.monotonic() + PAGE_S
        self._is_first = True

    def run(self) -> None:
        """Write pages until ``stop`` is set.

        A reader that takes nothing gets no newer page, and nobody waits for it.
        """
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
                readable, writable, _ = select.select(
                    listened, [_STDOUT] if self._unsent else [], [], _HEAR_S
                )
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
