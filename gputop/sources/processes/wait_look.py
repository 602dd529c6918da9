"""Wait states of a thread, from its kernel wait channel.

The wait channel (/proc/PID/wchan) names the kernel function in which a thread sleeps. It is the only way from outside
to distinguish a worker that waits for the network from an idle one. If the name is ambiguous, the system call and its
file decide between network and disk. Everything is read from the kernel's memory; the process's files are not accessed.

The names are from Linux 4.18 to 6.18; a compiler's suffix (``.constprop.0``, ``.isra.0``) is ignored. An ambiguous wait
is ``other``: a wrong class would accuse a healthy loader. Two limits: ``time.sleep`` of Python up to 3.10 is a select
and shows as ``queue``; an idle ``multiprocessing.Pool`` worker reads its task pipe and shows as ``pipe``.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from contextlib import suppress
from functools import lru_cache

from msgspec import Struct

from gputop.model.quantity import clean_text
from gputop.model.secrets import masked_text
from gputop.sources.patient_reader import PatientReader
from gputop.sources.procfs import ProcessFiles, Stat, io_delay_ticks, parse_stat, read_file, read_small

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
_BY_SOCKET = ("wait_woken", "sk_wait_data", "__skb_wait_for_more", "__skb_recv_", "skb_recv_datagram")
"""Functions in which sockets of any family sleep, and terminals as well: only the file shows which."""
_NEVER_DISK = (
    *("nv", "_nv", "uvm_", "rm_", "wait_for_vfork", "kernel_clone", "_do_fork", "rwsem_", "mutex_", "__mutex_"),
    *("down_", "shrink_", "reclaim_", "try_to_free", "congestion_wait", "throttle_", "mem_cgroup_", "do_signal_stop"),
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
    name = channel.partition(".")[0]
    if not name or name == "0":
        return None
    by_beginning = (kind for kind, beginnings in _BEGINNINGS.items() if name.startswith(beginnings))
    return _EXACT.get(name) or next(by_beginning, "other")


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


# Mounts of open files, by mount ids of /proc/PID/fdinfo and /proc/PID/mountinfo.
#
# The kernel's memory also names a mount that hangs (an unreachable file server, a stopped FUSE server); access to a
# path on such a mount would block gputop.

NETWORKED = ("nfs", "cifs", "smb3", "ceph", "lustre", "fuse", "9p", "beegfs", "gpfs", "glusterfs", "afs", "virtiofs")
"""Prefixes of the types of networked file systems."""
KEPT_S = 30.0
MOST_KEPT = 256


class Mount(Struct, frozen=True):
    """Mount point and type of a file system."""

    path: str
    kind: str

    @property
    def is_networked(self) -> bool:
        """Whether its data come from a server."""
        return self.kind.startswith(NETWORKED)


class Mounts:
    """Cache of the mounts that processes see.

    Used by one thread at a time.
    """

    def __init__(self, proc: str) -> None:
        self._proc = proc
        self._mounts_of: dict[int, tuple[float, dict[int, Mount]]] = {}

    def of(self, now: float, pid: int, descriptor: int) -> Mount | None:
        """Return the mount of an open file; None if unknown.

        ``now`` is monotonic s.
        """
        try:
            text = read_small(f"{self._proc}/{pid}/fdinfo/{descriptor}")
            number = int(text[text.index(b"mnt_id:") + 7 :].split(None, 1)[0])
        except (OSError, ValueError, IndexError):
            return None
        cached = self._mounts_of.get(pid)
        if cached is None or not 0.0 <= now - cached[0] < KEPT_S:
            if len(self._mounts_of) >= MOST_KEPT:
                self._mounts_of.clear()
            cached = self._mounts_of[pid] = now, self._read(pid)
        return cached[1].get(number)

    def forget(self, pids: Collection[int]) -> None:
        """Forget exited processes."""
        for pid in pids:
            self._mounts_of.pop(pid, None)

    def _read(self, pid: int) -> dict[int, Mount]:
        try:
            lines = read_file(f"{self._proc}/{pid}/mountinfo").decode("utf-8", "replace").splitlines()
        except OSError:
            return {}
        mounts = {}
        for line in lines:
            # proc(5): id, parent, device, root, mount point, options, optional fields up to "-", type.
            before, _, after = line.partition(" - ")
            fields, kind = before.split(" "), after.split(" ", 1)[0]
            if len(fields) > 4 and fields[0].isdigit():
                mounts[int(fields[0])] = Mount(clean_text(masked_text(fields[4].replace("\\040", " "))), kind)
        return mounts


# File or socket of a waiting system call.

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


def call_of(folder: str) -> tuple[int, ...] | None:
    """Return (number, six arguments) of a sleeping thread's system call.

    The source is ``folder``/syscall. None if it is not readable (this takes the right to trace), or if the thread is in
    no system call.
    """
    try:
        fields = read_small(f"{folder}/syscall").split()
        return (int(fields[0]), *(int(field, 16) for field in fields[1:7])) if len(fields) > 6 else None
    except (OSError, ValueError):
        return None


def waited_call(folder: str) -> tuple[int, int] | None:
    """Return (number, descriptor) of a sleeping thread's system call.

    The first argument is taken as the descriptor: call it only if the wait channel implies such a call. None if the
    argument cannot be a descriptor.
    """
    call = call_of(folder)
    return (call[0], call[1]) if call is not None and call[0] >= 0 and 0 <= call[1] < 1 << 20 else None


SAVING = {
    # write, pwrite64, writev, pwritev, pwritev2, fsync, fdatasync, close, ftruncate, fallocate: asm/unistd.h.
    "x86_64": frozenset((1, 18, 20, 296, 328, 74, 75, 3, 77, 285)),
    "aarch64": frozenset((64, 68, 66, 70, 287, 82, 83, 57, 46, 47)),
}.get(os.uname().machine, frozenset())
"""Numbers of the system calls that write a file, or wait until it is written."""


def target_of(proc: str, pid: int, descriptor: int) -> str:
    """Return the link text of a process's descriptor.

    Empty if it is not readable. The link is never followed: it may lead to a file system that does not answer.
    """
    try:
        return os.readlink(f"{proc}/{pid}/fd/{descriptor}")
    except OSError:
        return ""


def inode_in(target: str, kind: str) -> int | None:
    """Return the inode in ``pipe:[123]`` or ``socket:[123]``.

    None for any other link.
    """
    number = target[len(kind) + 2 : -1]
    return int(number) if target.startswith(f"{kind}:[") and number.isdigit() else None


# One sample: the state, the system call with its first argument, the link of that descriptor.

RAN, BLOCKED, WRITE, STOPPED, LOCAL, UNREAD = "run", "blocked", "write", "stopped", "local", "unread"
"""Classes of a sample in addition to ``wait_class``: on a core or queued, state D of no known class, writing to a full
pipe, stopped, a local socket with another process as its peer, asleep without a channel name."""


HOLDS_S = 2.0
"""Lifetime of a resolved file while the thread sleeps in the same function."""
LONG_HOLDS_S = 10.0
"""Lifetime of a resolved socket."""
PRESSURE_STANDS_PCT = 10.0
"""Least share of the last 10 s with an I/O wait on this machine, percent, for which state D may be a disk wait
[judged]."""
MOST_KNOWN = 4096


class ThreadWait(Struct, frozen=True):
    """Wait state of a thread in one sample.

    ``mount`` is the mount point of the awaited networked file system.
    """

    wait: str
    channel: str = ""
    mount: str | None = None
    saves: bool = False
    """Whether the thread writes a file, or waits until it is written."""


SEEN_RUNNING, SEEN_STOPPED = ThreadWait(RAN), ThreadWait(STOPPED)
_WORDS = {WRITE: "queue", BLOCKED: "other", "socket": "other", STOPPED: "other", LOCAL: "other"}


def word_of(wait: str) -> str:
    """Return the class as ``waiting_on`` shows it.

    One of queue, network, pipe, disk, sleep, lock, gpu or other.
    """
    return _WORDS.get(wait, wait)


@lru_cache(maxsize=1024)
def _wait_by_name(channel: str) -> ThreadWait | None:
    """Return the wait state if the channel name suffices.

    None if only the file can resolve it.
    """
    wait = wait_class(channel)
    if wait is None:
        return SEEN_RUNNING
    if channel.partition(".")[0] in _WRITES_A_PIPE:
        return ThreadWait(WRITE, channel)
    if channel.startswith(_STOPPED_IN):
        return ThreadWait(STOPPED, channel)
    if channel.startswith(_LOCAL_SOCKET):
        return ThreadWait(LOCAL, channel)
    if needs_proof(channel) or wait in ("disk", "network") or (wait == "other" and may_be_disk(channel)):
        return None
    return ThreadWait(wait, channel)


class WaitLook:
    """Classifies the waits of threads.

    Used by one thread at a time.
    """

    def __init__(self, proc: str) -> None:
        self._proc = proc
        self._patient = PatientReader(protocol_of)
        self.mounts = Mounts(proc)
        self._cache: dict[str, tuple[float, ThreadWait]] = {}
        """Latest wait resolved by its file, by the thread's folder."""
        self._io_ticks: dict[str, int] = {}
        """Block-I/O delay in the latest sample with state D of no known class, by the thread's folder."""

    def close(self) -> None:
        """End the thread that reads the protocols of sockets."""
        self._patient.close()

    def forget(self, pids: Collection[int]) -> None:
        """Forget exited processes."""
        ended, begin = {str(pid) for pid in pids}, len(self._proc) + 1
        for kept in (self._cache, self._io_ticks):
            for folder in [folder for folder in kept if folder[begin:].partition("/")[0] in ended]:
                del kept[folder]
        self.mounts.forget(pids)

    def thread(self, now: float, pid: int, folder: str) -> tuple[Stat, ThreadWait] | None:
        """Return a thread's counters and wait state.

        The wait state takes the thread's scheduler state into account. None once the thread has ended.
        """
        try:
            stat = parse_stat(read_small(f"{folder}/stat"))
            if stat is None or stat.state in "ZX":
                return None
            if stat.state == "R":
                return stat, SEEN_RUNNING
            wait = self.at(now, pid, folder, read_small(f"{folder}/wchan").decode("ascii", "replace"))
        except OSError:
            return None
        return stat, ThreadWait(BLOCKED if stat.state == "D" else UNREAD) if wait.wait == RAN else wait

    def at(self, now: float, pid: int, folder: str, channel: str, files: ProcessFiles | None = None) -> ThreadWait:
        """Return the wait state of a thread with this wait channel.

        ``folder`` is its own below /proc, ``files`` its open files. ``now`` is in monotonic seconds.
        """
        wait = _wait_by_name(channel)
        if wait is not None:
            return wait
        cached = self._cache.get(folder)
        if cached is not None and cached[1].channel == channel:
            holds_s = LONG_HOLDS_S if needs_proof(channel) else HOLDS_S
            if 0.0 <= now - cached[0] < holds_s:
                return cached[1]
        known = wait_class(channel) or "other"
        if known == "other" and not needs_proof(channel):
            return self._unknown(now, pid, folder, channel, files)
        call = waited_call(folder)
        if needs_proof(channel):
            looked = self._in_a_socket(pid, channel, call)
        else:
            looked = self._on_a_mount(now, pid, channel, known, call)
        if call is not None and looked.wait != "socket":
            if len(self._cache) >= MOST_KNOWN:
                self._cache.clear()
            self._cache[folder] = now, looked
        return looked

    def _in_a_socket(self, pid: int, channel: str, call: tuple[int, int] | None) -> ThreadWait:
        if call is None:
            return ThreadWait("socket", channel)
        protocol = None
        if inode_in(target_of(self._proc, pid, call[1]), "socket") is not None:
            # The descriptor was a socket a moment ago: if it now leads to a file that blocks, only the patient reader's
            # thread hangs.
            protocol = self._patient.read(f"{self._proc}/{pid}/fd/{call[1]}")
        return ThreadWait("network" if is_internet(protocol or b"") else "other", channel)

    def _on_a_mount(self, now: float, pid: int, channel: str, wait: str, call: tuple[int, int] | None) -> ThreadWait:
        """Return the wait state of a thread in file I/O.

        A page read from a networked file system shows the same wait channel as one read from a disk.
        """
        if call is None:
            return ThreadWait(wait, channel)
        mount = self.mounts.of(now, pid, call[1])
        saves = call[0] in SAVING
        if mount is None or not mount.is_networked:
            return ThreadWait(wait, channel, saves=saves and wait != "network")
        return ThreadWait("network", channel, mount=mount.path, saves=saves)

    def _unknown(self, now: float, pid: int, folder: str, channel: str, files: ProcessFiles | None) -> ThreadWait:
        """Resolve state D in a function of no known class.

        A networked mount is a network wait; a disk wait needs evidence of block I/O.
        """
        try:
            data = read_small(f"{folder}/stat") if files is None else files.read("stat")
        except OSError:
            return ThreadWait("other", channel)
        stat = parse_stat(data)
        if stat is None or stat.state != "D":
            return ThreadWait("other", channel)
        looked = self._on_a_mount(now, pid, channel, BLOCKED, waited_call(folder))
        if looked.wait == BLOCKED and (self._waited_for_io(folder, data) or self._somebody_waits_for_io()):
            return ThreadWait("disk", channel, saves=looked.saves)
        return looked

    def _waited_for_io(self, folder: str, stat: bytes) -> bool:
        """Return whether the thread's block-I/O delay has grown.

        The comparison is with its previous sample. Few kernels count the delay.
        """
        ticks = io_delay_ticks(stat)
        before = self._io_ticks.get(folder)
        if len(self._io_ticks) >= MOST_KNOWN:
            self._io_ticks.clear()
        self._io_ticks[folder] = ticks
        return before is not None and ticks > before

    def _somebody_waits_for_io(self) -> bool:
        """Return whether any task of this machine waits for block I/O.

        The task waits now, or tasks waited for a good part of the last 10 s. A thread may wait for another one that
        writes a file system's log, which alone is counted as waiting for I/O.
        """
        with suppress(OSError, ValueError, IndexError):
            text = read_small(f"{self._proc}/stat", 1 << 20)
            if int(text[text.index(b"procs_blocked") + 13 :].split(None, 1)[0]) > 0:
                return True
        with suppress(OSError, ValueError, IndexError):
            text = read_small(f"{self._proc}/pressure/io")
            return float(text[text.index(b"avg10=") + 6 :].split(None, 1)[0]) >= PRESSURE_STANDS_PCT
        return False
