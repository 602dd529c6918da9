"""Who works for the workers: a manager, a child with threads of its own, environments that answer in turn."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.managers import BaseManager

from tests.e2e.case import case
from tests.e2e.cases.torch_loaders import loader
from tests.e2e.job import Gpu
from tests.e2e.loads import BATCH_BYTES, compute, fed_by


class Tokenizer:
    def encode(self) -> bytes:
        return compute(0.3)


class Manager(BaseManager):
    pass


Manager.register("Tokenizer", Tokenizer)


@case(
    ("dataloader_cpu",),
    ("cpu", "queued"),
    1,
    ("this host",),
    cores=1.0,
    never=("network", "fetch", "lock", "disk"),
)
def manager_computes(gpu: Gpu) -> None:
    """Workers that ask a multiprocessing Manager for each item, which computes: more workers would not help."""
    with Manager() as manager:
        tokenizer = manager.Tokenizer()  # type: ignore[attr-defined]

        def asked() -> Iterator[bytes]:
            while True:
                yield tokenizer.encode()

        gpu.train(fed_by([asked, asked]), 0.05)


DECODER = """
import os, sys, threading, time
def decode():
    while True:
        end = time.monotonic() + 0.3
        while time.monotonic() < end: sum(range(200))
        os.write(1, bytes(4096))
thread = threading.Thread(target=decode)
thread.start()
thread.join()
"""


@case(
    ("dataloader_cpu",), ("cpu", "queued"), 1, cores=1.0, never=("lock", "network", "fetch", "disk")
)
def threaded_decoder(gpu: Gpu) -> None:
    """A worker reads the pipe of a child whose main thread waits for its own decoder thread, as ffmpeg's does."""

    def decoded() -> Iterator[bytes]:
        child = subprocess.Popen([sys.executable, "-c", DECODER], stdout=subprocess.PIPE)
        assert child.stdout is not None
        while True:
            yield child.stdout.read(BATCH_BYTES)

    gpu.train(fed_by([decoded]), 0.05)


def _environment(asked: Connection, seconds: float) -> None:
    while True:
        asked.recv()
        compute(seconds)
        asked.send(b"")


@case(
    ("dataloader_cpu",),
    ("cpu", "queued"),
    4,
    ("1 of 4", "balance"),
    uneven=True,
    cores=1.0,
    never=("lock", "network"),
)
def one_slow_environment(gpu: Gpu) -> None:
    """An RL loop that steps four environments at once and takes their answers in order; one of them is slow."""
    context = get_context("fork")
    pipes = []
    for seconds in (0.02, 0.3, 0.02, 0.02):
        mine, its = context.Pipe()
        context.Process(target=_environment, args=(its, seconds), daemon=True).start()
        pipes.append(mine)

    def steps() -> Iterator[bytes]:
        while True:
            for pipe in pipes:
                pipe.send(b"")
            for pipe in pipes:
                pipe.recv()
            yield b""

    gpu.train(steps(), 0.05)


@case(
    ("idle",),
    ("stopped",),
    says=("1 of 2", "SIGSTOP", "kill -CONT"),
    cores=0.3,
    changes=2,
    watch_s=75.0,
)
def one_worker_stopped(gpu: Gpu) -> None:
    """One of two workers is stopped by a signal while the job trains: it hangs, and only that worker tells why."""

    def stops() -> Iterator[bytes]:
        end = time.monotonic() + 15.0
        while time.monotonic() < end:
            time.sleep(0.02)
            yield b""
        os.kill(os.getpid(), signal.SIGSTOP)

    def goes_on() -> Iterator[bytes]:
        while True:
            time.sleep(0.02)
            yield b""

    gpu.train(fed_by([stops, goes_on]), 0.2)


def _small(index: int) -> object:
    import torch

    compute(0.06)
    return torch.zeros(4)


@case(
    ("dataloader_cpu",),
    ("cpu", "queued"),
    2,
    cores=2.0,
    needs="torch",
    never=("lock", "network", "fetch"),
)
def handed_over(gpu: Gpu) -> None:
    """One small tensor a step: the main thread fetches its descriptor from a worker whose Python code computes."""
    gpu.train(iter(loader(_small, multiprocessing_context="spawn")), 0.01)


def _pinned(index: int) -> bytes:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    end = time.thread_time() + 0.05
    while time.thread_time() < end:
        sum(range(200))
    return b""


@case(
    ("dataloader_cpu",),
    ("queued", "cpu"),
    3,
    ("may use 1 of",),
    cores=1.0,
    needs="torch",
    never=("disk", "network"),
)
def pinned_workers(gpu: Gpu) -> None:
    """A library pins every worker to one core, the same one, while the main process may run on all."""
    gpu.train(iter(loader(_pinned, workers=3)), 0.01)
