"""Counters of the host's disks and network interfaces."""

from __future__ import annotations

import os
import re

from gputop.sources.procfs import names_in, read_file

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
    """Return TCP segments sent again since boot, or a reason.

    In the network namespace of process 1 where it may be read; in a container its own.
    """
    for file in (f"{proc}/1/net/snmp", f"{proc}/self/net/snmp"):
        try:
            lines = [line.split() for line in read_file(file).splitlines() if line.startswith(b"Tcp:")]
            return int(dict(zip(*lines, strict=True))[b"RetransSegs"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
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
    hardware = [both for name, both in counted.items() if os.path.exists(f"{sys}/class/net/{name}/device")]
    chosen = hardware or list(counted.values())
    return float(sum(received for received, _ in chosen)), float(sum(sent for _, sent in chosen))
