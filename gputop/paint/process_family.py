"""The family of one process as a tree: the GPU process above it, its loaders and helpers."""

from __future__ import annotations

from collections.abc import Sequence

from gputop.diagnosis.thresholds import AWAKE_PCT
from gputop.model.quantity import number, size
from gputop.model.snapshot import ProcessSample
from gputop.paint.cells import fit
from gputop.paint.deep_look_rows import STATES
from gputop.paint.line import Line, Row
from gputop.paint.process_table import DEEPEST, branch_of, parents_of

ROLE_WORDS = {"gpu": "GPU process", "loader": "loader", "helper": "helper"}
STATE_WORDS = {**STATES, "R": "runs"}


def is_awake(state: str | None, run_pct: float | None) -> bool:
    """Return whether CPU time contradicts a sleeping state.

    The process or thread was asleep in one moment alone.
    """
    return state == "S" and (run_pct or 0.0) > AWAKE_PCT


def state_words(state: str | None, run_pct: float | None) -> str:
    """Return a state in words that CPU time supports."""
    return (
        STATE_WORDS["R"]
        if is_awake(state, run_pct)
        else STATE_WORDS.get(state or "", state or "n/a")
    )


def wait_words(state: str | None, run_pct: float | None, waiting_on: str | None) -> str | None:
    """Return the wait state and its place."""
    return None if is_awake(state, run_pct) else waiting_on


def family(processes: Sequence[ProcessSample], chosen: ProcessSample) -> list[ProcessSample]:
    """Return the tree that a process belongs to.

    From the topmost known process; each process once.
    """
    parents, root = parents_of(processes), chosen
    for _ in range(DEEPEST):
        above = next((p for p in processes if p.pid == parents.get(root.pid)), None)
        if above is None:
            break
        root = above
    return branch_of(processes, root)


def tree_rows(branch: Sequence[ProcessSample], chosen: ProcessSample, width: int) -> list[Row]:
    """Return heads and one row for each process.

    Its place, role, state, wait, and the rule that gave its role.
    """
    head = Line().add(
        f"  {'PID':<14}{'ROLE':<13}{'STATE':<11}{'WAITS ON':<10}{'CPU%':>5} {'HOST-MEM':>9}  ",
        "heading",
    )
    rows = [head.add("WHY IT IS HERE", "heading").row(width)]
    for i, p in enumerate(branch):
        stem = "" if i == 0 else "└ " if i + 1 == len(branch) else "├ "
        style = "text" if p.role == "gpu" else "dim"
        line = Line().add("  ").add(fit(f"{stem}{p.pid}", 14), style)
        line.add(f"{ROLE_WORDS[p.role]:<13}", style)
        line.add(f"{state_words(p.state, p.cpu_pct):<11}", "level.red" if p.state == "D" else style)
        line.add(f"{wait_words(p.state, p.cpu_pct, p.waiting_on) or '–':<10}", style)
        line.add(f"{number(p.cpu_pct, 5)} {size(p.rss_bytes, 9)}  ", style)
        why = p.static.why or p.unavailable.get("why") or p.static.command or p.static.name or ""
        line.fill(why, width, style)
        rows.append(line.row(width, "select" if p.pid == chosen.pid else None))
    return rows
