"""The fabric of the machine over the window: traffic, losses, links."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import pairwise

from msgspec import Struct

from gputop.model.quantity import count, pct
from gputop.model.snapshot import FabricPort, HostSample, value

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
    troubled: str = ""
    """Ports in trouble, by name: ``mlx5_1/1 link down``; empty where only sums are known."""
    lossy: str = ""
    """Ports that lost something in the window, by name."""

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
        if not parts:
            return ""
        words = f"{', '.join(parts)} in {self.over_s:.0f} s"
        return f"{words} on {self.lossy}" if self.lossy else words

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
        words = ", ".join(parts)
        return f"{words}: {self.troubled}" if words and self.troubled else words

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


class _PortLoss(Struct, frozen=True):
    t: float
    port: str


class FabricWindow:
    """Takes the host's samples in order of time.

    What it keeps is bounded by the window.
    """

    def __init__(self) -> None:
        self._past: deque[tuple[float, tuple[int | None, ...]]] = deque()
        """Times of samples, and what the counters were."""
        self._port_counts: dict[str, int] = {}
        self._lost_on: deque[_PortLoss] = deque()
        self.signals: FabricSignals | None = None

    def observe(
        self, t: float, host: HostSample, ports: Sequence[FabricPort] = ()
    ) -> FabricSignals | None:
        """Return the signals; None without a fabric and a TCP counter."""
        now, past = tuple(value(host, key) for key in _COUNTED), self._past
        if host.fabric_ports_down is None and now[-1] is None:
            past.clear()
            self._lost_on.clear()
            self.signals = None
            return None
        if past and not 0.0 <= t - past[-1][0] <= FABRIC_WINDOW_S:
            past.clear()
            self._lost_on.clear()
        self._note_losses(t, ports)
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
            _named([f"{port.name} {port.trouble}" for port in ports if port.trouble]),
            _named(list(dict.fromkeys([loss.port for loss in self._lost_on]))),
        )
        return self.signals

    def _note_losses(self, t: float, ports: Sequence[FabricPort]) -> None:
        """Remember which ports have lost something since the last sample."""
        while self._lost_on and self._lost_on[0].t <= t - FABRIC_WINDOW_S:
            self._lost_on.popleft()
        now = {port.name: _losses_of(port) for port in ports}
        for name, count_now in now.items():
            if count_now > self._port_counts.get(name, count_now):
                self._lost_on.append(_PortLoss(t, name))
        self._port_counts = now


MOST_NAMED = 4


def _named(names: list[str]) -> str:
    """Return the first names, and how many more there are."""
    words = ", ".join(names[:MOST_NAMED])
    more = len(names) - MOST_NAMED
    return f"{words} and {more} more" if more > 0 else words


def _losses_of(port: FabricPort) -> int:
    """Everything that a port has lost since its adapter was reset."""
    return (port.drops or 0) + (port.retransmits or 0) + (port.link_errors or 0)
