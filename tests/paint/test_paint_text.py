"""Text that fits its cells, whatever comes from outside."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputop.model.clean_text import terminal_safe
from gputop.model.durations import elapsed
from gputop.model.quantity import gib, number, rate, size
from gputop.paint.cells import cells, fit, is_narrow, shorten
from gputop.paint.glyphs import LEFT, LOWER, ascii_cells
from tests.support.examples import any_text, looks


@looks(40)
@given(any_text(80), st.integers(1, 60))
def test_fitted_text_takes_exactly_its_width_and_carries_no_control_character(
    text: str, width: int
) -> None:
    fitted = fit(text, width)
    assert cells(fitted) == width
    assert all(char.isprintable() for char in fitted)


@looks(40)
@given(st.one_of(st.none(), st.floats(0, 1e13)))
def test_sizes_and_rates_never_change_their_width(value: float | None) -> None:
    assert len(size(value, 8)) == 8
    assert len(rate(value, 9)) == 9


def test_no_character_that_is_called_narrow_is_wide() -> None:
    narrow = [char for char in map(chr, range(0x20, 0x3000)) if is_narrow(char)]
    assert len(narrow) > 900
    assert [char for char in narrow if unicodedata.east_asian_width(char) in "WF"] == []


def test_what_gputop_draws_with_takes_one_cell_in_ascii_too() -> None:
    drawn = f"{LOWER}{LEFT}█░▒│├└─↳→↓↑▾▴…–×·▸≤°●▲■"
    assert ascii_cells(drawn).isascii() and len(ascii_cells(drawn)) == len(drawn)
    assert ascii_cells("█ ░ ▒ ■ ▲") == "# . : # !"


SAID = "GPU idle 61 %: 7/8 workers runnable (cpu 78 %, queued 10 %), main waits"


@pytest.mark.parametrize(
    ("written", "text"),
    [
        # Escape sequences never survive; right-to-left and combining characters become dots; wide ones keep columns.
        (terminal_safe("a\x1b[31mb\x1b]0;title\x07c"), "a·[31mb·]0;title·c"), (terminal_safe("a\nb\tc"), "a b c"),
        (terminal_safe("e\u0301\u202etxt"), "e··txt"), (terminal_safe("א"), "·"),
        (fit("訓練", 5), "訓練 "), (fit("訓練訓練", 5), "訓練…"),
        # A percentage is three cells, and absence is not zero.
        (number(None, 3), "n/a"), (number(0.0, 3), "  0"), (number(7.4, 3), "  7"),
        (number(99.6, 3), "100"), (number(100.0, 3), "100"),
        (size(58.1 * 2**30, 7), " 58.1 G"), (rate(1.1e9, 9), " 1.1 GB/s"), (rate(12e6, 9), "12.0 MB/s"),
        (gib(61.2 * 2**30, 5), " 61.2"), (elapsed(2470, 8), " 0:41:10"), (elapsed(5 * 86400 + 7300, 8), "  5d 02h"),
        # Our own words are cut at a comma or a word and leave no bracket open.
        (shorten(SAID, 80), SAID), (shorten(SAID, 60), "GPU idle 61 %: 7/8 workers runnable…"),
        (shorten(SAID, 68), "GPU idle 61 %: 7/8 workers runnable (cpu 78 %, queued 10 %)…"),
        (shorten(SAID, 20), "GPU idle 61 %: 7/8…"),
        (shorten("NVLink 35 %, SM 16 %, tensor 2 %, power 45 %", 32), "NVLink 35 %, SM 16 %…"),
        (shorten("larger batch, CUDA graphs, fused kernels", 30), "larger batch, CUDA graphs…"),
    ],
)  # fmt: skip
def test_a_text_or_number_is_written_so(written: str, text: str) -> None:
    assert written == text
