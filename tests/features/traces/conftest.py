"""A trace that a test makes, judged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gputop.features.traces.chrome import read_chrome
from gputop.features.traces.trace_analysis import StepChoice, analyse
from gputop.features.traces.trace_report import TraceGpuReport
from tests.support.synthetic_trace import TraceMaker, written

Judge = Callable[..., TraceGpuReport]


@pytest.fixture
def judge(tmp_path: Path) -> Judge:
    def judged(
        made: TraceMaker | dict[str, Any], step: str | None = None, **chosen: Any
    ) -> TraceGpuReport:
        document = made.document() if isinstance(made, TraceMaker) else made
        (report,) = analyse(
            read_chrome(str(written(tmp_path / "judged.json", document))),
            StepChoice(step, **chosen),
        )
        return report

    return judged
