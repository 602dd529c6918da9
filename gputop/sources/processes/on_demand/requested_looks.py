"""Threads of one process for the screen, with their time on a core and queued.

The reader runs on its own thread, because /proc may block. Identity is (pid, start time): another process with the
same pid is never shown.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

from gputop.model.inspection import ThreadList, ThreadSample
from gputop.model.secrets import masked_text
from gputop.sources.processes.look.wait_state import wait_class
from gputop.sources.procfs import names_in, parse_schedstat, read_small, stat_of, text_of
from gputop.system.worker import Worker

MOST_LISTED_THREADS = 512
"""Limit of listed threads: each takes three small files, 512 take about 15 ms."""
LEAST_S = 1.0
"""Shortest interval for rates; a shorter one would show ticks of the clock."""
PROCESS_GONE = "the process has ended"


def read_threads(
    pid: int, starttime: int | None, before: ThreadList | None, now: float, proc: str = "/proc"
) -> ThreadList:
    """Return the threads of a process, with rates since ``before``.

    The main thread comes first, then the others by their ids; of very many, the first 512. ``now`` is in seconds and
    only runs forward.
    """
    directory = f"{proc}/{pid}"
    stat = stat_of(directory)
    tids = sorted(map(int, names_in(f"{directory}/task")))
    if stat is None or not tids or (starttime is not None and stat.starttime != starttime):
        return ThreadList(now, reason=PROCESS_GONE)
    tids.sort(key=lambda tid: tid != pid)
    thread_before = {} if before is None else {thread.tid: thread for thread in before.threads}
    elapsed_ns = 0.0 if before is None else (now - before.t) * 1e9
    read = (
        _thread(f"{directory}/task/{tid}", tid, thread_before.get(tid), elapsed_ns)
        for tid in tids[:MOST_LISTED_THREADS]
    )
    return ThreadList(now, tuple([thread for thread in read if thread is not None]), len(tids))


def _thread(
    directory: str, tid: int, before: ThreadSample | None, elapsed_ns: float
) -> ThreadSample | None:
    stat = stat_of(directory)
    if stat is None:
        return None
    name, state = masked_text(stat.comm.decode("utf-8", "replace")), stat.state
    # The kernel writes 0 for a thread that runs, and for readers without permission.
    channel = text_of(f"{directory}/wchan").removeprefix("0") or None
    waiting_on = wait_class(channel or "") if state in "SD" else None
    times = None
    with suppress(OSError):
        times = parse_schedstat(read_small(f"{directory}/schedstat"))
    if times is None:
        return ThreadSample(tid, name, state, waiting_on=waiting_on, channel=channel)
    run = wait = None
    if (
        before is not None
        and before.run_ns is not None
        and before.wait_ns is not None
        and elapsed_ns > 0.0
    ):
        run_ns, wait_ns = times
        run = min(100.0, max(0.0, 100.0 * (run_ns - before.run_ns) / elapsed_ns))
        wait = min(100.0, max(0.0, 100.0 * (wait_ns - before.wait_ns) / elapsed_ns))
    return ThreadSample(tid, name, state, run, wait, waiting_on, *times, channel)


class ThreadWatch:
    """Reads one process's threads on request.

    The newest list is kept.
    """

    def __init__(
        self,
        pid: int,
        starttime: int | None,
        proc: str = "/proc",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pid, self._starttime = pid, starttime
        self._proc = proc
        self._clock = clock
        self._worker = Worker("threads", self._read)

    def ask(self) -> None:
        """Request a new reading, at most once a second. Never blocks."""
        newest = self._worker.latest
        if newest is None or self._clock() - newest.t >= LEAST_S:
            self._worker.ask()

    def close(self) -> None:
        """End the reading thread."""
        self._worker.stop()

    @property
    def latest(self) -> ThreadList | None:
        """The newest list; None until the first reading."""
        error = self._worker.error
        if error is not None:
            return ThreadList(
                self._clock(), reason=f"its threads cannot be read: {type(error).__name__}"
            )
        return self._worker.latest

    def _read(self) -> ThreadList:
        return read_threads(
            self._pid, self._starttime, self._worker.latest, self._clock(), self._proc
        )
