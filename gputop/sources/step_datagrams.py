"""Receives announced steps: checks senders, values and rates."""

from __future__ import annotations

import json
import os
import select
import socket
import struct
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from msgspec import Struct
from msgspec.structs import replace

from gputop.model.run_ranks import digest
from gputop.model.steps import StepRow, step_row
from gputop.sources.cgroup import cgroup_text
from gputop.sources.processes.tree.job_identity import JobIdentity, job_identity
from gputop.system.worker import Worker

MOST_DATAGRAM = 1024
MOST_SENDERS = 256
REFILL_S, MOST_AT_ONCE = 0.8, 3
"""A process may send one datagram in so many seconds on average, and so many at once: its first report comes late, as
measuring begins beside it, and its last one early."""
FORGOTTEN_S = 60.0
"""A process silent for this long makes room for another one."""
MOST_ROWS = 4096
_KIND = "steps"
_KEYS = ("rank", "gpu", "name", "n", "sum", "min", "max", "p50", "p99")
_BESIDE = {
    "samples": "samples", "wait": "wait_s", "data_wait": "data_wait_s", "tokens": "tokens", "mfu": "mfu_pct",
    "forward": "forward_s", "backward": "backward_s", "optimizer": "optimizer_s", "between": "between_s",
    "run": "run",
}  # fmt: skip
"""What a job may add, by its name in the datagram and in the row."""
_CREDENTIALS = struct.Struct("3i")
_ANCILLARY = socket.CMSG_SPACE(_CREDENTIALS.size)


def datagram(row: StepRow) -> bytes:
    """Encode a row without its pid, which the kernel adds."""
    values = (
        row.rank, row.gpu, row.name, row.count,
        *(float(f"{t:.6g}") for t in (row.sum_s, row.min_s, row.max_s, row.p50_s, row.p99_s)),
    )  # fmt: skip
    optional = {
        key: value for key, name in _BESIDE.items() if (value := getattr(row, name)) is not None
    }
    message = {"k": _KIND, **dict(zip(_KEYS, values, strict=True)), **optional}
    return json.dumps(message, separators=(",", ":")).encode("ascii")


def scoped_run(run: str, pid: int, uid: int) -> str:
    """Return a run's id, unique on this machine.

    A process's claim counts only for its own user and its own batch job or container, so that nobody joins another's
    run.
    """
    try:
        identity = job_identity(cgroup_text(f"/proc/{pid}"))
    except OSError:
        identity = JobIdentity()
    job, container = identity.job, identity.container
    return digest(run, str(uid), str(job and job.words), str(container and container.words))


class StepIntake:
    """Accepts plausible steps from known processes, once a second.

    The number of processes is limited, too.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._heard: dict[int, _Allowance] = {}
        self._runs: dict[tuple[int, str], str] = {}
        self._rows: deque[StepRow] = deque()

    def accept(self, data: bytes, pid: int, uid: int = 0) -> bool:
        """Add one datagram of a process and its user; False if dropped.

        Pid 0 is a process that this PID namespace cannot see.
        """
        row = _row(data, pid) if pid > 0 and len(data) <= MOST_DATAGRAM else None
        if row is None or not self._is_its_turn(pid) or len(self._rows) >= MOST_ROWS:
            return False
        self._rows.append(
            row if row.run is None else replace(row, run=self._scoped(row.run, pid, uid))
        )
        return True

    def _scoped(self, run: str, pid: int, uid: int) -> str:
        known = self._runs.get((pid, run))
        if known is None:
            if len(self._runs) >= MOST_SENDERS:
                self._runs.clear()
            known = self._runs[pid, run] = scoped_run(run, pid, uid)
        return known

    def drain(self) -> tuple[StepRow, ...]:
        """Return the rows since the last call, in order of arrival."""
        return tuple(self._rows.popleft() for _ in range(len(self._rows)))

    def _is_its_turn(self, pid: int) -> bool:
        now = self._clock()
        allowance = self._heard.get(pid)
        if allowance is None:
            if len(self._heard) >= MOST_SENDERS:
                self._heard = {
                    sender: left
                    for sender, left in self._heard.items()
                    if now - left.t < FORGOTTEN_S
                }
                if len(self._heard) >= MOST_SENDERS:
                    return False
            allowance = self._heard[pid] = _Allowance(now)
        return allowance.take(now)


class _Allowance(Struct):
    """Token bucket of the datagrams that a process may send.

    ``t`` is when the last one was accepted.
    """

    t: float
    left: float = MOST_AT_ONCE

    def take(self, now: float) -> bool:
        """Take one; False where none is left."""
        left = min(MOST_AT_ONCE, self.left + (now - self.t) / REFILL_S)
        if left < 1.0:
            return False
        self.t, self.left = now, left - 1.0
        return True


LEFT_S = 0.1
"""How long to leave a socket alone in which something was left."""


class Emptier:
    """A thread that calls ``empty`` whenever a socket is readable.

    ``empty`` returns False when something was left. Linux queues ten datagrams on a Unix socket
    (net.unix.max_dgram_qlen), fewer than a node has ranks.
    """

    def __init__(self, from_socket: socket.socket, empty: Callable[[], bool]) -> None:
        self._socket, self._empty = from_socket, empty
        self._left = False
        # Not select: a large job may have more open files than it can handle.
        self._poll = select.poll()
        self._poll.register(from_socket, select.POLLIN)
        self._worker = Worker("steps", self._wait, again=lambda: LEFT_S if self._left else 0.0)
        self._worker.ask()

    def close(self) -> None:
        """End the thread; the caller then closes the socket."""
        self._worker.stop()
        with suppress(OSError):
            # A socket that was shut down is readable.
            self._socket.shutdown(socket.SHUT_RDWR)
        self._worker.stop(0.2)

    def _wait(self) -> None:
        if any(state & ~select.POLLIN for _, state in self._poll.poll()):
            self._worker.stop()
        elif not self._worker.stopping.is_set():
            self._left = not self._empty()


def datagram_socket() -> socket.socket:
    """Create a non-blocking Unix datagram socket."""
    return socket.socket(
        socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
    )


def bound_socket(path: str, mode: int) -> socket.socket:
    """Create a socket at a path; the kernel names the sender of each datagram. Raises OSError."""
    receiver = datagram_socket()
    try:
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        receiver.bind(path)
        os.chmod(path, mode)
    except OSError:
        receiver.close()
        raise
    return receiver


def received(receiver: socket.socket, limit_bytes: int) -> tuple[bytes, int, int]:
    """Return one datagram with its sender's pid and user.

    They are 0 where unknown. Raises OSError, BlockingIOError without a datagram.
    """
    data, ancillary, _, _ = receiver.recvmsg(limit_bytes, _ANCILLARY)
    for level, kind, content in ancillary:
        if (
            level == socket.SOL_SOCKET
            and kind == socket.SCM_CREDENTIALS
            and len(content) >= _CREDENTIALS.size
        ):
            pid, uid, _ = _CREDENTIALS.unpack_from(content)
            return data, pid, uid
    return data, 0, 0


def is_steps(data: bytes) -> bool:
    """Whether a datagram announces steps, and is not a mark."""
    return data.startswith(b'{"k":"steps"')


def _row(data: bytes, pid: int) -> StepRow | None:
    try:
        message = json.loads(data)
        values = [pid, *(message[key] for key in _KEYS)]
        optional = {name: message.get(key) for key, name in _BESIDE.items()}
        return step_row(values, **optional) if message["k"] == _KIND else None
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
        return None
