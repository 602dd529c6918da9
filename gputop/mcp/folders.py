"""The files that an assistant may name: those below the user's folders, without links that lead out of them."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence

from gputop.model.text import clean_text

MOST_FILES = 200
KINDS = (".gputop.jsonl", ".gputop.jsonl.gz", ".json", ".json.gz", ".sqlite")


class Outside(Exception):
    """A file that may not be read, or is not a file. Names it and quotes nothing of it."""


class Folders:
    """Raises Outside for a path that is not a folder."""

    def __init__(self, given: Sequence[str]) -> None:
        self._roots = [os.path.realpath(folder) for folder in given]
        for folder, root in zip(given, self._roots, strict=True):
            if not os.path.isdir(root):
                raise Outside(f"{folder} is not a folder")

    def file(self, name: str) -> str:
        """The path of a file. Raises Outside."""
        shown = clean_text(name)[:200]
        if "\0" in name:
            raise Outside(f"{shown}: no such file")
        for root in self._roots:
            path = os.path.realpath(os.path.join(root, name))
            if path != root and os.path.commonpath((root, path)) == root:
                try:
                    kind = os.stat(path).st_mode
                except OSError:
                    continue
                if stat.S_ISDIR(kind):
                    self._check_folder(path, root, shown)
                    return path
                if stat.S_ISREG(kind):
                    return path
        raise Outside(f"{shown}: no such file below the folders that gputop mcp was given")

    def _check_folder(self, folder: str, root: str, shown: str) -> None:
        """Raises Outside for a folder that contains a link out of the root, or anything but files and folders: asking
        about a folder reads everything in it."""
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    inside = os.path.commonpath((root, os.path.realpath(entry.path))) == root
                    if not inside or not (entry.is_file() or entry.is_dir()):
                        raise Outside(f"{shown}: holds {clean_text(entry.name)[:200]}, which may not be read")
        except OSError:
            raise Outside(f"{shown}: cannot be read") from None

    def files(self) -> list[str]:
        """Recordings and traces below the folders, as ``file`` takes them."""
        found: list[str] = []
        for root in self._roots:
            for folder, _, names in os.walk(root):
                for name in sorted(names):
                    path = os.path.join(folder, name)
                    if name.endswith(KINDS) and len(found) < MOST_FILES and not os.path.islink(path):
                        found.append(os.path.relpath(path, root))
        return found
