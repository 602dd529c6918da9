"""Name the ports of the fabric that are down, drop or retransmit, on pages and in Prometheus. Pure.

The sums on a host's line say that something is lost; a cable is exchanged by the name of its port.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from gputop.features.fleet.fleet_reading import WINDOW_S

FAULT = "gputop_fabric_port_fault"
"""1 for a port whose link is down or degraded, with the fault as a label."""


class PortCount(Struct, frozen=True):
    """A counter of a port: words for what it counts, and how many in five minutes are more than noise."""

    words: str
    least: float


COUNTS: Mapping[str, PortCount] = {
    "gputop_fabric_port_drops_total": PortCount("packets dropped", WINDOW_S),
    "gputop_fabric_port_retransmits_total": PortCount("packets sent again", WINDOW_S),
    "gputop_fabric_port_link_errors_total": PortCount("link errors", WINDOW_S / 3.0),
}
"""One loss a second and one link error in three, as the node judges them over half a minute."""
MOST_LOST = 1e12
"""Packets in five minutes: a port of 1.6 Tb/s sends 7e11 of the smallest. More is no count."""
PORT = "port"
"""The label that names a port: adapter and number."""


def fault_line(labels: Mapping[str, str]) -> str:
    """Words for a port's fault: ``port mlx5_0/1: link down``."""
    return f"port {labels.get(PORT, '?')}: {labels.get('fault', 'at fault')}"


def count_line(name: str, port: str, increase: float) -> str:
    """Words for what a port lost in five minutes; empty for noise and the impossible."""
    count = COUNTS[name]
    if not count.least <= increase <= MOST_LOST:
        return ""
    return f"port {port}: {increase:,.0f} {count.words} in {WINDOW_S / 60.0:.0f} min"


def risen(
    now: Mapping[tuple[str, str], float], before: Mapping[tuple[str, str], float]
) -> Iterable[str]:
    """Yield words for ports whose counters rose between two pages, by name and port."""
    for (name, port), value in now.items():
        words = count_line(name, port, value - before.get((name, port), value))
        if words:
            yield words
