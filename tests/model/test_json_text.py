"""JSON keeps every value, and holds no character that acts on what is around it."""

from __future__ import annotations

import json
import unicodedata

import pytest

from gputop.model.json_text import safe_json

ACTIVE = "\x7f\x80\x9b\x9f\xad\u061c\u200b\u200e\u202e\u2028\u2029\u2066\u2069\ufeff\U000e0041"


@pytest.mark.parametrize("layout", [{}, {"indent": 1}, {"separators": (",", ":")}])
def test_every_character_that_acts_is_escaped_and_every_value_is_kept(
    layout: dict[str, object],
) -> None:
    data = {
        f"key {char}": [f"{char} 2J", {"µ": "日本 é 😀"}] for char in (*ACTIVE, "\x1b", "\n", "\\")
    }
    text = safe_json(data, **layout)
    assert json.loads(text) == data
    assert all(unicodedata.category(char)[0] != "C" for char in text.replace("\n", ""))
    assert "\u2028" not in text and "\u2029" not in text
    assert "日本 é 😀" in text


def test_half_characters_become_escapes_that_can_be_written() -> None:
    text = safe_json({"name": "a\ud800b"})
    assert text.encode() == b'{"name": "a\\ud800b"}'


def test_what_is_no_number_is_no_json() -> None:
    with pytest.raises(ValueError):
        safe_json({"value": float("nan")})
