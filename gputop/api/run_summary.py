"""Summarise a watched run: as text, data or a notebook's page.

Modules that write a summary are imported when one is asked for: a watch begins on the training thread, and imports its
own modules there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from gputop.api.step_phases import PhaseSummary
from gputop.api.step_tail import StepSummary
from gputop.api.work import Rates
from gputop.diagnosis.phase_growth import growth_remedy
from gputop.report.job_report import JobReport

if TYPE_CHECKING:
    from gputop.output.document import Document
    from gputop.output.report_document import PageParts
from gputop.api.watch_cost import RunMemory, WatchCost

_PAGE_HEIGHT = "34rem"


class Summary(Struct, frozen=True):
    """The summary of a watched run::

        with gputop.watch() as w:
            train()
        print(w.summary())
        w.summary().to_dict()["time"]

    ``str()`` is the report that ``gputop run`` prints; ``to_dict()`` is its JSON (schema 1) with values that only the
    program itself knows; a notebook shows it as a page.
    """

    report: JobReport
    memory: tuple[RunMemory, ...]
    steps: StepSummary | None
    cost: WatchCost
    available: bool
    reason: str | None
    rates: Rates | None = None
    """Samples, tokens and model FLOPs utilisation, where the program says what a step does."""
    phases: PhaseSummary | None = None
    """The host time of a step by phase, where PyTorch's hooks could tell it."""

    @property
    def text(self) -> str:
        """The summary as text for a terminal."""
        from gputop.output.plain_document import plain

        return plain(self._document(None))

    @property
    def html(self) -> str:
        """A whole page: one file, without a script."""
        from gputop.output.html_document import html
        from gputop.output.report_document import PageParts

        return html(self._document(PageParts()))

    def _document(self, page: PageParts | None) -> Document:
        from gputop.output.document import Document, Items, Notes, part
        from gputop.output.report_document import MOST_FINDINGS, report_document, step_lines

        document = report_document(self.report, MOST_FINDINGS, page)
        if not self.report.frames:
            document = Document(f"gputop: {self.reason}", (Items(tuple(step_lines(self.report))),))
        job_blocks = (
            Items(tuple(self._own_step_lines())),
            *part("Memory", Items(tuple(gpu_memory.text for gpu_memory in self.memory))),
        )
        return replace(document, blocks=(*document.blocks, *job_blocks, Notes((self.cost.text,))))

    def _own_step_lines(self) -> list[str]:
        """Return lines on steps that only this process knows."""
        phases = "" if self.phases is None else self.phases.text
        if self.steps is None:
            return [phases] if phases else []
        rates = "" if self.rates is None else self.rates.text
        parts = (self.steps.data_words, self.steps.wait_words, phases, self.steps.slow_words, rates)
        return [line for line in parts if line]

    def to_dict(self) -> dict[str, Any]:
        """A JSON object."""
        from gputop.output.report_text import report_data

        own_values: dict[str, Any] = {
            "available": self.available,
            "reason": self.reason,
            "memory": [
                to_builtins(of_gpu) | {"headroom_bytes": of_gpu.headroom_bytes}
                for of_gpu in self.memory
            ],
            "own_steps": to_builtins(self.steps),
            "rates": to_builtins(self.rates),
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
        """Return the page for a notebook, in a frame of its own.

        Its style stays out of the notebook, and nothing in it can run.
        """
        from html import escape

        style = f"width:100%;height:{_PAGE_HEIGHT};border:0"
        return f'<iframe srcdoc="{escape(self.html, quote=True)}" sandbox style="{style}"></iframe>'
