"""Who uses the GPUs: processes summed by user or by batch job. Pure: a frame in, groups and rows out.

A process that holds contexts on several GPUs counts once as a process, and its host CPU and memory once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from gputop.diagnosis.types import NOT_WORK
from gputop.model.snapshot import ProcessSample
from gputop.monitor import Frame
from gputop.paint.glyphs import Glyphs
from gputop.paint.line import Line, Row
from gputop.paint.text import fit, size

Grouping = Literal["user", "job"]
NO_JOB = "(no job)"
UNKNOWN = "(not visible)"
NAME_WIDTH = 20
GPU_WIDTH = 8


class Group(Struct, frozen=True):
    """The processes of one user or job. Sums are None where nothing of them was measured."""

    name: str
    gpu_mem_by_gpu: Mapping[int, float | None]
    gpu_mem_bytes: float | None
    processes: int
    loaders: int
    cpu_pct: float | None
    rss_bytes: float | None
    not_working: int


def groups(frame: Frame, by: Grouping) -> list[Group]:
    """All groups, those that hold most GPU memory first."""
    members: dict[str, list[ProcessSample]] = {}
    for p in frame.snapshot.processes:
        members.setdefault(group_of(p, by), []).append(p)
    idle = {d.index for d in frame.diagnoses if d.state in NOT_WORK}
    found = [_group(name, processes, idle) for name, processes in members.items()]
    return sorted(found, key=lambda g: (-(g.gpu_mem_bytes or 0.0), g.name))


def group_of(process: ProcessSample, by: Grouping) -> str:
    """The name of the group that a process belongs to."""
    if by == "user":
        return process.static.user or UNKNOWN
    return process.static.job or process.static.container or NO_JOB


def _group(name: str, processes: list[ProcessSample], idle: set[int]) -> Group:
    on_gpu: dict[int, list[float | None]] = {}
    for p in processes:
        if p.role == "gpu" and p.gpu is not None:
            on_gpu.setdefault(p.gpu, []).append(p.gpu_mem_bytes)
    by_gpu = {gpu: _sum(values) for gpu, values in sorted(on_gpu.items())}
    once = list({(p.pid, p.starttime): p for p in processes}.values())
    return Group(
        name,
        by_gpu,
        _sum(list(by_gpu.values())),
        len({(p.pid, p.starttime) for p in processes if p.role == "gpu"}),
        sum(p.role == "loader" for p in once),
        _sum([p.cpu_pct for p in once]),
        _sum([p.rss_bytes for p in once]),
        len(idle & by_gpu.keys()),
    )


def _sum(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def summary_head(frame: Frame, by: Grouping, width: int) -> Row:
    """The heads of the columns; one a GPU at the end, as far as they fit."""
    line = Line().add(
        f" {'USER' if by == 'user' else 'JOB':<{NAME_WIDTH}} GPUS  NOT WORKING   GPU-MEM  PROCESSES", "heading"
    )
    line.add("  LOADERS     CPU%  HOST-MEM", "heading")
    for gpu in _gpus(frame, width - line.width):
        line.add(f"  {f'GPU {gpu}':>{GPU_WIDTH}}", "heading")
    return line.row(width)


def summary_row(frame: Frame, group: Group, glyphs: Glyphs, width: int, *, selected: bool) -> Row:
    """One group; a GPU on which it does no work is a yellow count."""
    line = Line().add(f" {fit(group.name, NAME_WIDTH, glyphs.more)} ", "value").add(f"{len(group.gpu_mem_by_gpu):>4}  ")
    line.add(f"{group.not_working or glyphs.dash:>11}", "level.yellow" if group.not_working else "dim")
    line.add(f"  {size(group.gpu_mem_bytes, 8)}  {group.processes:>9}  {group.loaders:>7}")
    cpu = glyphs.dash if group.cpu_pct is None else f"{group.cpu_pct:.0f}"
    line.add(f"  {cpu:>7}  {size(group.rss_bytes, 8)}")
    for gpu in _gpus(frame, width - line.width):
        held = gpu in group.gpu_mem_by_gpu
        text = size(group.gpu_mem_by_gpu.get(gpu), GPU_WIDTH) if held else " " * (GPU_WIDTH - 1) + glyphs.dot
        line.add(f"  {text}", "text" if held else "dim")
    return line.row(width, "select" if selected else None)


def _gpus(frame: Frame, room: int) -> list[int]:
    """The GPUs that get a column; no column is cut in two."""
    return [gpu.static.index for gpu in frame.snapshot.gpus][: max(0, room // (GPU_WIDTH + 2))]
