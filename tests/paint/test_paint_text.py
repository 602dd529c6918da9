"""Text that fits its cells, whatever comes from outside."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputop.model.quantity import terminal_safe
from gputop.paint.line import cells, elapsed, fit, gib, is_narrow, pct, rate, shorten, size
from tests.support.examples import any_text, looks


def test_our_own_words_are_cut_at_a_word_and_leave_no_bracket_open() -> None:
    said = "GPU idle 61 %: 7/8 workers runnable (cpu 78 %, queued 10 %), main waits"
    assert shorten(said, 60) == "GPU idle 61 %: 7/8 workers runnable…"
    assert shorten(said, 68) == "GPU idle 61 %: 7/8 workers runnable (cpu 78 %, queued 10 %)…"
    assert shorten("NVLink 35 %, SM 16 %, tensor 2 %, power 45 %", 32) == "NVLink 35 %, SM 16 %…"
    assert shorten(said, 20) == "GPU idle 61 %: 7/8…"
    assert shorten(said, 80) == said


@looks(40)
@given(any_text(80), st.integers(1, 60))
def test_fitted_text_takes_exactly_its_width_and_carries_no_control_character(text: str, width: int) -> None:
    fitted = fit(text, width)
    assert cells(fitted) == width
    assert all(char.isprintable() for char in fitted)


def test_escape_sequences_never_survive() -> None:
    assert "\x1b" not in terminal_safe("python \x1b[31mtrain\x1b]0;title\x07.py")
    assert terminal_safe("a\nb\tc") == "a b c"


def test_right_to_left_and_combining_characters_become_dots() -> None:
    assert terminal_safe("e\u0301\u202etxt") == "e··txt"
    assert terminal_safe("א") == "·"


def test_wide_characters_keep_the_column_aligned() -> None:
    assert fit("訓練", 5) == "訓練 "
    assert fit("訓練訓練", 5) == "訓練…"


@pytest.mark.parametrize(("value", "text"), [(None, "n/a"), (0.0, "  0"), (7.4, "  7"), (99.6, "100"), (100.0, "100")])
def test_a_percentage_is_three_cells_and_absence_is_not_zero(value: float | None, text: str) -> None:
    assert pct(value) == text


@looks(40)
@given(st.one_of(st.none(), st.floats(0, 1e13)))
def test_sizes_and_rates_never_change_their_width(value: float | None) -> None:
    assert len(size(value, 8)) == 8
    assert len(rate(value)) == 9


def test_units() -> None:
    assert size(58.1 * 2**30).strip() == "58.1 G"
    assert rate(1.1e9).strip() == "1.1 GB/s"
    assert rate(12e6).strip() == "12.0 MB/s"
    assert gib(61.2 * 2**30).strip() == "61.2"
    assert elapsed(2470).strip() == "0:41:10"
    assert elapsed(5 * 86400 + 7300).strip() == "5d 02h"


def test_our_own_text_is_cut_at_a_word() -> None:
    assert shorten("larger batch, CUDA graphs, fused kernels", 30) == "larger batch, CUDA graphs…"


def test_no_character_that_is_called_narrow_is_wide() -> None:
    narrow = [char for char in map(chr, range(0x20, 0x3000)) if is_narrow(char)]
    assert len(narrow) > 900
    assert [char for char in narrow if unicodedata.east_asian_width(char) in "WF"] == []
