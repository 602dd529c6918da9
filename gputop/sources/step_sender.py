"""Steps from job to listener: one datagram a second and process, to every listener on this machine.

They go where marks go, and to ``/run/gputop/steps.sock`` where an exporter has made it. The kernel tells who sends,
never the datagram. Neither side waits for the other: what does not fit is dropped and counted.
"""

from __future__ import annotations

import errno
import os
import socket
import threading
from contextlib import suppress

from gputop.model.steps import StepRow
from gputop.sources.marks import listeners
from gputop.sources.step_datagrams import MOST_DATAGRAM, Emptier, StepIntake, datagram, received, with_credentials

STEPS_SOCKET = "/run/gputop/steps.sock"
_MOST_AT_ONCE = 1024


class StepSender:
    """Announces the steps of this process. Never waits and never raises; the socket is opened with the first row."""

    def __init__(self, system_socket: str = STEPS_SOCKET) -> None:
        self._system = system_socket
        self._socket: socket.socket | None = None
        self.lost = 0
        """Datagrams that a listener had no room for."""

    def send(self, row: StepRow, but: str | None = None) -> int:
        """Send a row. Returns how many listeners have it; ``but`` is the socket of one that already has it."""
        reached = 0
        try:
            if self._socket is None:
                kind = socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
                self._socket = socket.socket(socket.AF_UNIX, kind)
            data = datagram(row)
            for path in (*listeners(), self._system):
                if path == but:
                    continue
                try:
                    self._socket.sendto(data, path)
                    reached += 1
                except BlockingIOError:
                    self.lost += 1
                except OSError:
                    # Nothing listens there, or it does not accept ours.
                    continue
        except (OSError, ValueError):
            pass
        return reached

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


class StepListener:
    """The machine's own step socket, for an exporter: any user may write to it, a thread empties it.

    Raises OSError where it cannot be bound. The directory is made by the user who runs the exporter.
    """

    def __init__(self, path: str = STEPS_SOCKET) -> None:
        self._intake = StepIntake()
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        try:
            with_credentials(self._socket)
            _unlink_stale(path)
            self._socket.bind(path)
            os.chmod(path, 0o666)
        except OSError:
            self._socket.close()
            raise
        self._lock = threading.Lock()
        self._emptier = Emptier(self._socket, self._empty)

    @property
    def dropped(self) -> int:
        """Datagrams dropped since the start."""
        return self._intake.dropped

    def drain(self) -> tuple[StepRow, ...]:
        """The rows since the last call. Never blocks."""
        self._empty()
        with self._lock:
            return self._intake.drain()

    def close(self) -> None:
        self._emptier.close()
        self._socket.close()
        with suppress(OSError):
            os.unlink(self._path)

    def _empty(self) -> bool:
        with self._lock, suppress(OSError):
            for _ in range(_MOST_AT_ONCE):
                self._intake.accept(*received(self._socket, MOST_DATAGRAM + 1))
        return True


def _unlink_stale(path: str) -> None:
    """Remove the socket of an exporter that has died. Raises OSError where a living one holds it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(path)
        except FileNotFoundError:
            return
        except ConnectionRefusedError:
            os.unlink(path)
            return
    raise OSError(errno.EADDRINUSE, "another exporter listens there", path)
