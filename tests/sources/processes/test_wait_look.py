"""What one look at a sleeping thread proves, from the files of a made-up /proc."""

from __future__ import annotations

from pathlib import Path

import pytest

from gputop.sources.processes.wait_look import BLOCKED, LONG_HOLDS_S, Seen, WaitLook

PID = 100
UNKNOWN = "some_new_filesystem_wait"
T = 1000.0


class Proc:
    """One thread in state D in a function of no known class, on a machine where nobody waits for I/O."""

    def __init__(self, root: Path) -> None:
        self.root, self.folder = root, root / str(PID)
        (self.folder / "fd").mkdir(parents=True)
        (root / "pressure").mkdir()
        self.blocked(0)
        self.pressure(0.0)
        self.delay(0)

    def blocked(self, count: int) -> None:
        (self.root / "stat").write_text(f"cpu 1 2 3\nprocs_running 1\nprocs_blocked {count}\nsoftirq 1\n")

    def pressure(self, pct: float) -> None:
        (self.root / "pressure" / "io").write_text(
            f"some avg10={pct} avg60=0.00 avg300=0.00 total=1\nfull avg10=0.00\n"
        )

    def delay(self, ticks: int) -> None:
        fields = ["D", "1", *["0"] * 37, str(ticks), "0", "0"]
        (self.folder / "stat").write_text(f"{PID} (a (b) c) {' '.join(fields)}\n")

    def socket(self, number: int, inode: int) -> None:
        (self.folder / "syscall").write_text(f"45 {number:#x} 0x0 0x0 0x0 0x0 0x0 0x0 0x0\n")
        link = self.folder / "fd" / str(number)
        link.unlink(missing_ok=True)
        link.symlink_to(f"socket:[{inode}]")

    def look(self, look: WaitLook, channel: str = UNKNOWN, now: float = T) -> Seen:
        return look.at(now, PID, str(self.folder), channel)


@pytest.fixture
def proc(tmp_path: Path) -> Proc:
    return Proc(tmp_path)


def test_state_d_in_an_unknown_function_is_no_disk_by_itself(proc: Proc) -> None:
    look = WaitLook(str(proc.root))
    assert [proc.look(look).wait for _ in range(2)] == [BLOCKED, BLOCKED]


def test_state_d_is_a_disk_if_the_threads_own_delay_by_block_io_has_grown(proc: Proc) -> None:
    look = WaitLook(str(proc.root))
    proc.delay(7)
    # What was counted before the first look may be hours old.
    assert proc.look(look).wait == BLOCKED
    proc.delay(9)
    assert proc.look(look).wait == "disk"
    assert proc.look(look).wait == BLOCKED


def test_state_d_is_a_disk_while_a_task_waits_for_io_or_io_pressure_stands(proc: Proc) -> None:
    look = WaitLook(str(proc.root))
    proc.blocked(1)
    assert proc.look(look).wait == "disk"
    proc.blocked(0)
    proc.pressure(9.0)
    assert proc.look(look).wait == BLOCKED
    proc.pressure(35.0)
    assert proc.look(look).wait == "disk"
    # Another thread's lock is none, whoever waits for I/O.
    assert proc.look(look, "rwsem_down_read_slowpath").wait == "lock"


def test_the_file_of_a_wait_is_asked_for_again_only_after_a_while(proc: Proc) -> None:
    look = WaitLook(str(proc.root))
    proc.socket(5, 77)
    assert proc.look(look, "unix_stream_read_generic").socket == 77
    proc.socket(5, 88)
    assert proc.look(look, "unix_stream_read_generic", T + LONG_HOLDS_S - 0.1).socket == 77
    assert proc.look(look, "unix_stream_read_generic", T + LONG_HOLDS_S).socket == 88
