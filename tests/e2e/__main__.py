"""``python -m tests.e2e [NAME…]``: run cases, and print what was wanted and said."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.e2e.case import Case, all_cases, groups
from tests.e2e.watching import Result, run_group
from tests.nvml.stand_in import build

MOST_CORES, MOST_JOBS = 7.2, 10
"""What two cores take on at once: jobs that want more than there is are told as such, and none is told wrong. Of more
waiting GPUs each is looked at more seldom, and the first right verdict comes later."""
HEAD = ("CASE", "WANTED", "SAID", "CAUSE", "FEEDERS", "FIRST RIGHT", "FLAPS", "")


def table(results: list[Result]) -> str:
    """The results as text, one row a case."""
    rows = [
        (
            r.name, r.wanted, r.got, r.cause or "-", r.feeders or "-",
            "never" if r.first_s is None else f"{r.first_s:.0f} s", str(r.flaps), "; ".join(r.problems) or "right",
        )
        for r in results
    ]  # fmt: skip
    widths = [max(len(row[i]) for row in (HEAD, *rows)) for i in range(len(HEAD))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in (HEAD, *rows)
    ]
    return "\n".join(line.rstrip() for line in lines)


def run(cases: dict[str, Case], library: Path, *, calm: bool = True) -> list[Result]:
    """All cases that can run here, group by group; ``calm`` as in ``run_group``."""
    able = {name: case for name, case in cases.items() if not case.missing}
    for name, case in cases.items():
        if case.missing:
            print(f"{name} was left out: {case.missing}", flush=True)
    results: list[Result] = []
    for group in groups(able, MOST_CORES, MOST_JOBS):
        print(f"running {', '.join(group)}", flush=True)
        results += run_group({name: able[name] for name in group}, library, calm=calm)
    return sorted(results, key=lambda result: result.name)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.e2e", description=__doc__)
    parser.add_argument("names", nargs="*", help="cases to run; none: all")
    parser.add_argument("--evidence", action="store_true", help="print what was said in full")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gputop-nvml-") as made:
        library = build(Path(made)).parent
        known = all_cases()
        unknown = [name for name in args.names if name not in known]
        if unknown:
            parser.error(f"there is no case {', '.join(unknown)}: {', '.join(known)}")
        results = run({name: known[name] for name in args.names or known}, library)
    print(table(results))
    for result in results:
        if args.evidence or result.problems:
            print(f"{result.name}:", *result.evidence, sep="\n  ")
    return 1 if any(result.problems for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
