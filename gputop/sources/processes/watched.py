"""Repeated readings of one process: counters of /proc become rates.

This module knows nothing of GPUs, trees or roles.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from msgspec import Struct

from gputop.model.snapshot import NOTHING_MISSING
from gputop.sources.processes.wait_look import BLOCKED, RAN, SEEN_STOPPED, ThreadWait, WaitLook, word_of
from gputop.sources.procfs import TICKS_PER_S, Descriptors, ProcessFiles, Stat, parse_io, parse_schedstat, parse_stat

NEEDS_TWO = "needs two readings"
CLOCK_STEPPED = "the clock stepped back"
NO_SCHEDSTAT = "this kernel keeps no per-thread scheduler times (/proc/PID/schedstat)"
DENIED_IO = "not permitted for this process: run as root for disk evidence"
DENIED_WAIT = "not permitted for this process: run as root to see what it waits for"
ZOMBIE = "the process has ended and waits for its parent"
NO_CHANNEL = "the kernel names no wait channel"
NO_IO = "the kernel keeps no I/O accounting (/proc/PID/io)"

LEAST_WINDOW_S = 0.1
"""Shortest interval for a rate: CPU time is counted in steps of 10 ms, which mean nothing over 20 ms."""
IO_WINDOW_S = 0.9
"""Disk rates are means over about a second: faster readings keep the last ones."""
STAT_AGAIN_S = 5.0
"""Lifetime of a sleeping process's memory and parent: other processes may change these meanwhile."""
LOOKED_S = 5.0
"""Time after a random sample during which readings do not read the wait channel."""
STOPPED_STATES = "Tt"
"""Stopped by a signal, or by a debugger: any user may read this."""
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class ProcessReading(Struct, frozen=True):
    """Values of one process, with rates since the previous reading.

    Keys and units are as in the catalogue.
    """

    stat: Stat
    cpu_pct: float | None
    run_pct: float | None
    wait_pct: float | None
    main_run_pct: float | None
    main_wait_pct: float | None
    children_pct: float | None
    """CPU time of exited children, percent of one core."""
    waiting_on: str | None
    rss_bytes: float
    read_bytes_per_s: float | None
    write_bytes_per_s: float | None
    main_run_ns: int | None
    unavailable: Mapping[str, str]
    wait_seen: ThreadWait | None = None
    """Wait state of the main thread; None if it does not wait or is not readable."""


class _Counters(Struct):
    now: float
    cpu_ticks: int
    main: tuple[int, int] | None
    children_ticks: int


class _Disk(Struct):
    """Bytes read and written, with rates or the reason without them."""

    now: float
    total: tuple[int, int] | None
    read_bytes_per_s: float | None = None
    write_bytes_per_s: float | None = None
    reason: str | None = None


class _Rates(NamedTuple):
    """CPU times between two readings, percent of one core.

    None for values that were not measured.
    """

    cpu_pct: float | None = None
    run_pct: float | None = None
    wait_pct: float | None = None
    main_run_pct: float | None = None
    main_wait_pct: float | None = None
    children_pct: float | None = None


def _rates(stat: Stat, main: tuple[int, int] | None, last: _Counters, elapsed: float) -> _Rates:
    """Return rates since ``last``, ``elapsed`` seconds ago."""
    cpu = max(0.0, (stat.cpu_ticks - last.cpu_ticks) / TICKS_PER_S / elapsed * 100.0)
    children = max(0.0, (stat.children_ticks - last.children_ticks) / TICKS_PER_S / elapsed * 100.0)
    if main is None or last.main is None:
        return _Rates(cpu, cpu, children_pct=children)
    # The caller's clock and the kernel's differ by the time between the two reads: limit to 100.
    main_run, main_wait = (
        min(100.0, max(0.0, (new - old) / elapsed / 1e7)) for new, old in zip(main, last.main, strict=True)
    )
    # ``stat`` counts all threads, but in ticks of 10 ms; for one thread schedstat is more exact.
    run = main_run if stat.threads == 1 else max(main_run, cpu)
    return _Rates(cpu, run, main_wait, main_run, main_wait, children)


class WatchedProcess:
    """Reads a process by identity (pid, start time).

    Each ``read`` takes up to four small reads of files that stay open. One read suffices for a single-threaded process
    that sleeps and has not been on a core since: the kernel counts this in ``schedstat``. Its other values change only
    when it runs, except its memory and its parent, which are read again at times. For a process with more threads, only
    the wait channel is kept this way.
    """

    def __init__(
        self, proc: str, pid: int, starttime: int, descriptors: Descriptors, look: WaitLook | None = None
    ) -> None:
        """Set up; processes read by one thread share ``look``."""
        self._pid, self._folder = pid, f"{proc}/{pid}"
        self._look = WaitLook(proc) if look is None else look
        self._files = ProcessFiles(self._folder, descriptors)
        self._children: str | None = f"task/{pid}/children"
        self._starttime = starttime
        self._last: _Counters | None = None
        self._disk: _Disk | None = None
        self._io_reason: str | None = None
        self.main_slept = False
        """Whether the main thread was asleep and has not been on a core until the newest reading."""
        self._still: ProcessReading | None = None
        """The newest reading of an idle process; it is returned again until the process runs."""
        self._stat_at = float("-inf")
        self._main_data = b""
        """Raw text of the main thread's times: unchanged while it sleeps."""
        self._stat: Stat | None = None
        self._main_times: tuple[int, int] | None = None
        self._continued: dict[str, tuple[int, int]] = {}
        self._wait: ThreadWait | None = None
        self._saw_at = float("-inf")

    def read(self, now: float) -> ProcessReading | None:
        """Return a reading of the process, or None if gone.

        A reused pid counts as gone. ``now`` is monotonic s.
        """
        self._read_main()
        stat, last = self._stat, self._last
        elapsed = now - last.now if last else 0.0
        slept = self.main_slept and stat is not None and stat.threads == 1
        if slept and 0.0 <= now - self._stat_at < STAT_AGAIN_S:
            if self._still is not None and last is not None and elapsed >= LEAST_WINDOW_S:
                last.now = now
                if self._disk is not None:
                    self._disk.now = now
                return self._still
        else:
            stat = self._read_stat(now)
        if stat is None:
            return None
        missing: dict[str, str] = {}
        main = self._main_times
        if main is None:
            missing["wait_pct"] = missing["main_run_pct"] = missing["main_wait_pct"] = NO_SCHEDSTAT
        disk = self._disk_rates(now, stat.state == "Z")
        if disk.reason is not None:
            missing["read_bytes_per_s"] = missing["write_bytes_per_s"] = disk.reason
        sleeps = stat.state in "SD"
        # Under load a kernel from 6.12 on names the channel only some time after the thread fell asleep.
        unnamed = self._wait is None and self._io_reason != DENIED_IO
        looked = 0.0 <= now - self._saw_at < LOOKED_S
        if sleeps and not looked and (unnamed or not self.main_slept):
            self._read_channel(now)
        moves = bool(disk.read_bytes_per_s or disk.write_bytes_per_s)
        waiting_on = self._waiting_on(missing, moves=moves) if sleeps else None
        rates = self._rates_since(now, stat, elapsed, missing)
        reading = ProcessReading(
            stat,
            *rates,
            waiting_on,
            float(stat.rss_pages * _PAGE_BYTES),
            disk.read_bytes_per_s,
            disk.write_bytes_per_s,
            main[0] if main else None,
            missing or NOTHING_MISSING,
            self._wait if sleeps else SEEN_STOPPED if stat.state in STOPPED_STATES else None,
        )
        measured = last is not None and elapsed >= LEAST_WINDOW_S
        # Bytes from before it fell asleep appear in the reading after that, so the I/O counters must have been read
        # since.
        settled = self._io_reason is not None or (
            disk.now == now and disk.read_bytes_per_s == 0.0 and disk.write_bytes_per_s == 0.0
        )
        named = self._wait is not None or self._io_reason == DENIED_IO
        self._still = reading if slept and measured and settled and named else None
        return reading

    def _rates_since(self, now: float, stat: Stat, elapsed: float, missing: dict[str, str]) -> _Rates:
        """Return rates since the previous reading, ``elapsed`` seconds ago.

        The reasons for missing rates are added to ``missing``.
        """
        main, last = self._work_times(), self._last
        too_soon = 0.0 < elapsed < LEAST_WINDOW_S
        if not too_soon:
            self._last = _Counters(now, stat.cpu_ticks, main, stat.children_ticks)
        if last is None or elapsed < LEAST_WINDOW_S:
            reason = NEEDS_TWO if last is None or too_soon else CLOCK_STEPPED
            missing |= dict.fromkeys(_Rates._fields[:5], reason) | missing
            return _Rates()
        if main and last.main is None:
            missing |= dict.fromkeys(("wait_pct", "main_run_pct", "main_wait_pct"), NEEDS_TWO)
        return _rates(stat, main, last, elapsed)

    def saw(self, at: float, wait: ThreadWait) -> None:
        """Set the main thread's wait state from a random sample.

        ``at`` is monotonic s.
        """
        self._saw_at, self._wait = at, wait

    def continue_in(self, tids: Iterable[str]) -> None:
        """Count these threads' CPU time as the main thread's.

        They do its work while it waits for them.
        """
        self._continued = {tid: self._continued.get(tid) or self._thread_times(tid) for tid in tids}

    def look_again(self) -> None:
        """Force a full next reading, because another process has changed."""
        self._stat_at = float("-inf")

    def children(self) -> bytes:
        """Return the raw list of the main thread's children.

        A changed text means a changed tree. Empty when the kernel does not offer it (CONFIG_PROC_CHILDREN).
        """
        if self._children is None:
            return b""
        try:
            return self._files.read(self._children)
        except FileNotFoundError:
            self._children = None
            return b""
        except OSError:
            return b""

    def close(self) -> None:
        """Close the open files."""
        self._files.close()

    def _read_main(self) -> None:
        """Read the main thread's times and detect sleep since the previous reading."""
        try:
            data = self._files.read("schedstat")
        except OSError:
            data = b""
        if data == self._main_data:
            # The kernel may count a thread's time later if it was about to run: only a sleeping thread surely still
            # sleeps.
            self.main_slept = self._main_times is not None and self._stat is not None and self._stat.state in "SD"
        else:
            self.main_slept = False
            self._main_data, self._main_times = data, parse_schedstat(data)

    def _work_times(self) -> tuple[int, int] | None:
        """Return run and queued time of the main work, in nanoseconds.

        The main thread and the threads that continue its work are counted. None without schedstat.
        """
        if self._main_times is None:
            return None
        run, queued = self._main_times
        for tid, before in self._continued.items():
            times = self._thread_times(tid)
            run, queued = run + max(0, times[0] - before[0]), queued + max(0, times[1] - before[1])
        return run, queued

    def _thread_times(self, tid: str) -> tuple[int, int]:
        """Return run and queued nanoseconds of another thread.

        Both are 0 once it has ended.
        """
        try:
            return parse_schedstat(self._files.read(f"task/{tid}/schedstat")) or (0, 0)
        except OSError:
            return 0, 0

    def _read_stat(self, now: float) -> Stat | None:
        """Return the process's own ``stat``; None when it is gone.

        A reused pid counts as gone.
        """
        try:
            data = self._files.read("stat")
        except OSError:
            return None
        self._stat_at = now
        stat = self._stat = parse_stat(data)
        if stat is None or stat.starttime != self._starttime:
            return None
        return stat

    def _disk_rates(self, now: float, ended: bool) -> _Disk:
        """Return disk rates, read again once their window has passed."""
        last = self._disk
        if ended:
            self._disk = None
            return _Disk(now, None, reason=ZOMBIE)
        if self._io_reason is not None:
            return _Disk(now, None, reason=self._io_reason)
        elapsed = now - last.now if last else 0.0
        if last is not None and 0.0 < elapsed < (LEAST_WINDOW_S if last.reason else IO_WINDOW_S):
            return last
        total = self._read_io()
        if total is None:
            self._disk = _Disk(now, None, reason=self._io_reason or NO_IO)
        elif last is None or last.total is None:
            self._disk = _Disk(now, total, reason=NEEDS_TWO)
        elif elapsed <= 0.0:
            self._disk = _Disk(now, total, reason=CLOCK_STEPPED)
        else:
            read, write = (max(0.0, (new - old) / elapsed) for new, old in zip(total, last.total, strict=True))
            self._disk = _Disk(now, total, read, write)
        return self._disk

    def _read_io(self) -> tuple[int, int] | None:
        try:
            return parse_io(self._files.read("io"))
        except PermissionError:
            # Tried once: a refusal does not change while the process lives.
            self._io_reason = DENIED_IO
            return None
        except OSError:
            self._io_reason = NO_IO
            return None

    def _read_channel(self, now: float) -> None:
        try:
            data = self._files.read("wchan")
        except OSError:
            data = b""
        wait = self._look.at(now, self._pid, self._folder, data.decode("ascii", "replace"), self._files)
        self._wait = None if wait.wait == RAN else wait

    def _waiting_on(self, missing: dict[str, str], *, moves: bool) -> str | None:
        """Return the class of the latest wait.

        ``moves``: the process reads from or writes to a disk.
        """
        if self._wait is None:
            # A refused wait channel reads "0", as an unknown one does; the refusal of ``io`` distinguishes the two.
            missing["waiting_on"] = DENIED_WAIT if self._io_reason == DENIED_IO else NO_CHANNEL
            return None
        return "disk" if self._wait.wait == BLOCKED and moves else word_of(self._wait.wait)
