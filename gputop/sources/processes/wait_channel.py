"""What a sleeping thread waits for, from the name of the kernel function that it sleeps in (/proc/PID/wchan).

The only way from outside to tell a worker that waits for the network from one that has nothing to do. The names are
those of Linux 4.18 to 6.18; a compiler's suffix (``.constprop.0``, ``.isra.0``) is ignored. What is ambiguous is
``other``: a wrong word here would accuse a healthy loader. Two limits: ``time.sleep`` of Python up to 3.10 is a select
and shows as ``queue``; an idle ``multiprocessing.Pool`` worker reads its task pipe and shows as ``pipe``.
"""

from __future__ import annotations

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
    # Local sockets carry file descriptors of shared tensors between a loader and its workers.
    "unix_stream_read_generic": "queue",
    "unix_stream_data_wait": "queue",
    "unix_wait_for_peer": "queue",
    "wait_woken": "network",
    "sk_wait_data": "network",
    "sk_stream_wait_memory": "network",
    "sk_stream_wait_connect": "network",
    "inet_stream_connect": "network",
    "inet_wait_for_connect": "network",
    # FUSE under training data is nearly always a network file system (gcsfuse, s3fs, JuiceFS, mountpoint-s3).
    "request_wait_answer": "network",
    "cl_sync_io_wait": "network",
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
    ("rpc_", "network"),
    ("nfs", "network"),
    ("ceph_", "network"),
    ("cifs_", "network"),
    ("ptlrpc_", "network"),
    ("osc_", "network"),
    ("__skb_wait_for_more", "network"),
    ("futex_", "lock"),
    ("do_futex", "lock"),
    ("rwsem_", "lock"),
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


def waits_for_child(channel: str) -> bool:
    """Whether a thread that sleeps there waits for a child to end."""
    return channel.startswith("do_wait")


def wait_class(channel: str) -> str | None:
    """One of ``queue network pipe disk sleep lock gpu other``; None when the kernel does not say ("0" or empty)."""
    name = channel.partition(".")[0]
    if not name or name == "0":
        return None
    known = _EXACT.get(name)
    if known is not None:
        return known
    for prefix, meaning in _PREFIXES:
        if name.startswith(prefix):
            return meaning
    return "other"
