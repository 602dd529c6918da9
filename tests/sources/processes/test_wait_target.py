"""Whom a main thread waits for: real processes with pipes, sockets, locks and children, one row of the table each."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from gputop.model.feeders import HANDED_OVER, OTHER_RANKS, Via, WaitEnd
from gputop.sources.gpu_process import GpuProcess
from gputop.sources.processes.collector import ProcessCollector
from gputop.sources.processes.look import system_calls
from gputop.sources.processes.look.wait_state import (
    Job,
    WaitClassifier,
    WaitObservation,
    WaitTarget,
)
from gputop.sources.processes.resolve.socket_tables import PeerLookup, unix_peer
from gputop.sources.processes.resolve.tracked_process import TrackedProcesses
from gputop.sources.processes.resolve.wait_target import (
    ONE_OF_MANY,
    OUTSIDE,
    WaitResolver,
    children_of,
)
from gputop.sources.processes.tree import open_files
from gputop.sources.processes.tree.process_facts import RunRank

BEGIN = """
import json, multiprocessing, os, socket, subprocess, sys, threading, time
fork = multiprocessing.get_context("fork")
def ready(**pids):
    print(json.dumps({key: getattr(p, "pid", p) for key, p in pids.items()}), flush=True)
def start(work, *given, by=fork):
    child = by.Process(target=work, args=given, daemon=True)
    child.start()
    return child
def burn(*given):
    while True: pass
def give(queue):
    while True:
        queue.put(b"batch")
        time.sleep(0.05)
def think(queue):
    queue.put(b"the first")
    while True: pass
def obey(orders, answers):
    while True: answers.put(orders.get())
def sleep(*given):
    time.sleep(1000)
"""
WITHIN_S = 30.0
ANYBODY = "anybody"


class Watched:
    """One real process with its graph, looked at from here."""

    def __init__(self, pids: dict[str, int], pid: int, root: int | None = None) -> None:
        self.pids, self.pid, self.root = pids, pid, root
        self.job: dict[str, Any] = {}
        """What is known of the job beside its processes."""
        self.forget()

    def forget(self) -> None:
        """Forget what was seen of all processes."""
        self._classifier = WaitClassifier("/proc")
        self._tracked = TrackedProcesses("/proc")
        self._resolver = WaitResolver("/proc", self._classifier, self._tracked, PeerLookup())

    def look(self, called: tuple[str, ...] = (), threads: bool = False) -> WaitObservation:
        """Look once. ``called`` are loaders by name."""
        now, folder = time.monotonic(), f"/proc/{self.pid}"
        self._tracked.begin_round(now)
        found = self._classifier.classify_thread(now, self.pid, folder)
        assert found is not None
        tids = (
            [tid for tid in os.listdir(f"{folder}/task") if tid != str(self.pid)] if threads else []
        )
        loaders = frozenset(self.pids[name] for name in called)
        kin = tuple(children_of("/proc", self.root or self.pid))
        job = Job(kin, loaders, tids, **self.job)
        if self.root is not None:
            job = Job((self.root, *kin), loaders, root=self.root)
        return self._resolver.follow_wait(now, self.pid, found[1], job, loaders)[0]

    def until(
        self, wanted: WaitTarget, called: tuple[str, ...] = (), threads: bool = False
    ) -> None:
        """Look until it waits for what is wanted; fails with what it was seen waiting for instead."""
        seen, end = [], time.monotonic() + WITHIN_S
        while time.monotonic() < end:
            found = self.look(called, threads).target
            if (
                found is not None
                and replace(found, activity=None, evidence=None, active_pid=None) == wanted
            ):
                return
            seen.append(found)
            time.sleep(0.02)
        raise AssertionError(f"never {wanted}, but {set(seen)}; {self.pids}")

    def until_active(self, kind: str, evidence: str, who: str | None = None) -> None:
        """Look until somebody does this at the end of the way, in its place; for ``ANYBODY`` whoever it is."""
        seen, end = [], time.monotonic() + WITHIN_S
        while time.monotonic() < end:
            found = self.look().target
            if found is not None and found.activity is not None and found.activity.kind == kind:
                named = who == ANYBODY or found.active_pid == (who and self.pids[who])
                if named and found.evidence == evidence:
                    return
            seen.append(found)
            time.sleep(0.02)
        raise AssertionError(f"never {kind} by {evidence} of {who}, but {set(seen)}; {self.pids}")


@contextmanager
def watched(program: str) -> Iterator[Watched]:
    """A main thread that runs this program after ``BEGIN``; all of its session ends with it."""
    command = [sys.executable, "-c", BEGIN + program]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as main:
        try:
            assert main.stdout is not None
            pids = json.loads(main.stdout.readline())
            yield Watched(pids, main.pid)
        finally:
            os.killpg(main.pid, signal.SIGKILL)


def test_whoever_writes_the_pipe_that_main_reads_feeds_it_and_no_other_child_does(
    tmp_path: Path,
) -> None:
    # Fork hands both ends of the queue to all of them: the tracker, the checkpoint, the loader of the evaluation.
    program = f"""
queue, orders, answers = fork.Queue(), fork.Queue(), fork.Queue()
def save():
    with open({str(tmp_path / "saved")!r}, "wb") as file:
        while True:
            os.pwrite(file.fileno(), bytes(65536), 0)
            os.fsync(file.fileno())
def track():
    mine, its = socket.socketpair()
    while True:
        mine.send(b"step"); its.recv(9); time.sleep(0.01)
def chat():
    out = os.open(os.devnull, os.O_WRONLY)
    while True:
        os.write(out, b"log"); time.sleep(0.01)
worker = start(give, queue)
queue.get()
beside = dict(save=start(save), track=start(track), evaluate=start(obey, orders, answers), idle=start(sleep))
ready(worker=worker, chat=start(chat), **beside)
while True: queue.get()
"""
    with watched(program) as main:
        main.until(
            WaitTarget("pipe", (main.pids["worker"],), written=True), ("worker", "save", "evaluate")
        )
        # Of what writes to no disk nobody knows where it goes: all of that count, if none is called a loader.
        main.until(WaitTarget("pipe", (main.pids["worker"], main.pids["chat"]), written=True))


@pytest.mark.parametrize(
    "waits",
    [
        pytest.param("queue.get(timeout=30)", marks=pytest.mark.slow),
        pytest.param(
            "os.dup2(queue._reader.fileno(), 99); select.select([99], [], []); queue.get()",
            marks=pytest.mark.slow,
        ),
        "epoll = select.epoll(); epoll.register(queue._reader, 1); epoll.poll(); queue.get()",
    ],
)
def test_several_workers_of_one_queue_are_one_feeder_however_it_is_polled(waits: str) -> None:
    program = f"""
import select
others = fork.Queue()
other = start(give, others)
queue = fork.Queue()
a, b = start(give, queue), start(give, queue)
ready(a=a, b=b, other=other)
while True:
    {waits}
"""
    with watched(program) as main:
        main.until(WaitTarget("pipe", (main.pids["a"], main.pids["b"]), written=True))


def test_who_was_not_seen_writing_is_named_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    program = """
queue = fork.Queue()
ready(a=start(burn, queue), b=start(burn, queue), other=start(sleep))
queue.get()
"""
    with watched(program) as main:
        by_name = WaitTarget("name", tuple(sorted((main.pids["a"], main.pids["b"]))))
        main.until(by_name, ("a", "b"))
        # Nobody is called a loader: then it is not known.
        main.until(WaitTarget("unknown", detail=ONE_OF_MANY))
        # Yama keeps the system call from an ordinary user, and the kernel all files of another one's.
        monkeypatch.setattr(system_calls, "call_of", lambda folder: None)
        main.until(by_name, ("a", "b"))
        monkeypatch.setattr(open_files, "held", lambda proc, pid: None)
        main.until(by_name, ("a", "b"))


def test_a_worker_without_work_waits_for_main_and_one_that_asks_a_server_for_that() -> None:
    program = """
orders, answers = fork.Queue(), fork.Queue()
mine, its = socket.socketpair()
server = start(lambda: mine.close() or sleep())
idle, asks = start(obey, orders, answers), start(lambda: its.close() or mine.recv(1))
its.close()
start(think, answers)
ready(idle=idle, asks=asks, server=server)
answers.get()
time.sleep(1000)
"""
    with watched(program) as main:
        Watched(main.pids, main.pids["idle"], main.pid).until(WaitTarget("pipe", (main.pid,)))
        # Nobody but the server has the other end.
        Watched(main.pids, main.pids["asks"], main.pid).until(
            WaitTarget("socket", (main.pids["server"],), written=True)
        )


PIPED = """
child = subprocess.Popen([sys.executable, "-c", "while True: pass"], stdout=subprocess.PIPE)
ready(child=child)
child.stdout.read()
"""
WAITED = """
side, child = start(burn), subprocess.Popen(["sleep", "1000"])
ready(side=side, child=child)
child.wait()
"""
PAIRED = """
mine, its = socket.socketpair()
child = start(lambda: mine.close() or burn())
its.close()
ready(child=child)
mine.recv(1)
"""


@pytest.mark.parametrize(
    ("program", "via", "written"),
    [(PIPED, "pipe", False), (WAITED, "child", False), (PAIRED, "socket", True)],
    ids=["its only pipe", "its end", "its socket"],
)
def test_one_child_is_waited_for_and_not_others(program: str, via: Via, written: bool) -> None:
    with watched(program) as main:
        main.until(WaitTarget(via, (main.pids["child"],), written=written))


def test_a_timer_is_a_wait_for_nobody_and_a_running_thread_waits_for_nothing() -> None:
    with watched("ready()\ntime.sleep(1000)") as main:
        main.until(WaitTarget("timer"))
    with watched("ready()\nburn()") as main:
        assert {main.look().target for _ in range(5)} == {None}


def test_a_socket_to_elsewhere_is_the_network_by_its_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        program = f"""
connection = socket.create_connection(("127.0.0.1", {port}))
ready()
connection.recv(1)
"""
        with watched(program) as main:
            main.until(WaitTarget("network", detail=f"127.0.0.1:{port}"))
            main.job["rank"] = RunRank(port, 2)
            main.until(WaitTarget("network", detail=f"127.0.0.1:{port}, where its ranks meet"))
            main.job["absent"] = "1 of 2 ranks seen here"
            main.until(
                WaitTarget(
                    "network",
                    detail=f"127.0.0.1:{port}, where its ranks meet: 1 of 2 ranks seen here",
                )
            )
        with watched(
            program.replace("connection.recv", "connection.settimeout(1000); connection.recv")
        ) as main:
            # A poll for one connection is a wait for the network.
            main.until(WaitTarget("network", detail=f"127.0.0.1:{port}", is_only=True))
            assert main.look().state.kind == "network"
    serving = (
        "server = socket.create_server(('127.0.0.1', "
        "0))\nready(port=server.getsockname()[1])\nserver.accept()"
    )
    with watched(serving) as main:
        main.until(WaitTarget("socket", detail=f"listens at :{main.pids['port']}"))


def test_a_connection_that_a_worker_has_not_taken_yet_is_a_wait_for_the_workers() -> None:
    # Torch's workers hand over the descriptors of shared memory by a new connection each time.
    program = """
server = socket.socket(socket.AF_UNIX)
server.bind("\\0" + str(os.getpid())); server.listen()
worker = start(sleep)
asks = socket.socket(socket.AF_UNIX)
asks.connect("\\0" + str(os.getpid()))
server.close()
ready(worker=worker)
asks.recv(1)
"""
    with watched(program) as main:
        found = main.look().target
        assert found is None or not found.pids
        main.job["torch"] = frozenset({main.pids["worker"]})
        main.until(WaitTarget("socket", (main.pids["worker"],), HANDED_OVER))


def test_the_other_end_of_a_socket_is_asked_for_by_its_inode() -> None:
    mine, its = socket.socketpair()
    with mine, its:
        assert unix_peer(os.fstat(mine.fileno()).st_ino) == os.fstat(its.fileno()).st_ino
    assert unix_peer(1) is None


def test_a_rank_in_a_lock_or_a_timer_waits_for_other_ranks() -> None:
    held = "held = threading.Lock()\nheld.acquire()\nready()\nheld.acquire()"
    with watched(held) as main:
        main.job |= {"rank": RunRank(None, 2, 0), "is_rank": True}
        main.until(WaitTarget("lock", detail=OTHER_RANKS), threads=True)
    with watched("ready()\ntime.sleep(1000)") as main:
        main.job |= {"rank": RunRank(None, 2, 0), "is_rank": True}
        # A main thread may sleep for its GPU, too.
        main.until(WaitTarget("timer"))
        main.job["absent"] = "1 of 2 ranks seen here"
        main.until(WaitTarget("timer", detail=f"{OTHER_RANKS}: 1 of 2 ranks seen here"))


def test_a_lock_is_held_by_the_threads_that_wait_for_none_and_leads_on_through_their_pipe() -> None:
    pool = """
queue, batches = fork.Queue(), __import__("queue").Queue()
worker = start(give, queue)
def pin():
    while True: batches.put(queue.get())
threading.Thread(target=pin, daemon=True).start()
ready(worker=worker, other=start(sleep))
while True: batches.get()
"""
    with watched(pool) as main:
        main.until(WaitTarget("pipe", (main.pids["worker"],), written=True), threads=True)
    alone = """
threading.Thread(target=burn, daemon=True).start()
held = threading.Lock()
held.acquire()
sys.setswitchinterval(1e-4)
ready()
held.acquire()
"""
    with watched(alone) as main:
        main.until(WaitTarget("thread", (main.pid,), "python"), threads=True)
    shared = """
queue, lock = fork.Queue(), fork.Lock()
lock.acquire()
worker = start(give, queue)
ready(worker=worker)
lock.acquire()
"""
    with watched(shared) as main:
        # The lock of a queue that another process reads: its pipe lies beside it, and which it is was not seen.
        main.until(WaitTarget("name", (main.pids["worker"],), written=True), threads=True)
    nobody = """
held = threading.Lock()
held.acquire()
ready()
held.acquire()
"""
    with watched(nobody) as main:
        main.until(WaitTarget("lock", detail=ONE_OF_MANY), threads=True)


def test_what_stands_for_a_workers_wait_is_what_is_done_at_the_end_of_its_way(
    tmp_path: Path,
) -> None:
    os.mkfifo(tmp_path / "fifo")
    program = f"""
orders, told = fork.Queue(), fork.SimpleQueue()
serves, asks = socket.socketpair()
def piped():
    a = subprocess.Popen([sys.executable, "-c", "while True: pass"], stdout=subprocess.PIPE)
    b = subprocess.Popen(["cat"], stdin=a.stdout, stdout=subprocess.PIPE)
    told.put(a.pid)
    b.stdout.read()
def reads():
    told.put(0)
    open({str(tmp_path / "fifo")!r}).read()
def runs():
    child = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    told.put(child.pid)
    child.wait()
def obeys():
    told.put(0)
    orders.get()
lock = fork.Lock()
lock.acquire()
def locked():
    told.put(0)
    lock.acquire()
def twice():
    told.put(0)
    for work in ("import time; time.sleep(2)", "while True: pass"):
        subprocess.Popen([sys.executable, "-c", work], stdout=subprocess.PIPE).stdout.read()
def decodes():
    work = "import threading as t\\ndef work():\\n while True: pass\\nw = t.Thread(target=work); w.start(); w.join()"
    child = subprocess.Popen([sys.executable, "-c", work], stdout=subprocess.PIPE)
    told.put(child.pid)
    child.stdout.read()
def served():
    told.put(0)
    serves.close()
    asks.recv(1)
pids = {{}}
for work in (twice, piped, decodes, reads, runs, obeys, served, locked):
    pids[work.__name__] = start(work)
    pids[work.__name__ + "_by"] = told.get()
pids["server"] = start(lambda: asks.close() or sleep())
serves.close()
ready(**pids)
time.sleep(1000)
"""
    with watched(program) as main:

        def worker(name: str) -> Watched:
            return Watched(main.pids, main.pids[name], main.pid)

        # The pipes that are remembered of a process do not hide the child behind a new one.
        twice = worker("twice")
        sleeps = (
            "sleep" if sys.version_info >= (3, 11) else "queue"
        )  # see the limits in wait_state.py
        for does in (sleeps, "run"):
            twice.until_active(does, "child", ANYBODY)
        worker("piped").until_active("run", "child", "piped_by")
        # The child's main thread waits for another one of its own, which computes.
        worker("decodes").until_active("run", "child", "decodes_by")
        worker("runs").until_active("run", "child", "runs_by")
        worker("reads").until_active("network", "pipe")
        worker("obeys").until_active("other", "task queue")
        worker("served").until_active("other", "peer")
        end = time.monotonic() + WITHIN_S
        while (locked := worker("locked").look()).state.kind != "lock" and time.monotonic() < end:
            time.sleep(0.02)
        assert (
            locked.state.kind == "lock"
            and locked.target is not None
            and locked.target.activity is None
        )


def test_a_pipe_that_nobody_of_the_job_writes_comes_from_outside_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with watched("other = start(sleep)\nready(other=other)\nsys.stdin.read()") as main:
        main.until(WaitTarget("pipe", detail=OUTSIDE))
        main.forget()
        # Whoever may not be asked may be the one.
        monkeypatch.setattr(open_files, "held", lambda proc, pid: None)
        main.until(WaitTarget("unknown", detail=ONE_OF_MANY))


def test_programs_that_main_runs_one_after_the_other_are_its_children() -> None:
    collector = ProcessCollector(clock=time.monotonic)
    ends: set[WaitEnd] = set()
    with watched("ready()\nwhile True: subprocess.run(['sleep', '0.2'])") as main:
        end = time.monotonic() + WITHIN_S
        while WaitEnd("child", 100.0, (), "its children") not in ends and time.monotonic() < end:
            time.sleep(0.1)
            (gpu, *_) = collector.read(
                time.monotonic(), [GpuProcess(0, main.pid, 1e9, "C")], {0: 40.0}
            )
            ends.update(gpu.waits_for or ())
    collector.close()
    assert WaitEnd("child", 100.0, (), "its children") in ends
    assert gpu.allowed_cores == len(os.sched_getaffinity(0))


def test_a_process_that_writes_to_a_disk_alone_writes_to_no_pipe(tmp_path: Path) -> None:
    writers = TrackedProcesses(str(tmp_path))

    def count(pid: int, wchar: int, write_bytes: int) -> None:
        (tmp_path / str(pid)).mkdir(exist_ok=True)
        counters = {
            "rchar": 0,
            "wchar": wchar,
            "syscr": 0,
            "syscw": 0,
            "read_bytes": 0,
            "write_bytes": write_bytes,
        }
        (tmp_path / str(pid) / "io").write_text(
            "".join(f"{name}: {count}\n" for name, count in counters.items())
        )

    count(5, 8000, 8192)
    count(6, 300, 0)
    count(7, 0, 0)
    # One has written before anybody looked.
    assert writers.writers(100.0, (5, 6, 7, 8)) == (6,)
    # It wrote less to its disk than the pages are large that went there: what it writes to a pipe counts all the same.
    count(5, 8100, 8192)
    assert writers.writers(103.0, (5, 6, 7, 8)) == (5,)
    assert writers.writers(162.0, (5, 6, 7, 8)) == (5,)
    # A minute after its last word it feeds nobody.
    assert writers.writers(164.0, (5, 6, 7, 8)) == (6,)


def test_a_lock_held_while_gradients_are_computed_is_for_the_thread_that_computes_them() -> None:
    with watched(
        """
import ctypes
def gradients():
    ctypes.CDLL(None).prctl(15, b"pt_autograd_0")
    ready()
    burn()
thread = threading.Thread(target=gradients, daemon=True)
thread.start()
thread.join()
"""
    ) as main:
        tids = [tid for tid in os.listdir(f"/proc/{main.pid}/task") if tid != str(main.pid)]
        main.job["backward"] = tuple(tids)
        main.until(WaitTarget("thread", (main.pid,), "pt_autograd_0"))
