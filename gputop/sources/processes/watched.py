"""One process read again and again: counters of /proc become rates. Knows nothing of GPUs, trees or roles."""

from __future__ import annotations

import os
from collections.abc import Mapping

from msgspec import Struct

from gputop.model.snapshot import NOTHING_MISSING
from gputop.sources.processes.wait_channel import wait_class
from gputop.sources.procfs import Descriptors, ProcessFiles, Stat, parse_io, parse_schedstat, parse_stat

NEEDS_TWO = "needs two readings"
CLOCK_STEPPED = "the clock stepped back"
NO_SCHEDSTAT = "this kernel keeps no per-thread scheduler times (/proc/PID/schedstat)"
DENIED_IO = "not permitted for this process: run as root for disk evidence"
DENIED_WAIT = "not permitted for this process: run as root to see what it waits for"
ZOMBIE = "the process has ended and waits for its parent"
NO_CHANNEL = "the kernel names no wait channel"
NO_IO = "the kernel keeps no I/O accounting (/proc/PID/io)"

LEAST_WINDOW_S = 0.1
"""A rate needs this time at least: CPU time is counted in steps of 10 ms, which over 20 ms mean nothing."""
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Reading(Struct, frozen=True):
    """One process at one moment, with its rates since the reading before. Keys and units as in the catalogue."""

    stat: Stat
    cpu_pct: float | None
    run_pct: float | None
    wait_pct: float | None
    main_run_pct: float | None
    main_wait_pct: float | None
    waiting_on: str | None
    rss_bytes: float
    read_bytes_per_s: float | None
    write_bytes_per_s: float | None
    main_run_ns: int | None
    unavailable: Mapping[str, str]
    channel: str = ""
    """The kernel function in which the main thread sleeps; empty where it does not or may not be known."""
    children_pct: float | None = None
    """CPU time of children that ended, percent of one core."""


class _Counters(Struct, frozen=True):
    now: float
    cpu_ticks: int
    main: tuple[int, int] | None
    io: tuple[int, int] | None
    children_ticks: int


class WatchedProcess:
    """A process by identity (pid, start time). Each ``read`` takes four small reads of files that stay open."""

    __slots__ = ("_channel_data", "_channel_name", "_children", "_files", "_io_bytes", "_io_data", "_io_reason",
                 "_last", "_main_data", "_main_times", "_starttime", "_stat", "_stat_data", "_waits")  # fmt: skip

    def __init__(self, proc: str, pid: int, starttime: int, descriptors: Descriptors) -> None:
        self._files = ProcessFiles(f"{proc}/{pid}", descriptors)
        self._children: str | None = f"task/{pid}/children"
        self._starttime = starttime
        self._last: _Counters | None = None
        self._io_reason: str | None = None
        # The text last read and its meaning: a sleeping process gives the same text again.
        self._stat_data = self._main_data = self._io_data = self._channel_data = b""
        self._stat: Stat | None = None
        self._main_times: tuple[int, int] | None = None
        self._io_bytes: tuple[int, int] | None = None
        self._channel_name = ""
        self._waits: str | None = None

    def read(self, now: float) -> Reading | None:
        """The process now, or None when it is gone or its pid belongs to another process. ``now``: monotonic s."""
        try:
            data = self._files.read("stat")
        except OSError:
            return None
        if data != self._stat_data:
            self._stat_data, self._stat = data, parse_stat(data)
        stat = self._stat
        if stat is None or stat.starttime != self._starttime:
            return None
        missing: dict[str, str] = {}
        main = self._main(missing)
        io = None
        if stat.state == "Z":
            missing["read_bytes_per_s"] = missing["write_bytes_per_s"] = ZOMBIE
        else:
            io = self._io(missing)
        channel = self._channel() if stat.state in "SD" else ""
        waiting_on = self._waiting_on(missing) if stat.state in "SD" else None
        last = self._last
        elapsed = now - last.now if last else 0.0
        too_soon = 0.0 < elapsed < LEAST_WINDOW_S
        if not too_soon:
            self._last = _Counters(now, stat.cpu_ticks, main, io, stat.children_ticks)
        children = cpu = run = wait = main_run = main_wait = read = write = None
        if last is None or elapsed <= 0.0 or too_soon:
            reason = NEEDS_TWO if last is None or too_soon else CLOCK_STEPPED
            for key in ("cpu_pct", "run_pct", "wait_pct", "main_run_pct", "main_wait_pct"):
                missing.setdefault(key, reason)
            for key in ("read_bytes_per_s", "write_bytes_per_s"):
                missing.setdefault(key, reason)
        else:
            cpu = run = max(0.0, (stat.cpu_ticks - last.cpu_ticks) / _TICKS_PER_S / elapsed * 100.0)
            children = max(0.0, (stat.children_ticks - last.children_ticks) / _TICKS_PER_S / elapsed * 100.0)
            if main and last.main:
                # The caller's clock and the kernel's differ by the time between the two reads: never above 100.
                main_run = min(100.0, max(0.0, (main[0] - last.main[0]) / elapsed / 1e7))
                main_wait = wait = min(100.0, max(0.0, (main[1] - last.main[1]) / elapsed / 1e7))
                # ``stat`` counts all threads but in ticks of 10 ms; for one thread schedstat is the better number.
                run = main_run if stat.threads == 1 else max(main_run, cpu)
            elif main:
                for key in ("wait_pct", "main_run_pct", "main_wait_pct"):
                    missing[key] = NEEDS_TWO
            if io and last.io:
                read = max(0.0, (io[0] - last.io[0]) / elapsed)
                write = max(0.0, (io[1] - last.io[1]) / elapsed)
            elif io:
                missing["read_bytes_per_s"] = missing["write_bytes_per_s"] = NEEDS_TWO
        return Reading(
            stat,
            cpu,
            run,
            wait,
            main_run,
            main_wait,
            waiting_on,
            float(stat.rss_pages * _PAGE_BYTES),
            read,
            write,
            main[0] if main else None,
            missing or NOTHING_MISSING,
            channel,
            children,
        )

    def children(self) -> bytes:
        """The list of the main thread's children as the kernel writes it: a changed text means a changed tree.

        Empty when the kernel does not offer it (CONFIG_PROC_CHILDREN).
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

    def _main(self, missing: dict[str, str]) -> tuple[int, int] | None:
        try:
            data = self._files.read("schedstat")
            if data != self._main_data:
                self._main_data, self._main_times = data, parse_schedstat(data)
            main = self._main_times
        except OSError:
            main = None
        if main is None:
            missing["wait_pct"] = missing["main_run_pct"] = missing["main_wait_pct"] = NO_SCHEDSTAT
        return main

    def _io(self, missing: dict[str, str]) -> tuple[int, int] | None:
        io = None
        if self._io_reason is None:
            try:
                data = self._files.read("io")
                if data != self._io_data:
                    self._io_data, self._io_bytes = data, parse_io(data)
                io = self._io_bytes
            except PermissionError:
                # Tried once: a refusal does not change while the process lives.
                self._io_reason = DENIED_IO
            except OSError:
                self._io_reason = NO_IO
        if io is None:
            missing["read_bytes_per_s"] = missing["write_bytes_per_s"] = self._io_reason or NO_IO
        return io

    def _channel(self) -> str:
        try:
            data = self._files.read("wchan")
        except OSError:
            data = b""
        if data != self._channel_data:
            self._channel_data, self._channel_name = data, data.decode("ascii", "replace")
            self._waits = wait_class(self._channel_name)
        return self._channel_name

    def _waiting_on(self, missing: dict[str, str]) -> str | None:
        """What the channel last read stands for."""
        waiting_on = self._waits
        if waiting_on is None:
            # A refused wait channel reads "0", as an unknown one does; the refusal of ``io`` tells the two apart.
            missing["waiting_on"] = DENIED_WAIT if self._io_reason == DENIED_IO else NO_CHANNEL
        return waiting_on
