"""Runs every step, prints its table whatever becomes of it, and writes one report beside what was recorded."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.hardware.checks import Missing, Wrong
from tests.hardware.steps import Step, steps

MOST_S = 600.0
MOST_KEPT_BYTES = 5_000_000


class Done(NamedTuple):
    title: str
    how: str
    """passed, skipped, FAILED, or left out for want of time."""
    seconds: float
    text: str


def run(todo: Sequence[Step], most_s: float = MOST_S) -> list[Done]:
    """Every step. One that fails takes no other with it."""
    begun, done = time.monotonic(), []
    for step in todo:
        at = time.monotonic()
        if at - begun > most_s:
            how, text = "left out", f"{most_s:.0f} s are over"
        else:
            how, text = _result(step)
        done.append(Done(step.title, how, time.monotonic() - at, text.strip()))
        print(_part(done[-1]), flush=True)
    return done


def _result(step: Step) -> tuple[str, str]:
    try:
        return "passed", step.run()
    except Missing as missing:
        return "skipped", str(missing)
    except Wrong as wrong:
        return "FAILED", str(wrong)
    except Exception as error:  # noqa: BLE001 - the next steps are worth as much
        return "FAILED", f"{type(error).__name__}: {error}"


def _part(done: Done) -> str:
    return f"## {done.title}: {done.how}, {done.seconds:.1f} s\n\n```\n{done.text}\n```\n"


def report(done: Sequence[Done]) -> str:
    """All of it as Markdown: a table first, then what each step said."""
    rows = [f"| {each.title} | {each.how} | {each.seconds:.1f} |" for each in done]
    return "\n".join(
        ["# gputop on this machine\n", "| step | result | s |", "|---|---|---:|", *rows, "", *map(_part, done)]
    )


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.hardware", description=__doc__)
    parser.add_argument("-o", "--output", default="hardware", help="the folder of the report (default hardware)")
    parser.add_argument("--only", metavar="TITLE", help="only steps whose title holds this")
    args = parser.parse_args(words)
    out = Path(args.output)
    out.mkdir(parents=True, exist_ok=True)
    done = run([step for step in steps(out) if args.only is None or args.only in step.title])
    (out / "report.md").write_text(report(done), "utf-8")
    kept = sum(path.stat().st_size for path in out.glob("*.jsonl.gz"))
    print(f"written to {out}/report.md; the recordings beside it take {kept / 1e6:.1f} MB")
    if kept > MOST_KEPT_BYTES:
        print("that is more than 5 MB: pass on those of interest")
    return 1 if any(each.how == "FAILED" for each in done) else 0


if __name__ == "__main__":
    sys.exit(main())
