"""The process table: its rows, order and columns.

GPU processes are sorted by the chosen column; below each are its loaders and helpers, if its tree is open. A
filter keeps what passes it, and above a child that passes, its GPU process.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter

from msgspec import Struct
from msgspec.structs import replace

from gputop.diagnosis.types import NOT_WORKING, GpuDiagnosis
from gputop.diagnosis.verdict.summary import NO_TROUBLE, trouble
from gputop.model.clean_text import terminal_safe
from gputop.model.snapshot import NOT_READ_YET, ProcessSample
from gputop.monitor import Frame
from gputop.paint.cells import fit, shorten
from gputop.paint.line import Line, Row
from gputop.paint.process_columns import (
    BY_VERDICT,
    COLUMNS,
    GUTTER,
    columns_for,
    job_words,
    loader_words,
)
from gputop.paint.process_filter import passes, searchable
from gputop.paint.view import ProcessKey, View, selected_gpu

TAG = "* ".ljust(GUTTER)
"""The mark of a tagged process, in the gutter after the first column."""
SCROLL_CELLS = 16
"""How far a key scrolls the commands."""
DEEPEST = 64
"""Ancestors followed before a chain counts as a loop."""


def key_of(process: ProcessSample) -> ProcessKey:
    return process.pid, process.starttime, process.gpu


class ShownProcess(Struct, frozen=True):
    """One row: the process, its descendants, its branch.

    ``feeds`` says that its GPU is the selected one and waits: then it matters what its loaders do.
    """

    process: ProcessSample
    children: tuple[ProcessSample, ...]
    branch: str
    feeds: bool = False


Families = tuple[list[ShownProcess], list[ProcessSample]]


def shown_rows(
    frame: Frame, view: View, processes: Sequence[ProcessSample] | None = None
) -> list[ShownProcess]:
    """Return all rows of the table in order.

    Order, filter and cells have one value: the frame's means, unless other ``processes`` are given.
    """
    if processes is None:
        processes = frame.shown.processes
    selected = frame.diagnoses[selected_gpu(frame, view)] if frame.diagnoses else None
    parents, strays = families(processes)
    verdicts = verdict_words(frame) if view.filter else {}
    passing_rows = parents
    chosen: dict[ProcessKey, tuple[ProcessSample, ...]] = {}
    if view.filter:
        passing_rows = []
        for shown in parents:
            parent, children = shown.process, shown.children
            if not passes(view.filter, parent, children, verdicts.get(parent.gpu, "")):
                passing = tuple(
                    [p for p in children if passes(view.filter, p, (), verdicts.get(p.gpu, ""))]
                )
                if not passing:
                    continue
                chosen[key_of(parent)] = passing
            passing_rows.append(shown)
    rows: list[ShownProcess] = []
    for shown in (
        _by_verdict(passing_rows, frame, view)
        if view.sort == BY_VERDICT
        else _sorted(passing_rows, view)
    ):
        parent = shown.process
        is_selected = selected is not None and parent.gpu == selected.index
        feeds = is_selected and selected is not None and selected.state == "starved"
        rows.append(replace(shown, feeds=True) if feeds else shown)
        # Children that pass without their parent are what the user looks for: they show even in a closed tree.
        below = chosen.get(key_of(parent))
        if below is None and (
            view.tree == "all" or (view.tree == "auto" and is_selected and (feeds or view.gpu))
        ):
            below = shown.children
        rows += _branches(below or ())
    rows += [
        ShownProcess(p, (), "")
        for p in strays
        if not view.filter or passes(view.filter, p, (), verdicts.get(p.gpu, ""))
    ]
    return rows


def _branches(children: Sequence[ProcessSample]) -> list[ShownProcess]:
    last = len(children) - 1
    return [ShownProcess(p, (), "└" if i == last else "├") for i, p in enumerate(children)]


def families(processes: Sequence[ProcessSample]) -> Families:
    """Return the GPU processes with their descendants.

    By GPU and pid; then the processes below none.
    """
    parents = sorted([p for p in processes if p.role == "gpu"], key=_by_place)
    ancestor = _gpu_ancestors(processes, {p.pid for p in parents})
    below: dict[int, list[ProcessSample]] = {}
    strays: list[ProcessSample] = []
    for p in processes:
        if p.role == "gpu":
            continue
        owner = ancestor.get(p.pid)
        if owner is None:
            strays.append(p)
        else:
            below.setdefault(owner, []).append(p)
    children = {pid: tuple(sorted(members, key=lambda p: p.pid)) for pid, members in below.items()}
    return [ShownProcess(parent, children.get(parent.pid, ()), "") for parent in parents], strays


def parents_of(processes: Sequence[ProcessSample]) -> dict[int, int | None]:
    """Map each pid to its parent in the snapshot.

    A loader whose parent is not there (a forkserver) belongs to the one GPU process of its GPU, if it is the only
    one.
    """
    pids = {p.pid for p in processes}
    on_gpu: dict[int | None, set[int]] = {}
    for p in processes:
        if p.role == "gpu":
            on_gpu.setdefault(p.gpu, set()).add(p.pid)
    parents: dict[int, int | None] = {}
    for p in processes:
        only = on_gpu.get(p.gpu, set()) if p.role in ("loader", "helper") else set()
        is_known = p.ppid in pids and p.ppid != p.pid
        parents.setdefault(
            p.pid, p.ppid if is_known else next(iter(only)) if len(only) == 1 else None
        )
    return parents


def _gpu_ancestors(processes: Sequence[ProcessSample], holders: set[int]) -> dict[int, int]:
    """Map each pid to its nearest ancestor on a GPU."""
    parents = parents_of(processes)
    ancestors: dict[int, int] = {}
    for p in processes:
        pid, steps = parents[p.pid] if p.role in ("loader", "helper") else None, 0
        while pid is not None and pid not in holders and steps < DEEPEST:
            pid, steps = parents.get(pid), steps + 1
        if pid is not None and pid in holders:
            ancestors[p.pid] = pid
    return ancestors


def branch_of(processes: Sequence[ProcessSample], root: ProcessSample) -> list[ProcessSample]:
    """Return a process and everything below it.

    Whether or not its tree is open.
    """
    parents, branch, pids = parents_of(processes), [root], {root.pid}
    while below := [p for p in processes if parents[p.pid] in pids and p.pid not in pids]:
        branch += below
        pids |= {p.pid for p in below}
    return branch


def in_order_of(rows: list[ShownProcess], before: Sequence[ShownProcess]) -> list[ShownProcess]:
    """Return rows in the order of earlier ones, each with its branches; new ones come last."""
    places = {key_of(row.process): place for place, row in enumerate(before) if not row.branch}
    blocks: list[list[ShownProcess]] = []
    for row in rows:
        if row.branch and blocks:
            blocks[-1].append(row)
        else:
            blocks.append([row])
    blocks.sort(key=lambda block: places.get(key_of(block[0].process), len(before)))
    return [row for block in blocks for row in block]


def _by_verdict(rows: list[ShownProcess], frame: Frame, view: View) -> list[ShownProcess]:
    """Return the processes by their GPU's verdict.

    The selected GPU first, then those in trouble, the worst first, then the others; each by memory.
    """
    selected = frame.diagnoses[selected_gpu(frame, view)].index if frame.diagnoses else None
    kinds: dict[int | None, int] = {}
    for d in frame.diagnoses:
        kind = trouble(d)
        kinds[d.index] = NO_TROUBLE if kind is None else kind

    def place(row: ShownProcess) -> tuple[bool, int, float]:
        gpu = row.process.gpu
        kind = kinds.get(gpu, NO_TROUBLE + 1)
        return gpu != selected, kind, -(row.process.gpu_mem_bytes or 0.0)

    return sorted(rows, key=place, reverse=view.inverted)


def _sorted(rows: list[ShownProcess], view: View) -> list[ShownProcess]:
    """Return the processes by the chosen column.

    Equal ones keep their order; unknown values are last either way.
    """
    value = COLUMNS[view.sort].value
    keyed: list[tuple[tuple[float, str], ShownProcess]] = []
    unknown: list[ShownProcess] = []
    for row in rows:
        cell_value = value(row.process, row.children)
        if cell_value is None:
            unknown.append(row)
        else:
            keyed.append(
                (
                    (0.0, cell_value.lower()) if isinstance(cell_value, str) else (cell_value, ""),
                    row,
                )
            )
    keyed.sort(key=itemgetter(0), reverse=_descending(view))
    return [row for _, row in keyed] + unknown


def _by_place(process: ProcessSample) -> tuple[int, int]:
    return -1 if process.gpu is None else process.gpu, process.pid


def _descending(view: View) -> bool:
    return (
        not view.inverted if view.sort == BY_VERDICT else COLUMNS[view.sort].rising == view.inverted
    )


def order_words(key: str) -> str:
    """Return the name of the table's order."""
    return key if key == BY_VERDICT else COLUMNS[key].head


def verdict_words(frame: Frame) -> dict[int | None, str]:
    """Map each GPU index to its diagnosis's words.

    In lower case, for the filter.
    """
    return {
        d.index: " ".join((d.verdict, d.state, d.title, d.short, *_flag(d))).lower()
        for d in frame.diagnoses
    }


def _flag(diagnosis: GpuDiagnosis) -> tuple[str, ...]:
    return (NOT_WORKING,) if diagnosis.busy_not_working else ()


def next_match(rows: Sequence[ShownProcess], text: str, at: int, step: int) -> int | None:
    """Return the position of the next matching row.

    1 is forward, -1 backward, round the end. Command, name, user, pid and job are searched.
    """
    lowered, count = text.lower(), len(rows)
    for away in range(1, count + 1):
        position = (at + step * away) % count
        if any(lowered in words.lower() for words in searchable(rows[position].process)):
            return position
    return None


def title(view: View, width: int, count: int) -> Line:
    """Return the row above the heads.

    Number of processes, filter and tags, order, keys.
    """
    line = Line().add("─ ", "rule").add(f"processes {count}", "title")
    if view.filter:
        # A forgotten filter hides what one looks for, so it stands out.
        text = shorten(terminal_safe(view.filter.text), max(8, width // 2))
        line.add(" pass ", "dim").add(text, "level.yellow")
    if view.tagged:
        line.add(f"  {len(view.tagged)} tagged", "level.yellow")
    line.add(" ", "rule")
    arrow = "▾" if _descending(view) else "▴"
    keys = Line().add(" ", "dim").add(f"by {order_words(view.sort)} {arrow}", "dim", "sort_next")
    if width >= 100 and not view.filter:
        for apart, key, words, key_id in (
            ("   ", "t", f" tree: {view.tree}", "tree"),
            ("   ", "o", " sort", "sort"),
            ("   ", "[", "", "previous_gpu"),
            (" ", "]", " GPU", "next_gpu"),
        ):
            keys.add(apart, "dim").add(key, "title.key", key_id).add(words, "dim", key_id)
    if keys.width + line.width + 3 <= width:
        line.rule(width - keys.width - 2).add_line(keys).add(" ", "dim")
    return line.rule(width)


def head(view: View, width: int) -> Row:
    """The heads of the columns."""
    line = Line()
    for placed in columns_for(width, view.columns):
        column, wide = placed.column, placed.width
        text = f"{column.head:>{wide}}" if column.right else f"{column.head:<{wide}}"
        line.to(placed.begin, "heading").add(
            text[:wide], "strong" if column.key == view.sort else "heading"
        )
    return line.row(width)


def row(shown: ShownProcess, view: View, width: int, *, selected: bool) -> Row:
    """Return one process as a row.

    Rows below a GPU process are dimmed and carry a branch instead of the GPU's number.
    """
    process = shown.process
    style = "dim" if process.role in ("helper", "loader") else "text"
    line = Line()
    for i, placed in enumerate(columns_for(width, view.columns)):
        column, wide = placed.column, placed.width
        if i == 1 and key_of(process) in view.tagged:
            line.add(TAG, "level.yellow")
        line.to(placed.begin, style)
        if shown.branch and column.key == "gpu":
            line.add(f"{shown.branch:>{wide}}", "dim")
        elif column.key == "command":
            line.add(fit(_command(process, view.command_at), wide), style)
        elif column.flexible:
            line.add(fit(str(column.value(process, ()) or "–"), wide), style)
        elif column.key == "loader":
            is_narrow = wide < column.width
            words = loader_words(process, shown.children, states=shown.feeds and not is_narrow)
            line.add(
                fit(process.role if is_narrow and process.role != "gpu" else words, wide), style
            )
        else:
            line.add(column.show(process, shown.children), style)
    return line.row(width, "select" if selected else None)


def _command(process: ProcessSample, scrolled: int) -> str:
    """Return the command as its job.

    The command line itself, from some place on, once it is scrolled.
    """
    text = process.static.command or process.static.name
    if text:
        return text[(scrolled - 1) * SCROLL_CELLS :] if scrolled else job_words(text)
    reason = process.unavailable.get("command") or next(
        iter(process.unavailable.values()), "not visible in /proc"
    )
    return f"({reason})"


def nothing_words(frame: Frame, view: View) -> str:
    """Why the table is empty."""
    processes = frame.shown.processes
    count = len(processes)
    if view.filter and processes:
        if processes[0].unavailable.get("state") == NOT_READ_YET:
            are = "1 process on the GPUs is" if count == 1 else f"{count} processes on the GPUs are"
            return f"the {are} {NOT_READ_YET}"
        none = (
            "the one process does not pass" if count == 1 else f"none of {count} processes passes"
        )
        return f"{none} the filter: esc takes it away, f changes it"
    if frame.snapshot.notices:
        return frame.snapshot.notices[0]
    reasons = [gpu.unavailable.get("processes") for gpu in frame.snapshot.gpus]
    if reasons and all(reasons):
        return f"processes n/a: {reasons[0]}"
    return "no process holds a GPU context"


def selected_process(frame: Frame, view: View) -> ProcessSample | None:
    """The process under the cursor."""
    rows = shown_rows(frame, view)
    at = cursor(rows, frame, view)
    return rows[at].process if 0 <= at < len(rows) else None


def chosen_process(frame: Frame, view: View) -> ProcessSample | None:
    """Return the process that the user has chosen.

    None once it has ended; the cursor alone is not a choice.
    """
    if view.process is None:
        return None
    return next((p for p in frame.shown.processes if key_of(p) == view.process), None)


def cursor(rows: Sequence[ShownProcess], frame: Frame, view: View) -> int:
    """Return the position of the highlighted row.

    The chosen process, else the first of the selected GPU; -1 without either.
    """
    if view.process is not None:
        for i, shown in enumerate(rows):
            if key_of(shown.process) == view.process:
                return i
    if not frame.shown.gpus:
        return 0 if rows else -1
    index = frame.shown.gpus[selected_gpu(frame, view)].static.index
    return next(
        (i for i, shown in enumerate(rows) if shown.process.gpu == index), 0 if rows else -1
    )
