"""What the main thread waits for itself: data, a program, requests, other ranks."""

from __future__ import annotations

import asyncio
import ctypes
import multiprocessing
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from multiprocessing.connection import Connection
from queue import Queue

from tests.e2e.case import case
from tests.e2e.job import Gpu
from tests.e2e.loads import compute, connect, endless, fed_by, receive


@case(("main_process",), ("sleep",), says=("sleep",), cores=0.1)
def main_sleeps(gpu: Gpu) -> None:
    """The main thread looks for a new file now and then, and sleeps between."""

    def look() -> bytes:
        time.sleep(0.9)
        return b""

    # The step spins: a sleep while the GPU computes is another thing than one while it idles.
    gpu.train(endless(look), 0.1, spins=True)


@case(("main_process",), ("cpu", "queued"), cores=1.0, never=("lock", "unknown"))
def backward_thread(gpu: Gpu) -> None:
    """Steps too small for the GPU: half of the time the main thread launches kernels, half of it PyTorch's thread for
    gradients does, while main waits for that one by a lock."""
    forwards, backwards = Queue[float](), Queue[bytes]()

    def autograd() -> None:
        ctypes.CDLL(None).prctl(15, b"pt_autograd_0")
        while True:
            backwards.put(compute(forwards.get()))

    def launched() -> bytes:
        compute(0.05)
        forwards.put(0.05)
        return backwards.get()

    threading.Thread(target=autograd, daemon=True).start()
    gpu.train(endless(launched), 0.02)


@case(("main_process",), ("network",), says=("the network itself at 127.0.0.1:",), cores=0.1)
def main_sockets(gpu: Gpu) -> None:
    """The main thread reads a slow socket itself: no loader is to blame, because there is none."""
    connection = connect(gpu.port)
    gpu.train(endless(lambda: receive(connection)), 0.08)


@case(("main_process",), ("network",), says=("network",), cores=0.1, never=("fetch", "cpu", "disk"))
def tracker(gpu: Gpu) -> None:
    """The main thread tells a tracker of each step over HTTP, with a timeout, beside workers that keep up."""
    ready = fed_by([lambda: endless(lambda: b"")] * 2)

    def told() -> Iterator[bytes]:
        while True:
            batch = next(ready)
            with connect(gpu.port, timeout=30.0) as connection:
                receive(connection)
            yield batch

    gpu.train(told(), 0.08)


READER = "import os, time\nwhile os.read(0, 65536): time.sleep(0.4)"


@case(
    ("main_process",),
    ("pipe",),
    says=("reader of a pipe",),
    cores=0.1,
    never=("fetch", "network", "cpu"),
)
def slow_reader(gpu: Gpu) -> None:
    """The main thread prints more than the reader of its output takes."""
    reader = subprocess.Popen(
        [sys.executable, "-c", READER], stdin=subprocess.PIPE, start_new_session=False
    )
    ready = fed_by([lambda: endless(lambda: b"")] * 2)

    def printed() -> Iterator[bytes]:
        assert reader.stdin is not None
        while True:
            batch = next(ready)
            reader.stdin.write(bytes(65536))
            reader.stdin.flush()
            yield batch

    gpu.train(printed(), 0.08)


STEPS, EVALUATES_S = 15, 3.0


@case(
    ("main_process",),
    ("cpu", "queued"),
    says=("workers are busy 0 %",),
    cores=0.5,
    never=("lock", "sleep", "fetch", "disk"),
)
def evaluation(gpu: Gpu) -> None:
    """Every few steps the main thread evaluates for seconds, as scikit-learn does, beside workers that are ahead."""
    ready = fed_by([lambda: endless(lambda: b"")] * 2)

    def batches() -> Iterator[bytes]:
        while True:
            for _ in range(STEPS):
                yield next(ready)
            compute(EVALUATES_S)

    gpu.train(batches(), 0.2)


@case(("idle",), says=("waits",), cores=0.1, watch_s=90.0, never=("ranks", "disk", "cpu"))
def rendezvous(gpu: Gpu) -> None:
    """A job that waits on a socket before its first step: nothing says that it is a rank of several."""
    gpu.hold()
    with (
        socket.create_server(("127.0.0.1", gpu.own_port)) as store,
        socket.create_connection(store.getsockname()) as me,
    ):
        me.recv(1)


@case(
    ("idle",),
    ("ranks",),
    says=("other ranks", "1 of 2 ranks seen, rank 1 missing"),
    cores=0.1,
    watch_s=90.0,
    never=("network", "disk", "cpu"),
)
def ranks(gpu: Gpu) -> None:
    """The same of a process that was started as one of two, which meet at that socket's port."""
    local = {"RANK": "0", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2"}
    meets = {"WORLD_SIZE": "2", "MASTER_PORT": str(gpu.own_port), **local}
    if os.environ.get("MASTER_PORT") != meets["MASTER_PORT"]:
        os.execve(sys.executable, sys.orig_argv, {**os.environ, **meets})
    rendezvous(gpu)


async def _served(answer: Callable[..., Awaitable[None]], port: int) -> None:
    server = await asyncio.start_server(answer, "127.0.0.1", port)
    await server.serve_forever()


@case(
    ("low_demand",),
    cores=0.2,
    visited=True,
    only=frozenset({"collecting", "startup", "low_demand"}),
)
def server(gpu: Gpu) -> None:
    """A script that serves by asyncio: between the bursts of its visitors it waits in epoll, and starves of nothing."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        gpu.step(0.08)
        writer.write(b"!")
        writer.close()

    asyncio.run(_served(answer, gpu.own_port))


def _compute(asked: Connection, gpu: Gpu) -> None:
    while True:
        asked.recv_bytes()
        gpu.step(0.08)
        asked.send_bytes(b"!")


@case(
    ("low_demand",),
    says=("takes requests",),
    cores=0.2,
    visited=True,
    watch_s=50.0,
    only=frozenset({"collecting", "startup", "idle", "low_demand"}),
)
def engine(gpu: Gpu) -> None:
    """A server whose engine is a child that holds the GPU: it waits at a pipe of its parent, who takes the requests."""
    ours, its = multiprocessing.Pipe()
    multiprocessing.get_context("fork").Process(
        target=_compute, args=(its, gpu), daemon=True
    ).start()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        ours.send_bytes(b"?")
        writer.write(await asyncio.get_running_loop().run_in_executor(None, ours.recv_bytes))
        writer.close()

    asyncio.run(_served(answer, gpu.own_port))
