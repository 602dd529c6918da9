"""Reads the host: processors, memory, disks, network, pressure.

Knows no processes. All comes from the kernel's files below one /proc, which need not be this machine's own. Files
read at every tick (processors, memory, pressure) stays open. Rates are means since the reading before; the first
reading has none. Never raises: a value refused by /proc or /sys is None with its
reason.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from math import inf
from operator import sub
from typing import Any, cast

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
_MEMORY = (
    b"MemTotal:",
    b"MemFree:",
    b"MemAvailable:",
    b"Buffers:",
    b"Cached:",
    b"SwapTotal:",
    b"SwapFree:",
)
_NO_PRESSURE = (
    "no pressure information (needs Linux 4.20 with CONFIG_PSI, on some systems psi=1 at boot)"
)


_DISKS = ("disk_read_bytes_per_s", "disk_write_bytes_per_s")
_NETWORK = ("net_rx_bytes_per_s", "net_tx_bytes_per_s")
_USED, _TOTAL, _SWAP = _HELD = ("mem_used_bytes", "mem_total_bytes", "swap_used_bytes")
_PRESSURE = {"psi_cpu_pct": "cpu", "psi_io_pct": "io", "psi_mem_pct": "memory"}

Answer = float | str
"""A value, or why there is none."""


class HostCollector:
    """Reads the host; one thread calls ``read``."""

    def __init__(self, proc: str = "/proc", sys: str = "/sys") -> None:
        self._proc = proc
        self._sys = sys
        self._last: dict[tuple[str, ...], tuple[float, tuple[float, ...]]] = {}
        """The moment and the counters of the reading before, by the keys of their rates."""
        self._times: tuple[int, int] | None = None
        self._slow_at: float | None = None
        self._slow: dict[str, Answer] = {}
        self._retransmits: Answer = _NEEDS_TWO
        self._cpu_count: float | None = None
        self._limit: MemoryLimit | None = None
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
            self._slow = self._rates(_DISKS, now, disk_bytes(self._sys, self._proc))
            self._slow |= self._rates(_NETWORK, now, network_bytes(self._sys, self._proc))
            self._read_limits()
            self._retransmits = tcp_retransmits(self._proc)
        fabric = self._fabric.newest(now)
        self.ports = fabric.ports
        before = self._slow | self._memory()
        after: dict[str, Answer] = {
            "tcp_retransmits": self._retransmits,
            "cpu_pct": self._cpu(),
            "load1": self._load(),
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
        last_now, last = self._last.get(keys, (now, None))
        self._last[keys] = now, counters
        elapsed = now - last_now
        if last is None or elapsed <= 0.0:
            return dict.fromkeys(keys, _NEEDS_TWO if last is None else _STEPPED)
        # A device that was unplugged takes its counters with it: the sum falls, which is not traffic.
        grown = map(sub, counters, last)
        return {key: max(0.0, more / elapsed) for key, more in zip(keys, grown, strict=True)}

    def _cpu(self) -> Answer:
        """Return the busy share of all cores: all but idle and iowait.

        Guest time is already in user and nice.
        """
        try:
            # user, nice, system, idle, iowait, irq, softirq, steal; guest time follows, proc(5).
            times = [int(word) for word in self._files.read("stat").split(b"\n", 1)[0].split()[1:9]]
            every = sum(times)
            busy = every - times[3] - times[4]
        except (OSError, ValueError, IndexError):
            return "cannot read /proc/stat"
        last, self._times = self._times, (busy, every)
        if last is None or every <= last[1]:
            return _NEEDS_TWO
        return min(100.0, max(0.0, 100.0 * (busy - last[0]) / (every - last[1])))

    def _load(self) -> Answer:
        try:
            return os.getloadavg()[0]
        except OSError:
            return "cannot read /proc/loadavg"

    def _memory(self) -> dict[str, Answer]:
        """Return used and total bytes, and swap in use.

        Of the cgroup where its limit is below the machine's memory.
        """
        unreadable = "cannot read /proc/meminfo"
        try:
            memory = _meminfo(self._files.read("meminfo"))
            total = memory[b"MemTotal"]
            free = memory[b"MemFree"] + memory.get(b"Buffers", 0.0) + memory.get(b"Cached", 0.0)
        except (OSError, ValueError, KeyError):
            return dict.fromkeys(_HELD, unreadable)
        has_swap = memory.keys() >= {b"SwapTotal", b"SwapFree"}
        swap: Answer = memory[b"SwapTotal"] - memory[b"SwapFree"] if has_swap else unreadable
        limit = self._limit
        if limit and limit.limit_bytes < total:
            unknown = "the cgroup does not say how much it holds"
            used: Answer = unknown if limit.used_bytes is None else float(limit.used_bytes)
            return {_SWAP: swap, _USED: used, _TOTAL: float(limit.limit_bytes)}
        # Kernels before 3.14 lack it, and some containers say that more is available than there is.
        available = memory.get(b"MemAvailable", inf)
        return {
            _SWAP: swap,
            _USED: total - (available if available <= total else min(total, free)),
            _TOTAL: total,
        }

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


def _meminfo(data: bytes) -> dict[bytes, float]:
    """Return the used lines of /proc/meminfo in bytes. Raises ValueError."""
    rows = (line.split(None, 2) for line in data.splitlines() if line.startswith(_MEMORY))
    return {row[0].rstrip(b":"): 1024.0 * float(row[1]) for row in rows if len(row) > 1}


_NOT_DISKS = ("loop", "ram", "zram")
_NVME_PATH = re.compile(r"(nvme\d+)c\d+(n\d+)$")


_SECTOR_BYTES = 512
"""The unit of /proc/diskstats, whatever a disk's own sectors are (Documentation/admin-guide/iostats.rst)."""


def disk_bytes(sys: str, proc: str = "/proc") -> tuple[float, float] | str:
    """Return bytes read from and written to disks since boot, or a reason.

    Whole devices only. Partitions, loop, RAM and compressed-RAM disks are left out, and devices built on others (dm,
    md, bcache: a non-empty ``slaves`` in sysfs). With native NVMe multipath the kernel counts at the head (nvme0n1),
    at its paths (nvme0c0n1) or at both; the larger of the two is taken.
    """
    try:
        rows = [
            line.split()
            for line in read_file(f"{proc}/diskstats").decode("utf-8", "replace").splitlines()
        ]
        counters = {
            row[2]: (_SECTOR_BYTES * int(row[5]), _SECTOR_BYTES * int(row[9]))
            for row in rows
            if len(row) > 9
        }
        whole = set(os.listdir(f"{sys}/block"))
    except (OSError, ValueError) as error:
        return f"cannot read {getattr(error, 'filename', None) or 'the disks'}"
    heads: dict[str, tuple[int, int]] = {}
    paths: dict[str, tuple[int, int]] = {}
    for name, (read, written) in counters.items():
        if name not in whole or name.startswith(_NOT_DISKS):
            continue
        if path := _NVME_PATH.match(name):
            before = paths.get(path[1] + path[2], (0, 0))
            paths[path[1] + path[2]] = before[0] + read, before[1] + written
        elif not names_in(f"{sys}/block/{name}/slaves"):
            heads[name] = read, written
    for head, sums in paths.items():
        read, written = heads.get(head, (0, 0))
        heads[head] = max(read, sums[0]), max(written, sums[1])
    return float(sum(read for read, _ in heads.values())), float(
        sum(written for _, written in heads.values())
    )


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


def network_bytes(sys: str, proc: str = "/proc") -> tuple[float, float] | str:
    """Return bytes received and sent by interfaces, or a reason.

    Interfaces with hardware (a ``device`` in sysfs: cards, virtio, virtual functions). Bridges, bonds, VLANs, tunnels
    and container ends repeat their bytes. Where no interface has hardware (inside a container) all but loopback are
    counted. RDMA traffic is not in these counters.
    """
    counted: dict[str, tuple[int, int]] = {}
    try:
        for line in read_file(f"{proc}/net/dev").decode("utf-8", "replace").splitlines():
            name, colon, rest = line.rpartition(":")
            fields = rest.split()
            if colon and len(fields) > 8 and name.strip() != "lo":
                counted[name.strip()] = int(fields[0]), int(fields[8])
    except (OSError, ValueError) as error:
        return f"cannot read {getattr(error, 'filename', None) or 'the network interfaces'}"
    hardware = [
        both for name, both in counted.items() if os.path.exists(f"{sys}/class/net/{name}/device")
    ]
    chosen = hardware or list(counted.values())
    return float(sum(received for received, _ in chosen)), float(sum(sent for _, sent in chosen))
