"""Conclusions from a process's TCP sockets: it fetches over the network, or serves requests.

A process that polls and receives data waits for the network; one that listens waits for demand. The socket table is
dumped every few seconds at most, and open files are read in turns.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from gputop.sources.processes.resolve.open_files import DENIED_FDS, held, in_another_network
from gputop.sources.processes.resolve.socket_tables import DUMP_S, PeerLookup, SocketTables

LEAST_RX = 1000.0
"""Least rate that counts as data, in bytes per second: heartbeats of a job's own connections are below [judged]."""
FIRST_DUMP_S = 1.0
FIRST_LOOKS = 6
"""Number of readings in quick succession at first, so that a verdict need not wait for them."""
KEPT_S = 30.0
MOST_ASKED = 16
"""Limit of processes whose open files are read for one dump."""
BARE_LOOKS = 3
"""Consecutive readings without any TCP socket after which a process fetches nothing over TCP."""
FRESH_LOOKS, MOST_FRESH = 2, 4
"""Recent readings with a new connection after which a process is taken to open one for each item, and their limit."""
ENOUGH_LOOKS = 4
"""Readings of the sockets after which missing evidence is conclusive."""
OTHER_NETWORK = "its sockets are in another network namespace"


class SocketActivity(Struct, frozen=True):
    """State of one process's sockets at one reading.

    ``t`` is monotonic s. ``rx_bytes_per_s`` is None until two readings, or with a ``reason``. ``fresh`` counts recent
    readings with a new connection, ``bare`` consecutive ones without any TCP socket, own or inherited.
    """

    t: float
    rx_bytes_per_s: float | None = None
    listens: bool = False
    reason: str | None = None
    fresh: int = 0
    bare: int = 0
    asks_root: bool = False
    """Whether the process is a client of its own GPU process: it then waits for the GPU's answer."""
    readings: int = 1
    received: Mapping[int, int] = {}
    """Received bytes of its own connections, by inode."""

    @property
    def is_bare(self) -> bool:
        """Whether the process surely fetches nothing over TCP."""
        return self.bare >= BARE_LOOKS

    @property
    def fetches(self) -> bool:
        """Whether received data or repeated connections prove a fetch."""
        return (self.rx_bytes_per_s or 0.0) >= LEAST_RX or self.fresh >= FRESH_LOOKS

    @property
    def is_conclusive(self) -> bool:
        """Whether the readings suffice to conclude from missing evidence."""
        return (
            self.is_bare or self.readings >= ENOUGH_LOOKS or self.reason is not None or self.fetches
        )


class SocketReader:
    """Reads the sockets of requested processes.

    ``read`` is cheap while no dump is due.
    """

    def __init__(self, proc: str, peers: PeerLookup) -> None:
        self._proc = proc
        self._peers = peers
        self._activity: dict[int, SocketActivity] = {}
        self._dumped_at = float("-inf")
        self.roots: dict[int, int] = {}
        """Requested processes, each with its GPU process, whose sockets its workers inherit."""

    def read(self, now: float) -> None:
        """Update some of the requested processes, if a dump is due."""
        roots = self.roots
        is_new = any(
            pid not in self._activity or self._activity[pid].readings < FIRST_LOOKS for pid in roots
        )
        if not roots or 0.0 <= now - self._dumped_at < 0.95 * (FIRST_DUMP_S if is_new else DUMP_S):
            return
        self._dumped_at = now
        tables = self._peers.dump(now)
        # Results of a process that is not requested are kept for a while: it may be requested again.
        self._activity = {
            pid: known
            for pid, known in self._activity.items()
            if pid in roots or now - known.t < KEPT_S
        }
        inherited: dict[int, frozenset[int]] = {}
        for pid in sorted(
            roots, key=lambda pid: self._activity[pid].t if pid in self._activity else -1.0
        )[:MOST_ASKED]:
            root = roots[pid]
            if root != pid and root not in inherited:
                parent = held(self._proc, root)
                inherited[root] = frozenset() if parent is None else parent.sockets
            before = self._activity.get(pid)
            self._activity[pid] = self._read(
                now, pid, inherited.get(root, frozenset()), tables, before
            )

    def forget(self, pid: int) -> None:
        """Forget an exited process."""
        self._activity.pop(pid, None)

    def activity(self, pid: int) -> SocketActivity | None:
        """Return the state of a process's sockets; None before the first reading."""
        return self._activity.get(pid)

    def bare_roots(self, least: int) -> set[int]:
        """Return GPU processes whose sampled loaders have no TCP socket.

        At least so many loaders were sampled; the others are assumed to have none either.
        """
        sampled: dict[int, list[bool]] = {}
        for pid, root in self.roots.items():
            known = self._activity.get(pid)
            if pid != root and known is not None:
                sampled.setdefault(root, []).append(known.is_bare)
        return {root for root, bare in sampled.items() if len(bare) >= least and all(bare)}

    def _read(
        self,
        now: float,
        pid: int,
        inherited: frozenset[int],
        tables: SocketTables,
        before: SocketActivity | None,
    ) -> SocketActivity:
        """Read the sockets of one process.

        ``inherited``: a forked worker also holds its parent's sockets, whose received bytes are not its own.
        """
        tcp, readings = tables.tcp, 1 if before is None else before.readings + 1
        if not tcp and tables.reason:
            return SocketActivity(now, reason=tables.reason, readings=readings)
        mine = held(self._proc, pid)
        if mine is None:
            return SocketActivity(now, reason=DENIED_FDS, readings=readings)
        own = mine.sockets - inherited
        sockets = {inode: tcp[inode] for inode in own if inode in tcp}
        listening = {socket.ends[0][1] for socket in sockets.values() if socket.listens}
        # Data received through a listening socket are requests: demand, not data.
        received = {
            inode: socket.received
            for inode, socket in sockets.items()
            if not socket.listens and not listening & {port for _, port in socket.ends}
        }
        is_hidden = bool(own) and not sockets and in_another_network(self._proc, pid)
        is_bare = not is_hidden and tcp.keys().isdisjoint(mine.sockets)
        serves = {
            tcp[inode].ends[0][1] for inode in inherited if inode in tcp and tcp[inode].listens
        }
        rate, fresh = None, 0
        if before is not None:
            new = sum(
                max(0, count - before.received.get(inode, 0)) for inode, count in received.items()
            )
            rate = new / (now - before.t) if now > before.t and not is_hidden else None
            opened = received.keys() - before.received.keys()
            # A process that opens a connection for each item has none between two of them.
            fresh = before.fresh + (1 if opened else -1 if received or not before.received else 0)
        return SocketActivity(
            t=now,
            rx_bytes_per_s=rate,
            listens=bool(listening),
            reason=OTHER_NETWORK if is_hidden else None,
            fresh=min(MOST_FRESH, max(0, fresh)),
            bare=(1 if before is None else before.bare + 1) if is_bare else 0,
            asks_root=any(socket.ends[1][1] in serves for socket in sockets.values()),
            readings=readings,
            received=received,
        )
