"""Badges for the rhythm of a job and its company."""

from __future__ import annotations

from datetime import datetime, timezone

from gputop.diagnosis.host.idle_runs import ALTERNATION_S, BUSY_UTIL, IDLE_UTIL
from gputop.diagnosis.host.job_steps import PERIOD_GROWN
from gputop.diagnosis.jobs.stragglers import ALL_UTIL, FOR_S, LEAST_GPUS, LEAST_POINTS
from gputop.diagnosis.rules.base import BadgeRule, Told
from gputop.diagnosis.signals import Signals
from gputop.diagnosis.thresholds import HALF_RATIO
from gputop.diagnosis.types import Badge, VerdictId
from gputop.model.durations import step_time
from gputop.model.quantity import pct
from gputop.model.step_pace import SOURCE_WORDS

STOPS = 4

STOP_START = BadgeRule(
    "stop_start", "stop and start", "info",
    f"≥ {STOPS} alternations through {BUSY_UTIL:.0f}→{IDLE_UTIL:.0f} % util in {ALTERNATION_S:.0f} s; not of a "
    "server, or where no process is seen to cause them",
    lambda s, verdict: (
        None if s.falls < STOPS or s.comes_and_goes else f"{s.falls} falls from ≥ {BUSY_UTIL:.0f} % to ≤ "
        f"{IDLE_UTIL:.0f} % util in {ALTERNATION_S:.0f} s"
    ),
    "prefetch, asynchronous checkpoints and evaluation",
)  # fmt: skip


def _step_growth(s: Signals, verdict: VerdictId) -> Told:
    period = s.period
    if period is None or period.grown_t is None:
        return None
    slower = 100.0 * (period.period_s / period.first_s - 1.0)
    since = datetime.fromtimestamp(period.grown_t, timezone.utc)
    line = (
        f"a step takes {step_time(period.period_s)} ({SOURCE_WORDS[period.source]}), {slower:.0f} "
        "% longer than the "
    )
    return line + f"{step_time(period.first_s)} at first, since {since:%H:%M} UTC"


STEP_GROWTH = BadgeRule(
    "step_growth", "steps grow longer", "yellow",
    f"the step that the GPUs' rhythm shows (samples every 0.25 s) has grown by ≥ {100 * (PERIOD_GROWN - 1):.0f} %",
    _step_growth, "see what changed then: clocks, temperature, input, sequence length, a neighbour on the host",
)  # fmt: skip


def _straggler(s: Signals, verdict: VerdictId) -> Told:
    peer = s.peer
    if peer is None:
        return None
    line = f"GPU {peer.straggler}: {peer.measure} {pct(peer.value)}, "
    line += f"the other {peer.gpus - 1} of the job {pct(peer.median)}"
    if peer.straggler == s.index:
        waiting = (
            "the others wait"
            if len(peer.waits) == peer.gpus - 1
            else f"{len(peer.waits)} of them wait"
        )
        return f"{line}: it does more" + (f", {waiting}" if peer.waits else "")
    if s.index not in peer.waits:
        return None
    waits, remedy = (
        f"waits for GPU {peer.straggler}",
        f"see GPU {peer.straggler}: {STRAGGLER.remedy}",
    )
    return Badge(
        "straggler", "info", waits, f"{line}: this GPU waits for it", remedy, about=peer.straggler
    )


STRAGGLER = BadgeRule(
    "straggler", "straggler", "yellow",
    f"≥ {LEAST_GPUS} GPUs of one job (no MIG instances), all util ≥ {ALL_UTIL:.0f} %, one does more than the median of "
    f"the others by > max({LEAST_POINTS:.0f} points, 3 × 1.4826 × MAD) in SM (else power) for {FOR_S:.0f} s; "
    f"those wait whose SM / util is below {HALF_RATIO:g}, or who are busy and do not work",
    _straggler, "balance the ranks' data and layers; compare clocks, PCIe and host of that rank",
    "yellow on the straggler, info on those that wait",
)  # fmt: skip

SHARED_GPU = BadgeRule(
    "shared_gpu", "shared GPU", "info", "more than one compute process",
    lambda s, verdict: (
        None if (n := s.tick.computing) < 2 else f"{n} compute processes: which of them causes this is uncertain"
    ),
)  # fmt: skip
