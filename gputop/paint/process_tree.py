"""The family of one process as a tree: the GPU process above it, its loaders and helpers, and what a dead job left."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from gputop.model.snapshot import ProcessSample
from gputop.paint.glyphs import Glyphs
from gputop.paint.line import Line, Row
from gputop.paint.text import fit, pct, shorten, size

DEEPEST = 64
"""Ancestors followed before a chain counts as a loop."""
ROLE_WORDS = {"gpu": "GPU process", "loader": "loader", "helper": "helper", "orphan": "orphan"}
STATE_WORDS = {"R": "runs", "S": "asleep", "D": "disk wait", "Z": "ended", "T": "stopped", "t": "traced", "I": "idle"}


class Branch(Struct, frozen=True):
    """One process of the tree and how deep it stands."""

    process: ProcessSample
    depth: int


def family(processes: Sequence[ProcessSample], chosen: ProcessSample) -> list[Branch]:
    """The tree that the process belongs to, from the topmost process that is known; each process once.

    A loader whose parent is not in the snapshot (a forkserver) belongs to the one GPU process of its GPU, if it is
    the only one there.
    """
    by_pid: dict[int, ProcessSample] = {}
    for p in processes:
        by_pid.setdefault(p.pid, p)
    owners: dict[int | None, set[int]] = {}
    for p in by_pid.values():
        if p.role == "gpu":
            owners.setdefault(p.gpu, set()).add(p.pid)
    parents = {p.pid: _parent(p, by_pid, owners) for p in by_pid.values()}
    root, steps = chosen.pid, 0
    while (above := parents.get(root)) is not None and steps < DEEPEST:
        root, steps = above, steps + 1
    children: dict[int, list[int]] = {}
    for pid, parent in parents.items():
        if parent is not None:
            children.setdefault(parent, []).append(pid)
    branches: list[Branch] = []
    waiting = [(root, 0)]
    seen: set[int] = set()
    while waiting:
        pid, depth = waiting.pop()
        if pid in seen or pid not in by_pid:
            continue
        seen.add(pid)
        branches.append(Branch(by_pid[pid], depth))
        waiting += [(child, depth + 1) for child in sorted(children.get(pid, ()), reverse=True)]
    return branches


def _parent(p: ProcessSample, by_pid: dict[int, ProcessSample], owners: dict[int | None, set[int]]) -> int | None:
    if p.ppid in by_pid and p.ppid != p.pid:
        return p.ppid
    on_gpu = owners.get(p.gpu, ())
    return next(iter(on_gpu)) if p.role in ("loader", "helper") and len(on_gpu) == 1 else None


def orphans_near(processes: Sequence[ProcessSample], chosen: ProcessSample) -> list[ProcessSample]:
    """Workers that a dead job left behind, on the same GPU or of the same user."""
    user = chosen.static.user
    return [
        p
        for p in processes
        if p.role == "orphan" and p.pid != chosen.pid and (p.gpu == chosen.gpu or (user and p.static.user == user))
    ]


def tree_rows(branches: Sequence[Branch], chosen: ProcessSample, width: int, glyphs: Glyphs) -> list[Row]:
    """Heads and one row a process: its place, role, state, what it waits on, and the rule that gave it its role."""
    head = Line().add(f"  {'PID':<14}{'ROLE':<13}{'STATE':<11}{'WAITS ON':<10}{'CPU%':>5} {'HOST-MEM':>9}  ", "heading")
    rows = [head.add("WHY IT IS HERE", "heading").row(width)]
    for i, branch in enumerate(branches):
        p = branch.process
        last = i + 1 == len(branches) or branches[i + 1].depth < branch.depth
        stem = (
            ""
            if not branch.depth
            else "  " * (branch.depth - 1) + (glyphs.last_branch if last else glyphs.branch) + " "
        )
        style = "text" if p.role == "gpu" else "level.yellow" if p.role == "orphan" else "dim"
        line = Line().add("  ").add(fit(f"{stem}{p.pid}", 14, glyphs.more), style)
        line.add(f"{ROLE_WORDS[p.role]:<13}", style)
        line.add(f"{STATE_WORDS.get(p.state or '', p.state or 'n/a'):<11}", "level.red" if p.state == "D" else style)
        line.add(f"{p.waiting_on or '–':<10}", style)
        line.add(f"{pct(p.cpu_pct, 5)} {size(p.rss_bytes, 9)}  ", style)
        why = p.static.why or p.unavailable.get("why") or p.static.command or p.static.name or ""
        line.add(fit(why, max(1, width - line.width - 1), glyphs.more), style)
        rows.append(line.row(width, "select" if p.pid == chosen.pid else None))
    return rows


def orphan_rows(orphans: Sequence[ProcessSample], width: int, glyphs: Glyphs) -> list[Row]:
    """What a dead job left behind, and what to do about it."""
    rows = []
    for p in orphans:
        line = Line().add(f"  {p.pid:<8}", "level.yellow")
        line.add(f"{pct(p.cpu_pct, 5)} % cpu {size(p.rss_bytes, 9)}  ", "text")
        line.add(fit(p.static.command or p.static.name or "", max(1, width - line.width - 1), glyphs.more), "text")
        rows.append(line.row(width))
    hint = f"  {glyphs.remedy} their job is gone: end them to get their memory and cores back"
    return [*rows, Line().add(shorten(hint, width - 1, glyphs.more), "remedy").row(width)]
