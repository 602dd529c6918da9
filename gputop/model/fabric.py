"""One port of the fabric at one moment: what the sums of the host's fabric metrics are made of. Shown live only."""

from __future__ import annotations

from msgspec import Struct


class FabricPort(Struct, frozen=True):
    """``name`` is device and port (``mlx5_0/1``), ``kind`` InfiniBand, RoCE, iWARP or EFA.

    Bytes a second each way and for the link's speed; counters as the adapter has them since it was reset. ``trouble``
    says in words what is wrong with the link, and is empty where nothing is. A port that was never connected is
    ``spare``: its being down is no fault.
    """

    name: str
    kind: str
    state: str
    up: bool
    spare: bool = False
    width: str = ""
    peak_bytes_per_s: float | None = None
    rx_bytes_per_s: float | None = None
    tx_bytes_per_s: float | None = None
    drops: int | None = None
    retransmits: int | None = None
    link_errors: int | None = None
    trouble: str = ""
