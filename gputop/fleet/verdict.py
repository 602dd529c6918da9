"""A host, a job or a user in a few words: the worst verdict on its GPUs, from their states. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache

from msgspec import Struct

from gputop.diagnosis.catalogue import verdict_rows
from gputop.diagnosis.types import NOT_WORKING, Level
from gputop.fleet.judge import LEVELS, WORDS, FleetState
from gputop.fleet.names import group_of
from gputop.fleet.reading import Down, GpuReading
from gputop.fleet.stragglers import Straggler
from gputop.model.quantity import duration, memory


class Verdict(Struct, frozen=True):
    """``state`` is the worst among the GPUs; ``text`` begins with how many of them it holds for."""

    state: FleetState
    level: Level
    text: str
    straggles: bool = False


_ORDER: tuple[FleetState, ...] = (
    "busy_not_working", "starved", "idle_allocated", "working", "unmeasured", "idle", "down",
)  # fmt: skip


def severity(verdict: Verdict) -> float:
    """The smaller, the more it needs attention. A straggler comes before GPUs that only wait or idle."""
    if verdict.straggles and verdict.state in ("working", "idle_allocated", "unmeasured"):
        return 1.5
    return float(_ORDER.index(verdict.state))


@lru_cache(maxsize=1)
def titles() -> Mapping[str, str]:
    """Verdicts of the node by id, as people read them."""
    return {row.id: row.title for row in verdict_rows()}


def cause_words(cause: str) -> str:
    """A cause of waste in words: a verdict's title, or a state's word, with one wording where both mean the same."""
    cause = "idle_holding_memory" if cause == "idle_allocated" else cause
    return titles().get(cause) or WORDS.get(cause, cause)


STEPS = ("step", "own_step")
"""The measures by which a straggler is one by its steps."""
WITHOUT_WAITS = " without waits"


def step_times(one: Straggler) -> tuple[str, str]:
    """A straggler's step and its job's, in the same unit."""
    scale, unit, digits = (1.0, "s", 2) if one.value >= 0.9995 else (1000.0, "ms", 0 if one.value >= 0.1 else 1)
    return f"{one.value * scale:.{digits}f} {unit}", f"{one.median * scale:.{digits}f} {unit}"


def host_verdict(
    gpus: Sequence[tuple[GpuReading, FleetState]],
    down: Down | None,
    straggling: Sequence[Straggler],
    of_job: Mapping[str, Straggler],
) -> Verdict:
    """The verdict on these GPUs. ``straggling`` are those among them, ``of_job`` the stragglers of all jobs."""
    if down is not None:
        since = "" if down.since_s is None else f" {duration(down.since_s)}"
        return Verdict("down", "yellow", f"down{since}: {down.reason}")
    if not gpus:
        return Verdict("idle", "grey", "no GPU")
    counts = Counter(state for _, state in gpus)
    worst = next(state for state in _ORDER if counts[state])
    several = len({gpu.host for gpu, _ in gpus}) > 1
    if straggling and worst not in ("busy_not_working", "starved"):
        return Verdict(worst, "yellow", _straggles(straggling[0], with_host=several), straggles=True)
    text = f"{counts[worst]} {_words(worst, [gpu for gpu, state in gpus if state == worst])}"
    rest = [f"{n} {WORDS[state]}" for state, n in counts.most_common() if state != worst]
    waits = _waits_for(gpus, straggling, of_job)
    if straggling:
        text = f"{_straggles(straggling[0], with_host=several)}; {text}"
    if waits:
        text += f" (wait for {waits})"
    elif rest:
        text = f"{text} · {rest[0]}"
    return Verdict(worst, LEVELS[worst], text, straggles=bool(straggling))


def _words(state: FleetState, gpus: Sequence[GpuReading]) -> str:
    """The state, and why where the nodes agree on it."""
    causes = Counter(gpu.own_verdict for gpu in gpus if gpu.own_verdict)
    if causes and state in ("busy_not_working", "starved", "working"):
        title = titles().get(causes.most_common(1)[0][0] or "")
        if title and state == "busy_not_working":
            return f"{NOT_WORKING}: {title}"
        if title:
            return title
    if state == "idle_allocated":
        held = sum(gpu.mem_used_bytes or 0.0 for gpu in gpus)
        return f"idle, holding {memory(held)}" if held else WORDS[state]
    if state == "unmeasured":
        return f"{WORDS[state]}: SM activity is not exported"
    return WORDS[state]


def _straggles(one: Straggler, *, with_host: bool) -> str:
    who = f"{one.host} GPU {one.gpu}" if with_host else f"GPU {one.gpu}"
    if one.kind == "starved":
        return f"{who} starves: util {one.value:.0f}, its job is at {one.median:.0f}"
    if one.by in STEPS:
        its, others = step_times(one)
        without = WITHOUT_WAITS if one.by == "own_step" else ""
        return f"{who} straggles: steps of {its}{without}, its job's take {others}"
    if one.by == "power":
        return f"{who} straggles: {one.value:.0f} W, its job waits at {one.median:.0f} W"
    return f"{who} straggles: SM {one.value:.0f}, its job waits at {one.median:.0f}"


def _waits_for(
    gpus: Sequence[tuple[GpuReading, FleetState]], straggling: Sequence[Straggler], of_job: Mapping[str, Straggler]
) -> str:
    """The straggler elsewhere that these GPUs' job waits for."""
    if straggling:
        return ""
    one = next((of_job[job] for gpu, _ in gpus if gpu.job and (job := group_of(gpu.job)) in of_job), None)
    # Ranks whose steps differ do not wait for each other in every step.
    return "" if one is None or one.by == "step" else f"{one.host} GPU {one.gpu}"


def remedy_of(gpus: Sequence[tuple[GpuReading, FleetState]], state: FleetState) -> str:
    """The remedy for GPUs in that state, in the words of the node's rules."""
    remedies = {row.id: row.remedy for row in verdict_rows()}
    own = [gpu.own_verdict for gpu, its in gpus if its == state and gpu.own_verdict is not None]
    if own and remedies.get(own[0]):
        return remedies[own[0]]
    if state in ("busy_not_working", "starved"):
        return "run gputop on the node: it names the cause; `gputop export` there brings it here"
    return remedies.get("idle_holding_memory", "") if state == "idle_allocated" else ""
