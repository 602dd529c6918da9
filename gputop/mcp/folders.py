"""The files that an assistant may name: those below the user's folders, without links that lead out of them."""

from __future__ import annotations

import os
import stat
import zlib
from collections.abc import Sequence
from typing import Any

from gputop.model.quantity import clean_text

MOST_FILES = 200
RECORDINGS = (".gputop.jsonl", ".gputop.jsonl.gz")
_PROFILER = (b'"traceEvents"', b'"deviceProperties"', b'"schemaVersion"', b'"ph":', b'"ph" :')
_HEAD_BYTES = 1 << 16


class Outside(Exception):
    """A file that may not be read, or is not a file. Names it and quotes nothing of it."""


class Folders:
    """Raises Outside for a path that is not a folder."""

    def __init__(self, folders: Sequence[str]) -> None:
        self._roots = [os.path.realpath(folder) for folder in folders]
        for folder, root in zip(folders, self._roots, strict=True):
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

    def files(self) -> dict[str, list[str]]:
        """What can be asked about below the folders, by kind, as ``file`` takes it."""
        files: dict[str, list[str]] = {"recordings": [], "traces": [], "memory_snapshots": []}
        for root in self._roots:
            for folder, _, names in os.walk(root):
                for name in sorted(names):
                    path = os.path.join(folder, name)
                    kind = None if os.path.islink(path) or not os.path.isfile(path) else _kind(path)
                    if kind is not None and sum(map(len, files.values())) < MOST_FILES:
                        files[kind].append(os.path.relpath(path, root))
        return files

    def named(self, data: Any) -> Any:
        """The same data with paths as an assistant names them: from the folder on."""
        if isinstance(data, dict):
            return {key: self.named(value) for key, value in data.items()}
        if isinstance(data, (list, tuple)):
            return [self.named(value) for value in data]
        if isinstance(data, str):
            for root in self._roots:
                data = data.replace(root + os.sep, "")
        return data


def _kind(path: str) -> str | None:
    """The kind of a file by its name, and of a .json by its first bytes."""
    if path.endswith(RECORDINGS):
        return "recordings"
    if path.endswith(".sqlite"):
        return "traces"
    if path.endswith((".pickle", ".pkl")):
        return "memory_snapshots"
    if not path.endswith((".json", ".json.gz")):
        return None
    try:
        with open(path, "rb") as file:
            head = file.read(_HEAD_BYTES)
        if path.endswith(".gz"):
            head = zlib.decompressobj(31).decompress(head, _HEAD_BYTES)
    except (OSError, zlib.error):
        return None
    return "traces" if any(word in head for word in _PROFILER) else None
