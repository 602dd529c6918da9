"""Feeders as they are collected: pointers resolved, threads in turns, sockets as proof, and all that can be refused."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import astuple

from gputop.model.feeders import main_looks
from gputop.model.snapshot import ProcessSample
from gputop.model.wait_shares import WaitShares
from gputop.sources.gpu_process import GpuProcess
from gputop.sources.processes.collector import ProcessCollector
from gputop.sources.processes.count.socket_reader import SocketReader
from gputop.sources.processes.count.time_shares import (
    as_network,
    in_place_of_waits,
    main_waits,
    shares_of,
    thread_shares,
)
from gputop.sources.processes.count.wait_counts import (
    RECENT_S,
    WaitCounts,
    WaitHistory,
    count_waits,
)
from gputop.sources.processes.count.wait_sampler import SamplingPlan, WaitSampler
from gputop.sources.processes.look.wait_state import Job, WaitClassifier, WaitObservation, WaitState
from gputop.sources.processes.resolve import socket_activity, socket_tables
from gputop.sources.processes.resolve.socket_tables import (
    PeerLookup,
    SocketTables,
    TcpSocket,
    tcp_tables,
)
from gputop.sources.processes.resolve.tracked_process import TrackedProcesses
from gputop.sources.processes.resolve.wait_target import WaitResolver
from gputop.sources.processes.tree.open_files import HeldInodes, held
from gputop.sources.processes.tree.outsiders import Outsiders
from gputop.sources.processes.tree.process_table import ProcessTable
from gputop.sources.processes.tree.process_tree import find_parents, find_trees
from gputop.sources.procfs import Stat
from tests.proc_trees.fake_proc import FakeProc
from tests.proc_trees.one_job import collector_of, sample

NONE: frozenset[int] = frozenset()
ROOT, WORKER, CHILD = 100, 110, 120
WAITING = {0: 40.0}
T = 1000.0


def fds(reads: set[int] = set(), writes: set[int] = set()) -> HeldInodes:  # noqa: B006
    return HeldInodes(frozenset(reads), frozenset(writes), NONE, NONE)


@pytest.fixture
def fake(tmp_path: Path) -> FakeProc:
    made = FakeProc(tmp_path)
    made.process(1, "systemd", "/sbin/init", ppid=0, session=1)
    return made


def read(
    fake: FakeProc,
    times: int,
    work: Callable[[int], None] = lambda second: None,
    util: float = 40.0,
    collector: ProcessCollector | None = None,
) -> tuple[ProcessSample, ...]:
    """The last samples of a GPU's job that is read each second; ``work`` changes it before each reading."""
    reader = collector or collector_of(fake)
    for second in range(times):
        work(second)
        sample(reader, T + second - 0.6, 4)
        samples = reader.read(T + second, [GpuProcess(0, ROOT, 1e9, "C")], {0: util})
    reader.close()
    return samples


def _count(
    fake: FakeProc,
    looks: int,
    tids: list[str],
    most_threads: int = 24,
    work: Callable[[int], None] = lambda look: None,
) -> tuple[WaitCounts, int]:
    """What so many looks at a GPU process whose main thread waits for a lock find, and how many threads the last reads.

    ``work`` changes the threads before each look.
    """
    classifier, read = WaitClassifier(str(fake.proc)), list[str]()
    resolver = WaitResolver(
        str(fake.proc), classifier, TrackedProcesses(str(fake.proc)), PeerLookup()
    )
    seen: list[WaitObservation] = []
    thread = classifier.classify_thread
    classifier.classify_thread = lambda now, pid, folder: (
        read.append(folder) or thread(now, pid, folder)
    )  # type: ignore[method-assign,func-returns-value]
    job = Job((), frozenset(), tids)
    for number in range(looks):
        work(number)
        read.clear()
        seen += resolver.follow_wait(
            T + number / 4, ROOT, WaitState("lock", "futex_wait"), job, (), most_threads
        )
    return count_waits(
        [each for each in seen if each.t > seen[-1].t - RECENT_S], moves=False, holds_gpu=True
    ), len(read)


def test_of_very_many_threads_those_that_work_are_found_and_then_seen_at_each_look(
    fake: FakeProc,
) -> None:
    names = dict.fromkeys(range(1001, 1301), "python")
    fake.process(ROOT, threads=names)
    for tid in (1150, 1270):
        fake.write(f"proc/{ROOT}/task/{tid}/stat", f"{tid} (python) R 1 1 " + "0 " * 40)
    counts, read = _count(fake, 40, [str(tid) for tid in names])
    assert read <= 24
    # Each runs on a core of its own, or they share one.
    assert thread_shares(counts, 2.0) == WaitShares(run=1.0)
    assert thread_shares(counts, 1.0) == WaitShares(run=0.5, queued=0.5)


def test_of_threads_that_take_turns_each_look_sees_the_one_at_work(fake: FakeProc) -> None:
    names = dict.fromkeys(range(101, 113), "python")
    fake.process(ROOT, threads=names)

    def work(look: int) -> None:
        for tid in names:
            works = tid == 101 + 7 * look % 12
            fake.write(
                f"proc/{ROOT}/task/{tid}/wchan",
                "tcp_sendmsg_locked" if works else "futex_wait_queue",
            )

    counts, read = _count(fake, 12, [str(tid) for tid in names], 4, work)
    assert thread_shares(counts, 0.01) == WaitShares(network=1.0)
    assert read <= 12


def test_threads_that_hand_on_a_core_are_one_feeder(fake: FakeProc) -> None:
    fake.process(ROOT, threads={101: "python", 102: "python"}, runs=1)
    assert thread_shares(_count(fake, 3, ["101", "102"])[0], 0.96).run == pytest.approx(0.96)
    fake.write(f"proc/{ROOT}/task/101/stat", "101 (python) S 1 1 " + "0 " * 40)
    fake.write(f"proc/{ROOT}/task/102/wchan", "tcp_sendmsg_locked")
    assert thread_shares(_count(fake, 3, ["101", "102"])[0], 1.0).network == pytest.approx(1.0)


def test_bytes_that_arrive_are_seen_on_real_sockets_and_not_those_of_a_parent() -> None:
    if tcp_tables().reason:
        pytest.skip(str(tcp_tables().reason))
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as client,
    ):
        accepted, _ = server.accept()
        with accepted:
            seen, me = SocketReader("/proc", TrackedProcesses("/proc"), PeerLookup()), os.getpid()
            mine = held("/proc", me)
            assert (
                mine is not None
                and client.fileno()
                and os.fstat(client.fileno()).st_ino in mine.sockets
            )
            tables = tcp_tables().tcp
            assert tables[os.fstat(server.fileno()).st_ino].listens
            before = tables[os.fstat(client.fileno()).st_ino].received
            accepted.sendall(bytes(5000))
            client.recv(5000, socket.MSG_WAITALL)
            assert tcp_tables().tcp[os.fstat(client.fileno()).st_ino].received - before == 5000
            seen.request(T, {me: me})
            seen.read_due(T)
            news = seen.activity(T, me)
            # What comes in through a socket of its own that listens is demand, not data.
            assert news is not None and news.listens and news.rx_bytes_per_s is None


def test_a_connection_that_its_reader_has_half_closed_is_still_one_of_the_network() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as client,
    ):
        accepted, _ = server.accept()
        with accepted:
            client.shutdown(socket.SHUT_WR)
            assert os.fstat(client.fileno()).st_ino in tcp_tables().tcp


def test_data_on_a_workers_own_sockets_is_a_rate_and_what_it_inherited_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ends = (b"\1", 5000), (b"\2", 443)
    holds = {WORKER: frozenset((1, 2)), ROOT: frozenset((2,))}
    counts = {1: 0, 2: 0}
    monkeypatch.setattr(
        socket_activity, "held", lambda proc, pid: HeldInodes(NONE, NONE, holds[pid], NONE)
    )
    monkeypatch.setattr(
        socket_tables,
        "tcp_tables",
        lambda: SocketTables({i: TcpSocket(False, n, ends) for i, n in counts.items()}),
    )
    seen = SocketReader("/proc", TrackedProcesses("/proc"), PeerLookup())
    seen.request(T, {WORKER: ROOT})
    for second in range(3):
        counts[1] += 50_000
        counts[2] += 9_000_000
        seen.read_due(T + second)
    news = seen.activity(T, WORKER)
    assert news is not None and news.rx_bytes_per_s == 50_000.0


def test_one_that_opens_a_connection_for_each_item_is_known_though_it_has_none_between(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held_now = {WORKER: NONE, ROOT: NONE}
    monkeypatch.setattr(
        socket_activity, "held", lambda proc, pid: HeldInodes(NONE, NONE, held_now[pid], NONE)
    )
    tables = SocketTables(
        {i: TcpSocket(False, 0, ((b"\1", 5000 + i), (b"\2", 443))) for i in range(9)}
    )
    monkeypatch.setattr(socket_tables, "tcp_tables", lambda: tables)
    seen, fresh = SocketReader("/proc", TrackedProcesses("/proc"), PeerLookup()), []
    seen.request(T, {WORKER: ROOT})
    for number, inodes in enumerate(({1}, (), {2}, (), {3}, {4}, (), (), (), ())):
        held_now[WORKER] = frozenset(inodes)
        seen.read_due(T + 5 * number)
        news = seen.activity(T, WORKER)
        assert news is not None
        fresh.append(news.fresh)
    assert fresh == [0, 0, 1, 1, 2, 3, 3, 2, 1, 0]


def test_without_sock_diag_the_reason_is_given_and_nothing_else_stops(
    monkeypatch: pytest.MonkeyPatch, fake: FakeProc
) -> None:
    def refuse() -> socket.socket:
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(socket_tables, "_opened", refuse)
    assert "not permitted" in (tcp_tables().reason or "")
    fake.process(ROOT, wchan="futex_wait_queue")
    fake.process(WORKER, "pt_data_worker", ppid=ROOT, wchan="poll_schedule_timeout")
    _, worker = read(fake, 18)
    assert worker.feed_poll_pct == 100.0
    assert "not permitted" in worker.unavailable["net_rx_bytes_per_s"]
    (root,) = read(fake, 19, lambda second: fake.end(WORKER) if second == 18 else None)
    assert root.pid == ROOT


def test_a_wait_that_may_not_be_seen_is_not_zero(fake: FakeProc) -> None:
    fake.process(ROOT, wchan="0")
    fake.process(WORKER, "pt_data_worker", ppid=ROOT, wchan="0")
    _, worker = read(fake, 18)
    assert (worker.feed_run_pct, worker.feed_disk_pct, worker.feed_poll_pct) == (0.0, 0.0, None)
    assert worker.unavailable["feed_poll_pct"] == "the kernel names no wait channel"


def test_a_stopped_worker_of_another_user_is_known_to_wait_for_no_data(fake: FakeProc) -> None:
    fake.process(ROOT, wchan="0")
    fake.process(WORKER, "pt_data_worker", ppid=ROOT, wchan="0", state="T")
    _, worker = read(fake, 18)
    assert (worker.feed_other_pct, worker.feed_unread_pct) == (100.0, 0.0)


def test_what_is_stopped_does_nothing_of_what_it_did_a_moment_ago() -> None:
    tracker = WaitHistory()

    def waits(now: float, kind: str, state: str = "S") -> WaitShares:
        seen = [WaitObservation(now - part / 10, ROOT, ROOT, WaitState(kind)) for part in range(6)]
        tracker.add_observations(
            now, seen, Stat(b"", state, 1, 1, 0, 1, 0, 0), moves=False, holds_gpu=True
        )
        return main_waits(tracker.counts, 1.0, fetches=False)[0]

    assert waits(T, "sleep") == WaitShares(sleep=1.0)
    assert waits(T + 1.0, "sleep", "T") == waits(T + 2.0, "lock", "t") == WaitShares(other=1.0)


def test_each_second_with_enough_looks_has_its_own_shares() -> None:
    tracker = WaitHistory()

    def waits(now: float, kind: str, looks: int) -> WaitShares:
        seen = [
            WaitObservation(now - part / 10, ROOT, ROOT, WaitState(kind)) for part in range(looks)
        ]
        tracker.add_observations(
            now, seen, Stat(b"", "S", 1, 1, 0, 1, 0, 0), moves=False, holds_gpu=True
        )
        return main_waits(tracker.counts, 1.0, fetches=False)[0]

    assert waits(T, "lock", 6) == WaitShares(lock=1.0)
    assert waits(T + 1.0, "sleep", 6) == WaitShares(sleep=1.0)
    # With too few, those of the last seconds count as well, and the last wait until there is another.
    assert waits(T + 2.0, "disk", 3).disk == pytest.approx(3 / 15)
    assert waits(T + 20.0, "run", 6) == WaitShares(unread=1.0)
    assert waits(T + 40.0, "run", 0).disk == 1.0


def test_a_reading_observes_no_wait_itself(fake: FakeProc) -> None:
    fake.process(ROOT)
    fake.process(WORKER, "pt_data_worker", ppid=ROOT)
    collector = collector_of(fake)
    for second, wait in enumerate((None, None, "sleep")):
        if wait is not None:
            sample(collector, T + second - 0.1)
        _, worker = collector.read(T + second, [GpuProcess(0, ROOT, 1e9, "C")], {0: 98.0})
        assert worker.waiting_on == wait
        assert ("waiting_on" in worker.unavailable) == (wait is None)
    collector.close()


@pytest.mark.parametrize(("runs_at", "wait"), [(99, "sleep"), (12, "queue")])
def test_beside_a_busy_gpu_only_who_has_run_is_sampled_again(
    fake: FakeProc, runs_at: int, wait: str
) -> None:
    def work(second: int) -> None:
        if second in (0, runs_at):
            fake.process(WORKER, "pt_data_worker", ppid=ROOT)
        fake.write(f"proc/{WORKER}/wchan", "hrtimer_nanosleep" if second < 5 else "do_poll")

    fake.process(ROOT)
    assert read(fake, 15, work, util=98.0)[1].waiting_on == wait


def test_a_main_thread_on_a_core_is_seen_to_run(fake: FakeProc) -> None:
    fake.process(ROOT, state="R", wchan="0")
    (root,) = read(fake, 4)
    assert root.main_waits == "run 4" and root.waits_for == ()


@pytest.mark.parametrize("run", [0.0, 0.3, 1.8])
@pytest.mark.parametrize(
    "waits", [{}, {"sleep": 1}, {"queue": 2, "disk": 1, "socket": 3, "run": 1}]
)
def test_shares_add_up_to_the_whole_time(run: float, waits: dict[str, int]) -> None:
    shares = shares_of(run, 0.1, waits)
    assert sum(astuple(shares)) == pytest.approx(1.0)
    assert sum(astuple(in_place_of_waits(shares, WaitShares(run=1.0)))) == pytest.approx(1.0)
    assert sum(astuple(as_network(shares, 0.2))) == pytest.approx(1.0)


def test_writing_a_file_is_a_part_of_the_waits() -> None:
    states = WaitState("disk", saves=True), WaitState("disk")
    seen = [WaitObservation(T + number, ROOT, ROOT, state) for number, state in enumerate(states)]
    counts = count_waits(seen, moves=False, holds_gpu=True)
    assert main_waits(counts, 0.8, fetches=False) == (WaitShares(disk=0.8), 0.4)


def test_threads_have_shares_of_their_own_second(fake: FakeProc) -> None:
    collector, ran = collector_of(fake), list[float]()
    for second in range(24):
        works = second % 4 < 2 or second < 12
        ticks = sum(100 for past in range(second + 1) if past % 4 < 2 or past < 12)
        fake.process(
            ROOT, threads={101: "python"}, runs=works, cpu_ticks=ticks, wchan="futex_wait_queue"
        )
        sample(collector, T + second - 0.6, 6)
        (root,) = collector.read(T + second, [GpuProcess(0, ROOT, 1e9, "C")], {0: 40.0})
        ran.append(root.feed_run_pct or 0.0)
    collector.close()
    assert ran[16:] == pytest.approx([100.0, 100.0, 0.0, 0.0] * 2, abs=1.0)


def test_a_busy_gpu_costs_no_close_look(fake: FakeProc) -> None:
    fake.process(ROOT, threads={101: "python"})
    fake.process(WORKER, "pt_data_worker", ppid=ROOT)
    root, worker = read(fake, 3, util=98.0)
    assert (root.feed_run_pct, root.feeder_threads, root.net_rx_bytes_per_s) == (None, 1, None)
    assert worker.feed_sleep_pct == pytest.approx(100.0)


def test_the_threads_of_a_main_thread_that_sleeps_are_looked_at(fake: FakeProc) -> None:
    # It may look for its batch and sleep between: then a thread is what it waits for.
    def work(second: int) -> None:
        fake.process(
            ROOT, threads={101: "python"}, runs=1, cpu_ticks=100 * second, wchan="hrtimer_nanosleep"
        )

    (root,) = read(fake, 20, work)
    assert root.main_sleep_pct == pytest.approx(100.0)
    assert (root.feed_run_pct or 0.0) >= 90.0


def test_what_a_pin_memory_thread_runs_is_time_on_a_core(fake: FakeProc) -> None:
    def work(second: int) -> None:
        fake.process(
            ROOT,
            threads={101: "pt_data_pin"},
            runs=1,
            cpu_ticks=100 * second,
            wchan="futex_wait_queue",
        )
        fake.write(f"proc/{ROOT}/task/101/stat", "101 (pt_data_pin) R 1 1 " + "0 " * 40)

    (root,) = read(fake, 20, work)
    assert (root.feed_run_pct, root.feed_queued_pct) == (pytest.approx(100.0), pytest.approx(0.0))


def test_whoever_takes_the_cores_outside_the_trees_is_named(fake: FakeProc) -> None:
    def work(second: int) -> None:
        fake.process(
            WORKER,
            "pt_data_worker",
            ppid=ROOT,
            run_ns=10**8 * second + 1,
            wait_ns=9 * 10**8 * second,
        )
        fake.process(300, "ffmpeg", "ffmpeg -i x", session=7, cpu_ticks=400 * second)

    fake.process(ROOT)
    collector = collector_of(fake)
    read(fake, 8, work, collector=collector)
    (outsider,) = collector.outsiders or ()
    assert (outsider.name, round(outsider.cpu_pct)) == ("ffmpeg", 400)
    assert round(collector.cpu_outsiders_pct or 0.0) == 400


def _taken(fake: FakeProc, outsiders: Outsiders, now: float, *pids: int) -> dict[str, int]:
    """Percent of one core by program, after a scan."""
    outsiders.scan_if_due(now, pids, (), is_needed=True)
    return {o.name: round(o.cpu_pct) for o in outsiders.largest or ()}


def test_many_programs_of_one_user_are_named_by_the_two_largest(fake: FakeProc) -> None:
    outsiders = Outsiders(str(fake.proc), lambda pid: "ann")
    names = {300: "cc1plus", 301: "rustc", 302: "ld", 303: "as"}
    for pid, name in names.items():
        fake.process(pid, name)
    _taken(fake, outsiders, T, *names)
    for pid, ticks in zip(names, (60, 50, 40, 30), strict=True):
        fake.process(pid, names[pid], cpu_ticks=ticks)
    assert list(_taken(fake, outsiders, T + 3.0, *names)) == ["cc1plus, rustc and 2 others"]


def test_what_was_no_outsider_before_is_not_charged_with_its_whole_life(fake: FakeProc) -> None:
    fake.process(300, "sh")
    fake.process(310, "make", starttime=9000, cpu_ticks=90)
    outsiders = Outsiders(str(fake.proc), lambda pid: "ann")
    _taken(fake, outsiders, T, 300, 310)
    # A worker whose job has ended is an outsider from now on.
    fake.process(320, "worker", starttime=8000, cpu_ticks=500_000)
    fake.process(310, "make", starttime=9000, cpu_ticks=390)
    fake.process(330, "new", starttime=9400, cpu_ticks=150)
    assert _taken(fake, outsiders, T + 3.0, 300, 310, 320, 330) == {"make": 100, "new": 50}


def test_a_parent_counts_only_if_a_pipe_or_a_socket_connects_it(fake: FakeProc) -> None:
    holds = {
        1: fds({5, 7}, {5}), 2: fds({5}, {5}), 3: fds(writes={7}), 4: fds({9}, {9}),
        5: HeldInodes(NONE, NONE, frozenset((50,)), NONE), 6: HeldInodes(NONE, NONE, frozenset((60,)), NONE),
    }  # fmt: skip
    ends = {50: 60, 60: 50}

    def is_found(parent: int, root: int, session: int = 100) -> bool:
        fake.process(ROOT, ppid=400, session=100)
        fake.process(400, "server", "server", session=session)
        table = ProcessTable(str(fake.proc))
        table.refresh(0.0)
        trees = find_trees(table, {ROOT: 0}, lambda pid, stat: b"python")
        held = {ROOT: holds[root], 400: holds[parent]}
        return list(find_parents(table, trees, [ROOT], held.get, ends.get)) == [400]

    assert is_found(2, 1)  # both ends of a queue
    assert not is_found(3, 1)  # the end by which a child learns of its parent's death
    assert not is_found(4, 1)
    assert is_found(6, 5)
    assert not is_found(6, 5, session=7)


def test_a_sibling_of_one_shell_or_launcher_feeds_by_a_pipe_or_a_socket(fake: FakeProc) -> None:
    writer = HeldInodes(NONE, frozenset((5,)), NONE, frozenset((5,)))
    reader = HeldInodes(frozenset((5,)), NONE, NONE, frozenset((5,)))
    worker = HeldInodes(NONE, NONE, frozenset((50,)), NONE)
    actor = HeldInodes(NONE, NONE, frozenset((60,)), NONE)

    def found(feeder: HeldInodes, root: HeldInodes, session: int = 100) -> list[int]:
        fake.process(400, "bash", "bash", session=100)
        fake.process(ROOT, ppid=400, session=100)
        fake.process(500, "prep", "python prep.py", ppid=400, session=session)
        table = ProcessTable(str(fake.proc))
        table.refresh(0.0)
        trees = find_trees(table, {ROOT: 0}, lambda pid, stat: b"python")
        held = {ROOT: root, 500: feeder, 400: fds({9}, {9})}
        return list(find_parents(table, trees, [ROOT], held.get, {50: 60, 60: 50}.get))

    assert found(writer, reader) == [500]  # python prep.py | python train.py
    assert found(actor, worker) == [500]
    assert found(reader, writer) == []  # python train.py | tee log
    assert found(fds({9}, {9}), worker) == []
    assert found(actor, worker, session=7) == []


def test_looks_are_counted_and_said_in_words() -> None:
    looks = main_looks((state, 1) for state in ("queue", "run", "queue", "in a state of tomorrow"))
    assert looks.words == "queue 2, run 1, other 1"
    assert (looks.count_of("queue"), looks.count_of("lock"), looks.total, looks.waiting) == (
        2,
        0,
        4,
        3,
    )


@pytest.mark.parametrize(("every_s", "most"), [(0.25, 1), (1.0, 6), (3.0, 6)])
def test_samples_are_few_between_two_readings_that_follow_each_other_soon(
    monkeypatch: pytest.MonkeyPatch, every_s: float, most: int
) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    sampler: Any = WaitSampler(Any, Any, Any, lambda _: None)  # type: ignore[arg-type]
    sampler._worker = SimpleNamespace(ask=lambda: None)
    for _ in range(4):
        sampler.set_plan(SamplingPlan(mains=(7,), jobs={7: Job()}))
        now[0] += every_s
    assert len(sampler._due) == most
    assert all(now[0] - every_s <= due <= now[0] for due in sampler._due)
