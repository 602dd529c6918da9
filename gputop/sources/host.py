"""The machine around the GPUs: processors, memory, disks, network, pressure. Knows no processes.

psutil reads disks and network, and memory where the kernel's own file does not say enough. What is read at every tick
(processors, memory, pressure) comes from files that stay open, one read each: psutil takes six system calls a file, and
reads memory twice where swap is asked for. Importing this module imports psutil, 20 ms that no first picture waits for:
see ``machine_reader``. Rates are means since the reading before; the first reading has none. Never raises: what /proc
or /sys refuses is a None with its reason.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import psutil
from msgspec import Struct

from gputop.model.snapshot import FabricPort, HostSample
from gputop.sources.cgroup import CgroupFolders, cgroup_folders, cgroup_text, cpu_quota, memory_limit
from gputop.sources.fabric.fabric_collector import FabricWatch
from gputop.sources.procfs import Descriptors, ProcessFiles, read_file

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


def disk_bytes(sys: str) -> tuple[float, float] | str:
    """Bytes read from and written to disks since boot, or why that is unknown."""
    try:
        counters = psutil.disk_io_counters(perdisk=True, nowrap=False) or {}
        whole = set(os.listdir(f"{sys}/block"))
    except (OSError, ValueError, NotImplementedError) as error:
        return f"cannot read {getattr(error, 'filename', None) or 'the disks'}"
    heads: dict[str, tuple[int, int]] = {}
    paths: dict[str, tuple[int, int]] = {}
    for name, counter in counters.items():
        if name not in whole or name.startswith(_NOT_DISKS):
            continue
        read, written = counter.read_bytes, counter.write_bytes
        path = _NVME_PATH.match(name)
        if path:
            head = path[1] + path[2]
            before = paths.get(head, (0, 0))
            paths[head] = before[0] + read, before[1] + written
        elif not _stands_on_others(sys, name):
            heads[name] = read, written
    for head, sums in paths.items():
        own = heads.get(head, (0, 0))
        heads[head] = max(own[0], sums[0]), max(own[1], sums[1])
    return float(sum(read for read, _ in heads.values())), float(sum(written for _, written in heads.values()))


def _stands_on_others(sys: str, name: str) -> bool:
    try:
        return bool(os.listdir(f"{sys}/block/{name}/slaves"))
    except OSError:
        return False


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


def network_bytes(sys: str) -> tuple[float, float] | str:
    """Bytes received and sent since the interfaces came up, or why that is unknown."""
    try:
        counters = psutil.net_io_counters(pernic=True, nowrap=False) or {}
    except (OSError, ValueError) as error:
        return f"cannot read {getattr(error, 'filename', None) or 'the network interfaces'}"
    counted = {name: counter for name, counter in counters.items() if name != "lo"}
    hardware = [counter for name, counter in counted.items() if os.path.exists(f"{sys}/class/net/{name}/device")]
    chosen = hardware or list(counted.values())
    return float(sum(counter.bytes_recv for counter in chosen)), float(sum(counter.bytes_sent for counter in chosen))


# Containers that show only half of /proc/meminfo: what is used here is in it, and a warning would garble the screen.
warnings.filterwarnings("ignore", ".*memory stats couldn't be determined", RuntimeWarning)

_REFUSED = (OSError, ValueError, KeyError, IndexError, RuntimeError)
"""What psutil raises where a file of /proc is missing, denied or in a form that it does not know."""
_NEEDS_TWO = "needs two readings"
_STEPPED = "the clock stepped back"
# Disks, network, TCP, swap and the cgroup's limits cost most to read and are shown as slow averages.
_SLOW_S = 2.0
_MOST_OPEN = 8
_PRESSURES = (("psi_cpu_pct", "cpu"), ("psi_io_pct", "io"), ("psi_mem_pct", "memory"))
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
    memory_bytes: int | None
    memory_used_bytes: int | None


class _Memory(Struct, frozen=True):
    """Bytes."""

    total: float
    available: float
    swap_used: float | None


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
        with _procfs(self._proc):
            return self._read(now)

    def _read(self, now: float) -> HostSample:
        missing: dict[str, str] = {}
        if self._slow_at is None or not 0.0 <= now - self._slow_at < _SLOW_S:
            self._slow_at = now
            self._disks = self._rates("disks", now, disk_bytes(self._sys))
            self._network = self._rates("network", now, network_bytes(self._sys))
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
        pressures = {key: self._pressure(key, name, now, missing) for key, name in _PRESSURES}
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
            psi_cpu_pct=pressures["psi_cpu_pct"],
            psi_io_pct=pressures["psi_io_pct"],
            psi_mem_pct=pressures["psi_mem_pct"],
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
            return float(psutil.getloadavg()[0])
        except OSError:
            missing["load1"] = "cannot read /proc/loadavg"
            return None

    def _memory(self, missing: dict[str, str]) -> tuple[float | None, float | None, float | None]:
        """Used and total bytes, of the cgroup where its limit is below the machine's memory; and swap in use."""
        try:
            memory = _meminfo(self._files.read("meminfo"))
        except _REFUSED:
            for key in ("mem_used_bytes", "mem_total_bytes", "swap_used_bytes"):
                missing[key] = "cannot read /proc/meminfo"
            return None, None, None
        if memory.swap_used is None:
            missing["swap_used_bytes"] = "cannot read /proc/meminfo"
        limits = self._limits
        if limits and limits.memory_bytes is not None and limits.memory_bytes < memory.total:
            used = limits.memory_used_bytes
            if used is None:
                missing["mem_used_bytes"] = "the cgroup does not say how much it holds"
            return None if used is None else float(used), float(limits.memory_bytes), memory.swap_used
        return memory.total - memory.available, memory.total, memory.swap_used

    def _pressure(self, key: str, name: str, now: float, missing: dict[str, str]) -> float | None:
        """Share of our own interval in which some task was stalled, from the kernel's total of microseconds."""
        counters: tuple[float, float] | str = _NO_PRESSURE
        try:
            some = self._files.read(f"pressure/{name}").split(b"\n", 1)[0]
            counters = int(some.rpartition(b"total=")[2]) / 1e4, 0.0
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
        memory = memory_limit(self._folders)
        return _Limits(
            cores if quota is None else min(cores, quota),
            memory.limit_bytes if memory else None,
            memory.used_bytes if memory else None,
        )


@contextmanager
def _procfs(path: str) -> Iterator[None]:
    """psutil has one global path of /proc, so another one is set only for the block."""
    before, psutil.PROCFS_PATH = psutil.PROCFS_PATH, path
    try:
        yield
    finally:
        psutil.PROCFS_PATH = before


def _meminfo(data: bytes) -> _Memory:
    """Memory and swap from /proc/meminfo. Raises what psutil does where it has to be asked."""
    try:
        total, available = _said(data, b"MemTotal:"), _said(data, b"MemAvailable:")
        swap = _said(data, b"SwapTotal:") - _said(data, b"SwapFree:")
    except (ValueError, IndexError):
        return _asked_of_psutil()
    # Some containers say that more is available than there is, proc(5) of the host beside limits of their own.
    return _Memory(total, available, swap) if 0.0 <= available <= total else _asked_of_psutil()


def _said(data: bytes, name: bytes) -> float:
    """Bytes of one line, which gives kB. Raises ValueError and IndexError."""
    begin = data.index(name) + len(name)
    return 1024.0 * float(data[begin : begin + 32].split(None, 1)[0])


def _asked_of_psutil() -> _Memory:
    """Where the kernel's file lacks a line (old kernels, partial files in containers) psutil knows what to use."""
    memory = psutil.virtual_memory()
    try:
        swap = float(psutil.swap_memory().used)
    except _REFUSED:
        swap = None
    return _Memory(float(memory.total), float(memory.available), swap)
