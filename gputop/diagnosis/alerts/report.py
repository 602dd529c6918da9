"""Where alerts stand, for people: the rows of the screen's list."""

from __future__ import annotations

from msgspec import Struct

from gputop.diagnosis.alerts.groups import Per, Share


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


class WouldFire(Struct):
    """One firing in a recording: since when the condition held and until when (None: to the end), Unix seconds.

    ``command`` is what would have been run, secrets masked; ``not_run`` says why it would not.
    """

    alert: str
    gpus: tuple[int, ...]
    uuids: tuple[str, ...]
    t: float
    since: float
    until: float | None = None
    command: tuple[str, ...] = ()
    not_run: str | None = None
    notifies: bool = False


class DryRun(Struct, frozen=True):
    """A recording as alerts judge it: the times of its first and last frame, and what would have fired, in order."""

    names: tuple[str, ...]
    begin: float
    end: float
    fired: tuple[WouldFire, ...]
