"""The files of a fabric port and their contents. Computes no rates and remembers nothing.

Layouts: Documentation/ABI/stable/sysfs-class-infiniband, and the counter tables of the drivers (mlx5, efa, irdma,
bnxt_re). Which files there are differs by driver and kernel, so they are looked for by name.
"""

from __future__ import annotations

import os
import re

from msgspec import Struct

from gputop.model.quantity import clean_text
from gputop.sources.procfs import read_small

_WORD = 4
"""The InfiniBand architecture counts data in words of four octets; drivers' own byte counters count bytes."""
_BYTES: tuple[tuple[int, tuple[str, ...], tuple[str, ...]], ...] = (
    (_WORD, ("counters_ext/port_rcv_data_64",), ("counters_ext/port_xmit_data_64",)),
    (_WORD, ("counters/port_rcv_data",), ("counters/port_xmit_data",)),
    (1, ("hw_counters/rx_bytes",), ("hw_counters/tx_bytes",)),
    (1, ("hw_counters/ip4InOctets", "hw_counters/ip6InOctets"),
        ("hw_counters/ip4OutOctets", "hw_counters/ip6OutOctets")),
)  # fmt: skip
"""Bytes per unit, and the files for received and sent; the first complete pair of a port is used.

Kernels before 4.5 keep the 64-bit counters in ``counters_ext``, and 32 bits in ``counters``.
"""
_NO_BYTES: tuple[int, tuple[str, ...], tuple[str, ...]] = (1, (), ())
DROPS = (
    "counters/port_xmit_discards", "hw_counters/out_of_buffer", "hw_counters/rx_drops", "hw_counters/ip4InDiscards",
    "hw_counters/ip6InDiscards", "hw_counters/rx_roce_discards", "hw_counters/tx_roce_discards",
)  # fmt: skip
RETRANSMITS = (
    "hw_counters/packet_seq_err", "hw_counters/implied_nak_seq_err", "hw_counters/local_ack_timeout_err",
    "hw_counters/rnr_nak_retry_err", "hw_counters/roce_adp_retrans", "hw_counters/retrans_pkts",
    "hw_counters/tcpRetransSegs", "hw_counters/to_retransmits", "hw_counters/seq_err_naks_rcvd",
)  # fmt: skip
LINK_ERRORS = (
    "counters/symbol_error", "counters/link_error_recovery", "counters/link_downed", "counters/port_rcv_errors",
    "counters/local_link_integrity_errors", "counters/excessive_buffer_overrun_errors",
)  # fmt: skip
FULL_32 = 2**32 - 1
"""Where a 32-bit counter of the architecture saturates: it stays there until it is reset."""
MOST_PORTS = 64

_RATE = re.compile(r"([\d.]+) Gb/sec(?: \((\w+)(?: (\w+))?\))?")
ACTIVE, DISABLED = (4, 5), 3
"""Logical states with a link (ACTIVE, ACTIVE_DEFER), and the physical state of a port that was switched off."""


class PortFiles(Struct, frozen=True):
    """One port: where its files are, and which it has. ``model`` is what equal adapters share."""

    name: str
    folder: str
    kind: str
    model: str
    bytes_per_unit: int
    received: tuple[str, ...]
    sent: tuple[str, ...]
    drops: tuple[str, ...]
    retransmits: tuple[str, ...]
    link_errors: tuple[str, ...]


class LinkRate(Struct, frozen=True):
    """Speed of a link in bytes a second each way; ``width`` as in ``4X NDR``."""

    bytes_per_s: float
    width: str


def find_ports(sys: str) -> tuple[PortFiles, ...]:
    """The ports of this machine, in the order of their names; virtual functions beside their own adapter are left out.

    Never raises: a machine without a fabric has no such folder.
    """
    root = f"{sys}/class/infiniband"
    found: list[PortFiles] = []
    for device in _names(root):
        # The adapter's own counters include what its virtual functions carry.
        if os.path.exists(f"{root}/{device}/device/physfn"):
            continue
        found += [_port(f"{root}/{device}", device, port) for port in _names(f"{root}/{device}/ports")]
    return tuple(found[:MOST_PORTS])


def _port(device_folder: str, device: str, port: str) -> PortFiles:
    folder = f"{device_folder}/ports/{port}"
    parts = ("counters", "counters_ext", "hw_counters")
    there = {f"{part}/{name}" for part in parts for name in _names(f"{folder}/{part}")}
    readable = (pair for pair in _BYTES if all(name in there and counts(folder, name) for name in pair[1] + pair[2]))
    unit, received, sent = next(readable, _NO_BYTES)

    def present(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(name for name in names if name in there)

    return PortFiles(
        clean_text(f"{device}/{port}"),
        folder,
        _kind(device_folder, folder, there),
        text(f"{device_folder}/board_id") or text(f"{device_folder}/hca_type") or _driver(device_folder),
        unit,
        received,
        sent,
        present(DROPS),
        present(RETRANSMITS),
        present(LINK_ERRORS),
    )


def _kind(device_folder: str, folder: str, there: set[str]) -> str:
    if _driver(device_folder) == "efa" or "hw_counters/rx_drops" in there:
        return "EFA"
    if "RNIC" in text(f"{device_folder}/node_type"):
        return "iWARP"
    return "RoCE" if text(f"{folder}/link_layer") == "Ethernet" else "InfiniBand"


def _driver(device_folder: str) -> str:
    try:
        return os.path.basename(os.readlink(f"{device_folder}/device/driver"))
    except OSError:
        return ""


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def text(path: str) -> str:
    """A small file's first line; empty where it cannot be read."""
    try:
        return clean_text(read_small(path).split(b"\n", 1)[0].decode("utf-8", "replace").strip())
    except OSError:
        return ""


def number(folder: str, name: str) -> int | None:
    """A counter, or None: not there, or "N/A (no PMA)" from an adapter that does not count."""
    try:
        value = int(read_small(f"{folder}/{name}"))
    except (OSError, ValueError):
        return None
    return value if 0 <= value < 2**64 else None


def counts(folder: str, name: str) -> bool:
    """Whether a counter can be read."""
    return number(folder, name) is not None


def state(folder: str) -> tuple[int, str] | None:
    """A port's logical state as number and word (``4: ACTIVE``); None where the port is gone."""
    code, _, word = text(f"{folder}/state").partition(":")
    return (int(code), word.strip().lower()) if code.isdecimal() else None


def is_disabled(folder: str) -> bool:
    """Whether somebody has switched this port off (``3: Disabled``)."""
    return text(f"{folder}/phys_state").startswith(f"{DISABLED}:")


def link_rate(folder: str) -> LinkRate | None:
    """The speed of the link as it is now (``400 Gb/sec (4X NDR)``)."""
    found = _RATE.match(text(f"{folder}/rate"))
    if found is None:
        return None
    try:
        speed = float(found[1]) * 1e9 / 8.0
    except ValueError:
        return None
    return LinkRate(speed, " ".join(part for part in found.groups()[1:] if part)) if speed > 0.0 else None
