"""Sends marks and steps of jobs to the user's recorders and screens.

Each listener binds one Unix datagram socket in a directory that only its user can enter; a sender writes to all of
them. Nothing is stored: without a listener a mark is lost, and the sender learns that.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from msgspec import Struct

from gputop.model.clean_text import clean_text
from gputop.model.secrets import masked_text
from gputop.model.snapshot import Event
from gputop.model.steps import StepRow
from gputop.sources.procfs import names_in
from gputop.sources.runtime_directories import is_ours, prepare, runtime_directories
from gputop.sources.step_datagrams import (
    Emptier,
    StepIntake,
    bound_socket,
    datagram_socket,
    is_steps,
    received,
)

MOST_MARK = 1000
"""Characters of a mark."""
MOST_OFF_S = 60.0
"""A mark says when it was made. One further from now, or from the time of the job, is dropped: it would lie in a time
that was not watched."""
_MOST_DATAGRAM = 8192
_MOST_DRAINED = 64
MOST_AT_ONCE = 1024


class Sent(Struct, frozen=True):
    """Outcome of a mark: reached listeners, and reasons of the others."""

    reached: int
    lost: tuple[str, ...] = ()


class MarkListener:
    """Receives marks and announced steps; ``reason`` says why it cannot."""

    def __init__(
        self, clock: Callable[[], float] = time.time, job_began: float | None = None
    ) -> None:
        """``clock`` gives Unix time.

        ``job_began`` is the begin of the job whose marks are expected, if any.
        """
        self.reason: str | None = None
        self._clock = clock
        self._job_began = job_began
        self._socket: socket.socket | None = None
        self.path: str | None = None
        """The socket's path; None without one."""
        self._lock = threading.Lock()
        self._events: list[Event] = []
        self._intake = StepIntake()
        self._emptier: Emptier | None = None
        reasons = []
        for directory in runtime_directories():
            try:
                prepare(directory)
                path = os.path.join(directory, f"{os.getpid()}-{os.urandom(4).hex()}.sock")
                self._socket, self.path = bound_socket(path, 0o600), path
                return
            except OSError as error:
                reasons.append(f"{directory}: {error.strerror or error}")
        self.reason = "marks cannot be received: " + "; ".join(reasons)

    def drain(self) -> list[Event]:
        """Return the marks since the last call, at most 64, without blocking."""
        self._empty()
        with self._lock:
            events, self._events = self._events[:_MOST_DRAINED], self._events[_MOST_DRAINED:]
        return events

    def steps(self) -> tuple[StepRow, ...]:
        """Return the announced steps up to the last ``drain``."""
        with self._lock:
            return self._intake.drain()

    def _empty(self) -> bool:
        """Read the waiting datagrams; False where some were left."""
        with self._lock:
            if self._socket is None:
                return True
            for _ in range(MOST_AT_ONCE):
                if len(self._events) >= _MOST_DRAINED:
                    # The rest waits in the socket: its senders are told when that is full.
                    return False
                try:
                    data, pid, uid = received(self._socket, _MOST_DATAGRAM)
                except BlockingIOError:
                    return True
                except OSError as error:
                    self.reason = f"marks are no longer received: {error.strerror or error}"
                    return True
                if is_steps(data):
                    if self._intake.accept(data, pid, uid) and self._emptier is None:
                        # Only once a job announces steps: marks are few.
                        self._emptier = Emptier(self._socket, self._empty)
                    continue
                event = _event(data)
                if event is not None and self._is_timely(event.t):
                    self._events.append(event)
        return False

    def _is_timely(self, t: float) -> bool:
        now = self._clock()
        earliest = now if self._job_began is None else min(now, self._job_began)
        return earliest - MOST_OFF_S <= t <= now + MOST_OFF_S

    def close(self) -> None:
        """Stop receiving and remove the socket."""
        if self._emptier is not None:
            self._emptier.close()
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self.path is not None:
            with suppress(OSError):
                os.unlink(self.path)
            self.path = None


def send_mark(text: str, t: float) -> Sent:
    """Send a mark of time ``t`` (Unix seconds) to all listeners.

    Never waits for a listener.
    """
    data = json.dumps({"t": round(t, 3), "text": clean_text(text)[:MOST_MARK]}).encode("ascii")
    reached, lost = 0, []
    with datagram_socket() as sender:
        for path in listeners():
            try:
                sender.sendto(data, path)
                reached += 1
            except ConnectionRefusedError:
                # Its listener has died without cleaning up.
                with suppress(OSError):
                    os.unlink(path)
            except FileNotFoundError:
                # It has just ended.
                continue
            except BlockingIOError:
                lost.append(f"{_owner(path)} has too many marks waiting")
            except OSError as error:
                lost.append(f"{_owner(path)}: {error.strerror or error}")
    return Sent(reached, tuple(lost))


def _owner(path: str) -> str:
    """Return the listener behind a socket, whose name begins with its pid."""
    pid = os.path.basename(path).split("-")[0]
    return f"process {pid}" if pid.isdecimal() else "a listener"


def listeners() -> list[str]:
    """Return the sockets of this user's listeners."""
    ours = filter(is_ours, runtime_directories())
    return [
        os.path.join(place, name)
        for place in ours
        for name in names_in(place)
        if name.endswith(".sock")
    ]


def _event(data: bytes) -> Event | None:
    try:
        message = json.loads(data)
        t, text = float(message["t"]), message["text"]
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
        return None
    if not isinstance(text, str) or not 0.0 < t < 1e11:
        return None
    return Event(t, "mark", masked_text(clean_text(text))[:MOST_MARK])
