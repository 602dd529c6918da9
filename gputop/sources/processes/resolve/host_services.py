"""Local services that a job calls over TCP, found by listening socket.

A tokenizer, a feature store or a reward model often runs on the job's host, related to it only by a connection. A
service is named while it computes; a wait for an idle one counts as network.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from msgspec import Struct

from gputop.model.command_facts import BESIDE, why_words
from gputop.sources.processes.resolve.socket_tables import PeerLookup
from gputop.sources.processes.tree.open_files import held
from gputop.sources.processes.tree.process_table import ProcessTable
from gputop.sources.processes.tree.process_tree import ProcessPlace
from gputop.sources.procfs import names_in, stat_of, times_of

KEPT_S = 30.0
"""A service without waiting jobs is dropped after this time."""
COMPUTES, RESTS = 0.5, 0.15
"""A service computes from the first value on, and stops below the second, in cores used or queued for [judged]."""
MOST_SERVICES, MOST_THREADS = 8, 64
MOST_READ = 512
"""Limit of processes whose open files one search reads, some 30 ms; a larger machine takes several searches."""
LEAST_S = 1.0
"""Shortest interval for a CPU rate."""
AGAIN_S = 30.0
"""Interval before a search without a result is repeated."""
OTHER_END = "at the other end of a connection, on this host"

Address = tuple[bytes, int]


class _Counted(Struct, frozen=True):
    """Runnable time of all threads until a reading at ``t``, in nanoseconds."""

    t: float
    runnable_ns: int


class _Service(Struct):
    """One address for which a job waits, and its listener."""

    root: int
    asked_at: float
    peer: int
    pid: int | None = None
    starttime: int = 0
    searched: set[tuple[int, int]] = set()
    """Processes without the socket, by pid and start time."""
    searched_at: float = float("-inf")
    counted: _Counted | None = None
    computes: bool = False


class HostServices:
    """Search for local services that compute.

    Used under the lock of the wait sampler.
    """

    def __init__(self, proc: str) -> None:
        self._proc = proc
        self._services: dict[Address, _Service] = {}

    def note_wait(self, now: float, address: Address, peer: int, root: int) -> None:
        """Note that a job waits at an address of this host.

        ``peer`` is the inode of the other end, ``root`` the job's GPU process.
        """
        service = self._services.get(address)
        if service is not None:
            service.root, service.asked_at, service.peer = root, now, peer
        elif len(self._services) < MOST_SERVICES:
            self._services[address] = _Service(root, now, peer)

    def note_wait_again(self, now: float, address: Address) -> None:
        """Keep a service for which a job of its tree still waits."""
        if address in self._services:
            self._services[address].asked_at = now

    def computing(
        self, now: float, table: ProcessTable, placed: Mapping[int, ProcessPlace], peers: PeerLookup
    ) -> dict[int, ProcessPlace]:
        """Return places of computing services, each related to a waiting job."""
        self._services = {
            key: found for key, found in self._services.items() if now - found.asked_at < KEPT_S
        }
        places: dict[int, ProcessPlace] = {}
        for (_, port), service in self._services.items():
            root = placed.get(service.root)
            if root is None or root.role != "gpu":
                continue
            if service.pid is None:
                self._search(now, service, peers.listener(port) or service.peer, table, placed)
            if service.pid is None or service.pid in placed or not self._computes(now, service):
                continue
            stat = table.get(service.pid)
            if stat is not None and stat.starttime == service.starttime:
                why = why_words(BESIDE, OTHER_END)
                places[service.pid] = ProcessPlace(
                    stat, service.root, root.gpu, "helper", None, why, may_feed=True, rule=BESIDE
                )
        return places

    def _search(
        self,
        now: float,
        service: _Service,
        inode: int,
        table: ProcessTable,
        placed: Mapping[int, ProcessPlace],
    ) -> None:
        if now - service.searched_at < AGAIN_S:
            return
        left = MOST_READ
        for pid, stat in table.items():
            if pid in placed or (pid, stat.starttime) in service.searched or pid == os.getpid():
                continue
            if not left:
                return
            left -= 1
            mine = held(self._proc, pid)
            if mine is not None and inode in mine.sockets:
                service.pid, service.starttime = pid, stat.starttime
                return
            service.searched.add((pid, stat.starttime))
        # No process has the socket, or its open files are not readable.
        service.searched_at, service.searched = now, set()

    def _computes(self, now: float, service: _Service) -> bool:
        """Return whether a service uses a good part of a core.

        An exited service is dropped.
        """
        stat = stat_of(f"{self._proc}/{service.pid}")
        if stat is None or stat.starttime != service.starttime:
            service.pid, service.counted, service.computes = None, None, False
            return False
        before = service.counted
        if before is not None and 0.0 <= now - before.t < LEAST_S:
            return service.computes
        counted = service.counted = _Counted(now, self._runnable_ns(service.pid))
        if before is not None and now > before.t:
            cores = (counted.runnable_ns - before.runnable_ns) / 1e9 / (now - before.t)
            service.computes = cores >= (RESTS if service.computes else COMPUTES)
        return service.computes

    def _runnable_ns(self, pid: int | None) -> int:
        """Return the runnable time of a process's threads, in nanoseconds.

        A thread counts as queued for no longer than it ran: on a crowded machine the many threads of a service that
        rests wake for a moment and then queue for ten times as long.
        """
        folder = f"{self._proc}/{pid}/task"
        runnable_ns = 0
        for tid in names_in(folder)[:MOST_THREADS]:
            run_ns, queued_ns = times_of(f"{folder}/{tid}")
            runnable_ns += run_ns + min(run_ns, queued_ns)
        return runnable_ns
