"""The worst things in a fleet now, in words, each with what it costs and what helps. Pure."""

from __future__ import annotations

from msgspec import Struct

from gputop.diagnosis.types import Level
from gputop.fleet.frame import FleetFrame, Group
from gputop.fleet.stragglers import Straggler
from gputop.fleet.verdict import STEPS, WITHOUT_WAITS, remedy_of, step_times
from gputop.model.quantity import count

FIRST = 5


class Finding(Struct, frozen=True):
    """``gpus`` is how many it holds back: the more, the earlier it is told."""

    level: Level
    text: str
    remedy: str
    gpus: float


def findings(frame: FleetFrame) -> list[Finding]:
    """Everything that is wrong, the worst first."""
    found = [one for group in frame.jobs if (one := _of_job(group)) is not None]
    for late in frame.stragglers:
        others = count(late.gpus - 1, "other GPU")
        ends = f" of its job's {others}" if late.by == "step" else f", {others} wait for it"
        text = f"{late.job}: {late.host} GPU {late.gpu} {_what(late)}{ends}"
        found.append(Finding("yellow", text, f"look at its clocks and data there: {late.host}", late.gpus / 2))
    if frame.read.down:
        hosts = sorted(frame.read.down)
        named = ", ".join(hosts[:5]) + (f" and {len(hosts) - 5} more" if len(hosts) > 5 else "")
        text = f"{count(len(hosts), 'host')} down: {named}"
        found.append(Finding("yellow", text, "see whether the host or only its exporter is gone", frame.counts["down"]))
    return sorted(found, key=lambda one: (one.level != "red", -one.gpus, one.text))


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
    gpus = sum(gpu.state == state for gpu in group.gpus)
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
        gpus,
    )
