"""``python -m tests.tools.limits``: check density and language of the code against the limits."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from tests.tools.density import KINDS, by_package, rates, sources
from tests.tools.language import measure

DOCUMENTED_PCT = 86.0
"""Public functions with a docstring before version 1.0: 2,351 of 2,728."""

DENSITY = (30, 32, 45, 10, 10, 60)
"""Highest density per 1,000 code lines, in the order of ``KINDS``: what each package is to reach."""

DENSE_TODAY: Mapping[str, tuple[int, ...]] = {
    "*": (37, 32, 45, 10, 14, 60),
    "api": (41, 32, 54, 11, 10, 60),
    "command_line": (42, 40, 60, 20, 14, 60),
    "commands": (45, 40, 60, 20, 14, 60),
    "config": (37, 40, 56, 10, 10, 60),
    "diagnosis": (43, 44, 95, 13, 13, 60),
    "features/alerts": (36, 44, 50, 28, 10, 60),
    "features/export": (30, 35, 45, 16, 10, 60),
    "features/fleet": (47, 57, 45, 12, 28, 60),
    "features/loader_bench": (37, 35, 52, 10, 10, 60),
    "features/memory_snapshot": (30, 68, 45, 13, 10, 60),
    "features/prove": (31, 45, 48, 11, 18, 60),
    "features/traces": (48, 65, 53, 36, 17, 60),
    "integrations": (30, 32, 45, 10, 30, 60),
    "mcp": (34, 59, 51, 13, 30, 60),
    "model": (50, 38, 47, 21, 10, 78),
    "output": (62, 78, 45, 23, 46, 60),
    "paint": (67, 53, 56, 19, 25, 60),
    "recording": (35, 44, 55, 21, 16, 60),
    "report": (33, 57, 45, 10, 10, 60),
    "session": (35, 32, 52, 14, 10, 60),
    "sources": (32, 40, 55, 31, 10, 60),
    "sources/activity": (30, 32, 48, 11, 10, 60),
    "sources/nvml": (30, 32, 72, 12, 10, 60),
    "sources/processes": (30, 32, 71, 10, 10, 60),
    "sources/simulation": (45, 32, 45, 10, 10, 60),
    "system": (30, 32, 45, 10, 13, 60),
    "tui": (30, 32, 48, 13, 12, 60),
    "in all": (44, 44, 57, 18, 16, 60),
}
"""Packages that are denser, as they were when density was first limited: these rates may only fall.

A package leaves the table when it is unfolded; then ``DENSITY`` holds for it.
"""


def density_rows() -> list[tuple[str, float, float]]:
    """Return each package's rates with their limits."""
    rows = []
    for package, counts in by_package(sources()).items():
        limits = DENSE_TODAY.get(package, DENSITY)
        for kind, limit in zip(KINDS, limits, strict=True):
            rows.append((f"{package}: {kind}", rates(counts)[kind], float(limit)))
    return rows


def language_rows() -> list[tuple[str, float, float]]:
    """Return the measures of language with their limits."""
    language = measure(text for _, text in sources())
    docstrings = language.docstrings
    undocumented = 100 - 100 * language.documented / language.public_functions
    return [
        (
            "docstrings that begin with a pronoun or preposition, %",
            100 * language.odd_starts / docstrings,
            1,
        ),
        ("docstrings with a clumsy construction, %", 100 * language.clumsy / docstrings, 1),
        (
            "words in the first line of a docstring",
            language.first_line_words / docstrings,
            10,
        ),
        ("bare names", language.bare_names, 15),
        ("public functions without a docstring, %", undocumented, 100 - DOCUMENTED_PCT),
    ]


if __name__ == "__main__":
    exceeded = False
    for name, value, limit in density_rows() + language_rows():
        is_over = value > limit
        exceeded |= is_over
        if is_over or "in all" in name or ":" not in name:
            mark = "  EXCEEDED" if is_over else ""
            print(f"{name:56}{value:>12,.1f} of {limit:,.0f}{mark}")
    sys.exit(exceeded)
