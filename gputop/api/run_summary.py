"""The summary of a watched run: as text, as data, and as a page for a notebook.

What reads earlier recordings and writes a summary is imported when one is asked for: a watch begins on the training
thread, and its modules with it.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from gputop.api.step_clock import StepSummary
from gputop.api.step_phases import PhaseSummary
from gputop.api.work import Rates
from gputop.diagnosis.hardware_health import MemoryTrend
from gputop.diagnosis.job_steps import growth_remedy
from gputop.model.quantity import duration, length, memory, step_time
from gputop.model.steps import StepRow
from gputop.monitor import Frame
from gputop.report.accounts import GpuReport, StepAccount
from gputop.report.job_report import JobReport, ReportBuilder
from gputop.sources.procfs import read_small

if TYPE_CHECKING:
    from gputop.output.document import Document
    from gputop.output.report_text import PageParts

# What watching costs the program that is watched: the CPU time of gputop's own threads, from the kernel's counters.

THREADS = "gputop-"
"""The prefix of the names of all of gputop's threads."""


class WatchCost(Struct, frozen=True):
    """``cpu_s`` of CPU time in ``seconds`` of watching, ``cpu_pct`` of one core; ``longest_s`` is the most CPU time
    that one frame took on the watcher's thread: the longest time for which it held the interpreter's lock."""

    cpu_s: float
    seconds: float
    longest_s: float

    @property
    def cpu_pct(self) -> float:
        return 100.0 * self.cpu_s / self.seconds if self.seconds > 0.0 else 0.0


class CostMeter:
    """Adds up CPU time thread by thread; a thread that has ended keeps what it had at the last look."""

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self._used: dict[int, float] = {}
        self.longest_s = 0.0

    def look(self) -> None:
        """Read the counters of the living threads."""
        for thread in threading.enumerate():
            if thread.name.startswith(THREADS) and thread.native_id is not None:
                used = _used_s(thread.native_id)
                if used is not None:
                    self._used[thread.native_id] = used

    def read(self) -> WatchCost:
        """The cost until now."""
        self.look()
        return WatchCost(sum(self._used.values()), time.monotonic() - self._begun, self.longest_s)


def _used_s(thread: int) -> float | None:
    try:
        return int(read_small(f"/proc/self/task/{thread}/schedstat").split()[0]) / 1e9
    except (OSError, ValueError, IndexError):
        return None


# Device memory in the words of a job: how full it got, whether it grows, and how much larger the batch could be.

MARGIN = 0.95
"""The part of the memory that an estimate fills: allocators fragment, and libraries take some when they first run."""
LEAST_GROWTH = 1.05
LEAST_WATCH_S = 10.0
"""A program watched for less has hardly filled its memory yet: nothing is said of its batch."""


class RunMemory(Struct, frozen=True):
    """Device memory of one GPU over the run. ``batch_factor`` is an estimate, ``assumption`` its basis."""

    gpu: int
    peak_bytes: float
    total_bytes: float
    leak_bytes_per_min: float | None = None
    full_in_s: float | None = None
    batch_factor: float | None = None
    assumption: str = ""

    @property
    def headroom_bytes(self) -> float:
        return max(0.0, self.total_bytes - self.peak_bytes)

    @property
    def text(self) -> str:
        """One line for people."""
        words = (
            f"GPU {self.gpu}: {memory(self.peak_bytes)} of {memory(self.total_bytes)} at most, "
            f"{memory(self.headroom_bytes)} free"
        )
        if self.leak_bytes_per_min is not None:
            full = "" if self.full_in_s is None else f", full in {duration(self.full_in_s)}"
            return f"{words}; it grows by {self.leak_bytes_per_min / 1e6:.0f} MB a minute{full}"
        if self.batch_factor is not None and self.batch_factor >= LEAST_GROWTH:
            return f"{words}; the batch could grow to about {self.batch_factor:.1f} × ({self.assumption})"
        return words


class MemoryWatch:
    """Takes frames: growth by the rule for leaks, and peaks by the batch size that the loop names with
    ``step(batch_size=…)``. Of ``pid``, where given, only the GPUs that it uses say how large its batch could be."""

    def __init__(self, pid: int | None = None) -> None:
        self._peaks: dict[tuple[int, float], float] = {}
        self._trends: dict[int, MemoryTrend] = {}
        self._pid = pid
        self._used: set[int] = set()
        self._begin_t: float | None = None
        self._watched_s = 0.0
        self.batch_size: float | None = None

    def add(self, frame: Frame) -> None:
        """Add one frame."""
        self._begin_t = frame.snapshot.t if self._begin_t is None else self._begin_t
        self._watched_s = frame.snapshot.t - self._begin_t
        for gpu in frame.snapshot.gpus:
            used, total, index = gpu.mem_used_bytes, gpu.mem_total_bytes, gpu.static.index
            owners = [p for p in frame.snapshot.processes if p.gpu == index and p.role == "gpu"]
            if self._pid is None or any(owner.pid == self._pid for owner in owners):
                self._used.add(index)
            trend = self._trends.setdefault(index, MemoryTrend())
            trend.observe(frame.snapshot.t, owners, None if used is None or total is None else total - used)
            if used is not None and self.batch_size is not None:
                key = (index, self.batch_size)
                self._peaks[key] = max(self._peaks.get(key, 0.0), used)

    def report(self, gpu: GpuReport) -> RunMemory | None:
        """The report on one GPU's memory; None where it was not measured."""
        peak, total = gpu.memory_peak_bytes, gpu.memory_total_bytes
        if peak is None or total is None or peak <= 0.0 or total <= 0.0:
            return None
        trend = self._trends.get(gpu.index)
        leak = None if trend is None else trend.leak
        if leak is not None:
            return RunMemory(gpu.index, peak, total, leak.bytes_per_min, leak.full_in_s)
        if gpu.index not in self._used or self._watched_s < LEAST_WATCH_S:
            return RunMemory(gpu.index, peak, total)
        sizes = sorted((size, high) for (index, size), high in self._peaks.items() if index == gpu.index)
        factor, assumption = _growth(peak, total, sizes)
        return RunMemory(gpu.index, peak, total, None, None, factor, assumption)


def _growth(peak: float, total: float, sizes: list[tuple[float, float]]) -> tuple[float | None, str]:
    """How many times as large the batch could be. Memory is a + b · batch; with one batch size, a is taken as 0,
    which errs on the low side."""
    if len(sizes) >= 2:
        (small, low), (large, high) = sizes[0], sizes[-1]
        if high > low and large > small:
            per_item = (high - low) / (large - small)
            largest = large + (MARGIN * total - high) / per_item
            words = f"linear in the batch, measured at {small:g} and {large:g}"
            return (largest / large if largest > 0.0 else None), words
    factor = MARGIN * total / peak
    return (factor if factor >= 1.0 else None), "assuming that all of it is proportional to the batch"


# Earlier runs of the same name, from the recordings beside the run's own: whether it has become slower.
#
# Reads only the lines of steps, of the newest few files and a bounded number of bytes, since training has to wait.

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


def earlier_runs(target: str, name: str, ranks: int, *, before: float) -> EarlierRuns:
    """The runs called ``name`` with so many ranks, whose steps were announced ``before`` that Unix time, in the folder
    of a recording, or in ``target`` where that is one. Never raises for what it finds there."""
    from statistics import median

    means = []
    for path in _files(target):
        account = StepAccount()
        for rows in _steps(path, before):
            account.add(row for row in rows if row.name == name)
        means += [run.mean_s for run in account.report() if run.steps >= LEAST_STEPS and run.ranks == ranks]
    return EarlierRuns(len(means), median(means), min(means), max(means)) if means else EarlierRuns(0)


def _files(target: str) -> list[str]:
    """The newest recordings, oldest first, as far as the allowance of bytes goes."""
    from gputop.recording.format import SUFFIXES

    folder = target if os.path.isdir(target) else os.path.dirname(target) or "."
    candidates = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.endswith(SUFFIXES) and entry.is_file(follow_symlinks=False):
                    info = entry.stat(follow_symlinks=False)
                    candidates.append((info.st_mtime, info.st_size, entry.path))
    except OSError:
        return []
    chosen, remaining_bytes = [], MOST_BYTES
    for _, size, path in sorted(candidates, reverse=True)[: MOST_FILES + 1]:
        remaining_bytes -= size
        if remaining_bytes >= 0:
            chosen.append(path)
    return chosen[::-1]


def _steps(path: str, before: float) -> Iterator[tuple[StepRow, ...]]:
    from gputop.recording.file_lines import open_recording
    from gputop.recording.format import Damage, RecordingError, parse_line, rows_beside
    from gputop.recording.reader import lines_in

    try:
        with open_recording(path) as file:
            for line in lines_in(file):
                if line is None or not line.startswith(_STEPS):
                    continue
                try:
                    parsed = parse_line(line)
                    if float(parsed.get("t") or 0.0) < before:
                        yield rows_beside("steps", parsed)
                except (Damage, ValueError, TypeError):
                    continue
    except (RecordingError, OSError):
        return


_PAGE_HEIGHT = "34rem"


class Summary(Struct, frozen=True):
    """``str()`` is the report that ``gputop run`` prints; ``to_dict()`` is its JSON (schema 1) with what only the
    program itself knows; a notebook shows it as a page."""

    report: JobReport
    memory: tuple[RunMemory, ...]
    steps: StepSummary | None
    cost: WatchCost
    available: bool
    reason: str | None
    rates: Rates | None = None
    """Samples, tokens and model FLOPs utilisation, where the program says what a step does."""
    earlier: EarlierRuns | None = None
    """Runs of the same name that were recorded in the same folder before, where the watch records."""
    phases: PhaseSummary | None = None
    """The host time of a step by phase, where PyTorch's hooks could tell it."""

    @property
    def text(self) -> str:
        """For a terminal."""
        from gputop.output.document import plain

        return plain(self._document(None))

    @property
    def html(self) -> str:
        """A whole page: one file, without a script."""
        from gputop.output.document import html
        from gputop.output.report_text import PageParts

        return html(self._document(PageParts()))

    def _document(self, page: PageParts | None) -> Document:
        from gputop.output.document import Document, Items, Notes, part
        from gputop.output.report_text import MOST_FINDINGS, report_document, step_lines

        document = report_document(self.report, MOST_FINDINGS, page)
        if not self.report.frames:
            document = Document(f"gputop: {self.reason}", (Items(tuple(step_lines(self.report))),))
        job_blocks = (
            Items(tuple(self._own_step_lines())),
            *part("Memory", Items(tuple(gpu_memory.text for gpu_memory in self.memory))),
        )
        return replace(document, blocks=(*document.blocks, *job_blocks, Notes((cost_words(self.cost),))))

    def _own_step_lines(self) -> list[str]:
        """What only the program itself knows of its steps."""
        if self.steps is None:
            return [] if self.phases is None else [self.phases.text]
        # Like with like: the mean over the ranks of the run, as the recordings of the earlier ones have it.
        mean_s = next((run.mean_s for run in self.report.steps if run.name == self.report.command), None)
        compared = "" if self.earlier is None or mean_s is None else self.earlier.words(mean_s)
        phases = "" if self.phases is None else self.phases.text
        rates = "" if self.rates is None else self.rates.text
        parts = (self.steps.data_words, self.steps.wait_words, phases, self.steps.slow_words, rates, compared)
        return [line for line in parts if line]

    def to_dict(self) -> dict[str, Any]:
        """A JSON object."""
        from gputop.output.report_text import report_data

        own_values: dict[str, Any] = {
            "available": self.available,
            "reason": self.reason,
            "memory": [to_builtins(of_gpu) | {"headroom_bytes": of_gpu.headroom_bytes} for of_gpu in self.memory],
            "own_steps": to_builtins(self.steps),
            "rates": to_builtins(self.rates),
            "earlier_runs": to_builtins(self.earlier),
            "host_phases": to_builtins(self.phases),
            "cost": to_builtins(self.cost) | {"cpu_pct": self.cost.cpu_pct},
        }
        if self.phases is not None and self.phases.growth is not None:
            own_values["host_phases"]["growth"]["remedy"] = growth_remedy(self.phases.growth)
        return {**report_data(self.report), **own_values}

    def __str__(self) -> str:
        return self.text

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """The page in a frame of its own: its style stays out of the notebook, and nothing in it can run."""
        from html import escape

        style = f"width:100%;height:{_PAGE_HEIGHT};border:0"
        return f'<iframe srcdoc="{escape(self.html, quote=True)}" sandbox style="{style}"></iframe>'


def empty_report(command: str, duration_s: float) -> JobReport:
    """The report of a watch that measured nothing."""
    return ReportBuilder().report(command=command, duration_s=duration_s)


def cost_words(cost: WatchCost) -> str:
    """The cost of watching, in words."""
    return f"gputop itself: {cost.cpu_pct:.2f} % of one core over {length(cost.seconds)}"
