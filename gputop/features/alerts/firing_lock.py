"""Only one process of a user fires alerts on a machine: who holds the lock, and when each alert last fired.

The lock is on a file in every directory in which gputops of this user may look, because they do not all know the same
ones. The same files keep when each alert fired, so that a restart does not break a silence. A lock ends with its
process, however that ends.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from gputop.features.alerts.alert_judge import Place

NAME = "alerts"
MOST_BYTES = 1 << 20
MOST_KEPT = 1024
KEPT_S = 30 * 86400.0
"""The longest silence that an alert may ask for."""


class FiringLock:
    """``directories`` are this user's alone. ``reason`` says why nothing can be fired where none can be used."""

    def __init__(self, directories: Sequence[str]) -> None:
        self.reason: str | None = None
        self.holder: int | None = None
        """The process that fires, where it is another one and has said so."""
        self._directories = directories
        self._files: list[int] = []
        self._fired: dict[Place, float] = {}
        self._guard = threading.Lock()

    @property
    def is_held(self) -> bool:
        """Whether this process is the one that fires."""
        return bool(self._files)

    def take(self) -> bool:
        """Become the process that fires, unless another is. Never waits."""
        with self._guard:
            if self._files:
                return True
            opened, reasons, is_free = [], [], True
            for directory in self._directories:
                try:
                    opened.append(_opened(os.path.join(directory, NAME)))
                except OSError as error:
                    reasons.append(f"{directory}: {error.strerror or error}")
            for file in opened:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except OSError:
                    is_free = False
            told = [_read(file) for file in opened]
            self.reason = None if opened else "; ".join(reasons) or "there is no directory for it"
            if not opened or not is_free:
                self.holder = next((pid for pid, _ in told if pid is not None), None)
                for file in opened:
                    os.close(file)
                return False
            self._files, self.holder = opened, None
            for _, fired in told:
                for place, t in fired.items():
                    self._fired[place] = max(t, self._fired.get(place, t))
            self._write()
            return True

    def fired(self) -> Mapping[Place, float]:
        """When each alert fired last on each GPU, by whichever process."""
        with self._guard:
            return dict(self._fired)

    def note(self, place: Place, t: float) -> None:
        """Note that an alert fires, before it does: if the process is killed in between, it counts as fired."""
        with self._guard:
            self._fired[place] = t
            self._write()

    def close(self) -> None:
        """Release the lock, so that another process may fire."""
        with self._guard:
            for file in self._files:
                os.close(file)
            self._files = []

    def _write(self) -> None:
        now = time.time()
        kept = sorted(self._fired.items(), key=lambda item: item[1])[-MOST_KEPT:]
        self._fired = {place: t for place, t in kept if now - t < KEPT_S}
        rows = [[name, uuid, round(t, 3)] for (name, uuid), t in self._fired.items()]
        text = json.dumps({"pid": os.getpid(), "fired": rows}).encode() + b"\n"
        for file in self._files:
            # A full disk costs silences over a restart, not alerts.
            with suppress(OSError):
                os.pwrite(file, text, 0)
                os.ftruncate(file, len(text))


def holder(directories: Sequence[str]) -> int | None:
    """The process that fires this user's alerts now, if there is one. Changes nothing."""
    for directory in directories:
        try:
            file = os.open(os.path.join(directory, NAME), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError:
            continue
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return _read(file)[0]
        finally:
            os.close(file)
    return None


def _opened(path: str) -> int:
    """The file, created if missing. Raises OSError where it is not this user's own."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)
    status = os.fstat(file)
    if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
        os.close(file)
        raise PermissionError(1, "not a file of this user")
    return file


def _read(file: int) -> tuple[int | None, dict[Place, float]]:
    """Who holds the lock and what fired when; nothing of what cannot be understood.

    Only the first object counts: after it the rest of a longer one may be left, where a writer was killed.
    """
    try:
        given: Any = json.JSONDecoder().raw_decode(os.pread(file, MOST_BYTES, 0).decode())[0]
        rows = [(str(name), str(uuid), float(t)) for name, uuid, t in given["fired"]]
        return int(given["pid"]), {(name, uuid): t for name, uuid, t in rows if 0.0 < t < 1e11}
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None, {}
