"""Prometheus' text exposition format 0.0.4, written line by line.

https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from __future__ import annotations

from collections.abc import Iterable

from gputop.model.clean_text import clean_text

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
LONGEST_LABEL = 128
"""Characters of one label's value: what comes from outside must not make a page large."""
_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"'})


def labels(*pairs: tuple[str, str | None]) -> str:
    """Return labels as ``a="1",b="2"``.

    Values are one clean line each; an absent one is left out, since an empty label equals none.
    """
    return ",".join(
        f'{name}="{clean_text(value)[:LONGEST_LABEL].translate(_ESCAPES)}"'
        for name, value in pairs
        if value
    )


def number(value: float) -> str:
    """Return a number without noise digits.

    Whole where it is whole, else to six decimals; large ones to twelve digits.
    """
    if value == int(value):
        return str(int(value))
    return repr(round(value, 6)) if -1e6 < value < 1e6 else f"{value:.12g}"


Sample = tuple[str, float]
"""The labels, as ``labels`` writes them, and the value."""


class TextPage:
    """A page of metric families; families without a sample are left out."""

    def __init__(self) -> None:
        self._parts: list[str] = []

    def family(self, name: str, text: str, samples: Iterable[Sample], kind: str = "gauge") -> None:
        """Add one family; ``kind`` is Prometheus' type. NaN and infinities are left out."""
        self._add(
            name,
            text,
            kind,
            (f"{name}{_braced(of)} {number(n)}\n" for of, n in samples if n - n == 0.0),
        )

    def summary(self, name: str, text: str, samples: Iterable[tuple[str, float, int]]) -> None:
        """Add a summary without quantiles: labels, sum and count."""
        rows = ((_braced(of), number(total), count) for of, total, count in samples)
        self._add(
            name,
            text,
            "summary",
            (f"{name}_sum{of} {n}\n{name}_count{of} {count}\n" for of, n, count in rows),
        )

    def _add(self, name: str, text: str, kind: str, lines: Iterable[str]) -> None:
        if written := "".join(lines):
            escaped = text.replace("\\", "\\\\").replace("\n", "\\n")
            self._parts.append(f"# HELP {name} {escaped}\n# TYPE {name} {kind}\n{written}")

    def text(self) -> str:
        """The whole page."""
        return "".join(self._parts)


def _braced(labelled: str) -> str:
    return f"{{{labelled}}}" if labelled else ""
