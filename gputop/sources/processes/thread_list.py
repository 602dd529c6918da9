"""The threads and sockets of one process, read while a screen shows them, on their own thread: /proc may block.

Identity is (pid, start time): another process with the same pid is never shown.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

from msgspec.structs import replace

from gputop.model.inspection import SocketGroup, SocketList, ThreadList, ThreadSample
from gputop.model.secrets import masked_text
from gputop.sources.processes.process_sockets import DENIED_FDS, OTHER_NETWORK, TcpSocket, held, tcp_tables
from gputop.sources.processes.wait_channel import wait_class
from gputop.sources.procfs import parse_schedstat, parse_stat, read_small

# The TCP sockets of one process and what they receive, read while a screen shows them.

_LOOPBACK = (b"\x7f", bytes(15) + b"\x01", bytes(10) + b"\xff\xff\x7f")
"""Prefixes of loopback addresses: 127.0.0.0/8, ::1, and the former within IPv6."""


def read_sockets(pid: int, before: SocketList | None, now: float, proc: str = "/proc") -> SocketList:
    """The sockets of a process now, with rates since the list ``before``. ``now`` is in seconds."""
    mine = held(proc, pid)
    if mine is None:
        return SocketList(now, reason=DENIED_FDS)
    if not mine.sockets:
        return SocketList(now)
    tables = tcp_tables(now)
    tcp = {inode: tables.tcp[inode] for inode in mine.sockets if inode in tables.tcp}
    if not tcp:
        return SocketList(now, reason=tables.reason or (OTHER_NETWORK if _is_elsewhere(proc, pid) else None))
    received = {inode: socket.received for inode, socket in tcp.items()}
    groups: dict[tuple[int, bool, bool], list[int]] = {}
    for inode, socket in tcp.items():
        groups.setdefault(_group(socket), []).append(inode)
    found = [
        SocketGroup(*key, len(inodes), None if key[1] else _rate(inodes, received, before, now))
        for key, inodes in groups.items()
    ]
    found.sort(key=lambda group: (-(group.rx_bytes_per_s or 0.0), -group.count, group.port))
    return SocketList(now, tuple(found), received=received)


def _group(socket: TcpSocket) -> tuple[int, bool, bool]:
    """(port, whether it listens, whether the other end is on this machine). Addresses are left out for privacy."""
    (_, own_port), (address, port) = socket.ends
    return (own_port if socket.listens else port), socket.listens, address.startswith(_LOOPBACK)


def _rate(inodes: list[int], received: dict[int, int], before: SocketList | None, now: float) -> float | None:
    """Bytes a second since the list before; a socket that is new has received everything since."""
    if before is None or before.reason is not None or now <= before.t:
        return None
    return sum(max(0, received[inode] - before.received.get(inode, 0)) for inode in inodes) / (now - before.t)


def _is_elsewhere(proc: str, pid: int) -> bool:
    try:
        return os.readlink(f"{proc}/{pid}/ns/net") != os.readlink(f"{proc}/self/ns/net")
    except OSError:
        return False


MOST_THREADS = 512
"""A process has hundreds of threads, each three small files: 512 take about 15 ms."""
LEAST_S = 1.0
"""The time over which rates are taken; a shorter one would show ticks of the clock."""
GONE = "the process has ended"


def read_threads(
    pid: int, starttime: int | None, before: ThreadList | None, now: float, proc: str = "/proc"
) -> ThreadList:
    """The threads of a process now, with rates since the list ``before``. ``now`` is in seconds and only runs forward.

    The main thread comes first, then the others by their ids; of very many, the first 512.
    """
    directory = f"{proc}/{pid}"
    try:
        stat = parse_stat(read_small(f"{directory}/stat"))
        if stat is None or (starttime is not None and stat.starttime != starttime):
            return ThreadList(now, reason=GONE)
        tids = sorted(int(name) for name in os.listdir(f"{directory}/task") if name.isdigit())
    except (FileNotFoundError, ProcessLookupError):
        return ThreadList(now, reason=GONE)
    except OSError as error:
        return ThreadList(now, reason=f"its threads cannot be listed: {error.strerror or error}")
    tids.sort(key=lambda tid: tid != pid)
    known = {} if before is None else {thread.tid: thread for thread in before.threads}
    elapsed_ns = 0.0 if before is None else (now - before.t) * 1e9
    read = (_thread(f"{directory}/task/{tid}", tid, known.get(tid), elapsed_ns) for tid in tids[:MOST_THREADS])
    return ThreadList(now, tuple([thread for thread in read if thread is not None]), len(tids))


def _thread(directory: str, tid: int, before: ThreadSample | None, elapsed_ns: float) -> ThreadSample | None:
    try:
        stat = parse_stat(read_small(f"{directory}/stat"))
    except OSError:
        return None
    if stat is None:
        return None
    name = masked_text(stat.comm.decode("utf-8", "replace"))
    times = _times(directory)
    if times is None:
        return ThreadSample(tid, name, stat.state, waiting_on=_waiting_on(directory, stat.state))
    run = wait = None
    if before is not None and before.run_ns is not None and before.wait_ns is not None and elapsed_ns > 0.0:
        run = min(100.0, max(0.0, 100.0 * (times[0] - before.run_ns) / elapsed_ns))
        wait = min(100.0, max(0.0, 100.0 * (times[1] - before.wait_ns) / elapsed_ns))
    return ThreadSample(tid, name, stat.state, run, wait, _waiting_on(directory, stat.state), *times)


def _times(directory: str) -> tuple[int, int] | None:
    try:
        return parse_schedstat(read_small(f"{directory}/schedstat"))
    except OSError:
        return None


def _waiting_on(directory: str, state: str) -> str | None:
    if state not in ("S", "D"):
        return None
    try:
        return wait_class(read_small(f"{directory}/wchan").decode("ascii", "replace"))
    except OSError:
        return None


class ThreadWatch:
    """Reads threads and sockets of one process when asked to, and keeps the newest list."""

    def __init__(
        self, pid: int, starttime: int | None, proc: str = "/proc", clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._pid, self._starttime = pid, starttime
        self._proc = proc
        self._clock = clock
        self._asked = threading.Event()
        self._closed = False
        self.latest: ThreadList | None = None
        """The newest list; None until the first is read."""
        self._thread = threading.Thread(target=self._run, name="gputop-threads", daemon=True)
        self._thread.start()

    def ask(self) -> None:
        """Read again, unless it was read a moment ago. Returns at once."""
        if self.latest is None or self._clock() - self.latest.t >= LEAST_S:
            self._asked.set()

    def close(self) -> None:
        """End the thread."""
        self._closed = True
        self._asked.set()

    def _run(self) -> None:
        while True:
            self._asked.wait()
            self._asked.clear()
            if self._closed:
                return
            threads = read_threads(self._pid, self._starttime, self.latest, self._clock(), self._proc)
            if threads.reason is None:
                before = None if self.latest is None else self.latest.sockets
                threads = replace(threads, sockets=read_sockets(self._pid, before, self._clock(), self._proc))
            self.latest = threads
