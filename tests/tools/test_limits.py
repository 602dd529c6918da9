"""The measures of language count what they say."""

from __future__ import annotations

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
