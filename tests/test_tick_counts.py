"""What a tick costs, in counts: files read, processes looked at, charts drawn, bytes written. Nothing here is timed."""

from __future__ import annotations

import builtins
import os
import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from gputop.monitor import Monitor
from gputop.output.ansi_diff import Differ
from gputop.paint import chart
from gputop.paint.line import Row
from gputop.paint.main_screen import Painter
from gputop.paint.theme import THEMES
from gputop.paint.view import View
from gputop.sources.gpu_process import GpuProcess
from gputop.sources.host import HostCollector
from gputop.sources.processes import beside, between, descriptors
from gputop.sources.processes.collector import ProcessCollector
from gputop.sources.processes.descriptors import Held
from gputop.sources.procfs import ProcessFiles
from gputop.sources.simulation.simulated import snapshot_at
from gputop.tui.terminal.driver import InputEnd
from gputop.tui.terminal.guard import TerminalGuard
from gputop.tui.textual_internals import InputParser
from tests.proc_trees.fake_proc import FakeProc
from tests.support.frames import MOMENT

WAITING, WORKING = 40.0, 99.0
CALM_BYTES = 64


def test_a_tick_in_which_nothing_changed_writes_the_clock_s_cells_alone() -> None:
    node = snapshot_at(MOMENT, started=MOMENT - 600.0)
    still = replace(node, gpus=node.gpus[:3], processes=node.processes[:12])
    monitor, painter, differ = Monitor(), Painter(), Differ(THEMES["dark"], "truecolor")
    view, before, written = View(span_s=60.0), list[Row](), list[int]()
    for second in range(150):
        frame = monitor.feed(replace(still, t=MOMENT + second))
        if second >= 130:
            rows = painter.paint(frame, view, 160, 50).rows
            written.append(len(differ.changes(before or rows, rows).encode()))
            before = rows
    assert 0 < max(written[1:]) <= CALM_BYTES, written


def test_a_chart_is_drawn_again_only_where_a_value_moves_by_an_eighth_of_a_cell() -> None:
    chart._drawn.cache_clear()
    glyphs = View().glyphs
    for step in range(20):
        util: list[float | None] = [50.0 + 0.01 * step] * 60
        chart.gap_chart(util, [30.0] * 60, 2, glyphs, alarm=False, measured=True)
    assert chart._drawn.cache_info().misses == 1


def test_rows_in_one_style_set_it_once() -> None:
    was, becomes = [[((text, "text"),)] * 12 for text in ("0:41:10", "0:41:11")]
    changes = Differ(THEMES["dark"], "truecolor").changes(was, becomes)
    assert changes.count("38;2;") == 1
    assert len(changes.encode()) <= 12 * 9 + 48


@pytest.fixture
def fake(tmp_path: Path) -> FakeProc:
    fake = FakeProc(tmp_path)
    fake.process(1, "systemd", "/sbin/init", ppid=0, session=1)
    return fake


def owners(pids: Sequence[int], gpu: int = 0) -> list[GpuProcess]:
    """Processes of one GPU; the last has most memory."""
    return [GpuProcess(gpu, pid, 1e9 * number, "C") for number, pid in enumerate(pids, 1)]


def counted_calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often files are opened, read and listed from now on."""
    counts = Counter[str]()
    for module, name in ((os, "open"), (os, "pread"), (os, "listdir"), (builtins, "open")):
        real = getattr(module, name)

        def counting(*given: Any, _real: Any = real, _name: str = name, **more: Any) -> Any:
            counts[_name] += 1
            return _real(*given, **more)

        monkeypatch.setattr(module, name, counting)
    return counts


def test_between_slow_readings_the_host_is_five_files_that_stay_open(
    fake: FakeProc, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.write("proc/stat", "cpu 1 1 1 1 1 1 1 1 1 1\n")
    fake.write("proc/meminfo", "MemTotal: 20 kB\nMemAvailable: 10 kB\nSwapTotal: 9 kB\nSwapFree: 4 kB\n")
    for name in ("cpu", "io", "memory"):
        fake.write(f"proc/pressure/{name}", "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n")
    host = HostCollector(str(fake.proc), str(fake.sys))
    for now in (1.0, 3.0):
        host.read(now)
    counts = counted_calls(monkeypatch)
    sample = host.read(4.0)
    host.close()
    assert (sample.mem_used_bytes, sample.swap_used_bytes) == (10 * 1024, 5 * 1024)
    assert counts == {"pread": 5}


def test_a_tick_reads_open_files_alone_and_of_who_sleeps_only_whether_it_has_run(
    fake: FakeProc, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone, threaded, busy = range(100, 120), range(120, 125), range(125, 128)
    for pid in (*alone, *busy):
        fake.process(pid, ppid=1)
    for pid in threaded:
        fake.process(pid, ppid=1, threads={1000 + pid: "worker"})
    listed = owners((*alone, *threaded, *busy))
    collector = ProcessCollector(str(fake.proc), str(fake.sys))
    for second in range(5):
        collector.read(second + 0.5, listed, {0: WORKING})
    counts = Counter[tuple[float, str]]()
    real = ProcessFiles.read

    def counting(files: ProcessFiles, name: str) -> bytes:
        counts[now, name] += 1
        return real(files, name)

    opened = counted_calls(monkeypatch)
    monkeypatch.setattr(ProcessFiles, "read", counting)
    for now in (4.7, 4.95, 5.2, 5.45):
        for pid in busy:
            fake.process(pid, ppid=1)
        samples = collector.read(now, listed, {0: WORKING})
    collector.close()
    assert {sample.pid for sample in samples} == {*alone, *threaded, *busy}
    assert opened["open"] == opened["listdir"] == 0
    for now in (4.7, 4.95, 5.2, 5.45):
        reads = {name: count for (at, name), count in counts.items() if at == now}
        # Disk rates are means over a second: between those nobody's are asked for.
        disk = {"io": len(threaded) + len(busy)} if now == 5.45 else {}
        both = len(threaded) + len(busy)
        every = len(alone) + both
        assert reads == {"uptime": 1, "schedstat": every, "stat": both, "wchan": len(busy), **disk}


class Asked:
    """Stands for the thread that looks between the readings."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.mains: list[int] = []
        self.others: list[int] = []

    def take(self) -> dict[int, list[str]]:
        return {pid: ["hrtimer_nanosleep"] for pid in self.mains}

    def ask(self, mains: list[int], others: list[int]) -> None:
        self.mains, self.others = mains, others

    def close(self) -> None: ...


def test_between_two_readings_only_the_largest_owner_of_a_waiting_gpu_is_looked_at(fake: FakeProc) -> None:
    for pid in (100, 101, 102, 110, 120):
        fake.process(pid, ppid=1, wchan="futex_wait_queue")
    fake.process(130, "pt_data_worker", ppid=101)
    collector, asked = ProcessCollector(str(fake.proc), str(fake.sys), between=True), Asked()
    collector._feeding._between = asked  # type: ignore[assignment]
    listed = [*owners((100, 102, 101)), *owners((110,), gpu=1), *owners((120,), gpu=2)]
    util = {0: WAITING, 1: WAITING, 2: WORKING}
    for second in range(3):
        samples = collector.read(float(second), listed, util)
    assert (sorted(asked.mains), asked.others) == ([101, 110], [130])
    assert {s.pid for s in samples if s.main_waits is not None} == {101, 110}
    # Another process takes over: what was last seen of the first one between readings does not stand for ever.
    for pid, channel in ((101, "tcp_recvmsg"), (102, "futex_wait_queue")):
        fake.process(pid, ppid=1, wchan=channel)
    listed[:3] = owners((100, 101, 102))
    for second in (3, 4):
        collector.read(float(second), listed, util)
    assert sorted(asked.mains) == [102, 110]
    assert collector._feeding._watches[101].waiting_on == "network"
    collector.close()


def test_of_many_processes_sixteen_are_looked_at_and_all_in_turns() -> None:
    turns, pids = between._Turns(), list(range(40))
    taken = [list(turns.take(pids)) for _ in range(5)]
    assert {len(look) for look in taken} == {between.MOST_AT_ONCE}
    assert {pid for look in taken for pid in look} == set(pids)
    assert turns.take(pids[:16]) == pids[:16]


def test_a_wait_channel_stays_open_until_its_process_ends(fake: FakeProc) -> None:
    fake.process(100)
    looks = between.LooksBetween(str(fake.proc), lambda _: None)
    looks._look((100, 101))
    looks._look((100, 101))
    assert looks.take() == {100: ["hrtimer_nanosleep"] * 2}
    assert list(looks._files) == [100], "who is not there is not kept"
    looks._forget((100,))
    assert looks._descriptors.left == between.MOST_OPEN


def test_a_discovery_reads_the_open_files_of_some_and_of_each_once(
    fake: FakeProc, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = Counter[int]()

    def held(_proc: str, pid: int) -> Held:
        counts[pid] += 1
        return Held(frozenset(ends), frozenset((pid,)), frozenset(), frozenset())

    ends = [1]

    monkeypatch.setattr(descriptors, "held", held)
    fake.process(90, "torchrun", "torchrun train.py", ppid=1)
    fake.process(91, "server", "python serve.py", ppid=90)
    pids = range(100, 170)
    for pid in pids:
        fake.process(pid, ppid=90)
    walked = Counter[str]()
    real = beside._relatives
    monkeypatch.setattr(beside, "_relatives", lambda *given: walked.update(("walk",)) or real(*given))
    collector = ProcessCollector(str(fake.proc), str(fake.sys))
    for second in (0.0, 1.0, 3.5):
        collector.read(second, owners(pids), {0: WAITING})
    collector.close()
    assert walked["walk"] == 1, "one launcher, one family"
    assert 0 < sum(counts.values()) <= descriptors.READ_AT_ONCE
    assert max(counts.values()) <= 2
    # Who holds neither the reading end of a pipe nor a socket can be fed by nobody beside it: nobody is looked for.
    counts.clear()
    walked.clear()
    ends.clear()
    collector = ProcessCollector(str(fake.proc), str(fake.sys))
    for second in (0.0, 1.0, 3.5):
        collector.read(second, owners(pids), {0: WAITING})
    collector.close()
    assert not walked
    assert set(counts) <= set(pids)


def test_the_reader_of_keys_sleeps_unless_a_sequence_has_begun() -> None:
    parser = InputParser()
    assert parser.waits_s() is None
    list(parser.feed("a"))
    assert parser.waits_s() is None
    list(parser.feed("\x1b"))
    waits_s = parser.waits_s()
    assert waits_s is not None and 0.0 <= waits_s < 1.0
    end = InputEnd(TerminalGuard())
    for told, readable in ((end.set, True), (end.clear, False), (end.clear, False), (end.set, True)):
        told()
        assert end.is_set() is readable
        if readable:
            assert os.eventfd_read(end.descriptor) >= 1
            os.eventfd_write(end.descriptor, 1)
    os.close(end.descriptor)


def test_until_the_distance_of_readings_is_known_nothing_is_looked_at_and_no_thread_begins(
    fake: FakeProc,
) -> None:
    looks = between.LooksBetween(str(fake.proc), lambda _: None)
    try:
        for _ in range(between.OF_A_START):
            looks.ask([1])
            assert looks._thread is None, "the first two readings of a start follow each other at once"
        looks.ask([1])
        assert looks._thread is not None
    finally:
        looks.close()
