"""All that is remembered of a process goes with it, and a reused pid inherits nothing."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from gputop.model.snapshot import ProcessSample
from gputop.sources.gpu_process import GpuProcess
from gputop.sources.processes.collector import ProcessCollector
from gputop.sources.processes.look.process_threads import ThreadTurn
from gputop.sources.processes.look.wait_state import WaitObservation, WaitState
from gputop.sources.processes.resolve.socket_activity import SocketActivity
from gputop.sources.processes.resolve.tracked_process import (
    READ_AT_ONCE,
    UNUSED_S,
    TrackedProcess,
    TrackedProcesses,
)
from gputop.sources.processes.tree.command_lines import CommandLines
from gputop.sources.processes.tree.open_files import HeldInodes, OpenFiles, PipeOutput
from gputop.sources.procfs import Descriptors, Stat
from tests.proc_trees.fake_proc import FakeProc
from tests.proc_trees.one_job import by_pid, collector_of, sample

ROOT, WORKER, SHORT = 100, 110, 500
T = 1000.0
KEEPS = (TrackedProcess, OpenFiles, PipeOutput, ThreadTurn, WaitObservation, SocketActivity)
"""What is remembered of a process."""


@pytest.fixture
def fake(tmp_path: Path) -> FakeProc:
    made = FakeProc(tmp_path)
    made.process(1, "systemd", "/sbin/init", ppid=0, session=1)
    return made


def read(collector: ProcessCollector, second: float, samples: int = 3) -> dict[int, ProcessSample]:
    """One reading of a waiting GPU's job after a few samples of its waits."""
    sample(collector, T + second - 0.6, samples)
    return by_pid(collector.read(T + second, [GpuProcess(0, ROOT, 1e9, "C")], {0: 40.0}))


def alive() -> int:
    """Number of living objects that remember something of a process."""
    gc.collect()
    remembered = [thing for thing in gc.get_objects() if isinstance(thing, KEEPS)]
    return len(remembered)


def child_stat(pid: int, starttime: int) -> str:
    """The counters of a child of the worker."""
    return f"{pid} (ffmpeg) S {WORKER} 1 10 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {starttime} 4096 9 0\n"


def test_a_minute_of_forks_leaves_no_object_behind(fake: FakeProc) -> None:
    """Each second another child runs below the worker, and the one before ends; pids are used again after a while."""
    fake.process(ROOT, wchan="futex_wait_queue")
    fake.process(WORKER, "pt_data_worker", ppid=ROOT, wchan="do_wait")
    collector = collector_of(fake)
    tracked = collector.shares.tracked
    living: list[int] = []
    known: list[int] = []
    for second in range(60):
        child, former = SHORT + second % 40, SHORT + (second - 1) % 40
        fake.write(f"proc/{child}/stat", child_stat(child, 9000 + second))
        if second:
            fake.write(f"proc/{former}/stat", "")
        fake.write(f"proc/{WORKER}/task/{WORKER}/children", f"{child} ")
        read(collector, second, 1)
        known.append(len(tracked))
        if second in (29, 59):
            living.append(alive())
    collector.close()
    assert max(known[30:]) <= max(known[15:30])
    after_half, after_all = living
    assert after_all <= after_half


def test_a_reused_pid_inherits_nothing(fake: FakeProc) -> None:
    fake.process(ROOT, wchan="futex_wait_queue")
    fake.process(WORKER, "pt_data_worker", ppid=ROOT, wchan="hrtimer_nanosleep")
    collector = collector_of(fake)
    for second in range(20):
        samples = read(collector, second)
    assert samples[WORKER].waiting_on == "sleep"
    before = collector.shares.tracked.member(WORKER)
    assert before is not None
    before.sockets = SocketActivity(T, readings=9)
    before.thread_turn.next_place = 5
    # Between two readings the kernel gives its number to another loader, and nothing was seen of that one yet.
    fake.process(WORKER, "pt_data_worker", ppid=ROOT, starttime=7000, wchan="0", run_ns=10**10)
    samples = by_pid(collector.read(T + 20, [GpuProcess(0, ROOT, 1e9, "C")], {0: 40.0}))
    assert WORKER not in samples
    assert collector.shares.tracked.known(WORKER) is None
    samples = by_pid(collector.read(T + 21, [GpuProcess(0, ROOT, 1e9, "C")], {0: 40.0}))
    now = collector.shares.tracked.member(WORKER)
    assert now is not None and now is not before
    assert (now.starttime, now.sockets, now.thread_turn.next_place) == (7000, None, 0)
    assert (samples[WORKER].starttime, samples[WORKER].waiting_on) == (7000, None)
    collector.close()


def test_observations_of_a_process_that_ended_go_to_no_other(fake: FakeProc) -> None:
    fake.process(ROOT)
    fake.process(WORKER, "pt_data_worker", ppid=ROOT)
    collector = collector_of(fake)
    for second in range(3):
        read(collector, second)
    sample(collector, T + 2.5, 3)
    fake.process(WORKER, "pt_data_worker", ppid=ROOT, starttime=7000, wchan="0", state="S")
    for second in (3, 4):
        samples = by_pid(collector.read(T + second, [GpuProcess(0, ROOT, 1e9, "C")], {0: 98.0}))
    assert samples[WORKER].waiting_on is None
    collector.close()


def test_a_stranger_with_a_used_pid_begins_anew_and_is_dropped_unused(fake: FakeProc) -> None:
    fake.process(SHORT, starttime=100)
    tracked = TrackedProcesses(str(fake.proc))
    first = tracked.find(T, SHORT)
    first.open_files.held = HeldInodes(*[frozenset({7})] * 4)
    assert tracked.find(T + 0.1, SHORT) is first
    fake.process(SHORT, starttime=200)
    second = tracked.find(T + 0.2, SHORT)
    assert second is not first and second.open_files.held is None
    tracked.begin_round(T + 0.2 + 0.9 * UNUSED_S)
    assert tracked.known(SHORT) is second
    tracked.begin_round(T + 0.2 + UNUSED_S)
    assert tracked.known(SHORT) is None and len(tracked) == 0


def test_a_clock_that_steps_back_drops_what_was_seen_in_its_future(fake: FakeProc) -> None:
    fake.process(SHORT)
    tracked = TrackedProcesses(str(fake.proc))
    tracked.find(T, SHORT)
    tracked.begin_round(T - 100.0)
    assert tracked.known(SHORT) is None


def test_open_files_are_read_a_few_in_a_round(
    fake: FakeProc, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[int] = []

    def note_read(self: OpenFiles, now: float) -> None:
        reads.append(self._pid)

    monkeypatch.setattr(OpenFiles, "read_again", note_read)
    tracked = TrackedProcesses(str(fake.proc))
    for pid in range(1000, 1000 + 2 * READ_AT_ONCE):
        tracked.held_by(T, pid)
    assert len(reads) == READ_AT_ONCE
    tracked.begin_round(T + 1.0)
    tracked.held_by(T + 1.0, 5)
    assert reads[-1] == 5


def test_a_process_that_leaves_its_tree_closes_its_wait_channel(fake: FakeProc) -> None:
    fake.process(SHORT)
    tracked = TrackedProcesses(str(fake.proc))
    process, descriptors = TrackedProcess(str(fake.proc), SHORT, 5000), Descriptors(8)
    tracked.set_members({SHORT: process})
    assert process.read_channel(descriptors) == "hrtimer_nanosleep"
    assert descriptors.left == 7
    tracked.set_members({})
    assert descriptors.left == 8 and len(tracked) == 0
    process.observations.append(WaitObservation(T, SHORT, SHORT, WaitState("sleep")))
    assert len(process.pop_observations()) == 1 and not process.pop_observations()


class Blocked:
    """Reads command lines that may block: None then."""

    def __init__(self) -> None:
        self.answer: bytes | None = b""
        self.reads = 0

    def command(self, pid: int) -> bytes | None:
        self.reads += 1
        return self.answer


def test_the_command_line_of_a_reused_pid_is_never_its_former_ones() -> None:
    facts: Any = Blocked()
    lines = CommandLines(facts)
    before = Stat(b"python", "S", 1, 1, 0, 1, starttime=500, rss_pages=1)
    facts.answer = b"python train.py"
    lines.begin_round(uptime=1000.0)
    assert lines.command_of(SHORT, before) == b"python train.py"
    lines.begin_round(uptime=1001.0)
    facts.answer = None
    assert lines.command_of(SHORT, before) == b"python train.py"
    assert facts.reads == 1, "a settled one is read once"
    assert lines.command_of(SHORT, replace(before, starttime=900)) == b""
    assert lines.command_of(SHORT, replace(before, starttime=900)) == b""
    assert facts.reads == 2, "an unreadable one is tried once in a round"


def test_the_command_line_of_a_young_process_is_read_in_each_round() -> None:
    facts: Any = Blocked()
    lines = CommandLines(facts)
    young = Stat(b"sh", "S", 1, 1, 0, 1, starttime=99_500, rss_pages=1)
    for second, command in enumerate((b"sh", b"python train.py")):
        facts.answer = command
        lines.begin_round(uptime=1000.0 + second)
        assert lines.command_of(SHORT, young) == command
