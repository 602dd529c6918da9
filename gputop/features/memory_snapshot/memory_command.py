"""`gputop memory`: owners of a GPU's memory, from PyTorch's snapshot.

Exit status 0: nothing wrong, 1: findings, 2: unreadable.
"""

from __future__ import annotations

import argparse
import gc
import os
import pickle

from gputop.command_line.shared_options import deliver_report, form_of, redacted_report
from gputop.config import Settings
from gputop.features.memory_snapshot.allocator_snapshot import read_snapshot
from gputop.features.memory_snapshot.memory_analysis import MemoryReport, analyse
from gputop.features.memory_snapshot.memory_document import memory_data, memory_document
from gputop.features.memory_snapshot.memory_findings import findings
from gputop.model.source import UsageError
from gputop.system.children import ForkEnded, ForkLimits, in_a_fork
from gputop.system.plain_pickle import NotPlain

FOUND = 1
READING_S, READING_S_A_MB = 0.8, 2.0
"""Processor time to read a file: six times what a million blocks or events take here, and more
than a machine ten times slower needs for a small file."""
READING_BYTES, READING_BYTES_A_MB = 160 << 20, 30e6
"""Memory to read a file: a million blocks or events take ten times their file's size."""
TOP = 10
MOST_ON_PAGE = 60


def arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("file", help="what torch.cuda.memory._dump_snapshot wrote")
    form = command.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="one JSON object")
    form.add_argument("--html", action="store_true", help="a page for a browser")
    command.add_argument(
        "-o", "--output", metavar="FILE", help="write there; .json and .html choose the form"
    )
    command.add_argument(
        "--top", type=int, default=TOP, metavar="N", help=f"how many places to list (default {TOP})"
    )


def run(args: argparse.Namespace, settings: Settings) -> int:
    if args.top < 0:
        raise UsageError(f"--top must be 0 or more, not {args.top}")
    form_of(args)
    report = redacted_report(reported(args.file), settings)
    deliver_report(
        args,
        settings,
        lambda: memory_data(report),
        lambda is_page: memory_document(report, MOST_ON_PAGE if is_page else args.top),
        "sizes are what was asked for ·",
    )
    return FOUND if any(findings(report, device) for device in report.devices) else 0


def reported(path: str) -> MemoryReport:
    """Read and analyse a file in a fork. Raises UsageError if it cannot be read."""
    try:
        megabytes = os.path.getsize(path) / 1e6
        limits = ForkLimits(
            cpu_s=READING_S + READING_S_A_MB * megabytes,
            growth_bytes=READING_BYTES + round(READING_BYTES_A_MB * megabytes),
        )
        answer = in_a_fork(lambda result: pickle.dump(_analysed(path), result), limits)
    except ForkEnded as ended:
        if ended.is_late:
            raise UsageError(f"{path} takes more time to read than its size explains") from None
        raise UsageError(f"{path} is a damaged snapshot: its reader {ended.how}") from None
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from error
    # Our own fork made it, of our own records.
    report: MemoryReport | str = pickle.loads(answer)  # noqa: S301
    if isinstance(report, str):
        raise UsageError(report)
    return report


def _analysed(path: str) -> MemoryReport | str:
    """The report, or the reason why there is none."""
    # Nothing here refers to itself; passes over a million entries cost half of the time.
    gc.disable()
    try:
        return analyse(read_snapshot(path))
    except NotPlain as error:
        return f"{path} {error}"
    except OSError as error:
        return f"{path}: {error.strerror or error}"
    except MemoryError:
        return f"{path} asks for more memory than its size explains"
