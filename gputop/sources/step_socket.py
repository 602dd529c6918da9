"""Sends and receives announced steps over Unix sockets."""

from __future__ import annotations

import errno
import os
import socket
import threading
from contextlib import suppress

from gputop.model.steps import StepRow
from gputop.sources.marks import MOST_AT_ONCE, listeners
from gputop.sources.step_datagrams import (
    MOST_DATAGRAM,
    Emptier,
    StepIntake,
    bound_socket,
    datagram,
    datagram_socket,
    received,
)

STEPS_SOCKET = "/run/gputop/steps.sock"


class StepSender:
    """Announces this process's steps; never waits and never raises.

    One datagram a second, to all mark listeners and to ``/run/gputop/steps.sock``, where an exporter has created it.
    The kernel names the sender. What does not fit is dropped. The socket is opened with the first row.
    """

    def __init__(self, system_socket: str = STEPS_SOCKET) -> None:
        self._system = system_socket
        self._socket: socket.socket | None = None

    def send(self, row: StepRow, but: str | None = None) -> int:
        """Send a row; return the number of listeners reached.

        ``but`` is the socket of a listener that already has it.
        """
        reached = 0
        try:
            if self._socket is None:
                self._socket = datagram_socket()
            data = datagram(row)
            for path in (*listeners(), self._system):
                if path == but:
                    continue
                # Nothing listens there, or it does not accept ours, or has no room for it.
                with suppress(OSError):
                    self._socket.sendto(data, path)
                    reached += 1
        except (OSError, ValueError):
            pass
        return reached

    def close(self) -> None:
        """Close the socket."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


class StepListener:
    """The machine's step socket of an exporter, open to any user.

    A thread empties it. Raises OSError where it cannot be bound. The directory is created by the user who runs the
    exporter.
    """

    def __init__(self, path: str = STEPS_SOCKET) -> None:
        self._intake = StepIntake()
        self._path = path
        _unlink_stale(path)
        self._socket = bound_socket(path, 0o666)
        self._lock = threading.Lock()
        self._emptier = Emptier(self._socket, self._empty)

    def drain(self) -> tuple[StepRow, ...]:
        """Return the rows since the last call, without blocking."""
        self._empty()
        with self._lock:
            return self._intake.drain()

    def close(self) -> None:
        """Stop receiving and remove the socket."""
        self._emptier.close()
        self._socket.close()
        with suppress(OSError):
            os.unlink(self._path)

    def _empty(self) -> bool:
        with self._lock, suppress(OSError):
            for _ in range(MOST_AT_ONCE):
                self._intake.accept(*received(self._socket, MOST_DATAGRAM + 1))
        return True


def _unlink_stale(path: str) -> None:
    """Remove the socket of a dead exporter.

    Raises OSError where a living one holds it.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(path)
        except FileNotFoundError:
            return
        except ConnectionRefusedError:
            os.unlink(path)
            return
    raise OSError(errno.EADDRINUSE, "another exporter listens there", path)
