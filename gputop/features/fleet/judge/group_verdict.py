"""Name the worst state of a host, job or user, with its remedy. Pure.

Takes a group's GPUs with their states, or the counts of states that rules recorded; returns a ``FleetVerdict``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from gputop.diagnosis.types import Level, full_title
from gputop.diagnosis.verdict.catalogue import titles, verdict_rows
from gputop.features.fleet.exporter_names import DIALECTS, group_of
from gputop.features.fleet.fleet_reading import Down, FleetState, JobName
from gputop.features.fleet.judge.gpu_state import LEVELS, WORDS, Gpu
from gputop.features.fleet.judge.straggler import Straggler
from gputop.model.durations import duration
from gputop.model.quantity import memory


class FleetVerdict(Struct, frozen=True):
    """The worst state of a group, with its level and words."""

    state: FleetState
    level: Level
    text: str
    straggles: bool = False
    is_faulty: bool = False
    """Whether something besides the GPUs' states is wrong with the host."""


ORDER: tuple[FleetState, ...] = (
    "lost", "late", "busy_not_working", "starved", "idle_allocated", "allocated_unused", "working", "unmeasured",
    "idle", "pending", "down",
)  # fmt: skip
"""States as they need attention."""


GRAVITY: tuple[Level, ...] = ("grey", "green", "info", "yellow", "red")
"""Levels, the gravest last."""


def severity(verdict: FleetVerdict) -> float:
    """Sort key of a verdict, the gravest first.

    A GPU that its node shows red comes before those that wait, and a straggler before those that only wait.
    """
    by_state = float(ORDER.index(verdict.state))
    if verdict.level == "red":
        return min(by_state, ORDER.index("busy_not_working") + 0.5)
    if verdict.straggles:
        return min(by_state, ORDER.index("starved") + 0.5)
    if verdict.is_faulty:
        return min(by_state, ORDER.index("working") - 0.5)
    return by_state


def with_faults(verdict: FleetVerdict, faults: Sequence[str]) -> FleetVerdict:
    """The verdict with a host's faults: the first one in words.

    On a host that needs no attention otherwise the fault comes first.
    """
    if not faults or verdict.state in ("down", "late", "pending"):
        return verdict
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    fault = f"{faults[0]}{more}"
    if verdict.level in ("red", "yellow"):
        return replace(verdict, text=f"{verdict.text}; {fault}", is_faulty=True)
    return replace(verdict, level="yellow", text=f"{fault} · {verdict.text}", is_faulty=True)


def cause_words(cause: str) -> str:
    """A cause of waste in words: a verdict's title or a state."""
    cause = "idle_holding_memory" if cause == "idle_allocated" else cause
    return titles().get(cause) or WORDS.get(cause, cause)


def verdict_of(
    counts: Mapping[FleetState, int],
    gpus: Sequence[Gpu],
    down: Down | None,
    straggling: Sequence[Straggler],
    late_of_job: Mapping[JobName, Straggler],
) -> FleetVerdict:
    """The verdict on a group, by its GPUs' states.

    ``gpus`` are all of them, or none where they are not known one by one. ``straggling`` are those among them,
    ``late_of_job`` the stragglers of all jobs.
    """
    if down is not None:
        since = "" if down.since_s is None else f" {duration(down.since_s)}"
        text = (
            down.reason if down.kind == "pending" else f"{WORDS[down.kind]}{since}: {down.reason}"
        )
        return FleetVerdict(down.kind, LEVELS[down.kind], text)
    worst = min((state for state, n in counts.items() if n), key=ORDER.index, default=None)
    if worst is None:
        return FleetVerdict("idle", "grey", "no GPU")
    late = (
        _straggles(straggling[0], with_host=len({gpu.read.host for gpu in gpus}) != 1)
        if straggling
        else ""
    )
    level = _level_of_state(worst, gpus)
    red_elsewhere = "" if LEVELS[worst] == "red" else _red_elsewhere(gpus)
    if red_elsewhere:
        level = "red"
    if late and worst not in ("busy_not_working", "starved", "lost"):
        late_level: Level = "red" if level == "red" else "yellow"
        return FleetVerdict(worst, late_level, red_elsewhere + late, straggles=True)
    text = (
        red_elsewhere
        + f"{late}; " * bool(late)
        + f"{counts[worst]:,} {_words(worst, [gpu for gpu in gpus if gpu.state == worst])}"
    )
    rest = [(state, n) for state, n in counts.items() if state != worst]
    most, n = max(rest, key=lambda pair: pair[1], default=(worst, 0))
    holds_up = next(
        (one for gpu in gpus if (one := late_of_job.get(group_of(gpu.read.job))) is not None), None
    )
    if not late and holds_up is not None and holds_up.others_wait:
        text += f" (wait for {holds_up.where})"
    elif n:
        text += f" · {n:,} {WORDS[most]}"
    return FleetVerdict(worst, level, text, straggles=bool(late))


def _level_of_state(state: FleetState, gpus: Sequence[Gpu]) -> Level:
    """The gravest level of the GPUs in a state."""
    levels = {gpu.level for gpu in gpus if gpu.state == state}
    return max(levels, key=GRAVITY.index, default=LEVELS[state])


def _red_elsewhere(gpus: Sequence[Gpu]) -> str:
    """GPUs that their nodes show red for another reason than their state, in words."""
    red = [gpu.read for gpu in gpus if gpu.level == "red" and LEVELS[gpu.state] != "red"]
    first = next(iter(red), None)
    if first is None:
        return ""
    if len(red) > 1:
        return f"{len(red):,} GPUs red on their node; "
    has_several_hosts = len({gpu.read.host for gpu in gpus}) > 1
    host = f"{first.host} " if has_several_hosts else ""
    return f"{host}GPU {first.gpu} red on its node; "


def _words(state: FleetState, gpus: Sequence[Gpu]) -> str:
    """The state, and why where the nodes agree on it."""
    causes = Counter(gpu.read.own_verdict for gpu in gpus if gpu.read.own_verdict)
    if causes and state in ("busy_not_working", "starved", "working"):
        title = titles().get(causes.most_common(1)[0][0] or "")
        if title:
            return full_title(title, "A" if state == "busy_not_working" else None)
    if state == "idle_allocated":
        used_bytes = sum(gpu.read.mem_used_bytes or 0.0 for gpu in gpus)
        return f"idle, holding {memory(used_bytes)}" if used_bytes else WORDS[state]
    if state == "unmeasured":
        return f"{WORDS[state]}: {_lacks(gpus)}"
    return WORDS[state]


def _lacks(gpus: Sequence[Gpu]) -> str:
    """Why GPUs are not measured."""
    if gpus and all(gpu.read.util_pct is None for gpu in gpus):
        return "utilisation is not exported"
    dialects = {gpu.read.names for gpu in gpus}
    unable = [name for name in DIALECTS if name in dialects and not DIALECTS[name].measures_sm]
    if len(unable) < len(dialects) or not unable:
        return "SM activity is not exported"
    return f"{DIALECTS[unable[0]].words} has no SM activity"


def _straggles(straggler: Straggler, *, with_host: bool) -> str:
    subject = straggler.where if with_host or not straggler.gpu else f"GPU {straggler.gpu}"
    return (
        f"{subject} {'starves' if straggler.kind == 'starved' else 'straggles'}: {straggler.words}"
    )


REMEDIES: Mapping[str, str] = {
    "down": "see whether the host answers at all, then whether its exporter runs",
    "late": "run gputop doctor on the host: it says which call hangs; drain it, a driver that hangs needs a reboot",
    "lost": "drain the host; dmesg | grep -i xid there: Xid 79 means that the GPU fell off the bus; reset it or reboot",
    **dict.fromkeys(
        ("busy_not_working", "starved"),
        "run gputop on the node: it names the cause; `gputop export` there brings it here",
    ),
    "allocated_unused": "ask its owner: a job that asks for fewer GPUs, or ends, leaves this one to another",
}
"""Where the nodes name no verdict."""


def remedy_of(gpus: Iterable[Gpu], state: FleetState) -> str:
    """The remedy for GPUs in this state, as the node words it."""
    remedies = {row.id: row.remedy for row in verdict_rows()}
    own_verdicts = (gpu.read.own_verdict for gpu in gpus if gpu.state == state)
    own = remedies.get(next(filter(None, own_verdicts), "")) or REMEDIES.get(state)
    return own or (remedies.get("idle_holding_memory", "") if state == "idle_allocated" else "")
