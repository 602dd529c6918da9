"""Values of the wrong kind anywhere in data that a file holds; and pages that must be well formed and run nothing."""

from __future__ import annotations

import random
from collections.abc import Sequence
from html.parser import HTMLParser
from typing import Any


def spoil(data: Any, draw: random.Random, others: Sequence[Any]) -> None:
    """Put one of the others into the place of one value, anywhere in nested lists and dictionaries."""
    key = draw.choice(list(data) if isinstance(data, dict) else range(len(data)))
    if isinstance(data[key], (dict, list)) and data[key] and draw.random() < 0.8:
        spoil(data[key], draw, others)
    elif isinstance(data, dict) and draw.random() < 0.2:
        del data[key]
    else:
        data[key] = draw.choice(others)


class _Checker(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag not in ("script", "iframe", "object", "embed", "link", "img", "base", "form")
        assert not any(
            name.startswith("on") or name in ("src", "href", "action") for name, _ in attrs
        )
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def checked_page(page: str) -> str:
    """The words of a page, which must be well nested, run nothing and load nothing."""
    checker = _Checker()
    checker.feed(page)
    assert not checker.open
    return " ".join(checker.text)
