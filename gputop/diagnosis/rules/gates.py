"""Gates: nothing is judged until these are passed."""

from __future__ import annotations

from gputop.diagnosis.host.idle_runs import BEGUN_OF_S, BEGUN_S, WORKED_OF_S, WORKED_S
from gputop.diagnosis.rules.base import Rule, RuleResult
from gputop.diagnosis.rules.feeding import STEPS_S, is_fed, works
from gputop.diagnosis.signals import LEAST_SAMPLES, SURE_S, TRAINS_S, Signals
from gputop.diagnosis.thresholds import HELD_BYTES, IDLE_PCT
from gputop.diagnosis.window.window import WINDOW_S
from gputop.model.durations import duration
from gputop.model.quantity import pct


def _too_few(s: Signals) -> bool:
    if s.samples < s.min_samples or (s.is_early and not s.is_steady):
        return True
    # The account of a GPU that idles may need longer than its means.
    idles = s.host.is_measured and s.util_known and s.idle >= IDLE_PCT and not s.quiet
    return idles and not s.host.accounted and s.covered_s < WINDOW_S


def _collecting(s: Signals) -> RuleResult:
    if not _too_few(s):
        line = f"SM {pct(s.mean.sm)}, but util is not measured here: idle time is unknown"
        return RuleResult((line,), confidence="low", title="no util: not judged")
    few = f"{s.samples} of {s.min_samples} samples"
    if s.samples >= s.min_samples:
        few = f"{s.covered_s:.0f} s are too few to tell while the load changes"
    return RuleResult((few,), confidence="low")


COLLECTING = Rule(
    id="collecting",
    title="collecting",
    condition=f"fewer than {LEAST_SAMPLES} samples, or less than {SURE_S:.0f} s of a load that changes or seems well",
    state="unmeasured",
    matches=_too_few,
    tell=_collecting,
    levels="grey; info while the GPU is asleep",
)


YOUNG_S = 60.0
"""Age of a GPU process below which it may still be starting up [judged]."""
STARTS_S = 60.0
"""A job whose training was first seen later in its life may have trained before that."""


def _is_new(s: Signals) -> bool:
    """Whether a job that was seen starting has not trained for long."""
    return (
        s.trains_s is not None
        and s.trains_s < TRAINS_S
        and s.tick.age_s is not None
        and s.tick.age_s - s.trains_s < STARTS_S
    )


def _young(s: Signals) -> bool:
    if _is_new(s) and works(s) and s.host.feeders is not None and s.host.feeders.leading == "cpu":
        return True
    has_begun = s.has_trained or (s.trains_s is not None and s.steps_now and s.is_steady)
    return s.tick.age_s is not None and s.tick.age_s < YOUNG_S and not has_begun and not is_fed(s)


def is_cpu_phase(s: Signals) -> bool:
    """True if an idle GPU's process computes on the CPU.

    It loads, compiles or evaluates, and holds memory.
    """
    host = s.host.mean
    return (s.tick.process_bytes or 0.0) >= HELD_BYTES and (
        (host.main is not None and host.main >= BUSY_MAIN)
        or (host.tree is not None and host.tree >= BUSY_CORES)
    )


BUSY_MAIN = 0.5
BUSY_CORES = 0.5


def _startup(s: Signals) -> bool:
    # The job as a whole may say more: it waits for requests, or for this very rank.
    is_explained = bool(s.demand) or s.holds_up > 0
    is_in_cpu_phase = s.quiet and is_cpu_phase(s) and not is_fed(s)
    return _young(s) or (is_in_cpu_phase and not is_explained)


def _starting(s: Signals) -> RuleResult:
    if s.tick.age_s is not None and _young(s):
        line = (
            f"{s.tick.name} started {duration(s.tick.age_s)} ago: judged {YOUNG_S:.0f} s after its "
            "start, or once "
        )
        line += (
            f"kernels have run in {WORKED_S:.0f} of {WORKED_OF_S:.0f} s or repeatedly; its loaders "
        )
        line += f"{TRAINS_S:.0f} s later"
        return RuleResult((line,))
    cores = 0.0 if s.host.mean.tree is None else s.host.mean.tree
    return RuleResult(
        (
            f"a CPU phase: the process uses {cores:.1f} cores, the GPU is idle {s.idle:.0f} % of the time",
        ),
        confidence="medium",
        state="idle_allocated",
    )


STARTUP = Rule(
    id="startup",
    title="starting up",
    condition=f"the GPU's process is younger than {YOUNG_S:.0f} s; its kernels ran in less than {WORKED_S:.0f} of the "
    f"last {WORKED_OF_S:.0f} s and do not come again and again; or the GPU is idle while its process, which holds ≥ "
    f"{HELD_BYTES / 2**30:.0f} GiB, computes on the CPU (main thread ≥ {100 * BUSY_MAIN:.0f} % or tree ≥ "
    f"{BUSY_CORES:g} core); not where a kernel ran in {STEPS_S:.0f} of {WORKED_OF_S:.0f} s while the main thread "
    "waited for workers that work; the wait, and what is wrong with a steady load, is named once kernels ran in "
    f"{BEGUN_S:.0f} of {BEGUN_OF_S:.0f} s",
    state="unmeasured",
    matches=_startup,
    tell=_starting,
    role="information",
)
