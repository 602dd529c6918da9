"""Byte counters of the machine's disks and network interfaces, each byte counted once.

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

from gputop.sources.procfs import read_file

# The unit of diskstats, whatever the device's own block size (Documentation/admin-guide/iostats.rst).
_SECTOR_BYTES = 512
_NOT_DISKS = ("loop", "ram", "zram")
_NVME_PATH = re.compile(r"(nvme\d+)c\d+(n\d+)$")


def disk_bytes(proc: str, sys: str) -> tuple[float, float] | str:
    """Bytes read from and written to disks since boot, or why that cannot be said."""
    try:
        lines = read_file(f"{proc}/diskstats").decode("ascii", "replace").splitlines()
        whole = set(os.listdir(f"{sys}/block"))
    except OSError as error:
        return f"cannot read {error.filename}"
    heads: dict[str, tuple[int, int]] = {}
    paths: dict[str, tuple[int, int]] = {}
    for line in lines:
        fields = line.split()
        if len(fields) < 10 or fields[2] not in whole or fields[2].startswith(_NOT_DISKS):
            continue
        name = fields[2]
        read, written = int(fields[5]), int(fields[9])
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
    return (
        float(sum(read for read, _ in heads.values()) * _SECTOR_BYTES),
        float(sum(written for _, written in heads.values()) * _SECTOR_BYTES),
    )


def _stands_on_others(sys: str, name: str) -> bool:
    try:
        return bool(os.listdir(f"{sys}/block/{name}/slaves"))
    except OSError:
        return False


def network_bytes(proc: str, sys: str) -> tuple[float, float] | str:
    """Bytes received and sent since the interfaces came up, or why that cannot be said."""
    try:
        lines = read_file(f"{proc}/net/dev").decode("utf-8", "replace").splitlines()
    except OSError as error:
        return f"cannot read {error.filename}"
    counted: dict[str, tuple[int, int]] = {}
    for line in lines[2:]:
        name, separator, rest = line.rpartition(":")
        fields = rest.split()
        if separator and len(fields) >= 9 and name.strip() != "lo":
            counted[name.strip()] = int(fields[0]), int(fields[8])
    hardware = {name: pair for name, pair in counted.items() if os.path.exists(f"{sys}/class/net/{name}/device")}
    chosen = (hardware or counted).values()
    return float(sum(pair[0] for pair in chosen)), float(sum(pair[1] for pair in chosen))
