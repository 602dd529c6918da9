"""The page of one process.

Its facts, its activity on one time axis, its family with roles and reasons, its threads.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

from gputop.diagnosis.rules.feeding_rules import THROTTLED
from gputop.diagnosis.thresholds import AWAKE_PCT
from gputop.model import quantity
from gputop.model.inspection import ThreadList
from gputop.model.quantity import elapsed, number, size, terminal_safe
from gputop.model.snapshot import ProcessSample
from gputop.monitor import Frame
from gputop.paint import header
from gputop.paint.charts import round_top
from gputop.paint.detail_page import Chart, DetailPage, DetailsPainted, DetailsView
from gputop.paint.line import Line, Row, fit, shorten, text_row
from gputop.paint.process_actions import STATES
from gputop.paint.process_table import DEEPEST, branch_of, parents_of
from gputop.paint.view import ProcessKey
from gputop.paint.words import Field, fields, gpu_label

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


def _binary_top(highest: float) -> float:
    return round_top(max(highest, 1.0) / 2**30) * 2**30


def _bytes(value: float) -> str:
    return size(value)


CHARTS: tuple[tuple[str, str, str, Callable[[float], str], Callable[[float], float]], ...] = (
    ("cpu_pct", "CPU", "area.board", quantity.pct, lambda highest: max(100.0, round_top(highest))),
    ("gpu_time_pct", "GPU time", "area.work", quantity.pct, lambda _: 100.0),
    ("gpu_mem_bytes", "GPU mem", "area.mem", _bytes, _binary_top),
    ("rss_bytes", "host mem", "area.mem", _bytes, _binary_top),
    ("read_bytes_per_s", "read", "area.bus", quantity.rate, lambda highest: round_top(max(highest, 1e6))),
    ("write_bytes_per_s", "write", "area.bus", quantity.rate, lambda highest: round_top(max(highest, 1e6))),
)
"""Series of the process history, label, style, how a value is written, the top of the scale by the highest value."""


def _charts(page: DetailPage, now: ProcessSample | None, device_memory: float | None) -> list[Chart]:
    """Return a chart for each series with values or a reason.

    Quiet and missing ones take one row.
    """
    charts = []
    for name, label, style, show, top in CHARTS:
        measured = page.measured(name)
        if not measured and name.startswith("gpu_") and (now is None or now.role != "gpu"):
            continue
        text_instead = ""
        if not measured:
            reason = None if now is None else now.unavailable.get(name)
            text_instead = f"n/a: {terminal_safe(reason)}" if reason else "nothing was measured"
        elif name.endswith("_per_s") and not any(measured):
            text_instead = "nothing in this time"
        highest = top(max(measured, default=0.0))
        if name == "gpu_mem_bytes" and device_memory:
            highest = device_memory
        charts.append(Chart(name, label, style, highest, show, text_instead=text_instead))
    return charts


def _moment(page: DetailPage) -> list[Field]:
    """Return all known values at the cursor."""
    parts = [
        (f"{label} {show(value)}", "text")
        for name, label, _, show, _ in CHARTS
        if (value := page.column(name)) is not None
    ]
    lanes = [(label, page.column(name)) for label, name, _ in LANES if name != "asleep_pct"]
    return parts + [(f"{label} {number(value, 3)} %", "dim") for label, value in lanes if value is not None]


# The family of one process: the GPU process above it, its loaders and helpers.

ROLE_WORDS = {"gpu": "GPU process", "loader": "loader", "helper": "helper"}
STATE_WORDS = {**STATES, "R": "runs"}


def is_awake(state: str | None, run_pct: float | None) -> bool:
    """Return whether CPU time contradicts a sleeping state.

    The process or thread was asleep in one moment alone.
    """
    return state == "S" and (run_pct or 0.0) > AWAKE_PCT


def state_words(state: str | None, run_pct: float | None) -> str:
    """Return a state in words that CPU time supports."""
    return STATE_WORDS["R"] if is_awake(state, run_pct) else STATE_WORDS.get(state or "", state or "n/a")


def _waits(state: str | None, run_pct: float | None, waiting_on: str | None) -> str | None:
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
    head = Line().add(f"  {'PID':<14}{'ROLE':<13}{'STATE':<11}{'WAITS ON':<10}{'CPU%':>5} {'HOST-MEM':>9}  ", "heading")
    rows = [head.add("WHY IT IS HERE", "heading").row(width)]
    for i, p in enumerate(branch):
        stem = "" if i == 0 else "└ " if i + 1 == len(branch) else "├ "
        style = "text" if p.role == "gpu" else "dim"
        line = Line().add("  ").add(fit(f"{stem}{p.pid}", 14), style)
        line.add(f"{ROLE_WORDS[p.role]:<13}", style)
        line.add(f"{state_words(p.state, p.cpu_pct):<11}", "level.red" if p.state == "D" else style)
        line.add(f"{_waits(p.state, p.cpu_pct, p.waiting_on) or '–':<10}", style)
        line.add(f"{number(p.cpu_pct, 5)} {size(p.rss_bytes, 9)}  ", style)
        why = p.static.why or p.unavailable.get("why") or p.static.command or p.static.name or ""
        line.fill(why, width, style)
        rows.append(line.row(width, "select" if p.pid == chosen.pid else None))
    return rows


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
    history, view, now = frame.process_history, state.view, find(frame, key)
    page = DetailPage(frame, state, now, partial(history.columns, key), history.latest_t, width)
    shown = now or last
    head = [header.header(frame, view, width).row(width), _title(frame, key, now, shown, width)]
    if shown is None:
        text = shorten("this process is not in the snapshot", width - 3)
        return page.painted([*head, text_row(text, width, "level.yellow", 2)], [], height)
    foot = page.foot(lambda: _moment(page), 1)
    _add_facts(page, shown)
    _add_charts(page, key, now, height - len(head) - len(foot) - 1)
    page.rows.append(Line().row(width))
    processes = frame.snapshot.processes
    if now is not None:
        branch = family(processes, shown)
        words = "its tree: it is alone" if len(branch) == 1 else f"its tree: {len(branch)} processes"
        page.heading(words, apart=False)
        page.rows += tree_rows(branch, shown, width)
    _add_threads(page, threads)
    return page.painted(head, foot, height)


def _title(frame: Frame, key: ProcessKey, now: ProcessSample | None, shown: ProcessSample | None, width: int) -> Row:
    name = "" if shown is None else terminal_safe(shown.static.name or "")[:24]
    line = Line().add("─ ", "rule").add(f"{key[0]}  {name}".rstrip(), "title")
    gpu = next((g for g in frame.snapshot.gpus if g.static.index == key[2]), None)
    if gpu is not None:
        line.add(f"   on GPU {gpu_label(gpu)}", "text")
    if now is None:
        line.add("   has ended" if shown is not None else "", "level.yellow")
    elif now.state is not None:
        waiting_on = _waits(now.state, now.cpu_pct, now.waiting_on)
        waits = f", waits on {waiting_on}" if waiting_on and now.state == "S" else ""
        line.add(f"   {state_words(now.state, now.cpu_pct)}{waits}", "level.red" if now.state == "D" else "text")
    age = "" if shown is None or shown.age_s is None else f"up {elapsed(shown.age_s)}"
    line.add(" ", "rule")
    if age and line.width + len(age) + 6 <= width:
        line.rule(width - len(age) - 3).add(f" {age} ", "dim")
    return line.rule(width).row(width)


def _add_charts(page: DetailPage, key: ProcessKey, now: ProcessSample | None, room: int) -> None:
    """Add charts, and the shares of the process's time.

    On a core, queued for one, in disk wait, on the network, asleep.
    """
    gpus = page.frame.snapshot.gpus
    charts = _charts(page, now, next((g.mem_total_bytes for g in gpus if g.static.index == key[2]), None))
    lanes = [lane for lane in LANES if page.measured(lane[1])]
    tall = 3 if len(page.rows) + len(lanes) + 3 * 6 + 8 <= room else 2
    for chart in charts:
        page.chart(chart, tall)
    for lane in lanes:
        page.lane(*lane)
    if not (charts or lanes):
        page.text("no history yet: the 64 processes that matter most are followed, GPU processes and loaders first")


def _add_facts(page: DetailPage, p: ProcessSample) -> None:
    """Add the full command, the owner and missing facts."""
    width = page.width
    command_text = (p.static.command or p.static.name or "")[:MOST_COMMAND]
    command = terminal_safe(command_text) or "(its command line is not visible)"
    wrapped = textwrap.wrap(command, max(8, width - 6), break_long_words=True) or [""]
    if len(wrapped) > MOST_COMMAND_ROWS:
        wrapped = [*wrapped[: MOST_COMMAND_ROWS - 1], shorten(wrapped[MOST_COMMAND_ROWS - 1], width - 8) + "…"]
    for i, text in enumerate(wrapped):
        line = Line().add("    " if i else "  $ ", "dim").add(fit(text, width - 5), "value")
        page.rows.append(line.row(width))
    for remaining in (_identity(p), _status_fields(p)):
        while remaining:
            spans = fields(remaining, width - 3) or [(fit(remaining[0][0], width - 3), remaining[0][1])]
            page.rows.append(Line().to(2).add_all(spans).row(width))
            remaining = remaining[(len(spans) + 1) // 2 :]
    keys: dict[str, list[str]] = {}
    for key, reason in p.unavailable.items():
        keys.setdefault(terminal_safe(reason), []).append(key)
    for reason in list(keys)[:3]:
        page.text(f"· n/a {', '.join(keys[reason])}: {reason}")


def _identity(p: ProcessSample) -> list[Field]:
    s = p.static
    parts = (("user", s.user), ("job", s.job), ("container", s.container), ("parent", p.ppid), ("role", p.role))
    known = [(f"{name} {terminal_safe(str(value))}", "text") for name, value in parts if value is not None]
    return [*known, (f"why: {terminal_safe(s.why)}", "dim")] if s.why else known


def _status_fields(p: ProcessSample) -> list[Field]:
    run = "" if p.pool_run_pct is None else f" running {number(p.pool_run_pct)} %"
    slow = "level.yellow" if (p.throttled_pct or 0.0) >= 100.0 * THROTTLED else "text"
    parts = (
        (p.threads is not None, f"threads {p.threads}", "text"),
        (p.pool_threads, f"of them {p.pool_threads} host threads{run}", "text"),
        (p.throttled_pct is not None, f"throttled {number(p.throttled_pct)} %", slow),
        (p.nccl is not None, f"NCCL {'yes' if p.nccl else 'no'}", "text"),
        (p.pin_memory is not None, f"pin_memory {'on' if p.pin_memory else 'off'}", "text"),
        (p.static.loader, f"loader {terminal_safe(p.static.loader or '')}", "text"),
    )  # fmt: skip
    return [(text, style) for known, text, style in parts if known]


def _add_threads(page: DetailPage, threads: ThreadList | None) -> None:
    """Add one row for each thread, the busiest first.

    One row of words where there is no list.
    """
    if threads is None or threads.reason is not None:
        page.heading("threads")
        page.text(NOT_RECORDED if threads is None else threads.reason or "")
        return
    states = Counter(state_words(thread.state, thread.run_pct) for thread in threads.threads)
    words = ", ".join(f"{n} {state}" for state, n in states.most_common())
    page.heading(f"threads {threads.total}: {words}, the busiest first")
    page.text(f"{'TID':<9}{'NAME':<17}{'STATE':<11}{'WAITS ON':<10}{'RUN%':>5} {'QUEUED%':>8}", "heading")
    # By time on a core and queued for one; the main thread and low ids first among equals.
    busiest = sorted(threads.threads, key=lambda thread: -((thread.run_pct or 0.0) + (thread.wait_pct or 0.0)))
    for thread in busiest[:MOST_THREADS]:
        style = "level.red" if thread.state == "D" else "text" if thread.run_pct else "dim"
        waiting_on = _waits(thread.state, thread.run_pct, thread.waiting_on) or "–"
        line = Line().add(f"  {thread.tid:<9}{fit(thread.name, 16)}", style)
        line.add(f" {state_words(thread.state, thread.run_pct):<11}{waiting_on:<10}", style)
        page.rows.append(line.add(f"{number(thread.run_pct, 5)} {number(thread.wait_pct, 8)}", style).row(page.width))
    if len(threads.threads) > MOST_THREADS:
        page.text(f"and {threads.total - MOST_THREADS} that did less")
