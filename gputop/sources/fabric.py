"""Reads the ports of the fabric: InfiniBand, RoCE, EFA."""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from collections.abc import Mapping

from msgspec import Struct

from gputop.model.quantity import clean_text, known
from gputop.model.snapshot import NOTHING_MISSING, FabricPort
from gputop.sources.procfs import names_in, number_of, text_of
from gputop.system.worker import Worker

RX, TX, PEAK = "fabric_rx_bytes_per_s", "fabric_tx_bytes_per_s", "fabric_peak_bytes_per_s"
DROPS, RETRANSMITS, LINK_ERRORS = "fabric_drops", "fabric_retransmits", "fabric_link_errors"
DOWN, DEGRADED = "fabric_ports_down", "fabric_ports_degraded"
FABRIC_KEYS = (RX, TX, PEAK, DROPS, RETRANSMITS, LINK_ERRORS, DOWN, DEGRADED)
NO_FABRIC = "no InfiniBand, RoCE or EFA port"


class FabricReading(Struct, frozen=True):
    """Values by key of ``HOST_METRICS``, missing reasons, and ports."""

    values: Mapping[str, float | int | None]
    missing: Mapping[str, str] = NOTHING_MISSING
    ports: tuple[FabricPort, ...] = ()


def without(reason: str) -> FabricReading:
    """Return a reading without values, with the reason."""
    return FabricReading(dict.fromkeys(FABRIC_KEYS), dict.fromkeys(FABRIC_KEYS, reason))


# The files of a port and their contents. Computes no rates and remembers nothing.
#
# Layouts: Documentation/ABI/stable/sysfs-class-infiniband, and the counter tables of the drivers (mlx5, efa, irdma,
# bnxt_re). Which files there are differs by driver and kernel, so they are looked for by name.

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


# The fabric over time: rates and sums over all ports, and which links are down or slower than they should be.
#
# A counter that falls was reset or has wrapped: that is a gap, never traffic. Sums only grow: they begin with the
# ports' first values, and a port that comes or goes adds only what it counts while it is watched.

LOOK_S = 60.0
"""How often new ports are looked for."""
SELDOM = 5
"""Link errors and speeds are read at every fifth reading: each of these files queries the adapter."""
LEAST_ALIKE = 3
"""With so many equal adapters, one that is slower than most of them is reported [judged]."""
_NEEDS_TWO = "needs two readings"
_RESET = "a counter was reset"
_FULL = "a 32-bit counter is full, and stays so until it is reset"
_NO_BYTES = "the ports do not count bytes"
_NO_COUNT = "the ports do not count this"


class _Flow:
    """Measures one direction of one port."""

    def __init__(self) -> None:
        self._last: tuple[float, int] | None = None
        self.rate: float | None = None
        self.reason = _NEEDS_TWO

    def take(self, now: float, units: int | None, bytes_per_unit: int) -> None:
        last, self.rate = self._last, None
        if units is None or units == FULL_32:
            self._last, self.reason = None, _FULL if units is not None else _NO_BYTES
            return
        self._last = (now, units)
        if last is None:
            self.reason = _NEEDS_TWO
        elif units < last[1] or now <= last[0]:
            self.reason = _RESET
        else:
            self.rate = (units - last[1]) * bytes_per_unit / (now - last[0])


class _Port:
    """One port: its files, their last counts, and its link."""

    def __init__(self, device_folder: str, device: str, port: str) -> None:
        self.name = clean_text(f"{device}/{port}")
        self.folder = folder = f"{device_folder}/ports/{port}"
        parts = ("counters", "counters_ext", "hw_counters")
        there = {f"{part}/{name}" for part in parts for name in names_in(f"{folder}/{part}")}
        readable = (
            row for row in _BYTES if there.issuperset(row[1] + row[2]) and _total(folder, row[1] + row[2]) is not None
        )
        self._bytes_per_unit, self.received, self._sent = next(readable, (1, (), ()))
        self._files = {key: tuple(name for name in names if name in there) for key, names in COUNT_FILES.items()}
        link = f"{device_folder}/device/driver"
        driver = os.path.basename(os.readlink(link)) if os.path.islink(link) else ""
        if driver == "efa" or "hw_counters/rx_drops" in there:
            self.kind = "EFA"
        elif "RNIC" in _text(f"{device_folder}/node_type"):
            self.kind = "iWARP"
        else:
            self.kind = "RoCE" if _text(f"{folder}/link_layer") == "Ethernet" else "InfiniBand"
        self.model = _text(f"{device_folder}/board_id") or _text(f"{device_folder}/hca_type") or driver
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
            drops=_sum(self.counts[DROPS]),
            retransmits=_sum(self.counts[RETRANSMITS]),
            link_errors=_sum(self.counts[LINK_ERRORS]),
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


class FabricCollector:
    """Reads all ports; an adapter may block ``read``."""

    def __init__(self, sys: str = "/sys") -> None:
        self._sys = sys
        self._ports: dict[str, _Port] = {}
        self._totals: dict[str, int] = {}
        self._looked_at: float | None = None
        self._readings = 0

    def read(self, now: float) -> FabricReading:
        """Read all ports; rates are over the time since the last call.

        ``now`` is monotonic, in seconds.
        """
        self._look(now)
        seldom, first = self._readings % SELDOM == 0, self._readings == 0
        self._readings += 1
        for name, port in list(self._ports.items()):
            port.read(now, seldom=seldom)
            if port.gone and not port.has_been_up:
                del self._ports[name]
            for key, grown in port.grown.items():
                begun = (_sum(port.counts[key]) or 0) if first else 0
                self._totals[key] = self._totals.get(key, 0) + begun + grown
        if not self._ports:
            return without(NO_FABRIC)
        return self._reading()

    def _look(self, now: float) -> None:
        if self._looked_at is not None and now - self._looked_at < LOOK_S:
            return
        self._looked_at = now
        root = f"{self._sys}/class/infiniband"
        for device in names_in(root):
            folder = f"{root}/{device}"
            # The adapter's own counters include what its virtual functions carry.
            if not os.path.exists(f"{folder}/device/physfn"):
                for port in names_in(f"{folder}/ports"):
                    if len(self._ports) < MOST_PORTS and clean_text(f"{device}/{port}") not in self._ports:
                        self._ports[clean_text(f"{device}/{port}")] = _Port(folder, device, port)

    def _reading(self) -> FabricReading:
        ports = list(self._ports.values())
        usual = _usual(ports)
        shown = tuple(port.shown(usual.get((port.model, port.kind))) for port in ports)
        values: dict[str, float | int | None] = {}
        missing: dict[str, str] = {}
        # A software port counts no bytes, so it is left out of the sums.
        counted = [port for port in ports if port.received and (port.up or not port.gone)]
        for key, flows in ((RX, [port.rx for port in counted]), (TX, [port.tx for port in counted])):
            reason = next((flow.reason for flow in flows if flow.rate is None), None if flows else _NO_BYTES)
            values[key] = None if reason else sum(flow.rate or 0.0 for flow in flows)
            if reason:
                missing[key] = reason
        values[PEAK] = sum(port.rate.bytes_per_s for port in counted if port.up and port.rate) or None
        if values[PEAK] is None:
            missing[PEAK] = "no port has a link"
        for key in COUNT_FILES:
            has_counter = any(port.counts[key] for port in ports)
            values[key] = self._totals[key] if has_counter else None
            if not has_counter:
                missing[key] = _NO_COUNT
        values[DOWN] = sum(1 for port in shown if not port.up and not port.spare)
        values[DEGRADED] = sum(1 for port in shown if port.up and port.trouble)
        return FabricReading(values, missing, shown)


def _usual(ports: list[_Port]) -> dict[tuple[str, str], float]:
    """Return the speed of most equal adapters, by model and kind.

    More than half of at least three must have it.
    """
    alike: dict[tuple[str, str], list[float]] = {}
    for port in ports:
        if port.up and port.rate and port.model:
            alike.setdefault((port.model, port.kind), []).append(port.rate.bytes_per_s)
    usual = {}
    for key, rates in alike.items():
        rate, times = Counter(rates).most_common(1)[0]
        if len(rates) >= LEAST_ALIKE and 2 * times > len(rates):
            usual[key] = rate
    return usual


def _sum(counts: Mapping[str, int]) -> int | None:
    return sum(counts.values()) if counts else None


def _gigabits(bytes_per_s: float) -> str:
    return f"{bytes_per_s * 8.0 / 1e9:g}"


# Reads the fabric on a thread of its own, and only on a machine that has one: an adapter's answer may hang.

EVERY_S = 2.0
HUNG_S = 10.0
"""An answer that takes longer is given up: older values must not be shown as if they were new."""
_NOT_YET = "the ports have not answered yet"


class FabricWatch:
    """Reads the fabric on a thread of its own; an adapter may hang.

    Until there is an adapter only the names in one folder are read, once a minute.
    """

    def __init__(self, sys: str = "/sys") -> None:
        self._sys = sys
        self._worker: Worker[FabricReading] | None = None
        self._looked_at: float | None = None
        self._asked_at = 0.0

    def newest(self, now: float) -> FabricReading:
        """Return the newest reading and start the next if due; never blocks.

        ``now`` is monotonic, in seconds.
        """
        worker = self._worker
        if worker is None:
            worker = self._begin(now)
            if worker is None:
                return without(NO_FABRIC)
        elif not 0.0 <= now - self._asked_at < EVERY_S:
            self._asked_at = now
            if worker.busy_since is None:
                worker.ask()
        busy = worker.busy_since
        late = 0.0 if busy is None else time.monotonic() - busy
        if late > HUNG_S:
            return without(f"the ports have not answered for {late:.0f} s")
        if worker.error is not None:
            return without(f"cannot read the ports: {type(worker.error).__name__}")
        return worker.latest or without(_NOT_YET)

    def close(self) -> None:
        """Let the thread end."""
        if self._worker is not None:
            self._worker.stop()

    def _begin(self, now: float) -> Worker[FabricReading] | None:
        if self._looked_at is not None and 0.0 <= now - self._looked_at < LOOK_S:
            return None
        self._looked_at = self._asked_at = now
        if names_in(f"{self._sys}/class/infiniband"):
            collector = FabricCollector(self._sys)
            self._worker = Worker("fabric", lambda: collector.read(time.monotonic()))
            self._worker.ask()
        return self._worker
