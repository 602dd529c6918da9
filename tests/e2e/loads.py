"""What a case's loaders do all day, with the standard library alone.

Times are wall-clock times, so that a job keeps its character on a crowded machine: a worker that computes for 0.3 s is
runnable for 0.3 s, on a core or queued for one.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.queues
import os
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

BATCH_BYTES = 4096
PREFETCH = 2


def compute(seconds: float) -> bytes:
    """Keep a core busy until the time is over; gives a batch."""
    end, turns = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        turns += sum(range(200))
    return os.urandom(BATCH_BYTES)


def connect(port: int, *, timeout: float | None = None) -> socket.socket:
    """A connection to a slow source. With a timeout Python waits in poll, without one in the socket itself."""
    return socket.create_connection(("127.0.0.1", port), timeout)


def receive(connection: socket.socket) -> bytes:
    """One batch from a connection."""
    batch = b""
    while len(batch) < BATCH_BYTES:
        part = connection.recv(BATCH_BYTES - len(batch))
        if not part:
            raise ConnectionError("the source has ended")
        batch += part
    return batch


def fed_by(loads: list[Callable[[], Iterator[bytes]]]) -> Iterator[bytes]:
    """Batches from one forked worker a load, in turn, each a few batches ahead, as a dataloader gives them.

    A load is called in its worker, and yields that worker's batches.
    """
    context = multiprocessing.get_context("fork")
    queues: list[multiprocessing.queues.Queue[bytes]] = [context.Queue(PREFETCH) for _ in loads]
    for load, queue in zip(loads, queues, strict=True):
        context.Process(target=_fill, args=(load, queue), daemon=True).start()
    while True:
        for queue in queues:
            yield queue.get()


def _fill(load: Callable[[], Iterator[bytes]], queue: Any) -> None:
    for batch in load():
        queue.put(batch)


def endless(make: Callable[[], bytes]) -> Iterator[bytes]:
    """The batches that a function makes, one after the other."""
    while True:
        yield make()
