"""Waits that ranks report: equal steps, and the slow one found by what it does not wait."""

from __future__ import annotations

from gputop.model.steps import StepRow
from gputop.output.report_document import step_lines
from gputop.report.job_report import ReportBuilder
from gputop.report.run_account import RunAccount, StepReport


def _report(*waits: float | None, step_s: float = 0.076) -> StepReport:
    """Ranks that all step in ``step_s``, of which each waits so long."""
    account = RunAccount()
    for second in range(20):
        for rank, wait_s in enumerate(waits):
            told = None if wait_s is None else 10 * wait_s
            times = (10 * step_s, step_s, step_s, step_s, step_s)
            row = StepRow(100 + rank, rank, None, "two", 10, *times, wait_s=told, run="ab")
            account.add(float(second), [(row, ())])
    return account.report()[0]


def _lines(report: StepReport) -> str:
    from msgspec.structs import replace

    return " ".join(" ".join(step_lines(replace(ReportBuilder().report(), steps=(report,)))).split())


def test_the_summary_names_the_slow_rank_by_what_the_others_wait_for_it() -> None:
    report = _report(0.040, 0.001)
    assert (report.slow_rank, report.waiting_rank) == (1, 0)
    assert "rank 1 is slow, with 75.0 ms of its own a step: rank 0 waits 40.0 ms of its 76.0 ms for others" in _lines(
        report
    )


def test_no_rank_is_called_slow_where_all_wait_alike_or_one_does_not_say() -> None:
    assert "slow" not in _lines(_report(0.020, 0.020, 0.020))
    silent = _report(0.040, None)
    assert silent.slow_rank is None and "slow" not in _lines(silent)
    assert _report(0.040).slow_rank is None, "a job of one rank"
