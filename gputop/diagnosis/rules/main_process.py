"""The starved family: the main thread itself, running or waiting for something of its own."""

from __future__ import annotations

from gputop.diagnosis.attribution import IDLE_PCT, at_least
from gputop.diagnosis.rules.base import Rule, Told
from gputop.diagnosis.rules.feeding import LEAST_RX, both_words, cores_note, main_runs, own_wait
from gputop.diagnosis.rules.starved import starved_level
from gputop.diagnosis.signals import Signals
from gputop.model.quantity import rate, share

IN_WORKERS = "DataLoader(num_workers=4–8)"
"""For a main thread that loads the batches itself."""
LIGHTER_HOST = "torch.compile or CUDA graphs, no .item(), print or .cpu() in each step, fused optimizer"


def _main_process(s: Signals) -> bool:
    return s.idle >= IDLE_PCT and (main_runs(s) or own_wait(s) is not None)


MAIN_REMEDIES: dict[str, tuple[str, str]] = {
    "network": (
        "fetch in a loader or asynchronously, ahead of the step: not in the training loop",
        "fetch in a loader",
    ),
    "disk": ("read in a loader, ahead of the step; cache on local NVMe", "read in a loader"),
    "sleep": ("take the sleep, the polling or the back-off out of the training loop", "no sleep in the loop"),
}


def _tell_main(s: Signals) -> Told:
    own = None if main_runs(s) else own_wait(s)
    if own is not None:
        cause, x = own
        what = {"network": "waits for the network itself", "disk": "waits for a disk itself", "sleep": "sleeps"}[cause]
        line = f"GPU idle {s.idle:.0f} %: main thread {what} {share(x)} of the time"
        if cause == "network" and (s.main_rx or 0.0) >= LEAST_RX:
            line += f", receiving {rate(s.main_rx)}"
        return Told(starved_level(s), (line, both_words(s)), *MAIN_REMEDIES[cause], "medium", cause=cause)
    at_least_share = at_least(s.main or 0.0, s.u)
    line = f"GPU idle {s.idle:.0f} %: main thread runnable at least {share(at_least_share)} of that"
    if s.loaders:
        line += f", {s.loaders} workers {share(s.workers)} busy"
        remedy = LIGHTER_HOST
        short = "torch.compile, no .item()"
    else:
        line += ", no workers"
        remedy = f"{IN_WORKERS} if it loads data; else torch.compile, CUDA graphs, no .item() in each step"
        short = "num_workers=4–8, compile"
    queued = (s.main_queued or 0.0) / s.main if s.main else 0.0
    said = (line, both_words(s)) if s.knows_feeders else (line,)
    cause = "queued" if queued >= 0.5 else "cpu"
    return Told(starved_level(s), said, remedy, short, notes=cores_note(s, s.main_queued), cause=cause)


MAIN_PROCESS = Rule(
    id="main_process",
    title="starved: main process",
    short="starved: main process",
    condition="idle ≥ 20 % and the main thread runnable in at least half of the idle time (lower bound), or waiting "
    "for a disk, the network or a timer of its own in ≥ 40 % of it",
    levels="yellow, red from 50 % idle",
    state="starved",
    holds=_main_process,
    tell=_tell_main,
    remedy="no loaders: num_workers=4–8; else torch.compile or CUDA graphs, no .item()/print/.cpu() in each step; what "
    "it waits for itself: do it in a loader, asynchronously, or not at all",
)
