"""The process in which a loader is measured: the job's Python, or a fork of the program that asks."""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from gputop.features.loader_bench import job_side
from gputop.features.loader_bench.bench_report import LoaderSetting
from gputop.features.loader_bench.job_side import LoaderFactory
from gputop.system.children import a_jobs, how_it_ended, start, start_fork

Event = dict[str, Any]
_PIECE_BYTES = 1 << 16
_STOPPED_S = 5.0
"""How long a fork may take to end after its SIGKILL: it may hang in a driver or on a mount."""


class JobEndedError(Exception):
    """The process that measures has ended; ``str()`` is one phrase that says how."""


class JobProcess:
    """Connection to a process that runs ``job_side.serve``.

    Start one with ``in_python`` or ``in_fork``, and ``close`` it.
    """

    def __init__(self, pid: int, asks: int, told: int, reaped: Callable[[], int]) -> None:
        self._pid, self._asks, self._told, self._reaped = pid, asks, told, reaped
        self._its_end = os.pidfd_open(pid)
        self._status: int | None = None
        self._fork: int | None = None
        self._said = bytearray()
        os.set_blocking(told, False)

    def ask(self, setting: LoaderSetting, seed: int) -> None:
        """Ask for one setting; its events follow."""
        asked = {"workers": setting.workers, "prefetch": setting.prefetch, "seed": seed}
        self._say(json.dumps(asked).encode() + b"\n")

    def next_event(self, wait_s: float) -> Event | None:
        """Return the next event; None if there is none so soon. Raises JobEndedError."""
        until = time.monotonic() + wait_s
        while True:
            line, end, rest = self._said.partition(b"\n")
            if end:
                self._said = rest
                return self._noted(json.loads(line))
            left_s = max(0.0, until - time.monotonic())
            # What the job has started may hold its pipe for longer than it lives.
            ready, _, _ = select.select([self._told, self._its_end], [], [], left_s)
            if not ready:
                return None
            if not self._hear() and self._its_end in ready:
                raise JobEndedError(how_it_ended(self._reap()))

    def stop(self) -> None:
        """End the measurement under way with its workers. Raises JobEndedError."""
        self._say(job_side.STOP)
        until = time.monotonic() + _STOPPED_S
        while self._fork is not None:
            left_s = until - time.monotonic()
            if left_s <= 0.0:
                raise JobEndedError(f"did not end within {_STOPPED_S:.0f} s of SIGKILL")
            self.next_event(left_s)

    def close(self) -> None:
        """End the process with all that it has started."""
        if self._fork is not None:
            with suppress(OSError):
                os.killpg(self._fork, signal.SIGKILL)
        os.close(self._asks)
        if self._status is None:
            with suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
            self._reap()
        os.close(self._told)
        os.close(self._its_end)

    def _noted(self, event: Event) -> Event:
        if event["event"] == "started":
            self._fork = event["pid"]
        elif event["event"] == "ended":
            self._fork = None
        return event

    def _hear(self) -> bool:
        """Add new bytes to the unread ones; False if there are none."""
        try:
            piece = os.read(self._told, _PIECE_BYTES)
        except BlockingIOError:
            return False
        self._said += piece
        return bool(piece)

    def _say(self, words: bytes) -> None:
        with suppress(BrokenPipeError):
            os.write(self._asks, words)

    def _reap(self) -> int:
        if self._status is None:
            self._status = self._reaped()
        return self._status


def in_python(python: str, module: str, function: str, batch_size: int | None) -> JobProcess:
    """Start a Python that calls the job's function; its first event says whether there are data. Raises OSError."""
    told, out = os.pipe()
    asked, asks = os.pipe()
    program = str(Path(job_side.__file__).absolute())
    words = (module, function, str(batch_size or 0), str(out), str(os.getpid()))
    try:
        child = start(
            [python, program, *words],
            a_jobs(),
            stdin=asked,
            stdout=sys.__stderr__.fileno() if sys.__stderr__ is not None else 2,
            stderr=None,
            pass_fds=(out,),
        )
    except OSError:
        os.close(told)
        os.close(asks)
        raise
    finally:
        os.close(out)
        os.close(asked)
    return JobProcess(child.pid, asks, told, child.wait)


def in_fork(factory: LoaderFactory) -> JobProcess:
    """Serve a dataset of this process from a fork of it. Raises OSError."""
    fork = start_fork(lambda asked, out: job_side.serve(factory, asked, out))
    return JobProcess(fork.pid, fork.asks, fork.told, fork.wait)
