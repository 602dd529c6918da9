"""What properties are tried with: few examples, or any number by hand."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.internal.conjecture import providers

# Hypothesis takes constants out of every source file of the package: 3 s in each worker of a fresh checkout, and other
# examples after each edit. It has no setting for it, and versions that do not do it lack the name.
if hasattr(providers, "_get_local_constants"):
    providers._get_local_constants = lambda: providers._local_constants


def looks(count: int) -> settings:
    """So many examples, always the same ones; other ones and GPUTOP_FUZZ times as many where that is set."""
    longer = int(os.environ.get("GPUTOP_FUZZ", "1"))
    slow = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture]
    return settings(
        max_examples=count * longer, deadline=None, derandomize=longer == 1, suppress_health_check=slow
    )  # fmt: skip


_TELLING = (
    "".join(map(chr, range(0xA1)))
    + "\u00ad\u0301\u200b\u200f\u2028\u202e\u2066\ufeff\U000e0001訓é█…ﬀ😀"
)
"""ASCII, controls, and what combines, turns, hides or takes two cells."""
_OF_EVERY_PLANE = "".join(
    chr(code) for code in range(0xA1, 0x110000, 1499) if not 0xD800 <= code < 0xE000
)


def any_text(max_size: int, without: str = "") -> st.SearchStrategy[str]:
    """Any text that can be encoded: the characters that tell, and some of every plane of Unicode."""
    return text_of(
        "".join(char for char in _TELLING + _OF_EVERY_PLANE if char not in without), max_size
    )


def text_of(characters: str, max_size: int, min_size: int = 0) -> st.SearchStrategy[str]:
    """Any text of these characters."""
    # Not st.text(): whatever its alphabet, it sorts all of Unicode first, 2.5 s in a fresh checkout.
    chars = st.integers(0, len(characters) - 1).map(characters.__getitem__)
    return st.lists(chars, min_size=min_size, max_size=max_size).map("".join)
