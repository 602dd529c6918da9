"""The fabric of the machine over the window: traffic, losses, links."""

from __future__ import annotations

from collections import deque
from itertools import pairwise

from msgspec import Struct

from gputop.model.quantity import count, pct
from gputop.model.snapshot import HostSample, value

FABRIC_WINDOW_S = 30.0
LEAST_LOSSES = 30
"""Drops or retransmits in the window from which on they are more than noise: one a second [judged]."""
LEAST_LINK_ERRORS = 10
"""Symbol and link errors in the window; a good cable has a few in an hour [judged]."""
LEAST_TCP = 100
"""Segments that TCP sent again in the window, from which on they are worth a word [judged]."""
_COUNTED = ("fabric_drops", "fabric_retransmits", "fabric_link_errors", "tcp_retransmits")


class FabricSignals(Struct, frozen=True):
    """Bytes a second each way, capacity, and events of the window."""

    rx_bytes_per_s: float | None
    tx_bytes_per_s: float | None
    peak_bytes_per_s: float | None
    drops: int
    retransmits: int
    link_errors: int
    tcp_retransmits: int
    over_s: float
    ports_down: int
    ports_degraded: int

    @property
    def has_fabric(self) -> bool:
        """Whether the machine has a fabric at all."""
        return self.peak_bytes_per_s is not None or self.ports_down > 0

    @property
    def has_losses(self) -> bool:
        """Whether the fabric loses more than noise."""
        return (
            max(self.drops, self.retransmits) >= LEAST_LOSSES
            or self.link_errors >= LEAST_LINK_ERRORS
        )

    @property
    def losses(self) -> str:
        """Losses in words; empty if there were none."""
        counted = (
            (self.drops, "drop"),
            (self.retransmits, "retransmit"),
            (self.link_errors, "link error"),
        )
        parts = [
            f"{number:,} {noun}{'' if number == 1 else 's'}" for number, noun in counted if number
        ]
        return f"{', '.join(parts)} in {self.over_s:.0f} s" if parts else ""

    @property
    def links(self) -> str:
        """Links in trouble, in words; empty if there are none.

        Empty where none is.
        """
        parts = []
        if self.ports_down:
            parts.append(f"{count(self.ports_down, 'link')} down")
        if self.ports_degraded:
            parts.append(f"{count(self.ports_degraded, 'link')} slower than usual")
        return ", ".join(parts)

    @property
    def peak(self) -> str:
        """Capacity of the links each way: ``400 Gb/s``, ``3.2 Tb/s``."""
        bits = 8.0 * (self.peak_bytes_per_s or 0.0)
        return f"{bits / 1e12:g} Tb/s" if bits >= 1e12 else f"{bits / 1e9:g} Gb/s"

    def evidence(self) -> tuple[str, ...]:
        """Evidence for a verdict on communication.

        ``fabric ↑ 3 % of 400 Gb/s, 1,204 drops in 30 s``.
        """
        if not self.has_fabric:
            tcp = self.tcp_retransmits
            return (
                (f"no fabric here; TCP sent {tcp:,} segments again in {self.over_s:.0f} s",)
                if tcp >= LEAST_TCP
                else ()
            )
        parts = []
        peak = self.peak_bytes_per_s
        shares = [
            f"{arrow} {pct(100.0 * value / peak)}"
            for arrow, value in (("↓", self.rx_bytes_per_s), ("↑", self.tx_bytes_per_s))
            if value is not None and peak
        ]
        if shares:
            parts.append(f"fabric {' '.join(shares)} of {self.peak}")
        parts += [words for words in (self.links, self.losses) if words]
        return (", ".join(parts),) if parts else ()


class FabricWindow:
    """Takes the host's samples in order of time.

    What it keeps is bounded by the window.
    """

    def __init__(self) -> None:
        self._past: deque[tuple[float, tuple[int | None, ...]]] = deque()
        """Times of samples, and what the counters were."""
        self.signals: FabricSignals | None = None

    def observe(self, t: float, host: HostSample) -> FabricSignals | None:
        """Return the signals; None without a fabric and a TCP counter."""
        now, past = tuple(value(host, key) for key in _COUNTED), self._past
        if host.fabric_ports_down is None and now[-1] is None:
            past.clear()
            self.signals = None
            return None
        if past and not 0.0 <= t - past[-1][0] <= FABRIC_WINDOW_S:
            past.clear()
        past.append((t, now))
        # The newest one at or before the window's begin is what it is compared with.
        while len(past) > 1 and past[1][0] <= t - FABRIC_WINDOW_S:
            past.popleft()
        # The fall of a counter is a gap, and so is a sample without it.
        drops, retransmits, errors, tcp = [
            sum([max(0, b - a) for a, b in pairwise(counted) if a is not None and b is not None])
            for counted in zip(*[counters for _, counters in past], strict=True)
        ]
        self.signals = FabricSignals(
            host.fabric_rx_bytes_per_s,
            host.fabric_tx_bytes_per_s,
            host.fabric_peak_bytes_per_s,
            drops,
            retransmits,
            errors,
            tcp,
            min(FABRIC_WINDOW_S, t - past[0][0]),
            host.fabric_ports_down or 0,
            host.fabric_ports_degraded or 0,
        )
        return self.signals
