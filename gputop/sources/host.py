"""The machine around the GPUs: processors, memory, disks, network, pressure. Knows no processes.

All of it comes from the kernel's files below one /proc, which need not be this machine's own: a library that knows one
path for the whole program would read another one for everybody else. What is read at every tick (processors, memory,
pressure) stays open, one read each. Rates are means since the reading before; the first reading has none. Never raises:
what /proc or /sys refuses is a None with its reason.
"""

from __future__ import annotations

import os
import re
from math import inf
from typing import Any, cast

from msgspec import Struct

from gputop.model.snapshot import FabricPort, HostSample
from gputop.sources.cgroup import CgroupFolders, MemoryLimit, cgroup_folders, cgroup_text, cpu_quota, memory_limit
from gputop.sources.fabric import FabricWatch
from gputop.sources.procfs import Descriptors, ProcessFiles, names_in, read_file

# Counters of the machine's disks and network interfaces: bytes, each counted once, and TCP's retransmits.
#
# Disks: whole devices only. Partitions, loop, RAM and compressed-RAM disks are left out, and so is whatever stands on
# other devices (dm, md, bcache: a non-empty ``slaves`` in sysfs). With native NVMe multipath the kernel counts at the
# head (nvme0n1), at its paths (nvme0c0n1) or at both; the larger of the two is taken.
#
# Network: interfaces with hardware behind them (a ``device`` in sysfs: cards, virtio, virtual functions). Bridges,
# bonds, VLANs, tunnels and container ends repeat their bytes. Where no interface has hardware (inside a container) all
# but loopback are counted. RDMA traffic is not in these counters.

_NOT_DISKS = ("loop", "ram", "zram")
_NVME_PATH = re.compile(r"(nvme\d+)c\d+(n\d+)$")


_SECTOR_BYTES = 512
"""The unit of /proc/diskstats, whatever a disk's own sectors are (Documentation/admin-guide/iostats.rst)."""


def disk_bytes(sys: str, proc: str = "/proc") -> tuple[float, float] | str:
    """Bytes read from and written to disks since boot, or why that is unknown."""
    try:
        rows = [line.split() for line in read_file(f"{proc}/diskstats").decode("utf-8", "replace").splitlines()]
        counters = {row[2]: (_SECTOR_BYTES * int(row[5]), _SECTOR_BYTES * int(row[9])) for row in rows if len(row) > 9}
        whole = set(os.listdir(f"{sys}/block"))
    except (OSError, ValueError) as error:
        return f"cannot read {getattr(error, 'filename', None) or 'the disks'}"
    heads: dict[str, tuple[int, int]] = {}
    paths: dict[str, tuple[int, int]] = {}
    for name, (read, written) in counters.items():
        if name not in whole or name.startswith(_NOT_DISKS):
            continue
        path = _NVME_PATH.match(name)
        if path:
            head = path[1] + path[2]
            before = paths.get(head, (0, 0))
            paths[head] = before[0] + read, before[1] + written
        elif not names_in(f"{sys}/block/{name}/slaves"):
            heads[name] = read, written
    for head, sums in paths.items():
        head_bytes = heads.get(head, (0, 0))
        heads[head] = max(head_bytes[0], sums[0]), max(head_bytes[1], sums[1])
    return float(sum(read for read, _ in heads.values())), float(sum(written for _, written in heads.values()))


def tcp_retransmits(proc: str) -> int | str:
    """TCP segments sent again since boot, in the network namespace of the machine, or why that is unknown.

    That of process 1 where it may be read; in a container it is the container's own.
    """
    for file in (f"{proc}/1/net/snmp", f"{proc}/self/net/snmp"):
        try:
            lines = [line.split() for line in read_file(file).splitlines() if line.startswith(b"Tcp:")]
            return int(dict(zip(*lines, strict=True))[b"RetransSegs"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return "cannot read /proc/net/snmp"


def network_bytes(sys: str, proc: str = "/proc") -> tuple[float, float] | str:
    """Bytes received and sent since the interfaces came up, or why that is unknown."""
    counted: dict[str, tuple[int, int]] = {}
    try:
        for line in read_file(f"{proc}/net/dev").decode("utf-8", "replace").splitlines():
            name, colon, rest = line.rpartition(":")
            fields = rest.split()
            if colon and len(fields) > 8 and name.strip() != "lo":
                counted[name.strip()] = int(fields[0]), int(fields[8])
    except (OSError, ValueError) as error:
        return f"cannot read {getattr(error, 'filename', None) or 'the network interfaces'}"
    hardware = [both for name, both in counted.items() if os.path.exists(f"{sys}/class/net/{name}/device")]
    chosen = hardware or list(counted.values())
    return float(sum(received for received, _ in chosen)), float(sum(sent for _, sent in chosen))


_NEEDS_TWO = "needs two readings"
_STEPPED = "the clock stepped back"
# Disks, network, TCP, swap and the cgroup's limits cost most to read and are shown as slow averages.
_SLOW_S = 2.0
_MOST_OPEN = 8
_MEMORY = (b"MemTotal:", b"MemFree:", b"MemAvailable:", b"Buffers:", b"Cached:", b"SwapTotal:", b"SwapFree:")
_NO_PRESSURE = "no pressure information (needs Linux 4.20 with CONFIG_PSI, on some systems psi=1 at boot)"


class _Pair(Struct, frozen=True):
    """Two counters (read and written, received and sent, busy and all) at a moment."""

    now: float
    first: float
    second: float


class _Rates(Struct, frozen=True):
    first: float | None
    second: float | None
    reason: str | None


class _Limits(Struct, frozen=True):
    cpu_count: float
    memory: MemoryLimit | None


class HostCollector:
    """Reads the machine. One thread calls ``read``."""

    def __init__(self, proc: str = "/proc", sys: str = "/sys") -> None:
        self._proc = proc
        self._sys = sys
        self._last: dict[str, _Pair] = {}
        self._slow_at: float | None = None
        self._disks = _Rates(None, None, _NEEDS_TWO)
        self._network = _Rates(None, None, _NEEDS_TWO)
        self._limits: _Limits | None = None
        self._folders: CgroupFolders | None = None
        self._files = ProcessFiles(proc, Descriptors(_MOST_OPEN))
        self._retransmits: int | str = _NEEDS_TWO
        self._fabric = FabricWatch(sys)
        self.ports: tuple[FabricPort, ...] = ()
        """The fabric's ports, as of the newest reading."""

    def close(self) -> None:
        """End the thread that reads the fabric, and close the open files."""
        self._fabric.close()
        self._files.close()

    def read(self, now: float) -> HostSample:
        """The machine now. ``now`` is monotonic, in seconds; rates are over the time since the last call."""
        missing: dict[str, str] = {}
        if self._slow_at is None or not 0.0 <= now - self._slow_at < _SLOW_S:
            self._slow_at = now
            self._disks = self._rates("disks", now, disk_bytes(self._sys, self._proc))
            self._network = self._rates("network", now, network_bytes(self._sys, self._proc))
            self._limits = self._read_limits()
            self._retransmits = tcp_retransmits(self._proc)
        for rates, keys in (
            (self._disks, ("disk_read_bytes_per_s", "disk_write_bytes_per_s")),
            (self._network, ("net_rx_bytes_per_s", "net_tx_bytes_per_s")),
        ):
            if rates.reason:
                missing.update(dict.fromkeys(keys, rates.reason))
        used, total, swap = self._memory(missing)
        fabric = self._fabric.newest(now)
        self.ports = fabric.ports
        missing.update(fabric.missing)
        if isinstance(self._retransmits, str):
            missing["tcp_retransmits"] = self._retransmits
        return HostSample(
            cpu_pct=self._cpu(now, missing),
            cpu_count=self._limits.cpu_count if self._limits else None,
            load1=self._load(missing),
            mem_used_bytes=used,
            mem_total_bytes=total,
            swap_used_bytes=swap,
            disk_read_bytes_per_s=self._disks.first,
            disk_write_bytes_per_s=self._disks.second,
            net_rx_bytes_per_s=self._network.first,
            net_tx_bytes_per_s=self._network.second,
            psi_cpu_pct=self._pressure("psi_cpu_pct", "cpu", now, missing),
            psi_io_pct=self._pressure("psi_io_pct", "io", now, missing),
            psi_mem_pct=self._pressure("psi_mem_pct", "memory", now, missing),
            tcp_retransmits=None if isinstance(self._retransmits, str) else self._retransmits,
            **cast("dict[str, Any]", fabric.values),
            unavailable=missing,
        )

    def _rates(self, name: str, now: float, counters: tuple[float, float] | str) -> _Rates:
        """Change a second of two counters; a text instead of counters says why there are none."""
        if isinstance(counters, str):
            self._last.pop(name, None)
            return _Rates(None, None, counters)
        last = self._last.get(name)
        self._last[name] = _Pair(now, *counters)
        if last is None:
            return _Rates(None, None, _NEEDS_TWO)
        elapsed = now - last.now
        if elapsed <= 0.0:
            return _Rates(None, None, _STEPPED)
        # A device that was unplugged takes its counters with it: the sum falls, which is not traffic.
        return _Rates(
            max(0.0, (counters[0] - last.first) / elapsed), max(0.0, (counters[1] - last.second) / elapsed), None
        )

    def _cpu(self, now: float, missing: dict[str, str]) -> float | None:
        """Busy share of all cores: all but idle and iowait. Guest time is already inside user and nice."""
        try:
            # user, nice, system, idle, iowait, irq, softirq, steal; guest time follows, proc(5).
            times = [int(word) for word in self._files.read("stat").split(b"\n", 1)[0].split()[1:9]]
            idle, every = times[3] + times[4], sum(times)
        except (OSError, ValueError, IndexError):
            missing["cpu_pct"] = "cannot read /proc/stat"
            return None
        last = self._last.get("cpu")
        self._last["cpu"] = _Pair(now, every - idle, every)
        if last is None or every <= last.second:
            missing["cpu_pct"] = _NEEDS_TWO
            return None
        return float(min(100.0, max(0.0, 100.0 * (every - idle - last.first) / (every - last.second))))

    def _load(self, missing: dict[str, str]) -> float | None:
        try:
            return float(os.getloadavg()[0])
        except OSError:
            missing["load1"] = "cannot read /proc/loadavg"
            return None

    def _memory(self, missing: dict[str, str]) -> tuple[float | None, float | None, float | None]:
        """Used and total bytes, of the cgroup where its limit is below the machine's memory; and swap in use."""
        try:
            memory = _meminfo(self._files.read("meminfo"))
            total = memory[b"MemTotal"]
            free = memory[b"MemFree"] + memory.get(b"Buffers", 0.0) + memory.get(b"Cached", 0.0)
        except (OSError, ValueError, KeyError):
            for key in ("mem_used_bytes", "mem_total_bytes", "swap_used_bytes"):
                missing[key] = "cannot read /proc/meminfo"
            return None, None, None
        swap = memory[b"SwapTotal"] - memory[b"SwapFree"] if memory.keys() >= {b"SwapTotal", b"SwapFree"} else None
        if swap is None:
            missing["swap_used_bytes"] = "cannot read /proc/meminfo"
        limit = self._limits and self._limits.memory
        if limit and limit.limit_bytes < total:
            if limit.used_bytes is None:
                missing["mem_used_bytes"] = "the cgroup does not say how much it holds"
            return None if limit.used_bytes is None else float(limit.used_bytes), float(limit.limit_bytes), swap
        # Kernels before 3.14 lack it, and some containers say that more is available than there is.
        available = memory.get(b"MemAvailable", inf)
        return total - (available if available <= total else min(total, free)), total, swap

    def _pressure(self, key: str, name: str, now: float, missing: dict[str, str]) -> float | None:
        """Share of our own interval in which some task was stalled, from the kernel's total of microseconds."""
        counters: tuple[float, float] | str
        try:
            some_line = self._files.read(f"pressure/{name}").split(b"\n", 1)[0]
            counters = int(some_line.rpartition(b"total=")[2]) / 1e4, 0.0
        except (OSError, ValueError):
            counters = _NO_PRESSURE
        rates = self._rates(key, now, counters)
        if rates.reason:
            missing[key] = rates.reason
        return None if rates.first is None else min(100.0, rates.first)

    def _read_limits(self) -> _Limits:
        """What affinity and the cgroup of this very process leave: it runs where the job's owner runs."""
        if self._folders is None:
            try:
                self._folders = cgroup_folders(cgroup_text(f"{self._proc}/self"), self._sys)
            except OSError:
                self._folders = CgroupFolders()
        cores = float(len(os.sched_getaffinity(0)))
        quota = cpu_quota(self._folders)
        return _Limits(cores if quota is None else min(cores, quota), memory_limit(self._folders))


def _meminfo(data: bytes) -> dict[bytes, float]:
    """The lines of /proc/meminfo that are used, in bytes: it gives kB. Raises ValueError."""
    rows = (line.split(None, 2) for line in data.splitlines() if line.startswith(_MEMORY))
    return {row[0].rstrip(b":"): 1024.0 * float(row[1]) for row in rows if len(row) > 1}
