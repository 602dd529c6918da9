"""One reading of the fabric: the host's keys of it, why some are missing, and the ports behind the sums."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from gputop.model.fabric import FabricPort
from gputop.model.snapshot import NOTHING_MISSING

RX, TX, PEAK = "fabric_rx_bytes_per_s", "fabric_tx_bytes_per_s", "fabric_peak_bytes_per_s"
DROPS, RETRANSMITS, LINK_ERRORS = "fabric_drops", "fabric_retransmits", "fabric_link_errors"
DOWN, DEGRADED = "fabric_ports_down", "fabric_ports_degraded"
FABRIC_KEYS = (RX, TX, PEAK, DROPS, RETRANSMITS, LINK_ERRORS, DOWN, DEGRADED)
NO_FABRIC = "no InfiniBand, RoCE or EFA port"


class FabricReading(Struct, frozen=True):
    """Values by key of ``HOST_METRICS``, reasons for those that are missing, and the ports behind them."""

    values: Mapping[str, float | int | None]
    missing: Mapping[str, str] = NOTHING_MISSING
    ports: tuple[FabricPort, ...] = ()


def without(reason: str) -> FabricReading:
    """No reading, and why."""
    return FabricReading(dict.fromkeys(FABRIC_KEYS), dict.fromkeys(FABRIC_KEYS, reason))
