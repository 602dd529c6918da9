"""Opens files named by the user, without waiting for a pipe's writer.

Files are written for their owner alone: they show users and command lines.
"""

from __future__ import annotations

import errno
import os
import time
from contextlib import suppress
from select import select
from stat import S_IFREG, S_IMODE, S_ISFIFO, S_ISREG
from typing import BinaryIO

PIPE_S = 2.0
"""How long the writer of a pipe has, from the first byte to the end."""


def open_regular(path: str | os.PathLike[str], buffering: int = -1) -> BinaryIO:
    """Open a regular file for reading.

    Raises OSError, also for a file that is not regular.
    """
    file: BinaryIO = open(path, "rb", buffering, opener=without_waiting)  # noqa: SIM115 - the caller closes it
    if not S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "not a regular file", path)
    return file


def without_waiting(path: str, flags: int) -> int:
    """Opener for ``open`` that returns at once for any file."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)


def is_named_pipe(path: str | os.PathLike[str]) -> bool:
    """Whether a path is a named pipe.

    A pipe of the shell, ``<(…)``, is a link and does not count.
    """
    try:
        return S_ISFIFO(os.lstat(path).st_mode)
    except OSError:
        return False


def read_most(file: BinaryIO, limit: int) -> bytes:
    """Read at most ``limit`` bytes of a file or pipe opened without waiting.

    Raises OSError, also where a pipe's writer has not finished in time.
    """
    pipe = file.fileno()
    if not S_ISFIFO(os.fstat(pipe).st_mode):
        # A terminal at which nothing was typed gives None.
        return file.read(limit) or b""
    data, end = bytearray(), time.monotonic() + PIPE_S
    while len(data) < limit:
        if not select([pipe], (), (), max(0.0, end - time.monotonic()))[0]:
            raise TimeoutError(
                0, f"it is a pipe, and its writer has not finished within {PIPE_S:g} s"
            )
        piece = os.read(pipe, limit - len(data))
        if not piece:
            break
        data += piece
    return bytes(data)


def write_private(path: str | os.PathLike[str], data: str | bytes) -> None:
    """Replace a whole file at once, with mode 0600 if new.

    An existing file keeps its mode, and its content if writing fails. A device or a pipe is written to as it is. Texts
    are written as UTF-8. Raises OSError.
    """
    content = data.encode() if isinstance(data, str) else data
    target = os.path.realpath(path)
    try:
        before = os.stat(path).st_mode
    except FileNotFoundError:
        before = S_IFREG | 0o600
    if not S_ISREG(before):
        try:
            with open(path, "wb", opener=without_waiting) as device:
                os.set_blocking(device.fileno(), True)
                device.write(content)
        except OSError as error:
            if error.errno == errno.ENXIO:
                raise OSError(error.errno, "a pipe that nobody reads", os.fspath(path)) from error
            raise
        return
    unfinished = f"{target}.{os.getpid()}.tmp"
    try:
        with open(unfinished, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            file.write(content)
            os.fchmod(file.fileno(), S_IMODE(before))
        os.replace(unfinished, target)
    except BaseException as error:
        with suppress(OSError):
            os.unlink(unfinished)
        if isinstance(error, OSError):
            # The error must name the file that was asked for.
            raise OSError(error.errno, error.strerror, os.fspath(path)) from error
        raise
