"""A job report as text, Markdown or JSON."""

from __future__ import annotations

from typing import Any

from msgspec import to_builtins
from msgspec.structs import asdict

from gputop.model.json_keys import json_keys
from gputop.output.document import WIDTH, indented_json
from gputop.output.markdown_document import markdown
from gputop.output.plain_document import plain
from gputop.output.report_document import MOST_FINDINGS, report_document
from gputop.report.findings import FindingReport
from gputop.report.job_report import Fix, JobReport
from gputop.report.time_account import TimeAccount

SCHEMA = 1


def report_text(report: JobReport, width: int = WIDTH, *, is_ascii: bool = False) -> str:
    """The report for a terminal of ``width`` columns."""
    return plain(report_document(report, MOST_FINDINGS), width, is_ascii=is_ascii)


def report_markdown(report: JobReport) -> str:
    """The report as Markdown."""
    return markdown(report_document(report))


def report_data(report: JobReport) -> dict[str, Any]:
    """The report as JSON, schema 1. Absent is null."""
    time = report.time
    return {
        "schema": SCHEMA,
        "host": report.host,
        "simulated": report.is_simulated,
        "command": report.command,
        "exit_code": report.exit_code,
        "begin": report.begin,
        "end": report.end,
        "duration_s": report.duration_s,
        "run_s": report.run_s,
        "frames": report.frames,
        "gaps": report.gaps,
        "price_per_gpu_hour": report.price,
        **time_data(time),
        "busy_not_working_s": time.busy_not_working,
        "too_short": report.too_short or None,
        "fixes": list(map(_with_bounds, report.fixes())),
        "gpus": to_builtins(report.gpus),
        "findings": list(map(_with_bounds, report.findings)),
        "longest_waste": _longest_waste(report),
        "smaller_cards": to_builtins(report.smaller_cards()),
        "processes": to_builtins(report.processes),
        "more_processes": report.more_processes,
        "step_periods": list(map(json_keys, report.periods)),
        "servers": to_builtins(report.servers),
        "steps": to_builtins(report.steps),
        "missing": [{"t": gap.t, "text": gap.text} for gap in report.missing],
        "marks": [{"t": mark.t, "text": mark.text} for mark in report.marks],
        "notes": list(report.notes),
    }


def _longest_waste(report: JobReport) -> dict[str, Any] | None:
    """The longest steady waste as JSON; null without waste."""
    finding = report.longest_waste
    if finding is None:
        return None
    return {
        "gpu": finding.gpu,
        "id": finding.id,
        "begin": finding.longest_t,
        "seconds": finding.longest_s,
    }


def _with_bounds(row: Fix | FindingReport) -> dict[str, Any]:
    """A row as JSON with the bounds of its cure among its keys."""
    data: dict[str, Any] = to_builtins(row)
    return {**data, **data.pop("worth")}


def time_data(time: TimeAccount) -> dict[str, Any]:
    """GPU time as JSON: by state, and in the parts that every product shows."""
    return {
        "gpu_time_s": time.all_s,
        "judged_s": time.judged_s,
        "lost_share": time.lost_share,
        "state_s": time.states,
        "time": [asdict(row) for row in time.rows()],
    }


def report_json(report: JobReport) -> str:
    return indented_json(report_data(report))


def report_as(report: JobReport, path: str) -> str:
    """The report in the form of a file name.

    That is .md, .json or .txt. Raises ValueError for other suffixes.
    """
    suffix = path.rsplit(".", 1)[-1].lower() if "." in path else ""
    if suffix == "json":
        return report_json(report)
    if suffix in ("md", "txt"):
        return report_markdown(report) if suffix == "md" else report_text(report)
    raise ValueError(f"{path}: a report ends with .md, .json or .txt")
