"""All runs of a folder: each recording's figures in a row, by the run's name and its date, and how they change.

A run is a recording: one file, or the files that one process wrote one after the other. A broken one is a row, too.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from itertools import chain
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import asdict, replace

from gputop.diagnosis.thresholds import SAME_RATIO
from gputop.model.cards import Price
from gputop.model.quantity import NOT_MEASURED, count, kinds, length, per_second, share, step_time
from gputop.model.snapshot import Snapshot
from gputop.output.document import Cell, Document, LevelText, Notes, Table, indented_json
from gputop.recording.format import RecordingError
from gputop.recording.reader import read_snapshots, runs_in
from gputop.report.accounts import mean_of
from gputop.report.job_report import JobReport, report_snapshots

if TYPE_CHECKING:
    from gputop.recording.decode import RecordingFilter

MOST_RUNS = 1000
"""Runs of a folder that are read, the newest by name; a later one is counted."""


class FolderRun(Struct, frozen=True):
    """One run. ``name`` is what its job calls itself, else the file's name. ``error`` is why it cannot be read.

    ``sm_pct`` is the mean over its GPUs, ``not_work_share`` and ``lost_share`` are 0 to 1. ``trend_pct`` is the change
    of its steps a second against the run of the same name before it, None for the first and where one announces none.
    """

    name: str
    file: str
    begin: float | None = None
    duration_s: float | None = None
    gpus: tuple[str, ...] = ()
    steps_per_s: float | None = None
    step_s: float | None = None
    sm_pct: float | None = None
    not_work_share: float | None = None
    cost: float | None = None
    lost: float | None = None
    trend_pct: float | None = None
    too_short: str = ""
    error: str = ""
    lost_share: float | None = None


class RunFolder(Struct, frozen=True):
    """The runs of a folder, those of one name together, the oldest first; ``unread`` are beyond ``MOST_RUNS``."""

    path: str
    runs: tuple[FolderRun, ...]
    unread: int = 0


def run_folder(
    path: str,
    *,
    price: Price | None = None,
    recording_filter: RecordingFilter | None = None,
    tell: Callable[[int, int], None] | None = None,
) -> RunFolder:
    """Every run of a folder, diagnosed again with today's rules. ``tell`` is told how many of how many are done. Raises
    RecordingError."""
    files_of_runs = runs_in(path)
    chosen = files_of_runs[-MOST_RUNS:]
    runs = []
    for done, files in enumerate(chosen):
        if tell is not None:
            tell(done, len(chosen))
        runs.append(_run(files, price, recording_filter))
    ordered = sorted(runs, key=lambda run: (run.begin is None, run.name, run.begin or 0.0, run.file))
    return RunFolder(path, tuple(_with_trends(ordered)), len(files_of_runs) - len(chosen))


def _run(files: list[str], price: Price | None, recording_filter: RecordingFilter | None) -> FolderRun:
    file = os.path.basename(files[0]) + (f" and {len(files) - 1} more" if len(files) > 1 else "")
    stem = re.sub(r"(?:\.gputop)?\.jsonl(?:\.gz)?$", "", os.path.basename(files[0]))
    try:
        frames = chain.from_iterable(_readable(path, recording_filter, only=len(files) == 1) for path in files)
        first = next(frames, None)
        if first is None:
            return FolderRun(stem, file, error="no frame of a recording in it")
        report = report_snapshots(chain((first,), frames), interval_s=first.interval_s, price=price)
    except (RecordingError, OSError) as error:
        words = str(error)
        # The row names the file.
        return FolderRun(stem, file, error=words.removeprefix(f"{files[0]}: "))
    return _row(report, stem, file)


def _readable(file: str, recording_filter: RecordingFilter | None, *, only: bool) -> Iterator[Snapshot]:
    """The frames of one file; of several, one that cannot be read leaves a gap."""
    try:
        yield from read_snapshots(file, recording_filter)
    except RecordingError:
        if only:
            raise


def _row(report: JobReport, stem: str, file: str) -> FolderRun:
    steps = report.steps[0] if report.steps else None
    period = report.periods[0].period_s if report.periods and steps is None else None
    cost = report.cost()
    return FolderRun(
        (steps.name if steps is not None else "") or stem,
        file,
        report.begin,
        report.duration_s,
        tuple(gpu.name for gpu in report.gpus),
        steps.steps_per_s if steps is not None else None if period is None else 1.0 / period,
        steps.mean_s if steps is not None else period,
        mean_of(report.gpus, lambda gpu: gpu.sm_pct),
        report.not_work_share(),
        None if cost is None else sum(cost.values()),
        report.lost_money(),
        too_short=report.too_short,
        lost_share=report.lost_share(),
    )


def _with_trends(runs: list[FolderRun]) -> Iterator[FolderRun]:
    last: dict[str, float] = {}
    for run in runs:
        before = last.get(run.name)
        if run.steps_per_s is not None:
            last[run.name] = run.steps_per_s
            if before is not None and before > 0.0:
                run = replace(run, trend_pct=100.0 * (run.steps_per_s / before - 1.0))
        yield run


# The table, and JSON.

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
    troubles = tuple(f"cannot be read: {run.error}" if run.error else run.too_short for run in folder.runs)
    table = Table(_HEAD, tuple(map(_cells, folder.runs)), _SIDES, troubles)
    return Document(title, (table, Notes(tuple(notes))), (f"gputop: {title}",))


def folder_json(folder: RunFolder) -> str:
    """One JSON object, schema 1. Absent is null."""
    data = {"schema": SCHEMA, "path": folder.path, "unread": folder.unread, "runs": [asdict(r) for r in folder.runs]}
    return indented_json(data)


def _cells(run: FolderRun) -> tuple[Cell, ...]:
    begun = "" if run.begin is None else datetime.fromtimestamp(run.begin, timezone.utc).strftime("%Y-%m-%d %H:%M")
    if run.error:
        return (run.name, begun, *[""] * (len(_HEAD) - 2))
    return (
        run.name,
        begun,
        "" if run.duration_s is None else length(run.duration_s),
        kinds(name.removeprefix("NVIDIA ") for name in run.gpus) or "none",
        "" if run.steps_per_s is None else per_second(run.steps_per_s),
        "" if run.step_s is None else step_time(run.step_s),
        NOT_MEASURED if run.sm_pct is None else f"{run.sm_pct:.0f}",
        share(run.lost_share),
        "" if run.lost is None else f"{run.lost:.2f}",
        _trend(run.trend_pct),
    )


def _trend(pct: float | None) -> Cell:
    if pct is None:
        return ""
    if abs(pct) < 100.0 * SAME_RATIO:
        return "same"
    return LevelText("green", f"faster +{pct:.0f} %") if pct > 0.0 else LevelText("yellow", f"slower −{-pct:.0f} %")
