"""Files that only their owner may read: they show users and command lines."""

from __future__ import annotations

import os
import stat
from contextlib import suppress


def write_private(path: str | os.PathLike[str], data: str | bytes) -> None:
    """Write a whole file at once, with mode 0600 where it is new; one that exists keeps the mode that it has.

    A write that fails leaves what was there before. A text is written as UTF-8. Raises OSError.
    """
    content = data.encode() if isinstance(data, str) else data
    target = os.path.realpath(path)
    try:
        before = os.stat(target)
    except FileNotFoundError:
        mode = 0o600
    else:
        mode = stat.S_IMODE(before.st_mode)
        if not stat.S_ISREG(before.st_mode):
            with open(path, "wb") as device:
                device.write(content)
            return
    unfinished = f"{target}.{os.getpid()}.tmp"
    try:
        with open(unfinished, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            file.write(content)
            os.fchmod(file.fileno(), mode)
        os.replace(unfinished, target)
    except BaseException as error:
        with suppress(OSError):
            os.unlink(unfinished)
        if isinstance(error, OSError):
            # The error must name the file that was asked for.
            raise OSError(error.errno, error.strerror, os.fspath(path)) from error
        raise
