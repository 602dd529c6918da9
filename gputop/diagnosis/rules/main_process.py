"""Rule for a main thread that runs, or waits for something of its own."""

from __future__ import annotations

from gputop.diagnosis.attribution import IDLE_PCT
from gputop.diagnosis.idle_attribution import MOSTLY, NO_LONGER
from gputop.diagnosis.rules.base import Rule, RuleResult
from gputop.diagnosis.rules.feeding_rules import (
    LEAST_RX,
    PURE_WAIT,
    both_words,
    compiles,
    cores_note,
    main_alone,
    main_runs,
    own_wait,
)
from gputop.diagnosis.rules.remedy_rows import remedy
from gputop.diagnosis.rules.starved import ALARM_IDLE, starved_level
from gputop.diagnosis.signals import Signals
from gputop.model.feeders import Cause
from gputop.model.quantity import rate, share


def _main_process(s: Signals) -> bool:
    return s.idle >= IDLE_PCT and (
        main_runs(s) or own_wait(s) is not None or main_alone(s) is not None
    )


OWN_WAITS = {
    "network": "waits for the network itself",
    "disk": "waits for a disk itself",
    "pipe": "waits for the reader of a pipe that is full",
    "sleep": "sleeps",
}


def _tell_main(s: Signals) -> RuleResult:
    host, level, line = s.host, starved_level(s), "the main thread"
    idle = f"; the GPU is idle {s.idle:.0f} % of the time"
    wait = None if main_runs(s) else own_wait(s)
    alone = None if main_runs(s) or wait is not None else main_alone(s)
    if wait is not None:
        address = f" at {host.address}" if wait[0] == "network" and host.address else ""
        line += f" {OWN_WAITS[wait[0]]}{address} {share(wait[1])} of the time"
        if wait[0] == "network" and (host.rx or 0.0) >= LEAST_RX:
            line += f", receiving {rate(host.rx)}"
    elif alone in ("sleep", "unknown"):
        line += " runs or sleeps by a timer and waits for nobody"
    found = wait[0] if wait is not None else alone
    if found is not None and found not in ("cpu", "queued"):
        return RuleResult(
            level, (line + idle, both_words(s)), *remedy(f"main {found}", s), cause=found
        )
    if alone is not None:
        line += f" is busy {share(host.mean.main)} of the time and waits for nobody"
    else:
        line += f" is busy at least {share(host.attribution.main_run)} of the idle time"
    line += (
        f", {host.loaders} workers are busy {share(host.mean.workers)}"
        if host.loaders
        else ", without workers"
    )
    line += idle
    if compiles(s):
        notes = (f"compilers run {share(host.mean.compiling)} of the time",)
        return RuleResult(
            level,
            (line, both_words(s)),
            *remedy("unseen compiling", s),
            notes=notes,
            cause="compiling",
        )
    cause: Cause = (
        "queued" if 2.0 * (host.mean.main_queued or 0.0) >= (host.mean.main or 1.0) else "cpu"
    )
    return RuleResult(
        level,
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
    level=f"yellow, red from {ALARM_IDLE:.0f} % idle",
    state="starved",
    matches=_main_process,
    tell=_tell_main,
    remedy="no loaders: num_workers=4–8; else torch.compile or CUDA graphs, no .item()/print/.cpu() in each step; what "
    "it waits for itself: do it in a loader, asynchronously, or not at all",
)
