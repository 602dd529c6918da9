"""The page as a file for node_exporter's textfile collector: replaced atomically, removed when gputop ends."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from gputop.model.source import UsageError

READABLE = 0o644
"""node_exporter runs as another user; the page holds what any scrape would."""


class TextFile:
    """Writes a page to one place."""

    def __init__(self, path: str, page: Callable[[], str], said: Callable[[str], None]) -> None:
        """Raises UsageError for a name or a folder that cannot be used."""
        self._path = Path(path)
        if self._path.suffix != ".prom":
            raise UsageError(f"--textfile must end in .prom, or node_exporter does not read it, not {path!r}")
        folder = self._path.parent
        if self._path.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
            raise UsageError(f"--textfile: cannot write {path}: name a file in a folder that this user can write")
        self._page = page
        self._said = said
        self._failed = ""

    def write(self) -> bool:
        """Replace the last page by the present one. A failing disk is reported once and tried again."""
        temporary = ""
        try:
            descriptor, temporary = tempfile.mkstemp(prefix=f".{self._path.name}.", dir=self._path.parent)
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
                self._said(f"cannot write {self._path}: {self._failed}")
            return False

    def remove(self) -> None:
        """Remove the file: values that nobody refreshes would stay for ever."""
        with contextlib.suppress(OSError):
            self._path.unlink()
