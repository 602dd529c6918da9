"""Prometheus' text exposition format 0.0.4, written line by line.

https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format

Labels of a GPU are formatted once and reused for each of its series: a page of 8 GPUs has some 600 lines, and the
client library takes 13 µs for each of them. Tests read the pages back with that library.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gputop.model.quantity import clean_text

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
LONGEST_LABEL = 128
"""Characters of one label's value: what comes from outside must not make a page large."""
_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"'})


def labels(*pairs: tuple[str, str | None]) -> str:
    """``a="1",b="2"``. Values are one clean line each; an absent one is left out, since an empty label equals none."""
    return ",".join(
        f'{name}="{clean_text(value)[:LONGEST_LABEL].translate(_ESCAPES)}"' for name, value in pairs if value
    )


def number(value: float) -> str:
    """A number without noise digits: whole where it is, else to six decimals, of large ones to twelve digits."""
    if value == int(value):
        return str(int(value))
    return repr(round(value, 6)) if -1e6 < value < 1e6 else f"{value:.12g}"


Sample = tuple[str, float]
"""The labels, as ``labels`` writes them, and the value."""


class TextPage:
    """A page of metric families. A family without a sample is left out: absent is never 0."""

    def __init__(self, without: Sequence[str] = ()) -> None:
        """``without`` are names of families that are left out; ``*`` at the end stands for anything."""
        self._parts: list[str] = []
        self._without = frozenset(name for name in without if not name.endswith("*"))
        self._beginnings = tuple(name[:-1] for name in without if name.endswith("*"))

    def _is_wanted(self, name: str) -> bool:
        return name not in self._without and not name.startswith(self._beginnings)

    def family(self, name: str, kind: str, text: str, samples: Iterable[Sample]) -> None:
        """Add one family; ``kind`` is Prometheus' type."""
        if not self._is_wanted(name):
            return
        lines = [
            f"{name}{{{labelled}}} {number(value)}\n" if labelled else f"{name} {number(value)}\n"
            for labelled, value in samples
            # NaN and infinities are left out.
            if value - value == 0.0
        ]
        if lines:
            escaped = text.replace("\\", "\\\\").replace("\n", "\\n")
            self._parts.append(f"# HELP {name} {escaped}\n# TYPE {name} {kind}\n")
            self._parts += lines

    def summary(self, name: str, text: str, samples: Iterable[tuple[str, float, int]]) -> None:
        """Add a summary without quantiles: labels, sum and count."""
        if not self._is_wanted(name):
            return
        lines = []
        for labelled, total, count in samples:
            braces = f"{{{labelled}}}" if labelled else ""
            lines.append(f"{name}_sum{braces} {number(total)}\n{name}_count{braces} {count}\n")
        if lines:
            self._parts += [f"# HELP {name} {text}\n# TYPE {name} summary\n", *lines]

    def text(self) -> str:
        """The whole page."""
        return "".join(self._parts)
