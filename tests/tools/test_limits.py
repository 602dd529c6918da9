"""The measures of language and density count what they say."""

from __future__ import annotations

from pathlib import Path

from tests.tools.density import (
    CODE_LINES,
    CONDITIONALS,
    KINDS,
    PLACES,
    by_package,
    count,
    rates,
    worst,
)
from tests.tools.language import Language, measure

SOURCE = '''"""Of a kind."""

class Samples:
    """Samples of one window, whom nobody knows."""

    u: float
    t: float

    def mean(self): ...

def at(x):
    """Return the sample at x."""

def _private(): ...
'''


def test_docstrings_names_and_documented_functions_are_counted() -> None:
    assert measure([SOURCE]) == Language(
        docstrings=3,
        odd_starts=1,
        clumsy=1,
        first_line_words=3 + 7 + 5,
        bare_names=2,
        public_functions=2,
        documented=1,
    )


DENSE = '''"""One file."""

def rows(found, *more):
    """Return rows."""
    kept = [row[0] if row else None for row in found if row and row[1]]
    return [*kept, *more]
'''


def test_density_counts_nodes_of_the_tree_for_each_kind() -> None:
    counted = count(DENSE)
    assert counted[CODE_LINES] == 3
    assert [counted[kind] for kind in KINDS] == [1, 1, 1, 2, 2, 0]
    assert rates(counted)[PLACES] == 1000.0 * 2 / 3


def test_a_package_in_the_sum_is_its_own_files_alone() -> None:
    files = [(Path("gputop/paint/a.py"), DENSE), (Path("gputop/features/web/b.py"), "x = 1\n")]
    counts = by_package(files)
    assert counts["paint"][CONDITIONALS] == counts["in all"][CONDITIONALS] == 1
    assert counts["features/web"][CODE_LINES] == 1


def test_the_statement_that_nests_most_is_the_worst() -> None:
    (first, *_) = worst([(Path("gputop/paint/a.py"), DENSE)], 5)
    assert first[1] == "gputop/paint/a.py:5"
