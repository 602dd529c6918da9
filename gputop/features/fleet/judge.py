"""The state of each GPU of a fleet, from five minutes of data: the first rule that holds. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from types import MappingProxyType
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from gputop.diagnosis.catalogue import titles, verdict_rows
from gputop.diagnosis.conditions import busy_not_working
from gputop.diagnosis.rules.base import HELD_BYTES
from gputop.diagnosis.stragglers import ALL_UTIL, LEAST_GPUS, LEAST_POINTS, MAD_FACTOR, STEP_FACTOR
from gputop.diagnosis.summary import LEVEL_OF_ROLE, ROLE_OF_STATE
from gputop.diagnosis.thresholds import FLAG_A_UTIL, SURELY_BUSY_UTIL
from gputop.diagnosis.types import NOT_WORK, STATE_WORDS, STATES, Level, full_title
from gputop.features.fleet.exporter_names import group_of
from gputop.features.fleet.fleet_reading import Down, FleetState, GpuReading, GpuState, JobName
from gputop.model.quantity import duration, memory

ABSENT: tuple[FleetState, ...] = ("down", "late", "lost")
"""States of GPUs without current values: the host does not answer, its driver hangs, or it answers without the GPU."""
GPU_STATES: tuple[GpuState, ...] = (*STATES, "allocated_unused")
FLEET_STATES: tuple[FleetState, ...] = (*GPU_STATES, *ABSENT)
FLEET_NOT_WORK: tuple[GpuState, ...] = (*NOT_WORK, "allocated_unused")
"""Time in these states is no work."""
UNUSED = "allocated, unused"
WORDS: Mapping[str, str] = MappingProxyType(
    {state: STATE_WORDS[state] for state in STATES}
    | {"allocated_unused": UNUSED, "down": "down", "late": "driver late", "lost": "lost"}
)
LEVELS: Mapping[FleetState, Level] = MappingProxyType({
    **{state: LEVEL_OF_ROLE[ROLE_OF_STATE[state]] for state in STATES},
    "allocated_unused": "yellow", "down": "yellow", "late": "red", "lost": "red",
})  # fmt: skip
"""The level in which a state is drawn: by what it means, as everywhere."""


def state_of(gpu: GpuReading, *, down: str = "") -> tuple[FleetState, str]:
    """A GPU's state, and what it was decided by: ``up``, ``gputop``, ``util``, ``sm`` or ``nothing``.

    ``down`` is the kind in which its host is without values. The order is that of the rules for Prometheus.
    """
    if down:
        return ("late" if down == "late" else "down"), "up"
    if gpu.is_lost:
        return "lost", "up"
    return judged(gpu)


def judged(gpu: GpuReading) -> tuple[GpuState, str]:
    """The state of a GPU that is there, and what it was decided by."""
    if gpu.own_state is not None:
        return ("allocated_unused" if gpu.own_state == "idle" and gpu.is_allocated else gpu.own_state), "gputop"
    if gpu.util_pct is None or (gpu.is_quiet is None and gpu.util_pct < SURELY_BUSY_UTIL):
        return "unmeasured", "nothing"
    if gpu.is_quiet:
        if gpu.mem_used_bytes is None and "mem_used_bytes" in gpu.unanswered:
            return "unmeasured", "nothing"
        if (gpu.mem_used_bytes or 0.0) >= HELD_BYTES:
            return "idle_allocated", "util"
        return ("allocated_unused" if gpu.is_allocated else "idle"), "util"
    if gpu.sm_active_pct is None and "sm_active_pct" in gpu.unanswered:
        return "unmeasured", "nothing"
    # Hollow takes a witness that somebody computes there: the label of a job.
    if busy_not_working(gpu.util_pct, gpu.sm_active_pct, may_be_hollow=bool(gpu.job)) is not None:
        return "busy_not_working", "sm"
    if gpu.util_pct <= FLAG_A_UTIL and gpu.job:
        # Busier ones are not called starved: without SM activity their work is unknown.
        return "starved", "util"
    if gpu.sm_active_pct is None:
        return "unmeasured", "nothing"
    return "working", "sm"


def lost_hours(state: FleetState, util_pct: float | None, hours: float) -> float:
    """The part of ``hours`` in a state that was not work, GPU-hours; split by utilisation as in a node's ledger."""
    if state == "busy_not_working":
        return hours
    if state in FLEET_NOT_WORK:
        return hours * (1.0 - min(100.0, max(0.0, util_pct or 0.0)) / 100.0)
    return 0.0


# Which GPU of a job holds the others up. Pure; the definition is the node's own, see ``diagnosis.stragglers``.
#
# In a synchronous job those who wait spin in NCCL at low SM activity: the straggler is the one that does more. Or it is
# the one that starves, while all others are busy. Where ranks announce their steps, the one whose steps take longer
# comes first. Ranks that wait for each other in every step take equal time: where they say how long they waited, their
# own time counts, else only those are found that do not wait.

Kind = Literal["slow", "starved"]
By = Literal["step", "own_step", "sm", "power", "util"]


class Straggler(Struct, frozen=True):
    """``value`` is what it does, ``median`` what the others do: percent of SM activity or utilisation, watts, or a
    step's seconds, with ``own_step`` without what it waited. ``gpu`` is empty where it is all of a host's."""

    host: str
    gpu: str
    job: JobName
    user: str
    kind: Kind
    by: By
    value: float
    median: float
    gpus: int
    """GPUs of the job, this one among them."""
    size: int = 1
    """How many GPUs it is: those of a host."""

    @property
    def where(self) -> str:
        """Its place, for people."""
        return f"{self.host} GPU {self.gpu}" if self.gpu else f"all of {self.host}"

    @property
    def words(self) -> str:
        """What it does, and what the others do."""
        if self.by in ("step", "own_step"):
            # Both in one unit.
            scale, unit = (1.0, "s") if self.value >= 0.9995 else (1000.0, "ms")
            digits = 0 if 0.1 <= self.value < 0.9995 else 2 if unit == "s" else 1
            own, others = (f"{seconds * scale:.{digits}f} {unit}" for seconds in (self.value, self.median))
            return f"{self.by.replace('_', ' ')} {own}, the others' {others}"
        name, unit = {"sm": ("SM ", ""), "power": ("", " W")}.get(self.by, ("util ", ""))
        do = "are" if self.kind == "starved" else "wait"
        return f"{name}{self.value:.0f}{unit}, the others {do} at {self.median:.0f}{unit}"


def stragglers(gpus: Iterable[GpuReading]) -> list[Straggler]:
    """The stragglers of every job that a GPU names; the widest gap first. A GPU without a job is in none."""
    jobs: dict[JobName, list[GpuReading]] = {}
    for gpu in gpus:
        if gpu.job and gpu.util_pct is not None:
            jobs.setdefault(group_of(gpu.job), []).append(gpu)
    straggling = [straggler for members in jobs.values() if (straggler := _of_hosts(members)) is not None]
    # How far each is off, as a ratio in any unit.
    return sorted(
        straggling, key=lambda late: abs(late.value - late.median) / max(late.value, late.median, 1e-9), reverse=True
    )


def _of_hosts(members: Sequence[GpuReading]) -> Straggler | None:
    """The straggler of a job: one GPU, or a host as a whole where each of its GPUs alone would be one beside those of
    the others."""
    late = _of_job(members)
    idlers = {gpu.host for gpu in members if (gpu.util_pct or 0.0) < ALL_UTIL}
    host = late.host if late is not None else next(iter(idlers)) if len(idlers) == 1 else ""
    own, others = ([gpu for gpu in members if (gpu.host == host) == is_own] for is_own in (True, False))
    if len(own) < 2 or not others:
        return late
    alone = [one for gpu in own if (one := _of_job([*others, gpu])) is not None and one.host == host]
    if len(alone) < len(own) or len({(one.kind, one.by) for one in alone}) > 1:
        return late
    value = median(one.value for one in alone)
    return replace(alone[0], gpu="", value=value, gpus=len(members), size=len(own))


def _of_job(members: Sequence[GpuReading]) -> Straggler | None:
    if len(members) < LEAST_GPUS:
        return None
    slow = _by_steps(members)
    if slow is not None:
        return slow
    least, util, others = _apart([-(gpu.util_pct or 0.0) for gpu in members])
    if -max(others) < ALL_UTIL:
        return None
    if -util >= ALL_UTIL:
        return _slow(members)
    middle = -median(others)
    return _straggler(members, least, "starved", "util", -util, middle) if middle + util > LEAST_POINTS else None


def _apart(values: Sequence[float]) -> tuple[int, float, list[float]]:
    """The position of the greatest value, the value, and the others."""
    at = max(range(len(values)), key=values.__getitem__)
    return at, values[at], [value for i, value in enumerate(values) if i != at]


def _by_steps(members: Sequence[GpuReading]) -> Straggler | None:
    """The one whose steps take longer, among those that announce them: their own time where all of these know it."""
    ranks = [gpu for gpu in members if gpu.step_s is not None]
    if len(ranks) < LEAST_GPUS:
        return None
    own_steps = [gpu.own_step_s for gpu in ranks if gpu.own_step_s is not None]
    is_own = len(own_steps) == len(ranks)
    at, longest, others = _apart(own_steps if is_own else [gpu.step_s or 0.0 for gpu in ranks])
    middle = median(others)
    if longest <= STEP_FACTOR * middle:
        return None
    late = _straggler(ranks, at, "slow", "own_step" if is_own else "step", longest, middle)
    return replace(late, gpus=len(members))


def _slow(members: Sequence[GpuReading]) -> Straggler | None:
    """The one that does more than the others, while all are busy."""
    by: By = "sm"
    values = [gpu.sm_active_pct for gpu in members if gpu.sm_active_pct is not None]
    scale = 1.0
    if len(values) < len(members):
        by = "power"
        values = [gpu.power_w for gpu in members if gpu.power_w is not None]
        # Percent of the highest power draw: exporters of a fleet seldom give the limit.
        scale = 100.0 / max(values, default=1.0) if max(values, default=0.0) > 0 else 0.0
    if len(values) < len(members):
        return None
    at, value, others = _apart(values)
    middle = median(others)
    spread = median(abs(other - middle) for other in others)
    if (value - middle) * scale <= max(LEAST_POINTS, MAD_FACTOR * spread * scale):
        return None
    return _straggler(members, at, "slow", by, value, middle)


def _straggler(members: Sequence[GpuReading], at: int, kind: Kind, by: By, value: float, middle: float) -> Straggler:
    gpu = members[at]
    return Straggler(gpu.host, gpu.gpu, group_of(gpu.job), gpu.user, kind, by, value, middle, len(members))


# A host, a job or a user in a few words: the worst verdict on its GPUs, from their states. Pure.


class FleetVerdict(Struct, frozen=True):
    """``state`` is the worst among the GPUs; ``text`` begins with how many of them it holds for."""

    state: FleetState
    level: Level
    text: str
    straggles: bool = False


ORDER: tuple[FleetState, ...] = (
    "lost", "late", "busy_not_working", "starved", "idle_allocated", "allocated_unused", "working", "unmeasured",
    "idle", "down",
)  # fmt: skip
"""States as they need attention."""


def severity(verdict: FleetVerdict) -> float:
    """The smaller, the more it needs attention. A straggler comes before GPUs that only wait or idle."""
    if verdict.straggles and verdict.state in ("working", "idle_allocated", "allocated_unused", "unmeasured"):
        return ORDER.index("starved") + 0.5
    return float(ORDER.index(verdict.state))


def cause_words(cause: str) -> str:
    """A cause of waste in words: a verdict's title, or a state's word, with one wording where both mean the same."""
    cause = "idle_holding_memory" if cause == "idle_allocated" else cause
    return titles().get(cause) or WORDS.get(cause, cause)


def verdict_of(
    counts: Mapping[FleetState, int],
    gpus: Sequence[tuple[GpuReading, FleetState]],
    down: Down | None,
    straggling: Sequence[Straggler],
    of_job: Mapping[JobName, Straggler],
) -> FleetVerdict:
    """The verdict on these GPUs, by their number in each state; ``gpus`` are all of them, or none where they are not
    known one by one. ``straggling`` are those among them, ``of_job`` the stragglers of all jobs."""
    if down is not None:
        since = "" if down.since_s is None else f" {duration(down.since_s)}"
        return FleetVerdict(down.kind, LEVELS[down.kind], f"{WORDS[down.kind]}{since}: {down.reason}")
    worst = min((state for state, n in counts.items() if n), key=ORDER.index, default=None)
    if worst is None:
        return FleetVerdict("idle", "grey", "no GPU")
    several = len({gpu.host for gpu, _ in gpus}) != 1
    if straggling and worst not in ("busy_not_working", "starved", "lost"):
        return FleetVerdict(worst, "yellow", _straggles(straggling[0], with_host=several), straggles=True)
    text = f"{counts[worst]:,} {_words(worst, [gpu for gpu, state in gpus if state == worst])}"
    rest = [(state, n) for state, n in counts.items() if state != worst]
    most, n = max(rest, key=lambda of: of[1], default=(worst, 0))
    waits = _waits_for(gpus, straggling, of_job)
    if straggling:
        text = f"{_straggles(straggling[0], with_host=several)}; {text}"
    if waits:
        text += f" (wait for {waits})"
    elif n:
        text = f"{text} · {n:,} {WORDS[most]}"
    return FleetVerdict(worst, LEVELS[worst], text, straggles=bool(straggling))


def _words(state: FleetState, gpus: Sequence[GpuReading]) -> str:
    """The state, and why where the nodes agree on it."""
    causes = Counter(gpu.own_verdict for gpu in gpus if gpu.own_verdict)
    if causes and state in ("busy_not_working", "starved", "working"):
        title = titles().get(causes.most_common(1)[0][0] or "")
        if title:
            return full_title(title, "A" if state == "busy_not_working" else None)
    if state == "idle_allocated":
        used_bytes = sum(gpu.mem_used_bytes or 0.0 for gpu in gpus)
        return f"idle, holding {memory(used_bytes)}" if used_bytes else WORDS[state]
    if state == "unmeasured":
        lacks = "utilisation" if gpus and all(gpu.util_pct is None for gpu in gpus) else "SM activity"
        return f"{WORDS[state]}: {lacks} is not exported"
    return WORDS[state]


def _straggles(straggler: Straggler, *, with_host: bool) -> str:
    subject = straggler.where if with_host or not straggler.gpu else f"GPU {straggler.gpu}"
    return f"{subject} {'starves' if straggler.kind == 'starved' else 'straggles'}: {straggler.words}"


def _waits_for(
    gpus: Sequence[tuple[GpuReading, FleetState]], straggling: Sequence[Straggler], of_job: Mapping[JobName, Straggler]
) -> str:
    """The straggler elsewhere that these GPUs' job waits for."""
    if straggling:
        return ""
    straggler = next((of_job[job] for gpu, _ in gpus if gpu.job and (job := group_of(gpu.job)) in of_job), None)
    # Ranks whose steps differ do not wait for each other in every step.
    return "" if straggler is None or straggler.by == "step" else straggler.where


ABSENT_REMEDIES: Mapping[str, str] = {
    "down": "see whether the host answers at all, then whether its exporter runs",
    "late": "run gputop doctor on the host: it says which call hangs; drain it, a driver that hangs needs a reboot",
    "lost": "drain the host; dmesg | grep -i xid there: Xid 79 means that the GPU fell off the bus; reset it or reboot",
}


def remedy_of(gpus: Iterable[GpuReading], state: FleetState) -> str:
    """The remedy for these GPUs, which are in that state, in the words of the node's rules."""
    remedies = {row.id: row.remedy for row in verdict_rows()}
    own_verdict = next((gpu.own_verdict for gpu in gpus if gpu.own_verdict is not None), "")
    if remedies.get(own_verdict):
        return remedies[own_verdict]
    if state in ABSENT:
        return ABSENT_REMEDIES[state]
    if state in ("busy_not_working", "starved"):
        return "run gputop on the node: it names the cause; `gputop export` there brings it here"
    if state == "allocated_unused":
        return "ask its owner: a job that asks for fewer GPUs, or ends, leaves this one to another"
    return remedies.get("idle_holding_memory", "") if state == "idle_allocated" else ""
