"""Simulates the ports of a fabric, as a pure function of seed and time."""

from __future__ import annotations

from gputop.model.snapshot import FabricPort
from gputop.sources.fabric import NO_FABRIC, FabricReading, without
from gputop.sources.fabric_port import DEGRADED, DOWN, DROPS, LINK_ERRORS, PEAK, RETRANSMITS, RX, TX
from gputop.sources.simulation.life import FabricLife
from gputop.sources.simulation.noise import drift

_SERIES = 7
_COUNTED_SINCE_S = 86400.0
"""How long before the start the counters began."""


def sample_fabric(life: FabricLife | None, seed: int, t: float, started: float) -> FabricReading:
    """Return the fabric at Unix time ``t``, a pure function of its arguments."""
    if life is None:
        return without(NO_FABRIC)
    ports = tuple(_port(life, number, seed, t, started) for number in range(life.ports))
    up = [port for port in ports if port.up]
    return FabricReading(
        {
            RX: sum(port.rx_bytes_per_s or 0.0 for port in ports),
            TX: sum(port.tx_bytes_per_s or 0.0 for port in ports),
            PEAK: sum(port.peak_bytes_per_s or 0.0 for port in ports) or None,
            DROPS: sum(port.drops or 0 for port in ports),
            RETRANSMITS: sum(port.retransmits or 0 for port in ports),
            LINK_ERRORS: sum(port.link_errors or 0 for port in ports),
            DOWN: len(ports) - len(up),
            DEGRADED: 0,
        },
        ports=ports,
    )


def _port(life: FabricLife, number: int, seed: int, t: float, started: float) -> FabricPort:
    last = number == life.ports - 1
    up = not (last and life.down_after_s is not None and t >= started + life.down_after_s)
    peak = life.gigabits * 1e9 / 8.0
    wobble = 1.0 + 0.1 * drift(seed, _SERIES + number, t)
    counted = max(0.0, t - started + _COUNTED_SINCE_S) / life.ports
    return FabricPort(
        name=f"mlx5_{number}/1",
        kind="InfiniBand",
        state="active" if up else "down",
        up=up,
        width=life.width if up else "",
        peak_bytes_per_s=peak if up else None,
        rx_bytes_per_s=peak * life.rx / 100.0 * wobble if up else 0.0,
        tx_bytes_per_s=peak * life.tx / 100.0 * wobble if up else 0.0,
        drops=int(life.drops_per_s * counted),
        retransmits=int(life.retransmits_per_s * counted),
        link_errors=0,
        trouble="" if up else "link down",
    )
