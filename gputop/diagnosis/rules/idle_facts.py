"""Facts of the host panel: a GPU's feeders, its main thread's waits, other users of the cores."""

from __future__ import annotations

from msgspec.structs import replace

from gputop.diagnosis.rules.feeding_words import (
    UNMEASURED,
    feeder_words,
    kind_of,
    main_words,
    taken_by,
)
from gputop.diagnosis.rules.shown_idle import attribute
from gputop.diagnosis.signals import Signals
from gputop.diagnosis.types import Attribution
from gputop.model.feeders import Feeders


def attribution_of(s: Signals) -> Attribution:
    """Return the numbers of the host panel with their facts."""
    return replace(attribute(s), facts=_facts(s), taken_by=taken_by(s.host))


def _facts(s: Signals) -> tuple[str, ...]:
    """Return ``8 torch workers, the busiest: run 79 %``, the main thread's waits, and ``pin_memory off``."""
    facts: list[str] = []
    feeders, waits = s.host.feeders, main_words(s)
    if feeders is not None and feeders.count:
        facts.append(f"{_feeders_named(s, feeders)}: {feeder_words(feeders.busiest)}")
    elif s.host.loaders == 0:
        facts.append("no dataloader workers")
    if waits and waits != UNMEASURED:
        does = "main thread" if waits.startswith("run ") else "main thread waits"
        facts.append(f"{does}: {waits}")
    if s.host.loaders and s.tick.pin_memory is not None:
        facts.append(f"pin_memory {'on' if s.tick.pin_memory else 'off'}")
    return tuple(facts)


def _feeders_named(s: Signals, feeders: Feeders) -> str:
    """Return ``8 torch workers, the busiest``, ``1 of 4 torch workers``, ``6 host threads, the busiest``."""
    kind = kind_of(feeders)
    if s.tick.kinds and feeders.feeder_kind == "workers":
        kind = f"{s.tick.kinds} {kind}"
    if feeders.uneven:
        return f"{feeders.active} of {feeders.count} {kind}"
    busiest = ", the busiest" if feeders.count > 1 else ""
    return f"{feeders.count} {kind}{busiest}"
