"""Wait states of a thread, from its kernel wait channel, and the records that carry them.

The wait channel (/proc/PID/wchan) names the kernel function in which a thread sleeps. It is the only way from outside
to distinguish a worker that waits for the network from an idle one. If the name is ambiguous, the system call and its
file decide between network and disk. Everything is read from the kernel's memory; the process's files are not accessed.

The names are from Linux 4.18 to 6.18; a compiler's suffix (``.constprop.0``, ``.isra.0``) is ignored. An ambiguous wait
is ``other``: a wrong class would accuse a healthy loader. Two limits: ``time.sleep`` of Python up to 3.10 is a select
and shows as ``queue``; an idle ``multiprocessing.Pool`` worker reads its task pipe and shows as ``pipe``.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import lru_cache

from msgspec import Struct

from gputop.model.feeders import Via
from gputop.sources.patient_reader import PatientReader
from gputop.sources.processes.look.system_calls import (
    SAVING,
    FileCall,
    inode_in,
    link_of,
    waited_call,
)
from gputop.sources.processes.tree.open_files import Mounts
from gputop.sources.processes.tree.process_facts import RunRank
from gputop.sources.procfs import Stat, parse_stat, read_small, stat_of

# A table of names is never complete, and some functions serve several kinds of files.
_NAMES = {
    # An idle dataloader worker polls the pipe of its index queue; a full result pipe waits for the consumer. An event
    # loop, a server without a connection, and a server of a file system in user space wait for a request.
    "queue": """do_poll do_sys_poll do_select core_sys_select ep_poll do_epoll_wait inet_csk_accept pipe_write
        anon_pipe_write fifo_pipe_write fuse_dev_do_read""",
    # The peer of a local socket is another process of this machine, whose activity is unknown here.
    "other": "unix_stream_read_generic unix_stream_data_wait unix_wait_for_peer",
    # FUSE under training data is nearly always a network file system (gcsfuse, s3fs, JuiceFS, mountpoint-s3).
    "network": """sk_stream_wait_memory sk_stream_wait_connect inet_stream_connect inet_wait_for_connect
        request_wait_answer cl_sync_io_wait p9_client_rpc p9_virtio_request wait_for_response""",
    "pipe": "pipe_read anon_pipe_read fifo_pipe_read pipe_wait wait_for_partner fifo_open",
    "sleep": "hrtimer_nanosleep do_nanosleep common_nsleep",
    "lock": "do_semtimedop locks_lock_inode_wait flock_lock_inode_wait",
    "disk": """io_schedule io_schedule_timeout bit_wait_io wait_on_buffer __wait_on_buffer __lock_page
        __lock_page_killable __folio_lock __folio_lock_killable __folio_lock_or_retry __iomap_dio_rw
        folio_wait_writeback submit_bio_wait balance_dirty_pages rq_qos_wait wbt_wait dio_await_one read_events""",
}
_EXACT = {name: kind for kind, names in _NAMES.items() for name in names.split()}
_BEGINNINGS = {
    "queue": ("poll_schedule_timeout",),
    "network": ("tcp_", "fuse_", "__fuse_", "rpc_", "nfs", "ceph_", "cifs_", "ptlrpc_", "osc_", "smb2_"),
    "lock": ("futex_", "do_futex", "rwsem_", "mutex_", "__mutex_", "down_"),
    "disk": ("folio_wait", "wait_on_page", "filemap_", "blk", "jbd2_", "ext4_", "xfs_", "btrfs_", "iomap_", "md_",
             "raid5_"),
    "gpu": ("nvidia", "uvm_", "nv_", "rm_", "_nv"),
}  # fmt: skip
_BY_SOCKET = (
    "wait_woken",
    "sk_wait_data",
    "__skb_wait_for_more",
    "__skb_recv_",
    "skb_recv_datagram",
)
"""Functions in which sockets of any family sleep, and terminals as well: only the file shows which."""
_NEVER_DISK = (
    *(
        "nv",
        "_nv",
        "uvm_",
        "rm_",
        "wait_for_vfork",
        "kernel_clone",
        "_do_fork",
        "rwsem_",
        "mutex_",
        "__mutex_",
    ),
    *(
        "down_",
        "shrink_",
        "reclaim_",
        "try_to_free",
        "congestion_wait",
        "throttle_",
        "mem_cgroup_",
        "do_signal_stop",
    ),
    *("ptrace_stop", "do_exit", "futex_", "zap_pid_ns", "synchronize_rcu", "exit_mm", "coredump_"),
)
"""State D in these functions is no disk wait: a driver, a child between fork and exec, another thread's lock, short
memory."""
_WRITES_A_PIPE = ("pipe_write", "anon_pipe_write", "fifo_pipe_write")
_STOPPED_IN = ("do_signal_stop", "ptrace_stop", "do_jobctl_trap")
_LOCAL_SOCKET = ("unix_stream_read_generic", "unix_stream_data_wait")


@lru_cache(maxsize=1024)
def wait_class(channel: str) -> str | None:
    """Return the class of a wait channel.

    One of ``queue network pipe disk sleep lock gpu other``; None without a name ("0" or empty).
    """
    name = _without_suffix(channel)
    if not name or name == "0":
        return None
    if name in _EXACT:
        return _EXACT[name]
    for kind, beginnings in _BEGINNINGS.items():
        if name.startswith(beginnings):
            return kind
    return "other"


def _without_suffix(channel: str) -> str:
    """Return a function's name without what the compiler added to it."""
    name, _, _ = channel.partition(".")
    return name


def needs_proof(channel: str) -> bool:
    """Return whether only the file can prove a network wait."""
    return channel.startswith(_BY_SOCKET)


def may_be_disk(channel: str) -> bool:
    """Return whether state D may be a disk wait.

    The wait channel is a function of no known class.
    """
    return not channel.startswith(_NEVER_DISK)


def waits_for_child(channel: str) -> bool:
    """Return whether a wait channel is a wait for a child's end."""
    return channel.startswith("do_wait")


_INTERNET = (b"TCP", b"UDP", b"MPTCP", b"SCTP")


def protocol_of(path: str) -> bytes:
    """Return the protocol name of a socket, by /proc/PID/fd.

    The name is the attribute ``system.sockprotoname`` (net/socket.c). Raises OSError for any other file. The link is
    followed, so a file on a hanging file system may block the caller.
    """
    return os.getxattr(path, "system.sockprotoname")


def is_internet(protocol: bytes) -> bool:
    """Return whether a socket protocol is an internet protocol."""
    return protocol.rstrip(b"\0").removesuffix(b"v6") in _INTERNET


RAN, BLOCKED, WRITE, STOPPED, LOCAL, UNREAD = (
    "run",
    "blocked",
    "write",
    "stopped",
    "local",
    "unread",
)
"""Kinds of states in addition to ``wait_class``: on a core or queued, state D of no known class, writing to a full
pipe, stopped, a local socket with another process as its peer, asleep without a channel name."""
MOST_KNOWN = 4096


class WaitState(Struct, frozen=True, gc=False):
    """State of a thread in one sample.

    ``path`` is the mount point of the awaited file. ``saves``: the thread writes a file, or waits until it is written.
    ``inode`` is that of the awaited socket. All are None or False if unknown.
    """

    kind: str
    channel: str = ""
    path: str | None = None
    saves: bool = False
    inode: int | None = None

    @property
    def mount(self) -> str | None:
        """Mount point of the awaited networked file system, or None."""
        return self.path if self.kind == "network" else None


INSIDE = ("lock", "queue", "sleep", "other", LOCAL)
"""Waits of a main thread that its own process's threads may cause."""


class WaitTarget(Struct, frozen=True, gc=False):
    """Wait target of a thread, see ``WaitEnd``, and its activity.

    ``written``: the named processes were seen to write. ``activity`` is the state of a process at the other end, or of
    its own target; None if the wait is the thread's own. ``evidence`` says what resolved it, ``active_pid`` which
    process it is; None if that is not on this machine or not known.
    """

    via: Via
    pids: tuple[int, ...] = ()
    detail: str = ""
    written: bool = False
    is_only: bool = False
    """The poll covers a single connection, as with a timeout on a socket: nothing else can end the wait."""
    activity: WaitState | None = None
    evidence: str | None = None
    active_pid: int | None = None


class WaitObservation(Struct, frozen=True, gc=False):
    """State and wait target of one thread at one moment.

    ``t`` is monotonic s. Observations of a process's other threads at the same moment follow the main thread's, and
    have a ``name``.
    """

    t: float
    pid: int
    tid: int
    state: WaitState
    target: WaitTarget | None = None
    name: str = ""


class Job(Struct, frozen=True):
    """Possible wait targets: the other processes of one GPU process.

    ``loaders`` are named as loaders; if PyTorch's workers are among them, only these. ``threads`` are the tids of the
    GPU process that could delay its main thread.
    """

    pids: tuple[int, ...] = ()
    loaders: frozenset[int] = frozenset()
    threads: Sequence[str] = ()
    root: int | None = None
    """The GPU process, if the wait of another process is followed."""
    rank: RunRank | None = None
    """The GPU process's rank in a run of several."""
    is_rank: bool = False
    """Whether its threads or its environment show that it is one of several ranks."""
    torch: frozenset[int] = frozenset()
    """Worker processes of PyTorch's DataLoader."""
    absent: str = ""
    """Missing ranks, in words."""
    backward: Sequence[str] = ()
    """Threads in which the GPU process computes gradients: its main thread waits for them by a lock."""


@lru_cache(maxsize=1024)
def _state_by_name(channel: str) -> WaitState | None:
    """Return the state if the channel name suffices.

    None if only the file can resolve it.
    """
    kind = wait_class(channel)
    if kind is None:
        return WaitState(UNREAD)
    if _without_suffix(channel) in _WRITES_A_PIPE:
        return WaitState(WRITE, channel)
    if channel.startswith(_STOPPED_IN):
        return WaitState(STOPPED, channel)
    if channel.startswith(_LOCAL_SOCKET):
        return WaitState(LOCAL, channel)
    if needs_proof(channel) or kind in ("disk", "network"):
        return None
    if kind == "other" and may_be_disk(channel):
        return None
    return WaitState(kind, channel)


class WaitClassifier:
    """Classifies the waits of threads.

    Used by one thread at a time.
    """

    def __init__(self, proc: str) -> None:
        self._proc = proc
        self._patient = PatientReader(protocol_of)
        self._mounts = Mounts(proc)
        self._protocols: dict[int, bytes] = {}
        """Protocols by inode: asking for one takes a second thread."""

    def close(self) -> None:
        """End the thread that reads the protocols of sockets."""
        self._patient.close()

    def classify_thread(self, now: float, pid: int, folder: str) -> tuple[Stat, WaitState] | None:
        """Return a thread's counters and state; None once it has ended."""
        try:
            data = read_small(f"{folder}/stat")
            stat = parse_stat(data)
            if stat is None or stat.state in "ZX":
                return None
            if stat.state == "R":
                return stat, WaitState(RAN)
            channel = read_small(f"{folder}/wchan").decode("ascii", "replace")
        except OSError:
            return None
        if stat.state in "Tt":
            return stat, WaitState(STOPPED)
        state = self.classify(now, pid, folder, channel)
        return stat, WaitState(BLOCKED) if state.kind == UNREAD and stat.state == "D" else state

    def classify(self, now: float, pid: int, folder: str, channel: str) -> WaitState:
        """Return the state of a sleeping thread with this wait channel.

        ``folder`` is the thread's own below /proc. ``now`` is in monotonic seconds.
        """
        state = _state_by_name(channel)
        if state is not None:
            return state
        if needs_proof(channel):
            return self._in_a_socket(pid, channel, waited_call(folder))
        kind = wait_class(channel) or "other"
        if kind == "other":
            # A function of no known class: only state D may be a disk.
            stat = stat_of(folder)
            if stat is None or stat.state != "D":
                return WaitState("other", channel)
            kind = BLOCKED
        return self._on_a_file(now, pid, channel, kind, waited_call(folder))

    def _in_a_socket(self, pid: int, channel: str, call: FileCall | None) -> WaitState:
        if call is None:
            return WaitState("socket", channel)
        inode = inode_in(link_of(self._proc, pid, call.descriptor), "socket")
        if inode is not None and inode not in self._protocols:
            if len(self._protocols) >= MOST_KNOWN:
                self._protocols.clear()
            # The descriptor was a socket a moment ago: if it now leads to a file that blocks, only the patient reader's
            # thread hangs.
            protocol = self._patient.read(f"{self._proc}/{pid}/fd/{call.descriptor}")
            if protocol:
                self._protocols[inode] = protocol
        kind = "network" if is_internet(self._protocols.get(inode or 0, b"")) else "other"
        return WaitState(kind, channel, inode=inode)

    def _on_a_file(
        self, now: float, pid: int, channel: str, kind: str, call: FileCall | None
    ) -> WaitState:
        """Return the state of a thread in file or socket I/O.

        A page read from a networked file system shows the same wait channel as one read from a disk.
        """
        if call is None:
            return WaitState(kind, channel)
        mount = self._mounts.mount_of(now, pid, call.descriptor)
        saves = call.number in SAVING
        if mount is not None and mount.is_networked:
            return WaitState("network", channel, mount.path, saves)
        if kind == "network":
            return WaitState(
                kind, channel, inode=inode_in(link_of(self._proc, pid, call.descriptor), "socket")
            )
        return WaitState(kind, channel, None if mount is None else mount.path, saves)
