"""Where the alerts of a watched run stand: what the findings page shows above the findings."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Per = Literal["gpu", "job", "node"]
Share = Literal["any", "all"]


class AlertRow(Struct, frozen=True):
    """One alert. ``holds`` gives (GPU, since, whether for as long as the alert asks) where its condition holds.

    ``last`` is when it last fired in this run, on which GPUs, and with what result; None where it has not.
    ``silent_until``: where it holds and fired not long ago, in this run or before it, when it may fire again.
    """

    name: str
    when: str
    for_s: float
    holds: tuple[tuple[int, float, bool], ...] = ()
    last: tuple[float, str, str] | None = None
    has_failed: bool = False
    is_silenced: bool = False
    silent_until: float | None = None
    per: Per = "gpu"
    gpus: Share = "any"


class AlertBoard(Struct, frozen=True):
    """Every alert, and whether this gputop fires them: ``why_not`` is empty where it does."""

    rows: tuple[AlertRow, ...] = ()
    why_not: str = ""
