"""One process in full: what it is, what it did on one time axis, its family with roles and reasons, its threads."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Callable, Sequence

from msgspec import Struct, field

from gputop.diagnosis.rules.feeding_rules import THROTTLED
from gputop.diagnosis.thresholds import AWAKE_PCT
from gputop.model import quantity
from gputop.model.inspection import SocketGroup, SocketList, ThreadList, ThreadSample
from gputop.model.quantity import NOT_MEASURED, count, duration, rate, terminal_safe
from gputop.model.snapshot import ProcessSample
from gputop.monitor import Frame
from gputop.paint import header
from gputop.paint.charts import Column, round_top
from gputop.paint.detail_page import (
    Chart,
    DetailsPainted,
    DetailsView,
    LazyRows,
    axis_row,
    bar_row,
    chart_block,
    chart_width,
    heading,
    joined,
    key_parts,
    lane_block,
    ready,
    words_block,
)
from gputop.paint.glyphs import Glyphs
from gputop.paint.line import Line, Row, clock_time, elapsed, fit, pct, shorten, size
from gputop.paint.numbers import Field, fields
from gputop.paint.time_axis import TimeAxis, axis_for
from gputop.paint.view import ProcessKey
from gputop.paint.words import gpu_label

# Its charts and lanes on the time axis of the page.

LANES: tuple[tuple[str, str, str], ...] = (
    ("running", "run_pct", "lane.run"),
    ("queued", "wait_pct", "lane.wait"),
    ("disk", "in_disk_pct", "lane.disk"),
    ("network", "on_network_pct", "lane.disk"),
    ("asleep", "asleep_pct", "lane.idle"),
    ("main", "main_pct", "lane.main"),
)
"""Label, series of the process history, style."""


class ProcessSeries(Struct, frozen=True):
    """Columns of one process's history, each read once; ``now`` is its newest sample, None when it has ended."""

    frame: Frame
    key: ProcessKey
    now: ProcessSample | None
    axis: TimeAxis
    cursor: int | None
    _read: dict[str, list[Column]] = field(default_factory=dict)

    def columns(self, name: str) -> list[Column]:
        columns = self._read.get(name)
        if columns is None:
            history, axis = self.frame.process_history, self.axis
            columns = self._read[name] = history.columns(self.key, name, axis.width_s, axis.columns)
        return columns

    def at(self, name: str) -> Column:
        """The column's mean under the cursor; without a cursor what was measured last."""
        if self.cursor is not None:
            return self.columns(name)[self.cursor]
        value: Column = getattr(self.now, name, None)
        return value


class _Chart(Struct, frozen=True):
    name: str
    label: str
    style: str
    top: Callable[[float], float]
    show: Callable[[float | None], str]


def _cores(highest: float) -> float:
    return max(100.0, round_top(highest))


def _share(_: float) -> float:
    return 100.0


def _binary(highest: float) -> float:
    return round_top(max(highest, 1.0) / 2**30) * 2**30


def _traffic(highest: float) -> float:
    return round_top(max(highest, 1e6))


def _bytes(value: float | None) -> str:
    return NOT_MEASURED if value is None else size(value).strip()


CHARTS = (
    _Chart("cpu_pct", "CPU", "area.board", _cores, quantity.pct),
    _Chart("gpu_time_pct", "GPU time", "area.work", _share, quantity.pct),
    _Chart("gpu_mem_bytes", "GPU mem", "area.mem", _binary, _bytes),
    _Chart("rss_bytes", "host mem", "area.mem", _binary, _bytes),
    _Chart("read_bytes_per_s", "read", "area.bus", _traffic, quantity.rate),
    _Chart("write_bytes_per_s", "write", "area.bus", _traffic, quantity.rate),
)


def chart_blocks(series: ProcessSeries, rows: int, width: int, glyphs: Glyphs) -> list[LazyRows]:
    """A chart for each series that has values or a reason; quiet and missing ones take one row."""
    blocks = []
    for chart in CHARTS:
        values = series.columns(chart.name)
        measured = [value for value in values if value is not None]
        if not measured:
            if chart.name.startswith("gpu_") and (series.now is None or series.now.role != "gpu"):
                continue
            reason = None if series.now is None else series.now.unavailable.get(chart.name)
            words = f"n/a: {terminal_safe(reason)}" if reason else "nothing was measured"
            blocks.append(words_block(chart.label, words, series, width, glyphs))
        elif chart.name.endswith("_per_s") and not any(measured):
            blocks.append(words_block(chart.label, "nothing in this time", series, width, glyphs))
        else:
            device = _device_memory(series) if chart.name == "gpu_mem_bytes" else None
            top = device or chart.top(max(measured))
            drawn = Chart(chart.name, chart.label, chart.style, top, chart.show(top), chart.show)
            blocks.append(chart_block(drawn, series, rows, width, glyphs))
    return blocks


def _device_memory(series: ProcessSeries) -> float | None:
    """The total memory of the process's GPU, bytes."""
    return next((g.mem_total_bytes for g in series.frame.snapshot.gpus if g.static.index == series.key[2]), None)


def lane_blocks(series: ProcessSeries, width: int, glyphs: Glyphs) -> list[LazyRows]:
    """Where its time went: on a core, queued for one, in disk wait, on the network, asleep; and its main thread."""
    known = [spec for spec in LANES if any(value is not None for value in series.columns(spec[1]))]
    return [lane_block(series, spec, width, glyphs) for spec in known]


def moment_fields(series: ProcessSeries) -> list[Field]:
    """All values at the cursor; what is not known is left out."""
    parts = [
        (f"{chart.label} {chart.show(value)}", "text")
        for chart in CHARTS
        if (value := series.at(chart.name)) is not None
    ]
    lanes = [(label, series.at(name)) for label, name, _ in LANES if name != "asleep_pct"]
    return parts + [(f"{label} {pct(value)} %", "dim") for label, value in lanes if value is not None]


# The family of one process as a tree: the GPU process above it, its loaders and helpers, and what a dead job left.

DEEPEST = 64
"""Ancestors followed before a chain counts as a loop."""
ROLE_WORDS = {"gpu": "GPU process", "loader": "loader", "helper": "helper", "orphan": "orphan"}
STATE_WORDS = {"R": "runs", "S": "asleep", "D": "disk wait", "Z": "ended", "T": "stopped", "t": "traced", "I": "idle"}


def is_awake(state: str | None, run_pct: float | None) -> bool:
    """Whether a process or thread was asleep in the moment of the look alone: its CPU time says that it runs."""
    return state == "S" and (run_pct or 0.0) > AWAKE_PCT


def state_words(state: str | None, run_pct: float | None) -> str:
    """What a process or thread does, in words that its CPU time does not contradict."""
    return STATE_WORDS["R"] if is_awake(state, run_pct) else STATE_WORDS.get(state or "", state or "n/a")


def _waits(state: str | None, run_pct: float | None, waiting_on: str | None) -> str | None:
    """What it waits on, where it waits."""
    return None if is_awake(state, run_pct) else waiting_on


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
    visited: set[int] = set()
    while waiting:
        pid, depth = waiting.pop()
        if pid in visited or pid not in by_pid:
            continue
        visited.add(pid)
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
        line.add(f"{state_words(p.state, p.cpu_pct):<11}", "level.red" if p.state == "D" else style)
        line.add(f"{_waits(p.state, p.cpu_pct, p.waiting_on) or '–':<10}", style)
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


# The TCP sockets of one process by the port that they lead to, with what they receive.

MOST_GROUPS = 12


def socket_blocks(sockets: SocketList | None, width: int, glyphs: Glyphs) -> list[LazyRows]:
    """A heading and a row a port; nothing where the process has no TCP socket, or they were not read."""
    if sockets is None or not (sockets.groups or sockets.reason):
        return []
    rows = [Line().row(width), heading(_socket_words(sockets), width, glyphs)]
    if sockets.reason is not None:
        rows.append(Line().to(2).add(shorten(terminal_safe(sockets.reason), width - 3), "dim").row(width))
    else:
        rows.append(Line().add(f"  {'PORT':<10}{'OTHER END':<15}{'SOCKETS':>8}{'RECEIVING':>13}", "heading").row(width))
        rows += [_row(group, width) for group in sockets.groups[:MOST_GROUPS]]
        unlisted = len(sockets.groups) - MOST_GROUPS
        if unlisted > 0:
            rows.append(Line().to(2).add(f"and {count(unlisted, 'port')} more that receive less", "dim").row(width))
    return [ready(rows)]


def _socket_words(sockets: SocketList) -> str:
    rates = [group.rx_bytes_per_s for group in sockets.groups if group.rx_bytes_per_s is not None]
    total = f", receiving {rate(sum(rates))} in all" if rates else ""
    number = sum(group.count for group in sockets.groups)
    return f"{count(number, 'TCP socket')}{total}" if number else "TCP sockets"


def _row(group: SocketGroup, width: int) -> Row:
    place = "listens" if group.listens else "this machine" if group.is_local else "elsewhere"
    receiving = "–" if group.listens else rate(group.rx_bytes_per_s)
    style = "text" if group.rx_bytes_per_s else "dim"
    return Line().add(f"  {group.port:<10}{place:<15}{group.count:>8}{receiving:>13}", style).row(width)


# The page.

MOST_COMMAND_ROWS = 6
MOST_COMMAND = 4096
MOST_THREADS = 40
NOT_RECORDED = "not recorded: threads are read live only"


def find(frame: Frame, key: ProcessKey) -> ProcessSample | None:
    """The process in the snapshot, by its identity."""
    return next((p for p in frame.snapshot.processes if (p.pid, p.starttime, p.gpu) == key), None)


def process_details(
    frame: Frame,
    state: DetailsView,
    key: ProcessKey,
    last: ProcessSample | None,
    threads: ThreadList | None,
    width: int,
    height: int,
) -> DetailsPainted:
    """The screen in exactly ``height`` rows of ``width`` cells.

    ``last`` is the newest sample that the screen has seen, shown on when the process has ended. ``threads`` is None
    where they cannot be read, as in a replay.
    """
    view = state.view
    latest = frame.process_history.latest_t or frame.snapshot.t
    axis = axis_for(latest, view.span_s, chart_width(width))
    now = find(frame, key)
    shown = now or last
    head = [header.header(frame, view, width), _title(frame, key, now, shown, view.glyphs, width)]
    if shown is None:
        text = "this process is not in the snapshot"
        head.append(Line().to(2).add(shorten(text, width - 3), "level.yellow").row(width))
        rows, most_first, room = joined(head, [], [bar_row(["esc back"], width)], state, width, height)
        return DetailsPainted(rows, most_first, room, axis)
    cursor = None if state.cursor_t is None else axis.column_of(state.cursor_t)
    series = ProcessSeries(frame, key, now, axis, cursor)
    foot = [axis_row(axis, view, width, cursor)]
    if cursor is not None:
        t = axis.middle(cursor)
        line = Line().to(2).add(f"at {clock_time(t, view.utc_offset_s)}", "key").add("  ")
        parts = moment_fields(series) or [("nothing was measured at this time", "dim")]
        foot.append(line.add_all(fields(parts, width - line.width - 1, "  ")).row(width))
    room = max(0, height - len(head) - len(foot) - 1)
    blocks = _blocks(frame, series, shown, threads, view.glyphs, width, room)
    total = sum(block.rows for block in blocks)
    keys = key_parts(state, duration(view.span_s), max(0, total - room), room, total)
    rows, most_first, room = joined(head, blocks, [*foot, bar_row(keys, width)], state, width, height)
    return DetailsPainted(rows, most_first, room, axis)


def _title(
    frame: Frame, key: ProcessKey, now: ProcessSample | None, shown: ProcessSample | None, glyphs: Glyphs, width: int
) -> Row:
    name = "" if shown is None else terminal_safe(shown.static.name or "")[:24]
    line = Line().add(f"{glyphs.rule} ", "rule").add(f"{key[0]}  {name}".rstrip(), "title")
    gpu = next((g for g in frame.snapshot.gpus if g.static.index == key[2]), None)
    if gpu is not None:
        line.add(f"   on GPU {gpu_label(gpu)}", "text")
    if now is None:
        line.add("   has ended" if shown is not None else "", "level.yellow")
    elif now.state is not None:
        waiting_on = _waits(now.state, now.cpu_pct, now.waiting_on)
        waits = f", waits on {waiting_on}" if waiting_on and now.state == "S" else ""
        line.add(f"   {state_words(now.state, now.cpu_pct)}{waits}", "level.red" if now.state == "D" else "text")
    age = "" if shown is None or shown.age_s is None else f"up {elapsed(shown.age_s).strip()}"
    line.add(" ", "rule")
    if age and line.width + len(age) + 6 <= width:
        line.rule(width - len(age) - 3, glyphs.rule).add(f" {age} ", "dim")
    return line.rule(width, glyphs.rule).row(width)


def _blocks(
    frame: Frame,
    series: ProcessSeries,
    shown: ProcessSample,
    threads: ThreadList | None,
    glyphs: Glyphs,
    width: int,
    room: int,
) -> list[LazyRows]:
    facts = _facts(shown, glyphs, width)
    lanes = lane_blocks(series, width, glyphs)
    tall = 3 if len(facts) + len(lanes) + 3 * 6 + 8 <= room else 2
    charts = chart_blocks(series, tall, width, glyphs) + lanes
    if not charts:
        text = "  no history yet: the 64 processes that matter most are followed, GPU processes and loaders first"
        charts = [ready([Line().add(shorten(text, width - 1, glyphs.more), "dim").row(width)])]
    blocks = [ready(facts), *charts, ready([Line().row(width)])]
    processes = frame.snapshot.processes
    if series.now is not None:
        branches = family(processes, shown)
        words = "its tree: it is alone" if len(branches) == 1 else f"its tree: {len(branches)} processes"
        blocks.append(ready([heading(words, width, glyphs)]))
        blocks.append(LazyRows(1 + len(branches), lambda: tree_rows(branches, shown, width, glyphs)))
    orphan_lines = orphan_rows(orphans, width, glyphs) if (orphans := orphans_near(processes, shown)) else []
    if orphan_lines:
        blocks += [
            ready([heading("left behind by a dead job", width, glyphs)]),
            ready(orphan_lines),
        ]
    listed = _thread_rows(threads, glyphs, width)
    blocks += [ready([Line().row(width)]), ready([heading(_thread_words(threads), width, glyphs)])]
    blocks.append(ready(listed))
    return blocks + socket_blocks(None if threads is None else threads.sockets, width, glyphs)


def _facts(p: ProcessSample, glyphs: Glyphs, width: int) -> list[Row]:
    """The command in full, who and where it belongs to, and what could not be learned."""
    command_text = (p.static.command or p.static.name or "")[:MOST_COMMAND]
    command = terminal_safe(command_text) or "(its command line is not visible)"
    wrapped = textwrap.wrap(command, max(8, width - 6), break_long_words=True) or [""]
    if len(wrapped) > MOST_COMMAND_ROWS:
        wrapped = [*wrapped[: MOST_COMMAND_ROWS - 1], shorten(wrapped[MOST_COMMAND_ROWS - 1], width - 8) + glyphs.more]
    rows = [
        Line().add("  $ " if i == 0 else "    ", "dim").add(fit(line, width - 5, glyphs.more), "value").row(width)
        for i, line in enumerate(wrapped)
    ]
    for parts in (_identity(p), _status_fields(p)):
        remaining: list[Field] = [part for part in parts if part[0]]
        while remaining:
            spans = fields(remaining, width - 3)
            taken = max(1, (len(spans) + 1) // 2)
            rows.append(
                Line()
                .to(2)
                .add_all(spans or [(fit(remaining[0][0], width - 3, glyphs.more), remaining[0][1])])
                .row(width)
            )
            remaining = remaining[taken:]
    reasons = dict.fromkeys(terminal_safe(reason) for reason in p.unavailable.values())
    for reason in list(reasons)[:3]:
        keys = ", ".join(key for key, why in p.unavailable.items() if terminal_safe(why) == reason)
        text = f"{glyphs.dot} n/a {keys}: {reason}"
        rows.append(Line().to(2).add(shorten(text, width - 3, glyphs.more), "dim").row(width))
    return rows


def _identity(p: ProcessSample) -> list[Field]:
    s = p.static
    parts = (("user", s.user), ("job", s.job), ("container", s.container), ("parent", p.ppid), ("role", p.role))
    parts_found: list[Field] = [
        (f"{name} {terminal_safe(str(value))}", "text") for name, value in parts if value is not None
    ]
    if s.why:
        parts_found.append((f"why: {terminal_safe(s.why)}", "dim"))
    return parts_found


def _status_fields(p: ProcessSample) -> list[Field]:
    parts: list[Field] = []
    if p.threads is not None:
        parts.append((f"threads {p.threads}", "text"))
    if p.pool_threads:
        run = "" if p.pool_run_pct is None else f" running {pct(p.pool_run_pct).strip()} %"
        parts.append((f"of them {p.pool_threads} host threads{run}", "text"))
    if p.throttled_pct is not None:
        parts.append(
            (
                f"throttled {pct(p.throttled_pct).strip()} %",
                "level.yellow" if p.throttled_pct >= 100.0 * THROTTLED else "text",
            )
        )
    if p.nccl is not None:
        parts.append((f"NCCL {'yes' if p.nccl else 'no'}", "text"))
    if p.pin_memory is not None:
        parts.append((f"pin_memory {'on' if p.pin_memory else 'off'}", "text"))
    if p.static.loader:
        parts.append((f"loader {terminal_safe(p.static.loader)}", "text"))
    return parts


def _thread_words(threads: ThreadList | None) -> str:
    if threads is None or threads.reason is not None:
        return "threads"
    states = Counter(state_words(thread.state, thread.run_pct) for thread in threads.threads)
    words = ", ".join(f"{n} {state}" for state, n in states.most_common())
    return f"threads {threads.total}: {words}, the busiest first"


def _thread_rows(threads: ThreadList | None, glyphs: Glyphs, width: int) -> list[Row]:
    """Heads and one row a thread; one row of words where there is no list."""
    if threads is None or threads.reason is not None:
        text = NOT_RECORDED if threads is None else threads.reason or ""
        return [Line().to(2).add(shorten(text, width - 3, glyphs.more), "dim").row(width)]
    head = f"  {'TID':<9}{'NAME':<17}{'STATE':<11}{'WAITS ON':<10}{'RUN%':>5} {'QUEUED%':>8}"
    rows = [Line().add(head, "heading").row(width)]
    for thread in _busiest(threads.threads)[:MOST_THREADS]:
        style = "level.red" if thread.state == "D" else "text" if thread.run_pct else "dim"
        line = Line().add(f"  {thread.tid:<9}", style).add(fit(thread.name, 16, glyphs.more), style)
        waiting_on = _waits(thread.state, thread.run_pct, thread.waiting_on)
        line.add(f" {state_words(thread.state, thread.run_pct):<11}{waiting_on or '–':<10}", style)
        line.add(f"{pct(thread.run_pct, 5)} {pct(thread.wait_pct, 8)}", style)
        rows.append(line.row(width))
    if len(threads.threads) > MOST_THREADS:
        text = f"  and {threads.total - MOST_THREADS} that did less"
        rows.append(Line().add(text, "dim").row(width))
    return rows


def _busiest(threads: Sequence[ThreadSample]) -> list[ThreadSample]:
    """By time on a core and queued for one; the main thread and low ids first among equals."""
    return sorted(threads, key=lambda thread: -((thread.run_pct or 0.0) + (thread.wait_pct or 0.0)))
