"""What a sleeping thread waits for, from the name of the kernel function that it sleeps in (/proc/PID/wchan).

The only way from outside to tell a worker that waits for the network from one that has nothing to do. The names are
those of Linux 4.18 to 6.18; a compiler's suffix (``.constprop.0``, ``.isra.0``) is ignored. What is ambiguous is
``other``: a wrong word here would accuse a healthy loader. Two limits: ``time.sleep`` of Python up to 3.10 is a select
and shows as ``queue``; an idle ``multiprocessing.Pool`` worker reads its task pipe and shows as ``pipe``.

A table of names is never complete, and some functions serve several kinds of files: ``needs_proof`` says which need a
second look (see ``wait_look``).
"""

from __future__ import annotations

from functools import lru_cache

_EXACT: dict[str, str] = {
    # An idle dataloader worker polls the pipe of its index queue; a full result pipe waits for the consumer.
    "do_poll": "queue",
    "do_sys_poll": "queue",
    "do_select": "queue",
    "core_sys_select": "queue",
    # An event loop, and a server waiting for a connection: both wait for a request.
    "ep_poll": "queue",
    "do_epoll_wait": "queue",
    "inet_csk_accept": "queue",
    "pipe_write": "queue",
    "anon_pipe_write": "queue",
    "fifo_pipe_write": "queue",
    # A local socket is another process of this machine: what it does is not seen here.
    "unix_stream_read_generic": "other",
    "unix_stream_data_wait": "other",
    "unix_wait_for_peer": "other",
    # A server of a file system in user space that has nothing to do.
    "fuse_dev_do_read": "queue",
    "sk_stream_wait_memory": "network",
    "sk_stream_wait_connect": "network",
    "inet_stream_connect": "network",
    "inet_wait_for_connect": "network",
    # FUSE under training data is nearly always a network file system (gcsfuse, s3fs, JuiceFS, mountpoint-s3).
    "request_wait_answer": "network",
    "cl_sync_io_wait": "network",
    "p9_client_rpc": "network",
    "p9_virtio_request": "network",
    "wait_for_response": "network",
    "pipe_read": "pipe",
    "anon_pipe_read": "pipe",
    "fifo_pipe_read": "pipe",
    "pipe_wait": "pipe",
    "wait_for_partner": "pipe",
    "fifo_open": "pipe",
    "hrtimer_nanosleep": "sleep",
    "do_nanosleep": "sleep",
    "common_nsleep": "sleep",
    "do_semtimedop": "lock",
    "locks_lock_inode_wait": "lock",
    "flock_lock_inode_wait": "lock",
    "io_schedule": "disk",
    "io_schedule_timeout": "disk",
    "bit_wait_io": "disk",
    "wait_on_buffer": "disk",
    "__wait_on_buffer": "disk",
    "__lock_page": "disk",
    "__lock_page_killable": "disk",
    "__folio_lock": "disk",
    "__folio_lock_killable": "disk",
    "__folio_lock_or_retry": "disk",
    "__iomap_dio_rw": "disk",
    "folio_wait_writeback": "disk",
    "submit_bio_wait": "disk",
    "balance_dirty_pages": "disk",
    "rq_qos_wait": "disk",
    "wbt_wait": "disk",
    "dio_await_one": "disk",
    "read_events": "disk",
}

_PREFIXES: tuple[tuple[str, str], ...] = (
    ("poll_schedule_timeout", "queue"),
    ("tcp_", "network"),
    ("fuse_", "network"),
    ("__fuse_", "network"),
    ("rpc_", "network"),
    ("nfs", "network"),
    ("ceph_", "network"),
    ("cifs_", "network"),
    ("ptlrpc_", "network"),
    ("osc_", "network"),
    ("smb2_", "network"),
    ("futex_", "lock"),
    ("do_futex", "lock"),
    ("rwsem_", "lock"),
    ("mutex_", "lock"),
    ("__mutex_", "lock"),
    ("down_", "lock"),
    ("folio_wait", "disk"),
    ("wait_on_page", "disk"),
    ("filemap_", "disk"),
    ("blk", "disk"),
    ("jbd2_", "disk"),
    ("ext4_", "disk"),
    ("xfs_", "disk"),
    ("btrfs_", "disk"),
    ("iomap_", "disk"),
    ("md_", "disk"),
    ("raid5_", "disk"),
    ("nvidia", "gpu"),
    ("uvm_", "gpu"),
    ("nv_", "gpu"),
    ("rm_", "gpu"),
    ("_nv", "gpu"),
)


_BY_SOCKET = ("wait_woken", "sk_wait_data", "__skb_wait_for_more", "__skb_recv_", "skb_recv_datagram")
"""Functions in which sockets of any family sleep, and terminals as well: only the file tells."""
_NEVER_DISK = (
    *("nv", "_nv", "uvm_", "rm_", "wait_for_vfork", "kernel_clone", "_do_fork", "rwsem_", "mutex_", "__mutex_"),
    *("down_", "shrink_", "reclaim_", "try_to_free", "congestion_wait", "throttle_", "mem_cgroup_", "do_signal_stop"),
    *("ptrace_stop", "do_exit", "futex_", "zap_pid_ns", "synchronize_rcu", "exit_mm", "coredump_"),
)
"""State D there is no disk: a driver, a child between fork and exec, another thread's lock, memory that is short."""


def reads_local_socket(channel: str) -> bool:
    """Whether a thread that sleeps there waits for data from another process of this machine."""
    return channel.startswith(("unix_stream_read_generic", "unix_stream_data_wait"))


def needs_proof(channel: str) -> bool:
    """Whether a thread that sleeps there waits for a network only if the file says so."""
    return channel.startswith(_BY_SOCKET)


def may_be_disk(channel: str) -> bool:
    """Whether state D in a function of no known class may be a wait for a disk."""
    return not channel.startswith(_NEVER_DISK)


def writes_a_pipe(channel: str) -> bool:
    """Whether a thread that sleeps there waits for the reader of a full pipe."""
    return channel.partition(".")[0] in ("pipe_write", "anon_pipe_write", "fifo_pipe_write")


def is_stopped(channel: str) -> bool:
    """Whether a thread was stopped there by a signal, or by a debugger."""
    return channel.startswith(("do_signal_stop", "ptrace_stop", "do_jobctl_trap"))


@lru_cache(maxsize=1024)
def waits_for_child(channel: str) -> bool:
    """Whether a thread that sleeps there waits for a child to end."""
    return channel.startswith("do_wait")


@lru_cache(maxsize=1024)
def wait_class(channel: str) -> str | None:
    """One of ``queue network pipe disk sleep lock gpu other``; None when the kernel does not say ("0" or empty)."""
    name = channel.partition(".")[0]
    if not name or name == "0":
        return None
    exact = _EXACT.get(name)
    if exact is not None:
        return exact
    for prefix, meaning in _PREFIXES:
        if name.startswith(prefix):
            return meaning
    return "other"
