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
from collections.abc import Callable
from contextlib import redirect_stdout
from typing import IO, TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from gputop.commands.shared_options import prints_ascii, seconds
from gputop.config import Settings
from gputop.model.clean_text import error_text, error_words
from gputop.model.source import UsageError
from gputop.output.messages import show_progress
from gputop.output.plain_document import plain
from gputop.output.snapshot_data import json_text
from gputop.system.children import ForkEnded, ForkLimits, in_a_fork

if TYPE_CHECKING:
    from gputop.features.loader_bench.bench import BenchRequest

NOTHING_MEASURED = 1
DEFIANT_S = 0.5
"""How long after the budget's end a module may go on that does not let itself be interrupted."""
LAST_SETTING_S = 20.0
"""How long after the budget's end the last setting may take: 5 s at least, and its process' end."""
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


class _Told(Struct, frozen=True):
    """What the fork that runs the user's function tells: a report as text, or what was wrong."""

    text: str = ""
    status: int = 0
    problem: str = ""


def run(args: argparse.Namespace, settings: Settings) -> int:
    budget_s = seconds(args.budget, "--budget")
    step_ms = None if args.step is None else 1000.0 * _step_s(args.step)
    if args.batch_size is not None and args.batch_size < 1:
        raise UsageError(f"--batch-size must be 1 or more, not {args.batch_size}")
    from gputop.features.loader_bench.bench import BenchRequest

    counts = _counts(args.workers)
    split_name(args.function)

    def told(is_made: Callable[[], None]) -> _Told:
        begun = time.monotonic()
        data = make_data(args.function, budget_s)
        left_s = max(1.0, budget_s - (time.monotonic() - begun))
        asked = BenchRequest(args.batch_size, counts, step_ms, left_s)
        return _measured(data, asked, args, settings, is_made)

    answer = _in_its_own_process(told, args.function, budget_s)
    if answer.problem:
        raise UsageError(answer.problem)
    sys.stdout.write(answer.text)
    sys.stdout.flush()
    return answer.status


def _measured(
    data: Any,
    asked: BenchRequest,
    args: argparse.Namespace,
    settings: Settings,
    is_made: Callable[[], None],
) -> _Told:
    """Measure what the function made. Raises UsageError."""
    from gputop.features.loader_bench.bench import dataloader_bench
    from gputop.features.loader_bench.bench_report import loader_document
    from gputop.features.loader_bench.measure_setting import LoaderFactory

    try:
        # The module's own code answers for attributes, too: within the same time.
        LoaderFactory(data, asked.batch_size)
        is_made()
        report = dataloader_bench(data, asked, _draw)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{args.function}: {error_text(error)}") from error
    finally:
        show_progress("")
    status = 0 if report.best is not None else NOTHING_MEASURED
    if args.json:
        return _Told(json_text(report.to_dict()), status)
    return _Told(plain(loader_document(report), is_ascii=prints_ascii(settings)), status)


def _in_its_own_process(
    work: Callable[[Callable[[], None]], _Told], function: str, budget_s: float
) -> _Told:
    """Do the work in a fork, which is killed when it defies the budget.

    A user's module may catch every exception, hang in C or end its process. ``work`` calls what it
    is given once the module's part is done. Raises UsageError.
    """

    def tell(result: IO[bytes]) -> None:
        def is_made() -> None:
            result.write(b"\n")
            result.flush()

        try:
            told = work(is_made)
        except UsageError as error:
            told = _Told(problem=str(error))
        result.write(msgspec.json.encode(told))

    limits = ForkLimits(silent_s=budget_s + DEFIANT_S, wall_s=budget_s + LAST_SETTING_S)
    try:
        return msgspec.json.decode(in_a_fork(tell, limits), type=_Told)
    except ForkEnded as ended:
        if ended.is_late:
            raise UsageError(_too_long(function, budget_s)) from None
        raise UsageError(f"{function}() ended its process: it {ended.how}") from None
    except msgspec.DecodeError:
        raise UsageError(f"{function}() ended its process: it ended with status 0") from None


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
        raise UsageError(_too_long(function, limit_s))

    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, limit_s)
    try:
        with redirect_stdout(sys.stderr):
            return _call(module, name)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def _too_long(function: str, limit_s: float) -> str:
    return (
        f"{function}() has not returned within the budget of {limit_s:g} s: make less in it, or "
        "give more with --budget"
    )


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
