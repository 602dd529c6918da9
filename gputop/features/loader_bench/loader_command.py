"""``gputop loader``: measure how many loader workers a job needs, on its own dataset.

Exit status 0: found, 1: nothing could be measured.
"""

from __future__ import annotations

import argparse
import sys
import time

from msgspec import structs

from gputop.command_line.shared_options import prints_ascii, seconds
from gputop.config import Settings
from gputop.features.loader_bench.bench import CUDA_WORDS, BenchRequest, checked, measure_loader
from gputop.features.loader_bench.bench_report import loader_document
from gputop.features.loader_bench.job_process import Event, JobEndedError, JobProcess, in_python
from gputop.features.loader_bench.job_python import JobPython, find_job_python
from gputop.features.loader_bench.measure_setting import error_words
from gputop.model.clean_text import clean_text
from gputop.model.source import UsageError
from gputop.output.messages import show_progress
from gputop.output.plain_document import plain
from gputop.output.snapshot_data import json_text

NOTHING_MEASURED = 1
MAX_REASON_CHARS = 300
_BAR_CELLS = 24


def arguments(command: argparse.ArgumentParser) -> None:
    add = command.add_argument
    text = (
        "your function without arguments that returns a PyTorch Dataset or DataLoader, which is "
        "run: train:make_dataset"
    )
    add("function", metavar="MODULE:FUNCTION", help=text)
    text = (
        "the Python of your job (default: the first with PyTorch among VIRTUAL_ENV's, CONDA_PREFIX's, "
        "those on PATH and gputop's own)"
    )
    add("--python", metavar="PATH", help=text)
    add(
        "--batch-size",
        type=int,
        metavar="N",
        help="samples a batch (default: the DataLoader's, else 1)",
    )
    add(
        "--workers",
        action="list",
        metavar="LIST",
        help="measure only these numbers of workers, such as 0,4,8",
    )
    add(
        "--step",
        metavar="TIME",
        help="how long your step takes, such as 41ms; a batch must come within 80 %% of it",
    )
    add("--budget", default="60s", metavar="TIME", help="stop after this time (default 60s)")
    add("--json", action="store_true", help="one JSON object")


def run(args: argparse.Namespace, settings: Settings) -> int:
    asked = _request(args)
    module, name = split_name(args.function)
    python = find_job_python(args.python)
    begun = time.monotonic()
    try:
        job = in_python(python.path, module, name, args.batch_size)
    except OSError as error:
        raise UsageError(f"{python} cannot be run: {error.strerror}") from None
    try:
        made = _made(job, args.function, python, asked.budget_s)
        left_s = max(1.0, asked.budget_s - (time.monotonic() - begun))
        asked = structs.replace(asked, budget_s=left_s)
        report = measure_loader(job, str(python), made["batch_size"], asked, _draw)
    finally:
        show_progress("")
        job.close()
    if args.json:
        sys.stdout.write(json_text(report.to_dict()))
    else:
        sys.stdout.write(plain(loader_document(report), is_ascii=prints_ascii(settings)))
    sys.stdout.flush()
    return 0 if report.best is not None else NOTHING_MEASURED


def _request(args: argparse.Namespace) -> BenchRequest:
    """Return what the options ask for. Raises UsageError."""
    if args.batch_size is not None and args.batch_size < 1:
        raise UsageError(f"--batch-size must be 1 or more, not {args.batch_size}")
    budget_s = seconds(args.budget, "--budget")
    step_ms = None if args.step is None else 1000.0 * _step_s(args.step)
    counts = _counts(args.workers)
    try:
        return checked(BenchRequest(args.batch_size, counts, step_ms, budget_s))
    except ValueError as error:
        raise UsageError(str(error)) from None


def _made(job: JobProcess, function: str, python: JobPython, budget_s: float) -> Event:
    """Return the event that describes the job's data. Raises UsageError where there are none."""
    try:
        event = job.next_event(budget_s)
    except JobEndedError as ended:
        raise UsageError(f"{function}() ended its process: it {ended} in {python}") from None
    if event is None:
        raise UsageError(
            f"{function}() has not returned within the budget of {budget_s:g} s in {python}: make "
            "less in it, or give more with --budget"
        )
    if event["event"] == "unusable":
        raise UsageError(_unusable_words(event, function, python))
    if event["cuda"]:
        raise UsageError(f"{function}: {CUDA_WORDS}")
    return event


def _unusable_words(event: Event, function: str, python: JobPython) -> str:
    """Return why the job's function gives nothing to measure."""
    module, name = split_name(function)
    step = event["step"]
    if step == "function":
        return f"{module} has no function {name}"
    reason = error_words(event["kind"], event["first"], MAX_REASON_CHARS)
    if step == "import":
        return f"{module} cannot be imported by {python}: {reason}"
    if step == "call":
        return f"{function}() raised {reason} in {python}"
    return f"{function}: {clean_text(event['first'])} (Python: {python})"


def _draw(share: float, name: str) -> None:
    filled = round(_BAR_CELLS * share)
    show_progress(f"[{'#' * filled}{'.' * (_BAR_CELLS - filled)}] {name}")


def _counts(option: str | None) -> str | list[int]:
    try:
        return "auto" if option is None else [int(word) for word in option.split(",")]
    except ValueError:
        raise UsageError(f"--workers must be numbers, as in 0,4,8, not {option!r}") from None


def _step_s(text: str) -> float:
    """Return a step's duration in seconds, given with any unit or as milliseconds."""
    if text.strip().lower().endswith("ms"):
        return seconds(text.strip()[:-2] + "s", "--step") / 1000.0
    return seconds(text, "--step")


def split_name(text: str) -> tuple[str, str]:
    """Split MODULE:FUNCTION. Raises UsageError for anything else."""
    module, _, name = text.partition(":")
    if not module or not name.isidentifier():
        raise UsageError(f"{text!r} must be MODULE:FUNCTION, as in train:make_dataset")
    return module, name
