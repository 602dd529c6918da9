"""``python -m tests.tools.limits``: check size and language of the code against the limits."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.tools.language import measure
from tests.tools.size import packages

DOCUMENTED_PCT = 86.0
"""Public functions with a docstring before version 1.0: 2,351 of 2,728."""


def rows() -> list[tuple[str, float, float]]:
    """Return each measure with its value and its limit.

    Sizes and bare names may not grow; docs/contributing.md says what they are to become.
    """
    sizes = packages(
        (str(path), path.read_text())
        for tree in ("gputop", "tests")
        for path in Path(tree).rglob("*.py")
    )
    language = measure(path.read_text() for path in sorted(Path("gputop").rglob("*.py")))
    return [
        ("gputop: code lines", sizes["gputop"]["code lines"], 50_000),
        ("gputop: tokens", sizes["gputop"]["tokens"], 494_000),
        ("tests: lines", sizes["tests"]["lines"], 44_000),
        ("tests: code lines", sizes["tests"]["code lines"], 34_500),
        (
            "docstrings that begin with a pronoun or preposition, %",
            100 * language.odd_starts / language.docstrings,
            1,
        ),
        (
            "docstrings with a clumsy construction, %",
            100 * language.clumsy / language.docstrings,
            1,
        ),
        (
            "words in the first line of a docstring",
            language.first_line_words / language.docstrings,
            10,
        ),
        ("bare names", language.bare_names, 15),
        (
            "public functions without a docstring, %",
            100 - 100 * language.documented / language.public_functions,
            100 - DOCUMENTED_PCT,
        ),
    ]


if __name__ == "__main__":
    exceeded = False
    for name, value, limit in rows():
        exceeded |= value > limit
        print(f"{name:56}{value:>12,.1f} of {limit:,.0f}{'  EXCEEDED' if value > limit else ''}")
    sys.exit(exceeded)
