"""``gputop loader``: measure how many loader workers a job needs, on its own dataset.

Exit status 0: found, 1: nothing could be measured.
"""

from __future__ import annotations

import argparse
import importlib
import os
import signal
import sys
import time
from contextlib import redirect_stdout
from typing import Any

from gputop.commands.shared_options import prints_ascii, seconds
from gputop.config import Settings
from gputop.model.clean_text import error_words
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
    budget_s = seconds(args.budget, "--budget")
    step_ms = None if args.step is None else 1000.0 * _step_s(args.step)
    if args.batch_size is not None and args.batch_size < 1:
        raise UsageError(f"--batch-size must be 1 or more, not {args.batch_size}")
    from gputop.features.loader_bench.bench import BenchRequest, dataloader_bench
    from gputop.features.loader_bench.bench_report import loader_document

    begun = time.monotonic()
    counts = _counts(args.workers)
    data = make_data(args.function, budget_s)
    left_s = max(1.0, budget_s - (time.monotonic() - begun))
    try:
        report = dataloader_bench(
            data, BenchRequest(args.batch_size, counts, step_ms, left_s), _draw
        )
    except (TypeError, ValueError) as error:
        raise UsageError(f"{args.function}: {error}") from error
    finally:
        show_progress("")
    if args.json:
        sys.stdout.write(json_text(report.to_dict()))
    else:
        sys.stdout.write(plain(loader_document(report), is_ascii=prints_ascii(settings)))
    sys.stdout.flush()
    return 0 if report.best is not None else NOTHING_MEASURED


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


def make_data(function: str, limit_s: float) -> Any:
    """Return what MODULE:FUNCTION makes. Raises UsageError if it cannot be imported, fails or takes too long.

    It runs in the main thread of this process, and what it prints goes to stderr: stdout may be JSON.
    """
    module, name = split_name(function)

    def give_up(*_: object) -> None:
        raise UsageError(
            f"{function}() has not returned within the budget of {limit_s:g} s: make less in it, or give more with "
            "--budget"
        )

    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, limit_s)
    try:
        with redirect_stdout(sys.stderr):
            return _call(module, name)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def _call(module: str, name: str) -> Any:
    sys.path.insert(0, os.getcwd())
    try:
        function = getattr(importlib.import_module(module), name, None)
    except UsageError:
        raise
    except BaseException as error:
        raise UsageError(
            f"{module} cannot be imported: {error_words(error)[:MAX_REASON_CHARS]}"
        ) from error
    if not callable(function):
        raise UsageError(f"{module} has no function {name}")
    try:
        return function()
    except (UsageError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise UsageError(
            f"{module}:{name}() raised {error_words(error)[:MAX_REASON_CHARS]}"
        ) from error


def split_name(text: str) -> tuple[str, str]:
    """Split MODULE:FUNCTION. Raises UsageError for anything else."""
    module, _, name = text.partition(":")
    if not module or not name.isidentifier():
        raise UsageError(f"{text!r} must be MODULE:FUNCTION, as in train:make_dataset")
    return module, name
