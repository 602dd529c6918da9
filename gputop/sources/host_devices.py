"""Counters of the machine's disks and network interfaces: bytes, each counted once, and TCP's retransmits.

Disks: whole devices only. Partitions, loop, RAM and compressed-RAM disks are left out, and so is whatever stands on
other devices (dm, md, bcache: a non-empty ``slaves`` in sysfs). With native NVMe multipath the kernel counts at the
head (nvme0n1), at its paths (nvme0c0n1) or at both; the larger of the two is taken.

Network: interfaces with hardware behind them (a ``device`` in sysfs: cards, virtio, virtual functions). Bridges,
bonds, VLANs, tunnels and container ends repeat their bytes. Where no interface has hardware (inside a container) all
but loopback are counted. RDMA traffic is not in these counters.
"""

from __future__ import annotations

import os
import re

import psutil

from gputop.sources.procfs import read_file

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
