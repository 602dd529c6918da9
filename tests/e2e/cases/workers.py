"""Worker processes of any other kind: pools, executors, queues, actors, and what they wait for."""

from __future__ import annotations

import fcntl
import mmap
import multiprocessing
import os
import tempfile
import time
from collections.abc import Iterator
from multiprocessing import get_context
from multiprocessing.managers import BaseManager
from random import randrange

from tests.e2e.case import CALM, case
from tests.e2e.job import Gpu
from tests.e2e.loads import BATCH_BYTES, compute, connect, endless, fed_by, receive


@case(("healthy",), only=CALM, cores=0.2)
def pool_idle(gpu: Gpu) -> None:
    """A healthy job with a pool that has nothing to do: waiting for a task is no fault."""
    with get_context("fork").Pool(4) as pool:
        pool.map(abs, range(8))
        gpu.train(endless(lambda: bytes(4096)), 0.4)


CHANGES_AFTER_S = 32.0


@case(("dataloader_cpu",), cores=1.0, then=("dataloader_io",), change_s=CHANGES_AFTER_S)
def changing(gpu: Gpu) -> None:
    """A job that decodes at first and then waits for the network: the old cause must not be said any longer."""
    begun = time.monotonic()

    def both() -> Iterator[bytes]:
        while time.monotonic() < begun + CHANGES_AFTER_S:
            yield compute(0.4)
        connection = connect(gpu.port)
        while True:
            yield receive(connection)

    gpu.train(fed_by([both]), 0.05)


@case(
    ("dataloader_cpu", "dataloader_io"),
    ("cpu", "queued", "network"),
    1,
    ("network", "CPU"),
    cores=0.5,
)
def two_causes(gpu: Gpu) -> None:
    """A worker that decodes for half of its time and waits for the network in the other: neither alone explains it."""

    def both() -> Iterator[bytes]:
        connection = connect(gpu.port)
        while True:
            receive(connection)
            yield compute(0.2)

    gpu.train(fed_by([both]), 0.05)


@case(("starved_unattributed",), ("sleep",), 2, ("sleep",), cores=0.1)
def backoff(gpu: Gpu) -> None:
    """Workers that a rate limit holds back: they sleep and try again."""

    def held_back() -> Iterator[bytes]:
        while True:
            time.sleep(0.5)
            yield b""

    gpu.train(fed_by([held_back, held_back]), 0.05)


@case(("starved_unattributed",), ("lock", "sleep"), 4, ("lock",), cores=0.1)
def shared_lock(gpu: Gpu) -> None:
    """Workers that share one index behind a lock, which nobody gives back in time: not a matter of CPU or network."""
    lock = multiprocessing.get_context("fork").Lock()

    def looked_up() -> Iterator[bytes]:
        while True:
            with lock:
                time.sleep(0.25)
            yield b""

    gpu.train(fed_by([looked_up] * 4), 0.05)


@case(
    ("dataloader_cpu",),
    ("cpu", "queued"),
    4,
    ("take turns", "lock"),
    cores=1.0,
    never=("lock", "network", "disk"),
)
def computes_under_a_lock(gpu: Gpu) -> None:
    """Workers that compute while they hold one multiprocessing lock, as around HDF5: one of them works at a time."""
    lock = multiprocessing.get_context("fork").Lock()

    def read_under_the_lock() -> Iterator[bytes]:
        while True:
            with lock:
                batch = compute(0.15)
            yield batch

    gpu.train(fed_by([read_under_the_lock] * 4), 0.05)


@case(
    ("dataloader_io",),
    ("network",),
    4,
    ("take turns", "lock"),
    cores=0.2,
    never=("lock", "cpu", "queued", "disk"),
)
def fetches_under_a_file_lock(gpu: Gpu) -> None:
    """Workers that fetch over the network while they hold one file lock."""
    path = tempfile.mkstemp()[1]

    def fetched_under_the_lock() -> Iterator[bytes]:
        connection = connect(gpu.port)
        with open(path, "rb") as file:
            while True:
                fcntl.flock(file, fcntl.LOCK_EX)
                batch = receive(connection)
                fcntl.flock(file, fcntl.LOCK_UN)
                yield batch

    gpu.train(fed_by([fetched_under_the_lock] * 4), 0.05)


class Index:
    def look_up(self) -> bytes:
        time.sleep(0.4)
        return b""


class Manager(BaseManager):
    pass


Manager.register("Index", Index)


@case(
    ("starved_unattributed",), ("unknown",), 1, ("py-spy dump --pid",), cores=0.1,
    never=("network", "fetch", "disk", "cpu", "lock", "sleep"),
)  # fmt: skip
def manager(gpu: Gpu) -> None:
    """Workers that ask a multiprocessing Manager for each item: a wait for another process here, and no network."""
    with Manager() as manager:
        index = manager.Index()  # type: ignore[attr-defined]

        def asked() -> Iterator[bytes]:
            while True:
                yield index.look_up()

        gpu.train(fed_by([asked, asked]), 0.05)


BLOCK, BLOCKS = 1 << 20, 64


@case(("dataloader_io",), ("disk",), 2, ("disk",), cores=0.6, never=("network",))
def direct_reads(gpu: Gpu) -> None:
    """Workers that read past the page cache (O_DIRECT): state D, in a function that no table of names knows."""
    # Without a name: nothing stays behind, whatever ends the job.
    with tempfile.TemporaryFile(dir=".") as file:
        file.write(os.urandom(BLOCK) * BLOCKS)
        file.flush()
        os.fsync(file.fileno())

        def read() -> Iterator[bytes]:
            data, buffer = (
                os.open(f"/proc/self/fd/{file.fileno()}", os.O_RDONLY | os.O_DIRECT),
                mmap.mmap(-1, BLOCK),
            )
            while True:
                end = time.monotonic() + 0.4
                while time.monotonic() < end:
                    os.preadv(data, [buffer], BLOCK * randrange(BLOCKS))
                yield b""

        gpu.train(fed_by([read, read]), 0.05)


@case(("dataloader_io",), ("pipe", "fetch"), 1, ("pipe",), cores=0.1)
def fifo(gpu: Gpu) -> None:
    """A worker that reads a FIFO which a process outside the job fills slowly."""

    def piped() -> Iterator[bytes]:
        with open(gpu.fifo, "rb", buffering=BATCH_BYTES) as stream:
            while batch := stream.read(BATCH_BYTES):
                yield batch

    gpu.train(fed_by([piped]), 0.08)


@case(("dataloader_io",), ("network",), 2, ("mount-",), cores=0.1, mount_s=0.4)
def fuse_reads(gpu: Gpu) -> None:
    """Workers that read from a slow file system in user space, as a bucket that is mounted."""

    def read() -> Iterator[bytes]:
        with open(gpu.mount, "rb", buffering=0) as file:
            while True:
                yield file.read(BATCH_BYTES)

    gpu.train(fed_by([read, read]), 0.05)


@case(
    ("idle",),
    ("mount",),
    0,
    ("mount-",),
    cores=0.1,
    mount_s=0.1,
    hangs_s=12.0,
    changes=1,
    watch_s=75.0,
)
def mount_hangs(gpu: Gpu) -> None:
    """The file system under the workers stops to answer: the GPU idles, and it is said where they hang."""
    fuse_reads(gpu)


@case(
    ("dataloader_io",),
    ("fetch", "network"),
    2,
    ("for 2 workers (a pipe)", "the network at 127.0.0.1:"),
    cores=0.2,
)
def socket_timeout(gpu: Gpu) -> None:
    """Workers whose sockets have a timeout: the kernel shows poll, which says nothing of what they wait for."""

    def fetched() -> Iterator[bytes]:
        connection = connect(gpu.port, timeout=30.0)
        return endless(lambda: receive(connection))

    gpu.train(fed_by([fetched, fetched]), 0.05)
