"""State of a watched run's alerts, for the findings page."""

from __future__ import annotations

from msgspec import Struct


class AlertRow(Struct, frozen=True):
    """One alert.

    ``holding``: (GPU, since, whether for as long as the alert asks) where the condition holds. ``last``: when the alert
    last fired in this run, on which GPUs, and with what result. ``silent_until``: when a holding alert may fire again.
    """

    name: str
    when: str
    for_s: float
    holding: tuple[tuple[int, float, bool], ...] = ()
    last: tuple[float, str, str] | None = None
    has_failed: bool = False
    silent_until: float | None = None


class AlertBoard(Struct, frozen=True):
    """Every alert.

    ``why_not`` says why this process fires none, and is empty where it does.
    """

    rows: tuple[AlertRow, ...] = ()
    why_not: str = ""
