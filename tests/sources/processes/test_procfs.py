"""The raw readers of /proc, on what kernels write and on real files."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from gputop.sources.processes.look.wait_state import may_be_disk, needs_proof, wait_class
from gputop.sources.processes.tree.process_table import ProcessTable
from gputop.sources.procfs import (
    Descriptors,
    ProcessFiles,
    Stat,
    parse_io,
    parse_schedstat,
    parse_stat,
    parse_uptime,
)
from tests.support.descriptors import open_below

_AFTER_NAME = b" S 7 70 77 0 -1 4194304 1 0 2 0 120 34 0 0 20 0 9 0 424242 8192 512 18446744073709551615 1 1\n"


@pytest.mark.parametrize(
    "name", [b"python", b"a b", b"(sd-pam)", b"x) R 1 (", b"two\nlines", b"", b"\xff\xfe", b") ) )"]
)
def test_stat_is_read_whatever_the_name_holds(name: bytes) -> None:
    stat = parse_stat(b"4321 (" + name + b")" + _AFTER_NAME)
    assert stat is not None
    assert stat.comm == name
    assert (stat.state, stat.ppid, stat.session, stat.cpu_ticks) == ("S", 7, 77, 154)
    assert (stat.threads, stat.starttime, stat.rss_pages) == (9, 424242, 512)


@pytest.mark.parametrize("data", [b"", b"12", b"12 (python", b"12 (python) S 1 2 3"])
def test_a_stat_cut_short_is_no_stat(data: bytes) -> None:
    assert parse_stat(data) is None


def test_schedstat_gives_run_and_wait_and_zeros_mean_no_statistics() -> None:
    assert parse_schedstat(b"123456 789 42\n") == (123456, 789)
    assert parse_schedstat(b"0 0 0\n") is None
    assert parse_schedstat(b"") is None


def test_io_gives_storage_bytes_not_those_of_the_page_cache() -> None:
    text = b"rchar: 1\nwchar: 2\nsyscr: 3\nsyscw: 4\nread_bytes: 5\nwrite_bytes: 6\ncancelled_write_bytes: 7\n"
    assert parse_io(text) == (5, 6)
    assert parse_io(b"rchar: 1\n") is None


def test_uptime_is_in_seconds() -> None:
    assert parse_uptime(b"1234.56 99.00\n") == 1234.56
    assert parse_uptime(b"") is None


def test_files_stay_open_up_to_the_bound_and_no_further() -> None:
    child = subprocess.Popen(["sleep", "60"])
    try:
        _keep_one_file_open(Path(f"/proc/{child.pid}"))
    finally:
        child.kill()
        child.wait()


def _keep_one_file_open(process: Path) -> None:
    descriptors = Descriptors(1)
    files = ProcessFiles(str(process), descriptors)
    for _ in range(3):
        assert parse_stat(files.read("stat"))
        assert parse_schedstat(files.read("schedstat"))
    assert open_below(process) == [str(process / "stat")]
    assert descriptors.left == 0
    files.close()
    assert open_below(process) == []
    assert descriptors.left == 1


def test_an_open_file_of_a_process_that_ended_gives_an_error_not_old_numbers() -> None:
    child = subprocess.Popen(["sleep", "60"])
    files = ProcessFiles(f"/proc/{child.pid}", Descriptors(4))
    assert parse_stat(files.read("stat"))
    child.kill()
    child.wait()
    with pytest.raises(OSError):
        files.read("stat")
    files.close()


CHANNELS = {
    "queue": "poll_schedule_timeout.constprop.0 anon_pipe_write inet_csk_accept ep_poll fuse_dev_do_read do_epoll_wait",
    "network": "tcp_recvmsg rpc_wait_bit_killable request_wait_answer fuse_lock_owner nfs_wait_bit ceph_get_caps",
    "lock": "rwsem_down_read_slowpath futex_wait_queue futex_do_wait",
    "pipe": "pipe_read anon_pipe_read wait_for_partner",
    "disk": "io_schedule folio_wait_bit_common jbd2_log_wait_commit blkdev_issue_flush",
    "sleep": "hrtimer_nanosleep",
    "gpu": "uvm_va_block_migrate",
    "other": "unix_stream_read_generic wait_woken do_wait",
}


def test_wait_channels_are_put_into_words() -> None:
    found = {
        kind: " ".join(c for c in names.split() if wait_class(c) == kind)
        for kind, names in CHANNELS.items()
    }
    assert found == CHANNELS
    assert wait_class("0") is wait_class("") is None


def test_a_process_is_read_once_and_again_in_a_full_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []

    def stat_of(folder: str) -> Stat | None:
        pid = folder.split("/")[-1]
        read.append(pid)
        started = {"1": 0, "20": 500_000, "30": 500_500}[pid]
        return Stat(b"name", "S", 1, 1, 0, 1, started, 0)

    monkeypatch.setattr("gputop.sources.processes.tree.process_table.stat_of", stat_of)
    for pid in ("1", "20", "30"):
        (tmp_path / pid).mkdir()
    table = ProcessTable(str(tmp_path))
    reads = []
    for now in (0.0, 1.0, 3.0, 179.0, 180.0):
        read.clear()
        table.refresh(now)
        reads.append(sorted(read))
    assert reads == [["1", "20", "30"], [], [], [], ["1", "20", "30"]]


def test_state_d_of_drivers_locks_and_vfork_is_never_a_disk_and_sockets_need_proof() -> None:
    for channel in (
        "nvidia_ioctl",
        "uvm_va_space_up",
        "wait_for_vfork_done",
        "rwsem_down_read",
        "shrink_lruvec",
    ):
        assert not may_be_disk(channel)
    assert may_be_disk("some_new_filesystem_wait")
    for channel in ("wait_woken", "__skb_wait_for_more_packets", "sk_wait_data"):
        assert needs_proof(channel)
    assert not needs_proof("tcp_recvmsg") and not needs_proof("unix_stream_read_generic")


def test_the_table_of_open_files_grows_at_once_and_nothing_stays_open() -> None:
    words = """
import os
from gputop.config import Settings
from gputop.sources.local import open_local
before = os.listdir("/proc/self/fd")
open_local(Settings())
print(before == os.listdir("/proc/self/fd"), open("/proc/self/status").read().split("FDSize:")[1].split()[0])
"""
    done = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, check=True)
    same, size = done.stdout.split()
    assert same == "True" and int(size) >= min(
        resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2, 4096
    )


def test_room_is_not_made_where_no_file_may_be_opened() -> None:
    words = (
        "import gputop.sources.procfs as p, resource\nresource.setrlimit(resource.RLIMIT_NOFILE, "
        "(1, 1))\np.make_room()"
    )
    assert subprocess.run([sys.executable, "-c", words], check=False).returncode == 0
