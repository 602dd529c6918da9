"""What one look at a sleeping thread proves, from the files of a made-up /proc."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from gputop.sources.processes.look import wait_state
from gputop.sources.processes.look.wait_state import (
    BLOCKED,
    WaitClassifier,
    WaitState,
    is_internet,
    protocol_of,
)
from gputop.sources.processes.tree.open_files import Mount

PID = 100
UNKNOWN = "some_new_filesystem_wait"
T = 1000.0


class Proc:
    """One thread in state D in a function of no known class."""

    def __init__(self, root: Path) -> None:
        self.root, self.folder = root, root / str(PID)
        (self.folder / "fd").mkdir(parents=True)
        (self.folder / "stat").write_text(f"{PID} (a (b) c) D 1 {' '.join(['0'] * 40)}\n")

    def socket(self, number: int, inode: int) -> None:
        (self.folder / "syscall").write_text(f"45 {number:#x} 0x0 0x0 0x0 0x0 0x0 0x0 0x0\n")
        link = self.folder / "fd" / str(number)
        link.unlink(missing_ok=True)
        link.symlink_to(f"socket:[{inode}]")

    def look(self, look: WaitClassifier, channel: str = UNKNOWN, now: float = T) -> WaitState:
        return look.classify(now, PID, str(self.folder), channel)


@pytest.fixture
def proc(tmp_path: Path) -> Proc:
    return Proc(tmp_path)


def test_a_file_system_is_known_to_be_elsewhere_by_its_type() -> None:
    away = (
        "nfs4",
        "cifs",
        "smb3",
        "ceph",
        "lustre",
        "fuse.gcsfuse",
        "9p",
        "beegfs",
        "gpfs",
        "glusterfs",
        "virtiofs",
    )
    assert all(Mount("/data", kind).is_networked for kind in away)
    assert not any(
        Mount("/data", kind).is_networked
        for kind in ("ext4", "xfs", "overlay", "tmpfs", "btrfs", "zfs")
    )


def test_state_d_in_an_unknown_function_is_no_disk_by_itself(proc: Proc) -> None:
    look = WaitClassifier(str(proc.root))
    assert proc.look(look).kind == BLOCKED
    assert proc.look(look, "rwsem_down_read_slowpath").kind == "lock"


@pytest.mark.parametrize(
    ("family", "kind", "wanted"),
    [
        (socket.AF_INET, socket.SOCK_STREAM, True),
        (socket.AF_INET6, socket.SOCK_STREAM, True),
        (socket.AF_INET, socket.SOCK_DGRAM, True),
        (socket.AF_INET6, socket.SOCK_DGRAM, True),
        (socket.AF_UNIX, socket.SOCK_STREAM, False),
        (socket.AF_UNIX, socket.SOCK_DGRAM, False),
        (socket.AF_NETLINK, socket.SOCK_RAW, False),
    ],
)
def test_a_socket_says_itself_whether_it_is_of_the_internet(
    family: int, kind: int, wanted: bool
) -> None:
    try:
        opened = socket.socket(family, kind)
    except OSError as error:
        pytest.skip(f"this machine opens no such socket: {error.strerror}")
    with opened:
        assert is_internet(protocol_of(f"/proc/self/fd/{opened.fileno()}")) is wanted


def test_what_is_no_socket_has_no_protocol(tmp_path: Path) -> None:
    with open(tmp_path / "file", "w") as file, pytest.raises(OSError, match="not supported"):
        protocol_of(f"/proc/self/fd/{file.fileno()}")


def test_a_socket_in_another_network_namespace_is_known_as_well() -> None:
    code = (
        "import socket, sys; s = socket.socket(); print(s.fileno(), flush=True); sys.stdin.read()"
    )
    words = ["unshare", "--net", sys.executable, "-c", code]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as child:
        assert child.stdin is not None and child.stdout is not None and child.stderr is not None
        number = child.stdout.readline().strip().decode()
        if not number:
            pytest.skip(
                f"no network namespace can be made here: {child.stderr.read().decode().strip()}"
            )
        assert os.readlink(f"/proc/{child.pid}/ns/net") != os.readlink("/proc/self/ns/net")
        assert is_internet(protocol_of(f"/proc/{child.pid}/fd/{number}"))
        child.stdin.close()


def test_the_thread_that_waits_in_a_socket_of_the_internet_waits_for_a_network(
    proc: Proc, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def protocol(path: str) -> bytes:
        asked.append(path)
        return answers.pop(0)

    monkeypatch.setattr(wait_state, "protocol_of", protocol)
    answers = [b"TCPv6\0", b"UNIX\0"]
    look = WaitClassifier(str(proc.root))
    try:
        for inode, wait in ((77, "network"), (78, "other")):
            proc.socket(5, inode)
            assert proc.look(look, "__skb_wait_for_more_packets").kind == wait
            assert asked == [f"{proc.folder}/fd/5"]
            asked.clear()
            # It is asked for once.
            assert proc.look(look, "__skb_wait_for_more_packets").kind == wait and not asked
    finally:
        look.close()


def test_a_descriptor_that_leads_to_a_hung_file_by_now_holds_nobody(
    proc: Proc, monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs = threading.Event()
    monkeypatch.setattr(wait_state, "protocol_of", lambda _: b"TCP" if hangs.wait(60.0) else b"")
    look = WaitClassifier(str(proc.root))
    try:
        proc.socket(5, 77)
        assert proc.look(look, "__skb_wait_for_more_packets").kind == "other"
    finally:
        hangs.set()
        look.close()
