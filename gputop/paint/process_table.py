"""The process table: which rows, in which order, in which columns.

GPU processes are sorted by the chosen column; below each stand its loaders, helpers and orphans, if its tree is open.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from gputop.model.snapshot import ProcessSample
from gputop.monitor import Frame
from gputop.paint.line import Line, Row
from gputop.paint.text import duration, fit, size
from gputop.paint.view import ProcessKey, View, selected_gpu


class Column(NamedTuple):
    """A column: catalogue key, head, width in cells, sort letter, what it shows, its rank in giving way."""

    key: str
    head: str
    width: int
    letter: str
    show: Callable[[ProcessSample, Sequence[ProcessSample]], str]
    keep: int
    right: bool = True


def _number(value: float | None, width: int) -> str:
    return f"{'–' if value is None else round(value):>{width}}"


def loader_words(process: ProcessSample, children: Sequence[ProcessSample]) -> str:
    """``8 torch R6 D2``: how many workers of which kind, and how many of them are in which state."""
    if process.role == "loader":
        return f"{process.static.loader or 'python'} worker"
    if process.role != "gpu":
        return process.role
    workers = [p for p in children if p.role == "loader"]
    if not workers:
        return process.static.loader or "–"
    kinds = "+".join(dict.fromkeys(p.static.loader or "python" for p in workers))
    states = Counter(p.state or "?" for p in workers)
    return f"{len(workers)} {kinds} " + " ".join(f"{state}{n}" for state, n in sorted(states.items(), key=_state_order))


def _state_order(item: tuple[str, int]) -> int:
    return "RDSTZ?".find(item[0])


COLUMNS: tuple[Column, ...] = (
    Column("gpu", "GPU", 4, "g", lambda p, c: f"{'–' if p.gpu is None else p.gpu:>4}", 9),
    Column("pid", "PID", 7, "p", lambda p, c: f"{p.pid:>7}", 9),
    Column("user", "USER", 8, "u", lambda p, c: fit(p.static.user or "–", 8), 6, right=False),
    Column("gpu_mem_bytes", "GPU-MEM", 8, "m", lambda p, c: size(p.gpu_mem_bytes, 8), 8),
    Column("gpu_time_pct", "GPU% time", 9, "t", lambda p, c: _number(p.gpu_time_pct, 9), 4),
    Column("cpu_pct", "CPU%", 6, "c", lambda p, c: _number(p.cpu_pct, 6), 7),
    Column("loader", "LOADERS", 14, "l", lambda p, c: fit(loader_words(p, c), 14), 5, right=False),
    Column("rss_bytes", "HOST-MEM", 8, "r", lambda p, c: size(p.rss_bytes, 8), 3),
    Column("age_s", "TIME", 8, "a", lambda p, c: duration(p.age_s, 8), 2),
    Column("job", "JOB", 11, "j", lambda p, c: fit(p.static.job or p.static.container or "", 11), 1, right=False),
    Column("command", "COMMAND", 16, "n", lambda p, c: p.static.command or p.static.name or "", 10, right=False),
)
SORTABLE = {column.letter: column.key for column in COLUMNS}


def key_of(process: ProcessSample) -> ProcessKey:
    return process.pid, process.starttime, process.gpu


class Shown(NamedTuple):
    """One row of the table: the process, its descendants, and the branch drawn before it."""

    process: ProcessSample
    children: tuple[ProcessSample, ...]
    branch: str


def shown_rows(frame: Frame, view: View) -> list[Shown]:
    """All rows of the table in order, whether or not they fit the screen."""
    snapshot = frame.snapshot
    starved = {gpu.static.index for gpu, d in zip(snapshot.gpus, frame.diagnoses, strict=True) if d.state == "starved"}
    parents = [p for p in snapshot.processes if p.role == "gpu"]
    holders = {p.pid for p in parents}
    by_parent: dict[tuple[int | None, int | None], list[ProcessSample]] = {}
    strays: list[ProcessSample] = []
    ancestor = _gpu_ancestors(snapshot.processes, holders)
    for p in snapshot.processes:
        if p.role == "gpu":
            continue
        owner = ancestor.get(p.pid)
        if owner is None:
            strays.append(p)
        else:
            by_parent.setdefault((owner, None), []).append(p)
    rows: list[Shown] = []
    glyphs = view.glyphs
    for parent in sorted(parents, key=_sort_key(view), reverse=_descending(view)):
        children = tuple(sorted(by_parent.get((parent.pid, None), ()), key=lambda p: p.pid))
        rows.append(Shown(parent, children, ""))
        if view.tree == "all" or (view.tree == "auto" and parent.gpu in starved):
            for i, child in enumerate(children):
                branch = glyphs.last_branch if i == len(children) - 1 else glyphs.branch
                rows.append(Shown(child, (), branch))
    rows.extend(Shown(p, (), "") for p in strays)
    return rows


def _gpu_ancestors(processes: Sequence[ProcessSample], holders: set[int]) -> dict[int, int]:
    """For each process below one that holds a GPU context, the pid of the nearest such ancestor."""
    parents = {p.pid: p.ppid for p in processes}
    found: dict[int, int] = {}
    for p in processes:
        if p.role not in ("loader", "helper"):
            continue
        pid, steps = p.ppid, 0
        while pid is not None and pid not in holders and steps < 64:
            pid, steps = parents.get(pid), steps + 1
        if pid is not None and pid in holders:
            found[p.pid] = pid
        else:
            on_gpu = [q.pid for q in processes if q.role == "gpu" and q.gpu == p.gpu]
            if len(on_gpu) == 1:
                found[p.pid] = on_gpu[0]
    return found


def _sort_key(view: View) -> Callable[[ProcessSample], tuple[float | str, int, int]]:
    name = view.sort

    def key(p: ProcessSample) -> tuple[float | str, int, int]:
        value = getattr(p.static, name, None) if name in ("user", "command", "job", "loader") else getattr(p, name)
        if name in ("user", "command", "job", "loader"):
            return (value or "", p.gpu or 0, p.pid)
        return (-1.0 if value is None else float(value), -(p.gpu or 0), -p.pid)

    return key


def _descending(view: View) -> bool:
    rising = view.sort in ("gpu", "pid", "user", "command", "job", "loader")
    return rising == view.inverted


def columns_for(width: int) -> list[Column]:
    """The columns that fit: they give way by rank, COMMAND takes what is left and keeps at least its width."""
    kept = list(COLUMNS)
    while sum(column.width + 2 for column in kept) > width and len(kept) > 3:
        kept.remove(min(kept, key=lambda column: column.keep))
    return kept


def column_at(x: int, width: int) -> str | None:
    """The key of the column whose head stands at a screen column."""
    begin = 0
    columns = columns_for(width)
    for column in columns:
        end = begin + column.width + 2
        if begin <= x < end or (column is columns[-1] and x >= begin):
            return column.key
        begin = end
    return None


def title(frame: Frame, view: View, width: int, count: int) -> Row:
    glyphs = view.glyphs
    strong = "title" if view.focus == "processes" else "dim"
    line = Line().add(f"{glyphs.rule} ", "rule").add(f"processes {count}", strong).add(" ", "rule")
    head = next(column.head for column in COLUMNS if column.key == view.sort)
    up = _descending(view)
    text = f"by {head} {glyphs.sorted if up else glyphs.sorted_up}"
    if width >= 100:
        text += f"   t tree: {view.tree}   o sort   [ ] GPU"
    if len(text) + line.width + 4 <= width:
        line.rule(width - len(text) - 3, glyphs.rule).add(f" {text} ", "dim")
    return line.rule(width, glyphs.rule).row(width)


def head(view: View, width: int) -> Row:
    line = Line()
    for column in columns_for(width):
        sorted_by = column.key == view.sort
        text = f"{column.head:>{column.width}}" if column.right else f"{column.head:<{column.width}}"
        line.add(text, "strong" if sorted_by else "heading").add("  ", "heading")
    return line.row(width)


def row(shown: Shown, view: View, width: int, *, selected: bool) -> Row:
    """One process. Rows below a GPU process are dimmed and carry a branch instead of the GPU's number."""
    process = shown.process
    style = "dim" if process.role in ("helper", "loader") else "level.yellow" if process.role == "orphan" else "text"
    line = Line()
    columns = columns_for(width)
    for column in columns:
        if column.key == "gpu" and shown.branch:
            line.add(f"{shown.branch:>{column.width}}", "dim")
        elif column.key == "command":
            line.add(fit(_command(process, view), max(1, width - line.width - 1), view.glyphs.more), style)
        else:
            line.add(column.show(process, shown.children), style)
        line.add("  ", style)
    return line.row(width, "select" if selected else None)


def _command(process: ProcessSample, view: View) -> str:
    text = process.static.command or process.static.name
    if text:
        return text
    reason = process.unavailable.get("command") or next(iter(process.unavailable.values()), "not visible in /proc")
    return f"({reason})"


def cursor(rows: Sequence[Shown], frame: Frame, view: View) -> int:
    """Position of the highlighted row: the chosen process, else the first of the selected GPU; -1 where none is."""
    for i, shown in enumerate(rows):
        if key_of(shown.process) == view.process:
            return i
    if not frame.snapshot.gpus:
        return 0 if rows else -1
    index = frame.snapshot.gpus[selected_gpu(frame, view)].static.index
    return next((i for i, shown in enumerate(rows) if shown.process.gpu == index), 0 if rows else -1)
