"""Files that are for their owner alone: what they show of users and command lines is nobody else's business."""

from __future__ import annotations

import os


def write_private(path: str | os.PathLike[str], data: str | bytes) -> None:
    """Write a whole file, with mode 0600 where it is new; one that exists keeps the mode that it has.

    A text is written as UTF-8. Raises OSError.
    """
    with open(path, "wb", opener=_open) as file:
        file.write(data.encode() if isinstance(data, str) else data)


def _open(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
