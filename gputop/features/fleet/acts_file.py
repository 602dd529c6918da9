"""What was done, by key with its Unix time, in a file that one run at a time may hold."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import msgspec

from gputop.model.source import UsageError

REMEMBERED_S = 90 * 86400.0
MOST_BYTES = 4 * 2**20


class Acts:
    """Keys of what was done, with the Unix times. ``keep`` writes them; what was kept outlives a killed run."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self._path, self._file = path, file
        data = file.read(MOST_BYTES + 1)
        try:
            self.done = msgspec.json.decode(data, type=dict[str, float]) if data.strip() else {}
        except (msgspec.DecodeError, RecursionError):
            raise UsageError(f"--act: {path} is not a file of `gputop fleet remedy`: name another one") from None

    def keep(self, now: float) -> None:
        """Write what is remembered. Raises UsageError where that cannot be."""
        self.done = {key: at for key, at in self.done.items() if now - at < REMEMBERED_S}
        data = msgspec.json.encode(self.done)
        try:
            size = os.fstat(self._file.fileno()).st_size
            # Blanks over the rest of a longer text: whenever the run is killed, what is there can be read.
            os.pwrite(self._file.fileno(), data.ljust(size), 0)
            os.fsync(self._file.fileno())
            os.ftruncate(self._file.fileno(), len(data))
        except OSError as error:
            raise UsageError(f"--act: cannot write {self._path}: {error.strerror}; nothing more is done") from None


@contextmanager
def acts_in(path: Path) -> Iterator[Acts]:
    """The acts of a file, made where it is not there. Raises UsageError where another run holds it, and where it is
    none of ours."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)
    except OSError as error:
        raise UsageError(f"--act: cannot write {path}: {error.strerror}") from None
    with os.fdopen(descriptor, "r+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UsageError(f"another run acts with {path}: one at a time") from None
        yield Acts(path, file)
