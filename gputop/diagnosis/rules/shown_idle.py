"""The numbers of the host panel: causes of a GPU's idle time."""

from __future__ import annotations

from gputop.diagnosis.host.idle_attribution import MOSTLY
from gputop.diagnosis.signals import Signals
from gputop.diagnosis.types import Attribution

NOT_THIS = 0.35
"""Where a cause can have filled less than this of the idle time, it did not."""


def main_is_unclear(s: Signals) -> bool:
    """True if the main thread may or may not explain the idle time.

    CUDA waits by spinning unless told otherwise. A thread that hardly runs does neither, whatever its samples allow.
    """
    main, found = s.host.mean.main, s.host.attribution
    if main is None or found.main_run >= MOSTLY:
        return False
    most = min(found.most_main_run, 100.0 * main / max(s.idle, 1.0))
    return most >= NOT_THIS


def attribute(s: Signals) -> Attribution:
    """The numbers of the host panel.

    Loader shares are means of the window; the main thread's is its lower sum.
    """
    host = s.host
    main = None
    if host.mean.main is not None and not main_is_unclear(s):
        least = host.attribution.main_run
        main = 100.0 * (least if least >= MOSTLY else host.mean.main)
    loaders = host.loaders > 0
    is_unclear = main is None and host.mean.main is not None
    return Attribution(
        idle_pct=s.idle,
        loaders=host.loaders,
        running_pct=_percent(host.mean.running) if loaders else None,
        queued_pct=_percent(host.mean.queued) if loaders else None,
        disk_pct=_percent(host.mean.disk) if loaders else None,
        network_pct=_percent(host.mean.network) if loaders and host.why_no_waits is None else None,
        main_pct=main,
        main_busy_pct=_percent(host.mean.main) if is_unclear else None,
    )


def _percent(share: float | None) -> float | None:
    return None if share is None else 100.0 * share
