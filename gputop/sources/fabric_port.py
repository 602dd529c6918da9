"""Reads one port of the fabric from sysfs.

Layouts: Documentation/ABI/stable/sysfs-class-infiniband, and the counter tables of the drivers (mlx5, efa, irdma,
bnxt_re). The files differ by driver and kernel, so they are looked up by name. A counter that falls was reset or has
wrapped: that is a gap, never traffic.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import NamedTuple

from msgspec import Struct

from gputop.model.clean_text import clean_text
from gputop.model.quantity import known
from gputop.model.snapshot import FabricPort
from gputop.sources.procfs import names_in, number_of, text_of

RX, TX, PEAK = "fabric_rx_bytes_per_s", "fabric_tx_bytes_per_s", "fabric_peak_bytes_per_s"
DROPS, RETRANSMITS, LINK_ERRORS = "fabric_drops", "fabric_retransmits", "fabric_link_errors"
DOWN, DEGRADED = "fabric_ports_down", "fabric_ports_degraded"


_WORD = 4
"""The InfiniBand architecture counts data in words of four octets; drivers' own byte counters count bytes."""
_BYTES: tuple[tuple[int, tuple[str, ...], tuple[str, ...]], ...] = (
    (_WORD, ("counters/port_rcv_data",), ("counters/port_xmit_data",)),
    (1, ("hw_counters/rx_bytes",), ("hw_counters/tx_bytes",)),
    (1, ("hw_counters/ip4InOctets", "hw_counters/ip6InOctets"),
        ("hw_counters/ip4OutOctets", "hw_counters/ip6OutOctets")),
)  # fmt: skip
"""Bytes per unit, and the files for received and sent; the first complete pair of a port is used."""
COUNT_FILES = {
    DROPS: (
        "counters/port_xmit_discards", "hw_counters/out_of_buffer", "hw_counters/rx_drops",
        "hw_counters/ip4InDiscards", "hw_counters/ip6InDiscards", "hw_counters/rx_roce_discards",
        "hw_counters/tx_roce_discards",
    ),
    RETRANSMITS: (
        "hw_counters/packet_seq_err", "hw_counters/implied_nak_seq_err", "hw_counters/local_ack_timeout_err",
        "hw_counters/rnr_nak_retry_err", "hw_counters/roce_adp_retrans", "hw_counters/retrans_pkts",
        "hw_counters/tcpRetransSegs", "hw_counters/to_retransmits", "hw_counters/seq_err_naks_rcvd",
    ),
    LINK_ERRORS: (
        "counters/symbol_error", "counters/link_error_recovery", "counters/link_downed", "counters/port_rcv_errors",
        "counters/local_link_integrity_errors", "counters/excessive_buffer_overrun_errors",
    ),
}  # fmt: skip
"""The files of each sum: a port has some of them."""
FULL_32 = 2**32 - 1
"""Where a 32-bit counter of the architecture saturates: it stays there until it is reset."""
MOST_PORTS = 64

_RATE = re.compile(r"([\d.]+) Gb/sec(?: \((\w+)(?: (\w+))?\))?")
ACTIVE, DISABLED = (4, 5), 3
"""Logical states with a link (ACTIVE, ACTIVE_DEFER), and the physical state of a port that was switched off."""


class LinkRate(Struct, frozen=True):
    """Speed of a link in bytes a second each way.

    ``width`` is text such as ``4X NDR``.
    """

    bytes_per_s: float
    width: str


def _text(path: str) -> str:
    """Return a small file's first line."""
    return clean_text(text_of(path).partition("\n")[0])


def _total(folder: str, names: tuple[str, ...]) -> int | None:
    values = [number_of(f"{folder}/{name}") for name in names]
    counts = known(values)
    return sum(counts) if counts and len(counts) == len(values) else None


def _link_rate(folder: str) -> LinkRate | None:
    """Return the present speed of a link (``400 Gb/sec (4X NDR)``)."""
    match = _RATE.match(_text(f"{folder}/rate"))
    try:
        speed = float(match[1]) * 1e9 / 8.0 if match is not None else 0.0
    except ValueError:
        return None
    if match is None or speed <= 0.0:
        return None
    return LinkRate(speed, " ".join(part for part in match.groups()[1:] if part))


_NEEDS_TWO = "needs two readings"
_RESET = "a counter was reset"
_FULL = "a 32-bit counter is full, and stays so until it is reset"
NO_BYTES = "the ports do not count bytes"
NO_COUNT = "the ports do not count this"


class _Count(NamedTuple):
    """What a counter said, and when, monotonic s."""

    t: float
    units: int


class _Flow:
    """Measures one direction of one port."""

    def __init__(self) -> None:
        self._last: _Count | None = None
        self.rate: float | None = None
        self.reason = _NEEDS_TWO

    def take(self, now: float, units: int | None, bytes_per_unit: int) -> None:
        last, self.rate = self._last, None
        if units is None or units == FULL_32:
            self._last, self.reason = None, _FULL if units is not None else NO_BYTES
            return
        self._last = _Count(now, units)
        if last is None:
            self.reason = _NEEDS_TWO
        elif units < last.units or now <= last.t:
            self.reason = _RESET
        else:
            self.rate = (units - last.units) * bytes_per_unit / (now - last.t)


class Port:
    """One port: its files, their last counts, and its link."""

    def __init__(self, device_folder: str, device: str, port: str) -> None:
        self.name = clean_text(f"{device}/{port}")
        self.folder = folder = f"{device_folder}/ports/{port}"
        parts = ("counters", "hw_counters")
        there = {f"{part}/{name}" for part in parts for name in names_in(f"{folder}/{part}")}
        readable = (
            row
            for row in _BYTES
            if there.issuperset(row[1] + row[2]) and _total(folder, row[1] + row[2]) is not None
        )
        self._bytes_per_unit, self.received, self._sent = next(readable, (1, (), ()))
        self._files = {
            key: tuple(name for name in names if name in there)
            for key, names in COUNT_FILES.items()
        }
        link = f"{device_folder}/device/driver"
        driver = os.path.basename(os.readlink(link)) if os.path.islink(link) else ""
        if driver == "efa" or "hw_counters/rx_drops" in there:
            self.kind = "EFA"
        elif "RNIC" in _text(f"{device_folder}/node_type"):
            self.kind = "iWARP"
        else:
            self.kind = "RoCE" if _text(f"{folder}/link_layer") == "Ethernet" else "InfiniBand"
        self.model = (
            _text(f"{device_folder}/board_id") or _text(f"{device_folder}/hca_type") or driver
        )
        """What equal adapters share."""
        self.state, self.up, self.gone = "", False, False
        self.has_been_up = self.disabled = False
        self.rate: LinkRate | None = None
        self.best = 0.0
        self.rx, self.tx = _Flow(), _Flow()
        self.counts: dict[str, dict[str, int]] = {key: {} for key in COUNT_FILES}
        self.grown: dict[str, int] = {}

    def read(self, now: float, *, seldom: bool) -> None:
        """Read all files of the port.

        ``4: ACTIVE`` is the logical state as number and word; without it the port is gone.
        """
        code, _, word = _text(f"{self.folder}/state").partition(":")
        self.gone = not code.isdecimal()
        was_up, self.up = self.up, not self.gone and int(code) in ACTIVE
        self.state = "gone" if self.gone else word.strip().lower()
        if not self.up:
            self.disabled = _text(f"{self.folder}/phys_state").startswith(f"{DISABLED}:")
        elif seldom or not was_up:
            self.rate = _link_rate(self.folder)
            self.best = max(self.best, self.rate.bytes_per_s if self.rate else 0.0)
        received, sent = (_total(self.folder, names) for names in (self.received, self._sent))
        self.has_been_up = self.has_been_up or self.up or bool(received)
        self.rx.take(now, received, self._bytes_per_unit)
        self.tx.take(now, sent, self._bytes_per_unit)
        self.grown = {key: self._count(key) for key in COUNT_FILES if seldom or key != LINK_ERRORS}

    def _count(self, key: str) -> int:
        """Return how much the counters have grown since the last reading.

        The first reading is their base.
        """
        last_counts, grown = self.counts[key], 0
        for name in self._files[key]:
            value = number_of(f"{self.folder}/{name}")
            if value is None:
                last_counts.pop(name, None)
                continue
            grown += max(0, value - last_counts.get(name, value))
            last_counts[name] = value
        return grown

    @property
    def spare(self) -> bool:
        """Whether the port is switched off or was never connected."""
        return not self.up and (self.disabled or not self.has_been_up)

    def shown(self, usual: float | None) -> FabricPort:
        """Return the port's state.

        ``usual`` is the speed of most adapters like this one, in bytes a second, where known.
        """
        rate = self.rate if self.up else None
        return FabricPort(
            name=self.name,
            kind=self.kind,
            state=self.state,
            up=self.up,
            spare=self.spare,
            width=rate.width if rate else "",
            peak_bytes_per_s=rate.bytes_per_s if rate else None,
            rx_bytes_per_s=self.rx.rate,
            tx_bytes_per_s=self.tx.rate,
            drops=count_sum(self.counts[DROPS]),
            retransmits=count_sum(self.counts[RETRANSMITS]),
            link_errors=count_sum(self.counts[LINK_ERRORS]),
            trouble=self._trouble(usual),
        )

    def _trouble(self, usual: float | None) -> str:
        if self.spare:
            return ""
        if not self.up:
            return "the adapter is gone" if self.gone else "link down"
        if self.rate is None:
            return ""
        best = max(self.best, usual or 0.0)
        if self.rate.bytes_per_s < best:
            return f"{_gigabits(self.rate.bytes_per_s)} instead of {_gigabits(best)} Gb/s"
        if self.kind == "InfiniBand" and self.rate.width.startswith("1X"):
            return f"one lane wide ({self.rate.width})"
        return ""


def _gigabits(bytes_per_s: float) -> str:
    return f"{bytes_per_s * 8.0 / 1e9:g}"


def count_sum(counts: Mapping[str, int]) -> int | None:
    """Return the sum of counters, None without any."""
    return sum(counts.values()) if counts else None
