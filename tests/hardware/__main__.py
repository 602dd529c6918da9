"""Runs every step, prints its table whatever becomes of it, and writes one report."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.hardware.steps import Step, steps

MOST_S = 600.0


def report(todo: Sequence[Step], most_s: float = MOST_S) -> str:
    """Every step's text under its title. A step that fails says so and takes no other with it."""
    begun, parts = time.monotonic(), ["# gputop on this machine\n"]
    for step in todo:
        at = time.monotonic()
        if at - begun > most_s:
            text, how = f"left out: {most_s:.0f} s are over", "left out"
        else:
            try:
                text, how = step.run(), "ran"
            except Exception as error:  # noqa: BLE001 - the next steps are worth as much
                text, how = f"{type(error).__name__}: {error}", "failed"
        part = f"## {step.title} ({how}, {time.monotonic() - at:.1f} s)\n\n```\n{text.strip()}\n```\n"
        print(part, flush=True)
        parts.append(part)
    return "\n".join(parts)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.hardware", description=__doc__)
    parser.add_argument("-o", "--output", default="hardware.md", help="where the report goes (default hardware.md)")
    parser.add_argument("--only", metavar="TITLE", help="only steps whose title holds this")
    args = parser.parse_args()
    Path(args.output).write_text(report([s for s in steps() if args.only is None or args.only in s.title]))
    print(f"written to {args.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
