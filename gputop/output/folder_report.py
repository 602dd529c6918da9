"""The runs of a folder as a table: for a terminal, as Markdown, as JSON, as a page."""

from __future__ import annotations

import json
from datetime import datetime, timezone

from msgspec.structs import asdict

from gputop import __version__
from gputop.model.quantity import NOT_MEASURED, count, length, per_second, share, step_time
from gputop.output.html import document, element, notes, table
from gputop.output.report_text import aligned, markdown_table, sanitised_lines
from gputop.report.run_folder import FolderRun, RunFolder

SCHEMA = 1
_HEAD = ("RUN", "BEGUN (UTC)", "LENGTH", "GPUS", "STEPS/S", "A STEP", "SM", "NOT WORK", "LOST", "TREND")
_SIDES = "<<><>>>>>>"
_SAME_PCT = 2.0
"""A change below this is no trend."""


def folder_text(folder: RunFolder) -> str:
    """A line a run; why a broken one cannot be read in its line."""
    rows = [_HEAD, *(_cells(run) for run in folder.runs)]
    lines = [
        f"gputop: {count(len(folder.runs), 'run')} in {folder.path}",
        "",
        *(
            line + (f"  {said}" if (said := _said(run)) else "")
            for line, run in zip(aligned(rows, _SIDES), (None, *folder.runs), strict=True)
        ),
    ]
    return sanitised_lines([line.rstrip() for line in [*lines, *_unread(folder)]])


def folder_markdown(folder: RunFolder) -> str:
    head = (*_HEAD, "")
    rows = [(*_cells(run), _said(run)) for run in folder.runs]
    return sanitised_lines([f"# Runs in {folder.path}", "", *markdown_table(head, rows), "", *_unread(folder)])


def folder_json(folder: RunFolder) -> str:
    """One JSON object, schema 1. Absent is null."""
    data = {"schema": SCHEMA, "path": folder.path, "unread": folder.unread, "runs": [asdict(r) for r in folder.runs]}
    return json.dumps(data, allow_nan=False, indent=1) + "\n"


def folder_html(folder: RunFolder) -> str:
    """A page: the same table."""
    title = f"{count(len(folder.runs), 'run')} in {folder.path}"
    rows = [(*_cells(run), _said(run)) for run in folder.runs]
    kinds = "".join("n" if side == ">" else "t" for side in _SIDES) + "t"
    head = (*(word.capitalize() if word != "SM" else word for word in _HEAD), "")
    body = [element("h1", title), table(head, rows, kinds), notes(_unread(folder))]
    return document(
        f"gputop: {title}", *body, footer=f"Trend: steps a second against the run before. gputop {__version__}"
    )


def _cells(run: FolderRun) -> tuple[str, ...]:
    begun = "" if run.begin is None else datetime.fromtimestamp(run.begin, timezone.utc).strftime("%Y-%m-%d %H:%M")
    if run.error:
        return (run.name, begun, *[""] * (len(_HEAD) - 2))
    kinds = dict.fromkeys(run.gpus)
    gpus = ", ".join(f"{run.gpus.count(kind)} × {kind.removeprefix('NVIDIA ')}" for kind in kinds)
    return (
        run.name,
        begun,
        "" if run.duration_s is None else length(run.duration_s),
        gpus or "none",
        "" if run.steps_per_s is None else per_second(run.steps_per_s),
        "" if run.step_s is None else step_time(run.step_s),
        NOT_MEASURED if run.sm_pct is None else f"{run.sm_pct:.0f}",
        share(run.not_work_share),
        "" if run.lost is None else f"{run.lost:.2f}",
        "" if run.trend_pct is None else _trend(run.trend_pct),
    )


def _trend(pct: float) -> str:
    return "same" if abs(pct) < _SAME_PCT else f"{'faster' if pct > 0.0 else 'slower'} {pct:+.0f} %"


def _said(run: FolderRun | None) -> str:
    """What is wrong with a run."""
    if run is None:
        return ""
    return f"cannot be read: {run.error}" if run.error else run.too_short


def _unread(folder: RunFolder) -> list[str]:
    return [f"and {count(folder.unread, 'older run')} not read"] if folder.unread else []
