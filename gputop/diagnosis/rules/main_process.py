"""Rule for a main thread that runs, or waits for something of its own."""

from __future__ import annotations

from gputop.diagnosis.host.idle_attribution import MOSTLY, NO_LONGER
from gputop.diagnosis.rules.base import Rule, RuleResult
from gputop.diagnosis.rules.feeding import (
    LEAST_RX,
    PURE_WAIT,
    OwnWait,
    compiles,
    main_alone,
    main_runs,
    own_wait,
)
from gputop.diagnosis.rules.feeding_words import both_words, cores_note, loaders_words
from gputop.diagnosis.rules.remedy_rows import remedy
from gputop.diagnosis.signals import Signals
from gputop.diagnosis.thresholds import IDLE_PCT
from gputop.model.feeders import WHERE_RANKS_MEET, Cause
from gputop.model.quantity import rate, share


def _main_process(s: Signals) -> bool:
    return s.idle >= IDLE_PCT and (
        main_runs(s) or own_wait(s) is not None or main_alone(s) is not None
    )


OWN_WAITS: dict[Cause, str] = {
    "network": "waits for the network itself",
    "disk": "waits for a disk itself",
    "pipe": "waits for the reader of a pipe that is full",
    "sleep": "sleeps",
}


NEVER_THE_GPU: frozenset[Cause] = frozenset(("disk", "network", "pipe"))
"""Own waits that can be no wait for the GPU."""


def _own_words(s: Signals, wait: OwnWait) -> str:
    """A wait of the main thread's own: ``waits for the network itself at 10.0.0.7:443 58 % of the time``."""
    if wait.cause != "network":
        return f"{OWN_WAITS[wait.cause]} {share(wait.share)} of the time"
    address = f" at {s.host.address}" if s.host.address else ""
    received = f", receiving {rate(s.host.rx)}" if (s.host.rx or 0.0) >= LEAST_RX else ""
    return f"{OWN_WAITS[wait.cause]}{address} {share(wait.share)} of the time{received}"


def _tell_main(s: Signals) -> RuleResult:
    host, line = s.host, "the main thread"
    idle = f"; the GPU is idle {s.idle:.0f} % of the time"
    wait = None if main_runs(s) else own_wait(s)
    alone = None if main_runs(s) or wait is not None else main_alone(s)
    if alone is not None and alone.cause in NEVER_THE_GPU:
        wait, alone = alone, None
    if wait is not None and wait.cause == "network" and WHERE_RANKS_MEET in host.address:
        # The store where ranks meet gives no data: another rank is what it waits for.
        line += (
            f" waits for other ranks of its job at {host.address}, {share(wait.share)} of the time"
        )
        return RuleResult((line + idle, both_words(s)), *remedy("unseen ranks", s), cause="ranks")
    if wait is not None:
        line += f" {_own_words(s, wait)}"
    elif alone is not None and alone.cause in ("sleep", "unknown"):
        line += " runs or sleeps by a timer and waits for nobody"
    found = wait or alone
    if found is not None and found.cause not in ("cpu", "queued"):
        words = remedy(f"main {found.cause}", s)
        return RuleResult((line + idle, both_words(s)), *words, cause=found.cause)
    if alone is not None:
        line += f" is busy {share(host.mean.main)} of the time and waits for nobody"
    else:
        line += f" is busy at least {share(host.attribution.main_run)} of the idle time"
    line += f", {loaders_words(s)}" if host.loaders else ", without workers"
    line += idle
    if compiles(s):
        notes = (f"compilers run {share(host.mean.compiling)} of the time",)
        return RuleResult(
            (line, both_words(s)),
            *remedy("unseen compiling", s),
            notes=notes,
            cause="compiling",
        )
    cause: Cause = (
        "queued" if 2.0 * (host.mean.main_queued or 0.0) >= (host.mean.main or 1.0) else "cpu"
    )
    return RuleResult(
        (line, both_words(s)),
        *remedy(f"main {cause}", s),
        confidence="high" if alone is None else "medium",
        notes=cores_note(s, host.mean.main_queued),
        cause=cause,
    )


MAIN_PROCESS = Rule(
    id="main_process",
    title="starved: main process",
    condition=f"idle ≥ {IDLE_PCT:.0f} %; the main thread is runnable, or waits for a disk, the network, a full pipe or "
    f"a timer of its own, in ≥ {100 * MOSTLY:.0f} % of the idle time (leaves below {100 * NO_LONGER:.0f} %); or it may "
    f"have waited for a disk, the network or a full pipe in ≥ {100 * PURE_WAIT:.0f} % of it; or running and such waits "
    "together fill half of it while no feeder works",
    state="starved",
    matches=_main_process,
    tell=_tell_main,
    remedy="no loaders: num_workers=4–8; else torch.compile or CUDA graphs, no .item()/print/.cpu() in each step; what "
    "it waits for itself: do it in a loader, asynchronously, or not at all",
)
