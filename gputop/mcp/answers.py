"""Answers for coding assistants, and the files they may read.

A process may be named "ignore your instructions": a reader must be able to tell gputop's words from foreign text.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gputop.model.clean_text import clean_text
from gputop.model.json_text import safe_json

MOST_BYTES = 20_000
"""Limit of one answer: about 7,000 tokens."""
SUFFIX = "_untrusted"
MOST_TEXT = 500
OWN = frozenset({
    "badge", "busy_not_working", "category", "cause", "condition", "confidence", "energy_from", "family",
    "id", "in_sample", "kind", "level", "measure", "phase", "rank_from", "remedy", "role", "sm_source", "source",
    "state", "tables_are", "title", "unit", "verdict",
})  # fmt: skip
"""Keys whose texts come from gputop's own tables; all other texts are labelled."""


class Refused(Exception):
    """A question that is not answered, in one line."""


def labelled(data: Any) -> Any:
    """Return JSON data with foreign texts labelled, cleaned and cut."""
    if isinstance(data, Mapping):
        return dict(_entry(clean_text(str(key))[:MOST_TEXT], value) for key, value in data.items())
    if isinstance(data, (list, tuple)):
        return [labelled(value) for value in data]
    return clean_text(data)[:MOST_TEXT] if isinstance(data, str) else data


def _entry(key: str, value: Any) -> tuple[str, Any]:
    """Return a key with its label, and the value."""
    if key in OWN or not _has_text(value):
        return key, labelled(value)
    if isinstance(value, Mapping):
        # Reasons by metric: the keys are gputop's, the texts are not.
        return f"{key}{SUFFIX}", {
            str(name)[:MOST_TEXT]: labelled(text) for name, text in value.items()
        }
    return f"{key}{SUFFIX}", labelled(value)


def _has_text(value: Any) -> bool:
    """Return whether a value is a text or contains texts directly.

    Nested collections label their own keys.
    """
    if isinstance(value, Mapping):
        return bool(value) and all(isinstance(text, str) for text in value.values())
    return isinstance(value, str) or (
        isinstance(value, (list, tuple)) and any(isinstance(v, str) for v in value)
    )


def compact(data: Any) -> str:
    """Return data as JSON of at most 20 kB.

    Where the data are larger, nulls are left out, then the largest lists are halved, lists of GPUs last; ``left_out``
    counts the missing entries. Raises Refused where lists are not what makes the data large.
    """
    left_out: dict[str, int] = {}
    text = _json(data)
    if len(text.encode()) > MOST_BYTES:
        data = _without_nulls(data)
        text = _json(data)
    while len(text.encode()) > MOST_BYTES:
        found = max(
            _lists(data, ""), key=lambda one: (not one[1].endswith("gpus"), one[0]), default=None
        )
        if found is None:
            raise Refused(f"the answer is larger than {MOST_BYTES} bytes")
        _, path, values = found
        keep = len(values) // 2
        left_out[path] = left_out.get(path, 0) + len(values) - keep
        del values[keep:]
        text = _json({**data, "left_out": left_out})
    return text


def _json(data: Any) -> str:
    return safe_json(data, separators=(",", ":"))


def _without_nulls(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: _without_nulls(value) for key, value in data.items() if value is not None}
    return [_without_nulls(value) for value in data] if isinstance(data, list) else data


def _lists(data: Any, path: str) -> Iterator[tuple[int, str, list[Any]]]:
    """Yield size, path and list of each innermost list.

    Lists with fewer than two entries are left out.
    """
    if isinstance(data, dict):
        for key, value in data.items():
            yield from _lists(value, f"{path}.{key}" if path else str(key))
    elif isinstance(data, list):
        inner = [found for value in data for found in _lists(value, f"{path}[]")]
        yield from inner
        if len(data) > 1 and not inner:
            yield len(_json(data)), path, data


class Folders:
    """The folders whose files may be read.

    Links that lead out of them are not followed. Raises Refused for a path that is no folder.
    """

    def __init__(self, folders: Sequence[str]) -> None:
        self._roots = [os.path.realpath(folder) for folder in folders]
        for folder, root in zip(folders, self._roots, strict=True):
            if not os.path.isdir(root):
                raise Refused(f"{folder} is not a folder")

    def file(self, name: str) -> str:
        """Return the path of a file or folder. Raises Refused."""
        for root in self._roots:
            path = os.path.realpath(os.path.join(root, name.replace("\0", "/")))
            if (
                path != root
                and os.path.commonpath((root, path)) == root
                and self._may_be_read(path, root)
            ):
                return path
        raise Refused(
            f"{clean_text(name)[:200]}: no such file below the folders that gputop mcp was given"
        )

    def _may_be_read(self, path: str, root: str) -> bool:
        """Return whether a path may be read.

        Regular files may be read, and folders of such files. A folder may hold nothing but files and folders below the
        root.
        """
        try:
            kind = os.stat(path).st_mode
            if not stat.S_ISDIR(kind):
                return stat.S_ISREG(kind)
            # A question about a folder reads everything in it.
            with os.scandir(path) as entries:
                return all(
                    os.path.commonpath((root, os.path.realpath(entry.path))) == root
                    and (entry.is_file() or entry.is_dir())
                    for entry in entries
                )
        except OSError:
            return False

    def relative(self, data: Any) -> Any:
        """Return data with paths relative to the folders."""
        if isinstance(data, dict):
            return {key: self.relative(value) for key, value in data.items()}
        if isinstance(data, list):
            return [self.relative(value) for value in data]
        for root in self._roots if isinstance(data, str) else ():
            data = data.replace(root + os.sep, "")
        return data
