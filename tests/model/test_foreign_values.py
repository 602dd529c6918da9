"""Values that others wrote become numbers and texts, or nothing: never an error, never an endless loop."""

from __future__ import annotations

import math
from typing import Any

import pytest

from gputop.model.clean_text import error_words
from gputop.model.foreign_values import finite_number, quoted, text_of, whole_number


class Rude:
    """An object whose every text raises."""

    def __str__(self) -> str:
        raise ValueError("never asked")

    __repr__ = __str__


class RudeText(str):
    def __str__(self) -> str:
        raise ValueError("never asked")

    def __getitem__(self, key: Any) -> str:
        raise ValueError("never asked")


class RudeNumber(int):
    def __abs__(self) -> int:
        raise ValueError("never asked")

    __int__ = __index__ = __repr__ = __float__ = __abs__  # type: ignore[assignment]


class RudeError(Exception):
    def __str__(self) -> str:
        raise ValueError("never asked")


class EndingError(Exception):
    def __str__(self) -> str:
        raise SystemExit(0)


def _holding_itself() -> list[Any]:
    loop: list[Any] = []
    loop += [loop] * 1000
    return loop


def _laughs() -> list[Any]:
    laughs: list[Any] = ["ha"]
    for _ in range(60):
        laughs = [laughs] * 10
    return laughs


def _deep() -> tuple[Any, ...]:
    deep: tuple[Any, ...] = ()
    for _ in range(100_000):
        deep = (deep,)
    return deep


NO_NUMBERS: list[Any] = [
    True, False, None, math.nan, math.inf, -math.inf, 10**5000, -(10**5000), "9" * 5000, "1" + "0" * 350,
    "1e400", "nan", "inf", "Infinity", "", " ", "1_000", "١", "0x10", "1e", "--1", "1 2", b"1", [], {}, Rude(),
    1e300, "1e300", _holding_itself(),
]  # fmt: skip


@pytest.mark.parametrize("value", NO_NUMBERS, ids=lambda value: type(value).__name__)
def test_what_is_no_finite_number_is_none(value: Any) -> None:
    assert finite_number(value) is None
    assert whole_number(value) is None


def test_numbers_are_read_in_every_form() -> None:
    values = [7, 7.5, "7", " -7.5 ", "+.5", "7.", "1e3", RudeNumber(7)]
    assert [finite_number(value) for value in values] == [7.0, 7.5, 7.0, -7.5, 0.5, 7.0, 1e3, 7.0]
    assert all(type(finite_number(value)) is float for value in values)


def test_bounds_belong_to_the_range() -> None:
    assert [finite_number(v, 0.0, 10.0) for v in (-0.1, 0, 10, "10.1")] == [None, 0.0, 10.0, None]
    assert [whole_number(v, 0, 10) for v in (-1, 0, "10", 11)] == [None, 0, 10, None]


def test_whole_numbers_are_exact() -> None:
    assert whole_number(2**64 - 1) == whole_number(str(2**64 - 1)) == 2**64 - 1
    assert [whole_number(v) for v in (7.0, "7.0", 7.5, "7.5", 2**64)] == [7, 7, None, None, None]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a\x1b[31m\nb\ud800", "a?[31m b?"), ("x" * 9000, "x" * 4096), (RudeText("fine"), "fine"),
        (7, "7"), (-0.5, "-0.5"), (True, "True"), (math.inf, "inf"), (RudeNumber(7), "7"),
        (None, ""), (10**5000, "int"), (Rude(), "Rude"), (b"raw", "bytes"), (Rude, "type"),
        (_holding_itself(), "list"), (_laughs(), "list"), (_deep(), "tuple"), ({1: 2}, "dict"),
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_text_of_a_foreign_value_is_one_short_line(value: Any, text: str) -> None:
    assert text_of(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("pink", "'pink'"), ("a'\n", '"a\' "'), ("x" * 5000, f"'{'x' * 60}…'"), (3, "3"), (True, "True"),
        (10**5000, "a number of 5000 digits"), (-(10**5000), "a number of 5000 digits"), (_laughs(), "a list"),
        ({1: _holding_itself()}, "a table"), (None, "nothing"), (Rude(), "a Rude"), (math.nan, "nan"),
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_a_message_quotes_a_foreign_value_shortly(value: Any, text: str) -> None:
    assert quoted(value) == text


def test_text_is_cut_where_it_is_asked() -> None:
    assert text_of("x" * 50, 8) == "x" * 8
    assert text_of(10**12, 3) == "100"


def test_an_exception_whose_text_raises_is_named_by_its_type() -> None:
    assert error_words(RudeError()) == "RudeError"
    assert error_words(EndingError()) == "EndingError"
    assert error_words(ValueError("first\nsecond")) == "ValueError: first"
