"""Repeated readings of one process: counters of /proc become rates.

This module knows nothing of GPUs, trees or roles.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from gputop.model.snapshot import NOTHING_MISSING
from gputop.sources.procfs import (
    TICKS_PER_S,
    Descriptors,
    ProcessFiles,
    Stat,
    parse_io,
    parse_schedstat,
    parse_stat,
)

NEEDS_TWO = "needs two readings"
CLOCK_STEPPED = "the clock stepped back"
NO_SCHEDSTAT = "this kernel keeps no per-thread scheduler times (/proc/PID/schedstat)"
DENIED_IO = "not permitted for this process: run as root for disk evidence"
ZOMBIE = "the process has ended and waits for its parent"
NO_IO = "the kernel keeps no I/O accounting (/proc/PID/io)"

LEAST_WINDOW_S = 0.1
"""Shortest interval for a rate: CPU time is counted in steps of 10 ms, which mean nothing over 20 ms."""
IO_WINDOW_S = 0.9
"""Disk rates are means over about a second: faster readings keep the last ones."""
STAT_AGAIN_S = 5.0
"""Lifetime of a sleeping process's memory and parent: other processes may change these meanwhile."""
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_NEED_SCHEDSTAT = ("wait_pct", "main_run_pct", "main_wait_pct")
_RATES = ("cpu_pct", "run_pct", *_NEED_SCHEDSTAT)


class ProcessReading(Struct, frozen=True):
    """Values of one process, with rates since the previous reading.

    Keys and units are as in the catalogue.
    """

    stat: Stat
    rss_bytes: float
    read_bytes_per_s: float | None
    write_bytes_per_s: float | None
    main_run_ns: int | None
    unavailable: Mapping[str, str]
    cpu_pct: float | None = None
    run_pct: float | None = None
    wait_pct: float | None = None
    main_run_pct: float | None = None
    main_wait_pct: float | None = None


class _Counters(Struct):
    read_at: float
    cpu_ticks: int
    main: tuple[int, int] | None


class _Disk(Struct):
    """Bytes read and written, with rates or the reason without them."""

    read_at: float
    total: tuple[int, int] | None = None
    read_bytes_per_s: float | None = None
    write_bytes_per_s: float | None = None
    reason: str | None = None


class WatchedProcess:
    """Reads a process by identity (pid, start time).

    ``read_counters`` takes three small reads of files that stay open. One suffices for a single-threaded process that
    sleeps and has not been on a core since: the kernel counts this in ``schedstat``. Its other values change only when
    it runs, except its memory and its parent, which are read again at times.
    """

    def __init__(self, proc: str, pid: int, starttime: int, descriptors: Descriptors) -> None:
        self._files = ProcessFiles(f"{proc}/{pid}", descriptors)
        self._starttime = starttime
        self._last: _Counters | None = None
        self._disk: _Disk | None = None
        self.main_slept = False
        """Whether the main thread was asleep and has not been on a core until the newest reading."""
        self._stat: Stat | None = None
        self._stat_at = self._ran_at = float("-inf")
        self._still: ProcessReading | None = None
        """The reading of a process that sleeps on, for 64 idle workers a third of the CPU time (measured). Bytes from
        before it fell asleep appear in the reading after that, so their rates must be zero."""
        self._schedstat = b""
        self._main_times: tuple[int, int] | None = None
        self._continued: dict[str, tuple[int, int]] = {}

    def read_counters(self, now: float) -> ProcessReading | None:
        """Return a reading of the process, or None if gone.

        A reused pid counts as gone. ``now`` is monotonic s.
        """
        self._read_main()
        stat, last = self._stat, self._last
        slept = self.main_slept and stat is not None and stat.threads == 1
        if not slept:
            self._ran_at = now
        if not (slept and 0.0 <= now - self._stat_at < STAT_AGAIN_S):
            slept, self._still, stat = False, None, self._read_stat(now)
        if stat is None:
            return None
        if self._still is not None and last is not None and now - last.read_at >= LEAST_WINDOW_S:
            last.read_at = now
            if self._disk is not None:
                self._disk.read_at = now
            return self._still
        main_run_ns = None
        if self._main_times is not None:
            main_run_ns, _ = self._main_times
        disk = self._disk_rates(now, stat)
        missing: dict[str, str] = {}
        if self._main_times is None:
            missing = dict.fromkeys(_NEED_SCHEDSTAT, NO_SCHEDSTAT)
        if disk.reason is not None:
            missing["read_bytes_per_s"] = missing["write_bytes_per_s"] = disk.reason
        rates = self._rates(now, stat, missing)
        reading = ProcessReading(
            stat,
            float(stat.rss_pages * _PAGE_BYTES),
            disk.read_bytes_per_s,
            disk.write_bytes_per_s,
            main_run_ns,
            missing or NOTHING_MISSING,
            *rates,
        )
        self._still = None
        if slept and self._is_quiet(disk) and reading.cpu_pct is not None:
            self._still = reading
        return reading

    def _is_quiet(self, disk: _Disk) -> bool:
        """Return whether a process that sleeps has moved no bytes since it last ran."""
        if disk.reason == DENIED_IO:
            return True
        if disk.read_bytes_per_s or disk.write_bytes_per_s:
            return False
        return disk.read_at >= self._ran_at

    def _rates(self, now: float, stat: Stat, missing: dict[str, str]) -> Sequence[float | None]:
        """Return CPU times since the previous reading, percent of one core; empty without a rate.

        The reasons for missing rates are added to ``missing``.
        """
        main, last = self._work_times(), self._last
        elapsed = 0.0 if last is None else now - last.read_at
        too_soon = 0.0 < elapsed < LEAST_WINDOW_S
        if not too_soon:
            self._last = _Counters(now, stat.cpu_ticks, main)
        if last is None or elapsed < LEAST_WINDOW_S:
            reason = NEEDS_TWO if last is None or too_soon else CLOCK_STEPPED
            missing |= dict.fromkeys(_RATES, reason) | missing
            return ()
        cpu = max(0.0, (stat.cpu_ticks - last.cpu_ticks) / TICKS_PER_S / elapsed * 100.0)
        if main is None or last.main is None:
            missing |= dict.fromkeys(_NEED_SCHEDSTAT, NEEDS_TWO) | missing
            return cpu, cpu, None, None, None
        # The caller's clock and the kernel's differ by the time between the two reads: limit to 100.
        run, queued = (
            min(100.0, max(0.0, (new - old) / elapsed / 1e7))
            for new, old in zip(main, last.main, strict=True)
        )
        # ``stat`` counts all threads, but in ticks of 10 ms; for one thread schedstat is more exact.
        return cpu, run if stat.threads == 1 else max(run, cpu), queued, run, queued

    def continue_in(self, tids: Iterable[str]) -> None:
        """Count these threads' CPU time as the main thread's.

        They do its work while it waits for them.
        """
        self._continued = {tid: self._continued.get(tid) or self._thread_times(tid) for tid in tids}

    def read_again(self) -> None:
        """Force a full next reading, because another process has changed."""
        self._stat_at = float("-inf")

    def close(self) -> None:
        """Close the open files."""
        self._files.close()

    def _read_main(self) -> None:
        """Read the main thread's times and detect sleep since the previous reading."""
        try:
            data = self._files.read("schedstat")
        except OSError:
            data = b""
        # The kernel may count a thread's time later if it was about to run: only a sleeping thread surely still sleeps.
        asleep = (
            self._main_times is not None and self._stat is not None and self._stat.state in "SD"
        )
        self.main_slept = asleep and data == self._schedstat
        self._schedstat, self._main_times = data, parse_schedstat(data)

    def _work_times(self) -> tuple[int, int] | None:
        """Return run and queued time of the main work, in nanoseconds.

        The main thread and the threads that continue its work are counted. None without schedstat.
        """
        if self._main_times is None:
            return None
        run, queued = self._main_times
        for tid, (run_before, queued_before) in self._continued.items():
            run_now, queued_now = self._thread_times(tid)
            run += max(0, run_now - run_before)
            queued += max(0, queued_now - queued_before)
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
            stat = parse_stat(self._files.read("stat"))
        except OSError:
            return None
        self._stat, self._stat_at = stat, now
        return stat if stat is not None and stat.starttime == self._starttime else None

    def _disk_rates(self, now: float, stat: Stat) -> _Disk:
        """Return disk rates, read again once their window has passed."""
        last = self._disk
        if stat.state == "Z":
            self._disk = None
            return _Disk(now, reason=ZOMBIE)
        if last is not None:
            if last.reason == DENIED_IO:
                # Tried once: a refusal does not change while the process lives.
                return last
            elapsed = now - last.read_at
            if 0.0 < elapsed < (LEAST_WINDOW_S if last.reason else IO_WINDOW_S):
                return last
        try:
            total, reason = parse_io(self._files.read("io")), NO_IO
        except OSError as error:
            total, reason = None, DENIED_IO if isinstance(error, PermissionError) else NO_IO
        if total is None or last is None or last.total is None or elapsed <= 0.0:
            if total is not None:
                reason = CLOCK_STEPPED if last is not None and last.total is not None else NEEDS_TWO
            self._disk = _Disk(now, total, reason=reason)
        else:
            read, write = (
                max(0.0, (new - old) / elapsed) for new, old in zip(total, last.total, strict=True)
            )
            self._disk = _Disk(now, total, read, write)
        return self._disk
