"""Processes summed by user or by batch job."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from gputop.diagnosis.types import NOT_WORK
from gputop.model.quantity import size
from gputop.model.snapshot import ProcessSample
from gputop.monitor import Frame
from gputop.paint.cells import fit
from gputop.paint.line import Line, Row, text_row

Grouping = Literal["user", "job"]
NO_JOB = "(no job)"
UNKNOWN = "(not visible)"
NUMBERS_WIDTH, LEAST_NAME, LONGEST_NAME = 68, 12, 32


class ProcessGroup(Struct, frozen=True):
    """The processes of one user or job.

    Sums are None where nothing was measured.
    """

    name: str
    gpus: int
    gpu_mem_bytes: float | None
    processes: int
    loaders: int
    cpu_pct: float | None
    rss_bytes: float | None
    not_working: int


def groups(frame: Frame, by: Grouping) -> list[ProcessGroup]:
    """All groups, those that hold most GPU memory first."""
    members: dict[str, list[ProcessSample]] = {}
    for p in frame.shown.processes:
        members.setdefault(group_of(p, by), []).append(p)
    idle = {d.index for d in frame.diagnoses if d.state in NOT_WORK}
    all_groups = [_group(name, processes, idle) for name, processes in members.items()]
    return sorted(all_groups, key=lambda g: (-(g.gpu_mem_bytes or 0.0), g.name))


def group_of(process: ProcessSample, by: Grouping) -> str:
    """The name of the group that a process belongs to."""
    if by == "user":
        return process.static.user or UNKNOWN
    return process.static.job or process.static.container or NO_JOB


def _group(name: str, processes: list[ProcessSample], idle: set[int]) -> ProcessGroup:
    holders = [p for p in processes if p.role == "gpu" and p.gpu is not None]
    gpus = {p.gpu for p in holders}
    once = list({(p.pid, p.starttime): p for p in processes}.values())
    return ProcessGroup(
        name,
        len(gpus),
        _sum([p.gpu_mem_bytes for p in holders]),
        len({(p.pid, p.starttime) for p in processes if p.role == "gpu"}),
        sum(p.role == "loader" for p in once),
        _sum([p.cpu_pct for p in once]),
        _sum([p.rss_bytes for p in once]),
        len(idle & gpus),
    )


def _sum(values: list[float | None]) -> float | None:
    measured = [value for value in values if value is not None]
    return sum(measured) if measured else None


def summary_head(by: Grouping, width: int) -> Row:
    """Return the column heads of the summary."""
    name = f"{'USER' if by == 'user' else 'JOB':<{_name_width(width)}}"
    return text_row(
        f" {name} GPUS  NOT WORKING   GPU-MEM  PROCESSES  LOADERS     CPU%  HOST-MEM",
        width,
        "heading",
    )


def summary_row(group: ProcessGroup, width: int, *, selected: bool) -> Row:
    """Return one group as a row.

    GPUs on which it does no work are a yellow count.
    """
    line = Line().add(f" {fit(group.name, _name_width(width))} ", "value").add(f"{group.gpus:>4}  ")
    line.add(f"{group.not_working or '–':>11}", "level.yellow" if group.not_working else "dim")
    line.add(f"  {size(group.gpu_mem_bytes, 8)}  {group.processes:>9}  {group.loaders:>7}")
    cpu = "–" if group.cpu_pct is None else f"{group.cpu_pct:.0f}"
    return line.add(f"  {cpu:>7}  {size(group.rss_bytes, 8)}").row(
        width, "select" if selected else None
    )


def _name_width(width: int) -> int:
    return max(LEAST_NAME, min(LONGEST_NAME, width - NUMBERS_WIDTH))
