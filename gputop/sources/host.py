"""Reads the host: processors, memory, disks, network, uptime, pressure.

Knows no processes. Counters of processors, memory, swap, disks and network are psutil's; which of them count, pressure
and the limits of a container are this module's own. psutil reads below ``psutil.PROCFS_PATH``, which belongs to the
program that gputop runs in and is never set here. Rates are means since the reading before; the first reading has none.
Never raises: a value refused by /proc or /sys is None with its reason.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar, cast

import psutil

from gputop.model.snapshot import FabricPort, HostSample
from gputop.sources.cgroup import (
    CgroupFolders,
    MemoryLimit,
    cgroup_folders,
    cgroup_text,
    cpu_quota,
    memory_limit,
)
from gputop.sources.fabric import FabricWatch
from gputop.sources.procfs import Descriptors, ProcessFiles, names_in, read_file

_NEEDS_TWO = "needs two readings"
_STEPPED = "the clock stepped back"
# Disks, network, TCP, swap and the cgroup's limits cost most to read and are shown as slow averages.
_SLOW_S = 2.0
_MOST_OPEN = 8
_NO_PRESSURE = (
    "no pressure information (needs Linux 4.20 with CONFIG_PSI, on some systems psi=1 at boot)"
)


_DISKS = ("disk_read_bytes_per_s", "disk_write_bytes_per_s")
_NETWORK = ("net_rx_bytes_per_s", "net_tx_bytes_per_s")
_LOAD = ("load1", "load5", "load15")
_PRESSURE = {"psi_cpu_pct": "cpu", "psi_io_pct": "io", "psi_mem_pct": "memory"}

Answer = float | str
"""A value, or why there is none."""
UNREADABLE = (
    OSError,
    ValueError,
    IndexError,
    KeyError,
    TypeError,
    AttributeError,
    NotImplementedError,
    RuntimeError,
    RuntimeWarning,
)
"""What psutil raises where /proc lacks a file, a line or a field of one.

Its parsers and records do (TypeError, AttributeError: a line of /proc/stat with too few numbers); RuntimeError is for a
disk without a source, and RuntimeWarning its warning of a line that is lacking, where warnings are errors.
"""


class _CpuTimes(NamedTuple):
    """Time of all cores since boot, in seconds."""

    busy: float
    every: float


class _Counted(NamedTuple):
    """Counters, and when they were read, monotonic s."""

    t: float
    counters: tuple[float, ...]


class _Traffic(NamedTuple):
    """Bytes that came and went since boot."""

    came: float
    went: float

    def __add__(self, other: object) -> _Traffic:
        """Return the sum of two."""
        assert isinstance(other, _Traffic)
        return _Traffic(self.came + other.came, self.went + other.went)


NO_TRAFFIC = _Traffic(0.0, 0.0)


class HostCollector:
    """Reads the host; one thread calls ``read``."""

    def __init__(self, proc: str = "/proc", sys: str = "/sys") -> None:
        self._proc = proc
        self._sys = sys
        self._last: dict[tuple[str, ...], _Counted] = {}
        """The moment and the counters of the reading before, by the keys of their rates."""
        self._times: _CpuTimes | None = None
        self._slow_at: float | None = None
        self._slow: dict[str, Answer] = {}
        self._retransmits: Answer = _NEEDS_TWO
        self._cpu_count: float | None = None
        self._limit: MemoryLimit | None = None
        self._booted_at: Answer = _NEEDS_TWO
        """Unix time."""
        self._folders: CgroupFolders | None = None
        self._files = ProcessFiles(proc, Descriptors(_MOST_OPEN))
        self._fabric = FabricWatch(sys)
        self.ports: tuple[FabricPort, ...] = ()
        """The fabric's ports, as of the newest reading."""

    def close(self) -> None:
        """End the fabric's thread and close the open files."""
        self._fabric.close()
        self._files.close()

    def read(self, now: float) -> HostSample:
        """Read the host; rates are over the time since the last call.

        ``now`` is monotonic, in seconds.
        """
        if self._slow_at is None or not 0.0 <= now - self._slow_at < _SLOW_S:
            self._slow_at = now
            self._slow = self._rates(_DISKS, now, disk_bytes(self._sys))
            self._slow |= self._rates(_NETWORK, now, network_bytes(self._sys))
            self._slow |= _swap()
            self._booted_at = _asked(psutil.boot_time, "stat")
            self._read_limits()
            self._retransmits = tcp_retransmits(self._proc)
        fabric = self._fabric.newest(now)
        self.ports = fabric.ports
        before = self._slow | self._memory()
        after: dict[str, Answer] = {
            "tcp_retransmits": self._retransmits,
            "cpu_pct": self._cpu(),
            "uptime_s": self._uptime(),
            **_load(),
        }
        for key, name in _PRESSURE.items():
            after[key] = self._pressure(key, name, now)
        found = before | after
        return HostSample(
            cpu_count=self._cpu_count,
            **cast(
                "dict[str, Any]",
                {key: value for key, value in found.items() if not isinstance(value, str)},
            ),
            **cast("dict[str, Any]", fabric.values),
            unavailable={**_reasons(before), **fabric.missing, **_reasons(after)},
        )

    def _rates(
        self, keys: tuple[str, ...], now: float, counters: tuple[float, ...] | str
    ) -> dict[str, Answer]:
        """Return counters' change per second; a text is a reason for none."""
        if isinstance(counters, str):
            self._last.pop(keys, None)
            return dict.fromkeys(keys, counters)
        before = self._last.get(keys)
        self._last[keys] = _Counted(now, counters)
        if before is None:
            return dict.fromkeys(keys, _NEEDS_TWO)
        elapsed = now - before.t
        if elapsed <= 0.0:
            return dict.fromkeys(keys, _STEPPED)
        rates: dict[str, Answer] = {}
        for key, count, last in zip(keys, counters, before.counters, strict=True):
            # A device that was unplugged takes its counters with it: the sum falls, which is not traffic.
            rates[key] = max(0.0, (count - last) / elapsed)
        return rates

    def _cpu(self) -> Answer:
        """Return the busy share of all cores: all but idle and iowait."""
        times = _asked(_cpu_times, "stat")
        if isinstance(times, str):
            return times
        last, self._times = self._times, times
        if last is None or times.every <= last.every:
            return _NEEDS_TWO
        share = (times.busy - last.busy) / (times.every - last.every)
        return min(100.0, max(0.0, 100.0 * share))

    def _uptime(self) -> Answer:
        """Return the whole seconds since the machine was booted.

        The kernel moves the time of the boot when the clock is set: the difference stays right.
        """
        if isinstance(self._booted_at, str):
            return self._booted_at
        return max(0.0, float(int(time.time() - self._booted_at)))

    def _memory(self) -> dict[str, Answer]:
        """Return used and total bytes, of the cgroup where its limit is below the machine's memory."""
        held = _asked(psutil.virtual_memory, "meminfo")
        if isinstance(held, str):
            return {"mem_used_bytes": held, "mem_total_bytes": held}
        limit = self._limit
        if limit is None or limit.limit_bytes >= held.total:
            used = float(held.total - held.available)
            return {"mem_used_bytes": used, "mem_total_bytes": float(held.total)}
        unknown = "the cgroup does not say how much it holds"
        own: Answer = unknown if limit.used_bytes is None else float(limit.used_bytes)
        return {"mem_used_bytes": own, "mem_total_bytes": float(limit.limit_bytes)}

    def _pressure(self, key: str, name: str, now: float) -> Answer:
        """Return the share of the interval in which some task was stalled.

        From the kernel's total of microseconds.
        """
        counters: tuple[float, ...] | str
        try:
            some_line = self._files.read(f"pressure/{name}").split(b"\n", 1)[0]
            counters = (int(some_line.rpartition(b"total=")[2]) / 1e4,)
        except (OSError, ValueError):
            counters = _NO_PRESSURE
        answer = self._rates((key,), now, counters)[key]
        return answer if isinstance(answer, str) else min(100.0, answer)

    def _read_limits(self) -> None:
        """Read the limits by affinity and this process's cgroup.

        gputop runs where the job's owner runs.
        """
        if self._folders is None:
            try:
                self._folders = cgroup_folders(cgroup_text(f"{self._proc}/self"), self._sys)
            except OSError:
                self._folders = CgroupFolders()
        cores = float(len(os.sched_getaffinity(0)))
        quota = cpu_quota(self._folders)
        self._cpu_count = cores if quota is None else min(cores, quota)
        self._limit = memory_limit(self._folders)


def _reasons(answers: dict[str, Answer]) -> dict[str, str]:
    return {key: answer for key, answer in answers.items() if isinstance(answer, str)}


T = TypeVar("T")


def _asked(ask: Callable[[], T], file: str) -> T | str:
    """Return psutil's answer, or the file that it could not read."""
    try:
        return ask()
    except UNREADABLE:
        return f"cannot read /proc/{file}"


def _cpu_times() -> _CpuTimes:
    """Return the time of all cores; guest time is already in user and nice."""
    times = psutil.cpu_times()
    busy = times.user + times.nice + times.system + times.irq + times.softirq + times.steal
    return _CpuTimes(busy, busy + times.idle + times.iowait)


def _swap() -> dict[str, Answer]:
    """Return the bytes of swap in use and in all."""
    swap = _asked(psutil.swap_memory, "meminfo")
    if isinstance(swap, str):
        return {"swap_used_bytes": swap, "swap_total_bytes": swap}
    return {"swap_used_bytes": float(swap.used), "swap_total_bytes": float(swap.total)}


def _load() -> dict[str, Answer]:
    """Return the load averages of 1, 5 and 15 minutes."""
    try:
        loads = os.getloadavg()
    except OSError:
        return dict.fromkeys(_LOAD, "cannot read /proc/loadavg")
    return dict(zip(_LOAD, loads, strict=True))


_NOT_DISKS = ("loop", "ram", "zram")
_NVME_PATH = re.compile(r"(?P<controller>nvme\d+)c\d+(?P<namespace>n\d+)$")


def disk_bytes(sys: str) -> tuple[float, float] | str:
    """Return bytes read from and written to disks since boot, or a reason.

    Whole devices only. Partitions, loop, RAM and compressed-RAM disks are left out, and devices built on others (dm,
    md, bcache: a non-empty ``slaves`` in sysfs). With native NVMe multipath the kernel counts at the head (nvme0n1),
    at its paths (nvme0c0n1) or at both; the larger of the two is taken.
    """
    counters = _asked(lambda: psutil.disk_io_counters(perdisk=True, nowrap=False), "diskstats")
    if isinstance(counters, str):
        return counters
    try:
        whole = set(os.listdir(f"{sys}/block"))
    except OSError:
        return f"cannot read {sys}/block"
    heads: dict[str, _Traffic] = {}
    paths: dict[str, _Traffic] = {}
    for name, disk in (counters or {}).items():
        if name not in whole or name.startswith(_NOT_DISKS):
            continue
        traffic = _Traffic(disk.read_bytes, disk.write_bytes)
        path = _NVME_PATH.match(name)
        if path is not None:
            head = path["controller"] + path["namespace"]
            paths[head] = paths.get(head, NO_TRAFFIC) + traffic
        elif not names_in(f"{sys}/block/{name}/slaves"):
            heads[name] = traffic
    for head, sums in paths.items():
        own = heads.get(head, NO_TRAFFIC)
        heads[head] = _Traffic(max(own.came, sums.came), max(own.went, sums.went))
    return _total(heads.values())


def _total(parts: Iterable[_Traffic]) -> tuple[float, float]:
    total = NO_TRAFFIC
    for traffic in parts:
        total += traffic
    return float(total.came), float(total.went)


def tcp_retransmits(proc: str) -> int | str:
    """Return TCP segments sent again since boot, or a reason.

    In the network namespace of process 1 where it may be read; in a container its own.
    """
    for file in (f"{proc}/1/net/snmp", f"{proc}/self/net/snmp"):
        with suppress(OSError, ValueError, KeyError, TypeError):
            lines = [
                line.split() for line in read_file(file).splitlines() if line.startswith(b"Tcp:")
            ]
            return int(dict(zip(*lines, strict=True))[b"RetransSegs"])
    return "cannot read /proc/net/snmp"


def network_bytes(sys: str) -> tuple[float, float] | str:
    """Return bytes received and sent by interfaces, or a reason.

    Interfaces with hardware (a ``device`` in sysfs: cards, virtio, virtual functions). Bridges, bonds, VLANs, tunnels
    and container ends repeat their bytes. Where no interface has hardware (inside a container) all but loopback are
    counted. RDMA traffic is not in these counters.
    """
    counters = _asked(lambda: psutil.net_io_counters(pernic=True, nowrap=False), "net/dev")
    if isinstance(counters, str):
        return counters
    counted = {
        name: _Traffic(nic.bytes_recv, nic.bytes_sent) for name, nic in (counters or {}).items()
    }
    counted.pop("lo", None)
    hardware = [
        traffic
        for name, traffic in counted.items()
        if os.path.exists(f"{sys}/class/net/{name}/device")
    ]
    return _total(hardware or counted.values())
