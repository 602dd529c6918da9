"""Choose the runs that a comparison is about."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone

from msgspec.structs import replace

from gputop.model.durations import length, step_time
from gputop.model.quantity import count, which_gpus
from gputop.model.source import UsageError
from gputop.report.job_report import JobReport
from gputop.report.run_account import StepReport

MOST_LISTED = 8


def reports_to_compare(
    before: JobReport, after: JobReport, labels: Sequence[str] = ()
) -> tuple[JobReport, JobReport]:
    """Return both reports with the one run that ``labels`` name, else the run that the recording is of.

    One label is for both recordings, two are for one each. Where one recording has no steps, no run is compared: the
    GPUs' time alone tells. Raises UsageError for a label that is not there, and without labels for a recording of
    several runs and for two jobs of different names.
    """
    if not labels and not (_announces(before) and _announces(after)):
        return with_steps_of(before, None), with_steps_of(after, None)
    pairs = zip(
        ("before", "after"), (before, after), (*labels, *labels)[:2] or (None, None), strict=True
    )
    was, now = (_chosen(side, report, label) for side, report, label in pairs)
    if not labels and was.name != now.name:
        raise UsageError(
            f"two different jobs: {was.label} before, {now.label} after; to compare them all the same: "
            f"--run {was.label} --run {now.label}"
        )
    return with_steps_of(before, was), with_steps_of(after, now)


def _announces(report: JobReport) -> bool:
    """Whether the recording's own job announced steps; any job where it names none."""
    return report.own_steps is not None or bool(report.steps and not report.run)


def with_steps_of(report: JobReport, run: StepReport | None) -> JobReport:
    """Return the report with the steps of this run alone."""
    return replace(report, steps=() if run is None else (run,))


def report_of_run(name: str, report: JobReport, label: str | None) -> JobReport:
    """Return the report of a recording with the run of this label, else its own run.

    Raises UsageError for a label that is not there.
    """
    run = report.own_steps if label is None else _chosen(name, report, label)
    return with_steps_of(report, run)


def _chosen(side: str, report: JobReport, label: str | None) -> StepReport:
    if label is None:
        found = [] if report.own_steps is None else [report.own_steps]
    else:
        found = [run for run in report.steps if run.label == label] or [
            run for run in report.steps if run.name == label
        ]
    if len(found) == 1:
        return found[0]
    listed = ", ".join(f"{run.label} ({run_words(run)})" for run in report.steps[:MOST_LISTED])
    more = ", …" if len(report.steps) > MOST_LISTED else ""
    wrong = "" if label is None else f"--run {label}: "
    if not report.steps:
        raise UsageError(f"{wrong}the recording {side} has no announced steps")
    raise UsageError(
        f"{wrong}the recording {side} holds {count(len(report.steps), 'run')}: {listed}{more}; choose one with --run, "
        "given twice for before and after"
    )


def run_words(run: StepReport) -> str:
    """Ranks, step time, begin and GPUs of a run."""
    return f"{count(run.ranks, 'rank')}, {step_time(run.mean_s)} a step, {place_words(run)}"


def place_words(run: StepReport) -> str:
    """Begin and GPUs of a run: ``from 19:24:45 UTC for 25 s on GPU 0``."""
    begun = datetime.fromtimestamp(run.begin, timezone.utc)
    gpus = f" on {which_gpus(run.gpus)}" if run.gpus else ""
    return f"from {begun:%H:%M:%S} UTC for {length(run.seconds)}{gpus}"
