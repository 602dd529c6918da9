"""Earlier runs of the same name, from the recordings beside the run's own: whether it has become slower.

Reads only the lines of steps, of the newest few files and a bounded number of bytes, since training has to wait.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from statistics import median

from msgspec import Struct

from gputop.model.quantity import step_time
from gputop.model.steps import StepRow
from gputop.recording.checks import parse_line
from gputop.recording.decode import Decoder
from gputop.recording.format import SUFFIXES, Damage, RecordingError
from gputop.recording.gzip_members import Allowance, open_recording
from gputop.recording.reader import lines_of
from gputop.recording.step_lines import step_rows
from gputop.report.step_account import StepAccount

MOST_FILES, MOST_BYTES = 10, 64 << 20
APART = 1.05
"""A run is called slower or faster only from this ratio to the earlier ones' median on, and beyond all of them."""
LEAST_STEPS = 20
_STEPS = b'{"k":"steps"'


class EarlierRuns(Struct, frozen=True):
    """How many recorded runs of this name there were before, and their mean steps in seconds: median, least, most.
    With none ``runs`` is 0, and the others are None."""

    runs: int
    median_s: float | None = None
    least_s: float | None = None
    most_s: float | None = None

    def words(self, mean_s: float) -> str:
        """How this run's mean step compares; empty where nothing can be said."""
        if self.median_s is None or self.least_s is None or self.most_s is None:
            return ""
        of = ("earlier run" if self.runs == 1 else f"{self.runs} earlier runs") + " of this name"
        change = f"{step_time(self.median_s)} → {step_time(mean_s)} a step"
        if mean_s > APART * self.median_s and mean_s > self.most_s:
            return f"slower than the {of}: {change}"
        if APART * mean_s < self.median_s and mean_s < self.least_s:
            return f"faster than the {of}: {change}"
        return f"as fast as the {of}: {change}"


def earlier_runs(target: str, name: str, *, before: float) -> EarlierRuns:
    """The runs called ``name`` in the folder of a recording, or in ``target`` where that is a folder, whose steps were
    announced ``before`` that Unix time. Never raises for what it finds there."""
    means = []
    for path in _files(target):
        account = StepAccount()
        for rows in _steps(path, before):
            account.add(row for row in rows if row.name == name)
        means += [run.mean_s for run in account.report() if run.steps >= LEAST_STEPS]
    return EarlierRuns(len(means), median(means), min(means), max(means)) if means else EarlierRuns(0)


def _files(target: str) -> list[str]:
    """The newest recordings, oldest first, as far as the allowance of bytes goes."""
    folder = target if os.path.isdir(target) else os.path.dirname(target) or "."
    found = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.endswith(SUFFIXES) and entry.is_file(follow_symlinks=False):
                    info = entry.stat(follow_symlinks=False)
                    found.append((info.st_mtime, info.st_size, entry.path))
    except OSError:
        return []
    chosen, left = [], MOST_BYTES
    for _, size, path in sorted(found, reverse=True)[: MOST_FILES + 1]:
        left -= size
        if left >= 0:
            chosen.append(path)
    return chosen[::-1]


def _steps(path: str, before: float) -> Iterator[tuple[StepRow, ...]]:
    try:
        with open_recording(path) as file:
            for line in lines_of(file, Decoder(), Allowance((file,))):
                if not line.startswith(_STEPS):
                    continue
                try:
                    parsed = parse_line(line)
                    if float(parsed.get("t") or 0.0) < before:
                        yield step_rows(parsed)
                except (Damage, ValueError, TypeError):
                    continue
    except (RecordingError, OSError):
        return
