"""Inspection of one process for the screen: sockets and threads.

The readers run on their own threads, because /proc may block. Identity is (pid, start time): another process with the
same pid is never shown.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

from msgspec.structs import replace

from gputop.model.inspection import SocketGroup, SocketList, ThreadList, ThreadSample
from gputop.model.secrets import masked_text
from gputop.sources.processes.open_files import DENIED_FDS, held, in_another_network
from gputop.sources.processes.socket_activity import OTHER_NETWORK
from gputop.sources.processes.socket_tables import TcpSocket, tcp_tables
from gputop.sources.processes.wait_state import wait_class
from gputop.sources.procfs import names_in, parse_schedstat, read_small, stat_of, text_of
from gputop.system.worker import Worker

# TCP sockets of the process, and their receive rates.

_LOOPBACK = (b"\x7f", bytes(15) + b"\x01", bytes(10) + b"\xff\xff\x7f")
"""Prefixes of loopback addresses: 127.0.0.0/8, ::1, and 127.0.0.0/8 within IPv6."""


def read_sockets(pid: int, before: SocketList | None, now: float, proc: str = "/proc") -> SocketList:
    """Return the sockets of a process, with rates since ``before``.

    ``now`` is in seconds.
    """
    held_inodes = held(proc, pid)
    if held_inodes is None:
        return SocketList(now, reason=DENIED_FDS)
    if not held_inodes.sockets:
        return SocketList(now)
    tables = tcp_tables()
    tcp = {inode: tables.tcp[inode] for inode in held_inodes.sockets if inode in tables.tcp}
    if not tcp:
        return SocketList(now, reason=tables.reason or (OTHER_NETWORK if in_another_network(proc, pid) else None))
    received = {inode: socket.received for inode, socket in tcp.items()}
    groups: dict[tuple[int, bool, bool], list[int]] = {}
    for inode, socket in tcp.items():
        groups.setdefault(_group(socket), []).append(inode)
    socket_groups = [
        SocketGroup(*key, len(inodes), None if key[1] else _rate(inodes, received, before, now))
        for key, inodes in groups.items()
    ]
    socket_groups.sort(key=lambda group: (-(group.rx_bytes_per_s or 0.0), -group.count, group.port))
    return SocketList(now, tuple(socket_groups), received=received)


def _group(socket: TcpSocket) -> tuple[int, bool, bool]:
    """Return (port, listens, peer is local) of a socket.

    Addresses are left out for privacy.
    """
    (_, own_port), (address, port) = socket.ends
    return (own_port if socket.listens else port), socket.listens, address.startswith(_LOOPBACK)


def _rate(inodes: list[int], received: dict[int, int], before: SocketList | None, now: float) -> float | None:
    """Return received bytes per second since ``before``; None without a rate.

    A new socket has received all its bytes since then.
    """
    if before is None or before.reason is not None or now <= before.t:
        return None
    return sum(max(0, received[inode] - before.received.get(inode, 0)) for inode in inodes) / (now - before.t)


# Threads of the process.

MOST_LISTED_THREADS = 512
"""Limit of listed threads: each takes three small files, 512 take about 15 ms."""
LEAST_S = 1.0
"""Shortest interval for rates; a shorter one would show ticks of the clock."""
PROCESS_GONE = "the process has ended"


def read_threads(
    pid: int, starttime: int | None, before: ThreadList | None, now: float, proc: str = "/proc"
) -> ThreadList:
    """Return the threads of a process, with rates since ``before``.

    The main thread comes first, then the others by their ids; of very many, the first 512. ``now`` is in seconds and
    only runs forward.
    """
    directory = f"{proc}/{pid}"
    stat = stat_of(directory)
    tids = sorted(map(int, names_in(f"{directory}/task")))
    if stat is None or not tids or (starttime is not None and stat.starttime != starttime):
        return ThreadList(now, reason=PROCESS_GONE)
    tids.sort(key=lambda tid: tid != pid)
    thread_before = {} if before is None else {thread.tid: thread for thread in before.threads}
    elapsed_ns = 0.0 if before is None else (now - before.t) * 1e9
    read = (
        _thread(f"{directory}/task/{tid}", tid, thread_before.get(tid), elapsed_ns)
        for tid in tids[:MOST_LISTED_THREADS]
    )
    return ThreadList(now, tuple([thread for thread in read if thread is not None]), len(tids))


def _thread(directory: str, tid: int, before: ThreadSample | None, elapsed_ns: float) -> ThreadSample | None:
    try:
        name, state, waiting_on, _ = thread_state(directory)
    except OSError:
        return None
    waiting_on = waiting_on if state in "SD" else None
    times = None
    with suppress(OSError):
        times = parse_schedstat(read_small(f"{directory}/schedstat"))
    if times is None:
        return ThreadSample(tid, name, state, waiting_on=waiting_on)
    run = wait = None
    if before is not None and before.run_ns is not None and before.wait_ns is not None and elapsed_ns > 0.0:
        run = min(100.0, max(0.0, 100.0 * (times[0] - before.run_ns) / elapsed_ns))
        wait = min(100.0, max(0.0, 100.0 * (times[1] - before.wait_ns) / elapsed_ns))
    return ThreadSample(tid, name, state, run, wait, waiting_on, *times)


def thread_state(directory: str) -> tuple[str, str, str | None, str | None]:
    """Return (name, state, wait class, wait channel) of a thread.

    Raises OSError once the thread has ended.
    """
    stat = stat_of(directory)
    if stat is None:
        raise ProcessLookupError
    channel = text_of(f"{directory}/wchan")
    # The kernel writes 0 for a thread that runs, and for readers without permission.
    named = channel if channel not in ("", "0") else None
    return masked_text(stat.comm.decode("utf-8", "replace")), stat.state, wait_class(channel), named


class ThreadWatch:
    """Reads one process's threads and sockets on request.

    The newest list is kept.
    """

    def __init__(
        self, pid: int, starttime: int | None, proc: str = "/proc", clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._pid, self._starttime = pid, starttime
        self._proc = proc
        self._clock = clock
        self._worker = Worker("threads", self._read)

    def ask(self) -> None:
        """Request a new reading, at most once a second. Never blocks."""
        newest = self._worker.latest
        if newest is None or self._clock() - newest.t >= LEAST_S:
            self._worker.ask()

    def close(self) -> None:
        """End the reading thread."""
        self._worker.stop()

    @property
    def latest(self) -> ThreadList | None:
        """The newest list; None until the first reading."""
        error = self._worker.error
        if error is not None:
            return ThreadList(self._clock(), reason=f"its threads cannot be read: {type(error).__name__}")
        return self._worker.latest

    def _read(self) -> ThreadList:
        before = self._worker.latest
        threads = read_threads(self._pid, self._starttime, before, self._clock(), self._proc)
        if threads.reason is None:
            sockets = None if before is None else before.sockets
            threads = replace(threads, sockets=read_sockets(self._pid, sockets, self._clock(), self._proc))
        return threads
