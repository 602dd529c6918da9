"""The runs of a folder as a table, and as JSON."""

from __future__ import annotations

from datetime import datetime, timezone

from msgspec.structs import asdict

from gputop.diagnosis.thresholds import SAME_RATIO
from gputop.model.quantity import NOT_MEASURED, count, length, per_second, share, step_time
from gputop.output.document import Cell, Document, LevelText, Notes, Table, indented_json
from gputop.report.run_folder import FolderRun, RunFolder

SCHEMA = 1
_HEAD = ("RUN", "BEGUN (UTC)", "LENGTH", "GPUS", "STEPS/S", "A STEP", "SM", "LOST", "COST", "TREND")
_SIDES = "<<><>>>>><"
_LOST = "COST: what the lost time cost"
_TREND = "TREND: steps a second against the run of that name before"


def folder_document(folder: RunFolder) -> Document:
    """A row a run, and below it why it cannot be read or judged."""
    title = f"{count(len(folder.runs), 'run')} in {folder.path}"
    notes = [f"{count(folder.unread, 'older run')} not read"] if folder.unread else []
    notes += [_LOST] if any(run.lost is not None for run in folder.runs) else []
    notes += [_TREND] if any(run.trend_pct is not None for run in folder.runs) else []
    table = Table(_HEAD, tuple(map(_cells, folder.runs)), _SIDES, tuple(map(_trouble, folder.runs)))
    return Document(title, (table, Notes(tuple(notes))), (f"gputop: {title}",))


def folder_json(folder: RunFolder) -> str:
    """One JSON object, schema 1. Absent is null."""
    data = {"schema": SCHEMA, "path": folder.path, "unread": folder.unread, "runs": [asdict(r) for r in folder.runs]}
    return indented_json(data)


def _cells(run: FolderRun) -> tuple[Cell, ...]:
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
        share(run.lost_share),
        "" if run.lost is None else f"{run.lost:.2f}",
        "" if run.trend_pct is None else _trend(run.trend_pct),
    )


def _trend(pct: float) -> Cell:
    if abs(pct) < 100.0 * SAME_RATIO:
        return "same"
    return LevelText("green", f"faster +{pct:.0f} %") if pct > 0.0 else LevelText("yellow", f"slower −{-pct:.0f} %")


def _trouble(run: FolderRun) -> str:
    """What is wrong with a run."""
    return f"cannot be read: {run.error}" if run.error else run.too_short
