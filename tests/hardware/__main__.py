"""Try gputop on this machine's GPUs: each step prints what it found and how it was judged.

What is recorded, and a report of all steps, is written to one folder; it is written anew after
each step, so that a run which is cut short has shown the most.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from tests.hardware.checks import Missing, Wrong

try:
    from tests.hardware.steps import Step, steps
except ImportError as missing:
    # Without gputop's own libraries nothing can be measured, and a traceback tells nobody what to install.
    sys.exit(
        f"{missing.name} is not here: pip install . in the checkout, with this Python ({sys.executable})"
    )

MOST_S = 560.0
"""What all steps may take together: just under ten minutes."""
LEAST_S = 5.0
"""With less left no further step begins."""


class Done(NamedTuple):
    title: str
    how: str
    """passed, skipped, FAILED, or left out for want of time."""
    seconds: float
    text: str


class OutOfTime(Exception):
    """The time of all steps is over while one of them ran."""


def run(
    todo: Sequence[Step],
    most_s: float = MOST_S,
    kept: Callable[[list[Done]], None] = lambda _: None,
) -> list[Done]:
    """Every step. One that fails takes no other with it, and ``kept`` is given what there is after each."""
    begun, done = time.monotonic(), list[Done]()
    for step in todo:
        at = time.monotonic()
        left_s = most_s - (at - begun)
        how, text = (
            _result(step, left_s) if left_s > LEAST_S else ("left out", f"{most_s:.0f} s are over")
        )
        done.append(Done(step.title, how, time.monotonic() - at, text.strip()))
        print(_part(done[-1]), flush=True)
        kept(done)
    return done


def _result(step: Step, left_s: float) -> tuple[str, str]:
    try:
        with _at_most(left_s):
            return "passed", step.run()
    except Missing as missing:
        return "skipped", str(missing)
    except Wrong as wrong:
        return "FAILED", str(wrong)
    except OutOfTime:
        return "left out", f"ended after {left_s:.0f} s, when the time of all steps was over"
    except Exception as error:  # noqa: BLE001 - the next steps are worth as much
        return "FAILED", f"{type(error).__name__}: {error}"


@contextmanager
def _at_most(seconds: float) -> Iterator[None]:
    """Raises OutOfTime within the block, whatever it waits for there."""

    def over(_signal: int, _frame: FrameType | None) -> None:
        raise OutOfTime

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def _part(done: Done) -> str:
    return f"## {done.title}: {done.how}, {done.seconds:.1f} s\n\n```\n{done.text}\n```\n"


def report(done: Sequence[Done]) -> str:
    """All of it as Markdown: a table first, then what each step said."""
    rows = [f"| {each.title} | {each.how} | {each.seconds:.1f} |" for each in done]
    return "\n".join(
        [
            "# gputop on this machine\n",
            "| step | result | s |",
            "|---|---|---:|",
            *rows,
            "",
            *map(_part, done),
        ]
    )


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.hardware", description=__doc__)
    parser.add_argument(
        "-o", "--output", default="hardware", help="the folder of the report (default hardware)"
    )
    parser.add_argument("--only", metavar="TITLE", help="only steps whose title holds this")
    parser.add_argument(
        "--for",
        dest="most_s",
        type=float,
        default=MOST_S,
        metavar="S",
        help=f"seconds in all (default {MOST_S:.0f}); what is left then is named",
    )
    args = parser.parse_args(words)
    out = Path(args.output)
    out.mkdir(parents=True, exist_ok=True)

    def write(done: Sequence[Done]) -> None:
        (out / "report.md").write_text(report(done), "utf-8")

    todo = [step for step in steps(out) if args.only is None or args.only in step.title]
    done = run(todo, args.most_s, write)
    print(f"written to {out}/report.md")
    return 1 if any(each.how == "FAILED" for each in done) else 0


if __name__ == "__main__":
    sys.exit(main())
