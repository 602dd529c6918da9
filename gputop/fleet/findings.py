"""The worst things in a fleet now, in words, each with what it costs and what helps. Pure."""

from __future__ import annotations

from msgspec import Struct

from gputop.diagnosis.types import Level
from gputop.fleet.frame import FleetFrame, Group
from gputop.fleet.judge import lost_hours
from gputop.fleet.stragglers import Straggler
from gputop.fleet.verdict import STEPS, WITHOUT_WAITS, remedy_of, step_times
from gputop.model.quantity import count

FIRST = 5


class Finding(Struct, frozen=True):
    """``gpus`` is how many it holds back, ``lost`` how many GPUs' time is being wasted now.

    The more is lost, the earlier it is listed.
    """

    level: Level
    text: str
    remedy: str
    gpus: float
    lost: float
    lost_gpu_h: float = 0.0
    """Of the last hour; it breaks ties between two that lose as much now."""


def findings(frame: FleetFrame) -> list[Finding]:
    """Everything that is wrong, what loses the most GPU time now first, whatever its level: a red job of one GPU must
    not hide a hundred that idle."""
    found = [one for group in frame.jobs if (one := _of_job(group)) is not None]
    for late in frame.stragglers:
        others = count(late.gpus - 1, "other GPU")
        ends = f" of its job's {others}" if late.by == "step" else f", {others} wait for it"
        text = f"{late.job}: {late.host} GPU {late.gpu} {_what(late)}{ends}"
        remedy = f"look at its clocks and data there: {late.host}"
        found.append(Finding("yellow", text, remedy, late.gpus / 2, _waited(late)))
    if frame.read.down:
        hosts = sorted(frame.read.down)
        named = ", ".join(hosts[:5]) + (f" and {len(hosts) - 5} more" if len(hosts) > 5 else "")
        text = f"{count(len(hosts), 'host')} down: {named}"
        gpus = frame.counts["down"]
        found.append(Finding("yellow", text, "see whether the host or only its exporter is gone", gpus, gpus))
    return sorted(found, key=lambda one: (-one.lost, one.level != "red", -one.lost_gpu_h, one.text))


def _waited(late: Straggler) -> float:
    """Roughly how many GPUs' time a straggler costs: each waiting GPU loses the share by which it differs."""
    small, large = sorted((late.value, late.median))
    share = 1.0 - small / large if large > 0.0 else 0.0
    # Ranks whose steps differ in length do not wait for each other: only the straggler's own time is lost.
    return share * (1 if late.by == "step" else late.gpus - 1)


def _what(late: Straggler) -> str:
    if late.kind == "starved":
        return f"starves at util {late.value:.0f}"
    if late.by in STEPS:
        its, others = step_times(late)
        return f"takes {its} a step{WITHOUT_WAITS if late.by == 'own_step' else ''} beside {others}"
    name, unit = ("", " W") if late.by == "power" else ("SM ", "")
    return f"does {name}{late.value:.0f}{unit} beside {late.median:.0f}{unit}"


def _of_job(group: Group) -> Finding | None:
    state = group.verdict.state
    if state not in ("busy_not_working", "starved", "idle_allocated"):
        return None
    held = [gpu.read for gpu in group.gpus if gpu.state == state]
    who = f"{group.name or 'no job known'}" + (f" ({', '.join(group.users[:3])})" if group.users else "")
    cost = (
        ""
        if group.waste_gpu_h is None or group.waste_gpu_h < 0.05
        else f"; {group.waste_gpu_h:.1f} GPU-hours lost in the last hour"
    )
    where = count(len(group.hosts), "host")
    return Finding(
        group.verdict.level,
        f"{who}: {group.verdict.text} on {where}{cost}",
        remedy_of([(gpu.read, gpu.state) for gpu in group.gpus], state),
        len(held),
        sum(lost_hours(state, read.util_pct, 1.0) for read in held),
        group.waste_gpu_h or 0.0,
    )
