"""The summary of a watched run: as text, as data, and as a page for a notebook."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from typing import Any

from msgspec import Struct

from gputop.api.cost import OwnCost
from gputop.api.earlier import EarlierRuns
from gputop.api.memory import MemoryReport
from gputop.api.step_tail import StepSummary
from gputop.api.work import Rates
from gputop.model.quantity import length
from gputop.model.text import wrapped
from gputop.output.report_text import report_data, report_text, step_lines
from gputop.report.job_report import JobReport, ReportBuilder

_PAGE_HEIGHT = "34rem"
_WIDTH = 100


class Summary(Struct, frozen=True):
    """``str()`` is the report that ``gputop run`` prints; ``to_dict()`` is its JSON (schema 1) with what only the
    program itself knows; a notebook shows it as a page."""

    report: JobReport
    memory: tuple[MemoryReport, ...]
    steps: StepSummary | None
    cost: OwnCost
    available: bool
    reason: str | None
    rates: Rates | None = None
    """Samples, tokens and model FLOPs utilisation, where the program says what a step does."""
    earlier: EarlierRuns | None = None
    """Runs of the same name that were recorded in the same folder before, where the watch records."""

    @property
    def text(self) -> str:
        """Lines for a terminal."""
        lines = [report_text(self.report).rstrip("\n")]
        if not self.report.frames:
            lines = [f"gputop: {self.reason}", *(f"  {line}" for line in step_lines(self.report))]
        lines += _folded(self._own_step_lines())
        if self.memory:
            lines += ["", "Memory", *_folded(each.text for each in self.memory)]
        lines += ["", cost_words(self.cost)]
        return "\n".join(lines) + "\n"

    def _own_step_lines(self) -> list[str]:
        """What only the program itself knows of its steps."""
        if self.steps is None:
            return []
        # Like with like: the mean over the ranks of the run, as the recordings of the earlier ones have it.
        mean_s = next((run.mean_s for run in self.report.steps if run.name == self.report.command), None)
        compared = "" if self.earlier is None or mean_s is None else self.earlier.words(mean_s)
        said = (self.steps.data_words, self.steps.slow_words, "" if self.rates is None else self.rates.text, compared)
        return [line for line in said if line]

    def to_dict(self) -> dict[str, Any]:
        """A JSON object."""
        own: Mapping[str, Any] = {
            "available": self.available,
            "reason": self.reason,
            "memory": [_fields(each) | {"headroom_bytes": each.headroom_bytes} for each in self.memory],
            "own_steps": None if self.steps is None else _fields(self.steps),
            "rates": None if self.rates is None else _fields(self.rates),
            "earlier_runs": None if self.earlier is None else _fields(self.earlier),
            "cost": _fields(self.cost) | {"cpu_pct": self.cost.cpu_pct},
        }
        return {**report_data(self.report), **own}

    @property
    def html(self) -> str:
        """A whole page: one file, without a script."""
        from gputop.output.summary_html import summary_html

        memory = [each.text for each in self.memory]
        return summary_html(self.report, memory, [*self._own_step_lines(), cost_words(self.cost)], self.reason)

    def __str__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        """The page in a frame of its own: its style stays out of the notebook, and nothing in it can run."""
        style = f"width:100%;height:{_PAGE_HEIGHT};border:0"
        return f'<iframe srcdoc="{escape(self.html, quote=True)}" sandbox style="{style}"></iframe>'


def _folded(texts: Iterable[str]) -> list[str]:
    """Indented lines no longer than those of the report."""
    return [line for text in texts for line in wrapped(text, _WIDTH, "  ", "    ")]


def empty_report(command: str, duration_s: float) -> JobReport:
    """The report of a watch that measured nothing."""
    return ReportBuilder().report(command=command, duration_s=duration_s)


def cost_words(cost: OwnCost) -> str:
    """The cost of watching, in words."""
    return f"gputop itself: {cost.cpu_pct:.2f} % of one core over {length(cost.seconds)}"


def _fields(struct: Struct) -> dict[str, Any]:
    return {key: getattr(struct, key) for key in struct.__struct_fields__}
