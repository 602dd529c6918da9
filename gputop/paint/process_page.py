"""The page of one process.

Its facts, its activity on one time axis, its family with roles and reasons, its threads.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from functools import partial

from gputop.diagnosis.rules.feeding import THROTTLED
from gputop.model.clean_text import terminal_safe
from gputop.model.durations import elapsed
from gputop.model.inspection import ThreadList
from gputop.model.metrics import PROCESS_METRICS, PROCESS_STATIC
from gputop.model.quantity import number
from gputop.model.snapshot import ProcessSample
from gputop.monitor import Frame
from gputop.paint import header
from gputop.paint.cells import fit, shorten
from gputop.paint.detail_page import DetailPage, DetailsPainted, DetailsView
from gputop.paint.gpu_fields import fields
from gputop.paint.line import Line, Row, text_row
from gputop.paint.process_charts import LANES, process_charts, values_at
from gputop.paint.process_family import family, state_words, tree_rows, wait_words
from gputop.paint.view import ProcessKey
from gputop.paint.words import Field, gpu_label

MOST_COMMAND_ROWS = 6
MOST_COMMAND = 4096
MOST_THREADS = 40
NOT_RECORDED = "not recorded: threads are read live only"


def find(frame: Frame, key: ProcessKey) -> ProcessSample | None:
    """The process in the snapshot, by its identity."""
    return next((p for p in frame.shown.processes if (p.pid, p.starttime, p.gpu) == key), None)


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
    foot = page.foot(lambda: values_at(page), 1)
    _add_facts(page, shown)
    _add_charts(page, key, now, height - len(head) - len(foot) - 1)
    page.rows.append(Line().row(width))
    processes = frame.shown.processes
    if now is not None:
        branch = family(processes, shown)
        words = (
            "its tree: it is alone" if len(branch) == 1 else f"its tree: {len(branch)} processes"
        )
        page.heading(words, apart=False)
        page.rows += tree_rows(branch, shown, width)
    _add_threads(page, threads)
    return page.painted(head, foot, height)


def _title(
    frame: Frame,
    key: ProcessKey,
    now: ProcessSample | None,
    shown: ProcessSample | None,
    width: int,
) -> Row:
    name = "" if shown is None else terminal_safe(shown.static.name or "")[:24]
    line = Line().add("─ ", "rule").add(f"{key[0]}  {name}".rstrip(), "title")
    gpu = next((g for g in frame.shown.gpus if g.static.index == key[2]), None)
    if gpu is not None:
        line.add(f"   on GPU {gpu_label(gpu)}", "text")
    if now is None:
        line.add("   has ended" if shown is not None else "", "level.yellow")
    elif now.state is not None:
        waiting_on = wait_words(now.state, now.cpu_pct, now.waiting_on)
        is_named = waiting_on and waiting_on != "sleep" and now.state == "S"
        waits = f", waits on {waiting_on}" if is_named else ""
        line.add(
            f"   {state_words(now.state, now.cpu_pct)}{waits}",
            "level.red" if now.state == "D" else "text",
        )
    age = "" if shown is None or shown.age_s is None else f"up {elapsed(shown.age_s)}"
    line.add(" ", "rule")
    if age and line.width + len(age) + 6 <= width:
        line.rule(width - len(age) - 3).add(f" {age} ", "dim")
    return line.rule(width).row(width)


def _add_charts(page: DetailPage, key: ProcessKey, now: ProcessSample | None, room: int) -> None:
    """Add charts, and the shares of the process's time.

    On a core, queued for one, in disk wait, on the network, asleep.
    """
    gpus = page.frame.shown.gpus
    charts = process_charts(
        page, now, next((g.mem_total_bytes for g in gpus if g.static.index == key[2]), None)
    )
    lanes = [lane for lane in LANES if page.measured(lane[1])]
    tall = 3 if len(page.rows) + len(lanes) + 3 * 6 + 8 <= room else 2
    for chart in charts:
        page.chart(chart, tall)
    for lane in lanes:
        page.lane(*lane)
    if not (charts or lanes):
        page.text(
            "no history yet: the 64 processes that matter most are followed, GPU processes and loaders first"
        )


def _add_facts(page: DetailPage, p: ProcessSample) -> None:
    """Add the full command, the owner and missing facts."""
    width = page.width
    command_text = (p.static.command or p.static.name or "")[:MOST_COMMAND]
    command = terminal_safe(command_text) or "(its command line is not visible)"
    wrapped = textwrap.wrap(command, max(8, width - 6), break_long_words=True) or [""]
    if len(wrapped) > MOST_COMMAND_ROWS:
        wrapped = [
            *wrapped[: MOST_COMMAND_ROWS - 1],
            shorten(wrapped[MOST_COMMAND_ROWS - 1], width - 8) + "…",
        ]
    for i, text in enumerate(wrapped):
        line = Line().add("    " if i else "  $ ", "dim").add(fit(text, width - 5), "value")
        page.rows.append(line.row(width))
    for remaining in (_identity(p), _status_fields(p)):
        while remaining:
            spans = fields(remaining, width - 3) or [
                (fit(remaining[0][0], width - 3), remaining[0][1])
            ]
            page.rows.append(Line().to(2).add_all(spans).row(width))
            remaining = remaining[(len(spans) + 1) // 2 :]
    names: dict[str, list[str]] = {}
    for key, reason in p.unavailable.items():
        names.setdefault(terminal_safe(reason), []).append(_name_of(key))
    for reason in list(names)[:3]:
        page.text(f"· {', '.join(names[reason])} n/a: {reason}")


def _name_of(key: str) -> str:
    """Return a metric's name for people, as its column has it."""
    metric = PROCESS_METRICS.get(key) or PROCESS_STATIC.get(key)
    return key if metric is None else metric.label


def _identity(p: ProcessSample) -> list[Field]:
    s = p.static
    parts = (
        ("user", s.user),
        ("job", s.job),
        ("container", s.container),
        ("parent", p.ppid),
        ("role", p.role),
    )
    known = [
        (f"{name} {terminal_safe(str(value))}", "text")
        for name, value in parts
        if value is not None
    ]
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
    page.text(
        f"{'TID':<9}{'NAME':<17}{'STATE':<11}{'WAITS ON':<10}{'RUN%':>5} {'QUEUED%':>8}", "heading"
    )
    # By time on a core and queued for one; the main thread and low ids first among equals.
    busiest = sorted(
        threads.threads, key=lambda thread: -((thread.run_pct or 0.0) + (thread.wait_pct or 0.0))
    )
    for thread in busiest[:MOST_THREADS]:
        style = "level.red" if thread.state == "D" else "text" if thread.run_pct else "dim"
        waiting_on = wait_words(thread.state, thread.run_pct, thread.waiting_on) or "–"
        line = Line().add(f"  {thread.tid:<9}{fit(thread.name, 16)}", style)
        line.add(f" {state_words(thread.state, thread.run_pct):<11}{waiting_on:<10}", style)
        page.rows.append(
            line.add(f"{number(thread.run_pct, 5)} {number(thread.wait_pct, 8)}", style).row(
                page.width
            )
        )
    if len(threads.threads) > MOST_THREADS:
        page.text(f"and {threads.total - MOST_THREADS} that did less")
