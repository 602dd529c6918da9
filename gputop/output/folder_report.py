"""The runs of a folder as a table, and as JSON."""

from __future__ import annotations

from datetime import datetime, timezone

from msgspec.structs import asdict

from gputop.model.quantity import NOT_MEASURED, count, length, per_second, share, step_time
from gputop.output.document import Document, Notes, Table, indented_json
from gputop.report.run_folder import FolderRun, RunFolder

SCHEMA = 1
_HEAD = ("RUN", "BEGUN (UTC)", "LENGTH", "GPUS", "STEPS/S", "A STEP", "SM", "NOT WORK", "LOST", "TREND")
_SIDES = "<<><>>>>>>"
_TREND = "TREND: steps a second against the run before"
_SAME_PCT = 2.0
"""A change below this is no trend."""


def folder_document(folder: RunFolder) -> Document:
    """A row a run; why a broken one cannot be read in its row."""
    title = f"{count(len(folder.runs), 'run')} in {folder.path}"
    unread = (f"{count(folder.unread, 'older run')} not read",) if folder.unread else ()
    trend = [_TREND] if any(run.trend_pct is not None for run in folder.runs) else []
    rows = tuple((*_cells(run), _trouble(run)) for run in folder.runs)
    return Document(title, (Table((*_HEAD, ""), rows, f"{_SIDES}<"), Notes((*unread, *trend))), (f"gputop: {title}",))


def folder_json(folder: RunFolder) -> str:
    """One JSON object, schema 1. Absent is null."""
    data = {"schema": SCHEMA, "path": folder.path, "unread": folder.unread, "runs": [asdict(r) for r in folder.runs]}
    return indented_json(data)


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


def _trouble(run: FolderRun) -> str:
    """What is wrong with a run."""
    return f"cannot be read: {run.error}" if run.error else run.too_short
