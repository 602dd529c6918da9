r"""Read pages of Prometheus' text exposition format, for every reader of exporters. Pure.

A page is trusted in nothing: a malformed line is left out and takes no other with it, and what goes beyond a limit is
named. ::

    page = parse_page('gpu_temp{gpu="0"} 41\n', lambda name: name == "gpu_temp")
    page.samples[0].labels["gpu"], page.samples[0].value   # "0", 41.0

https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from types import MappingProxyType

from msgspec import Struct

LONGEST_LINE = 16_384
"""Characters of a line: sixteen labels of the greatest length, four times the longest line of an exporter we know."""
MOST_LABELS = 64
"""Labels of one series [judged]: exporters have some ten, relabelling adds as many."""
LONGEST_LABEL = 1024
"""Characters of one label's value [judged]: names and identifiers have some hundred."""
MOST_SERIES = 200_000
"""Series of interest on one page: 2,500 GPUs with all families have 150,000. They are read in half a second."""
MOST_LINES = 500_000
"""Lines of one page, comments included."""
LONGEST_CACHED = 512
"""Labels of a line that are remembered: so many characters, as the cache shall stay below some 50 MB."""
MOST_TOLD = 8
"""Series left out that are named."""
LONGEST_TOLD = 64
"""Characters of a name in a fault."""

_NAME = re.compile(r"[ \t]*([a-zA-Z_:][a-zA-Z0-9_:]*)[ \t]*")
_LABEL = re.compile(
    r'[ \t]*([a-zA-Z_][a-zA-Z0-9_]*)[ \t]*=[ \t]*"([^"\\]*(?:\\.[^"\\]*)*)"[ \t]*(?:,|\Z)'
)
_NUMBER = r"[ \t]*([0-9a-zA-Z.+-]+)(?:[ \t]+[0-9.eE+-]+)?[ \t\r]*"
"""The value, and a timestamp, which no reader of ours needs."""
_REST = re.compile(rf"(?:\{{(.*)\}})?{_NUMBER}")
_EXEMPLAR = " # {"
_REST_BEFORE_EXEMPLAR = re.compile(
    rf'(?:\{{([^"}}]*(?:"[^"\\]*(?:\\.[^"\\]*)*"[^"}}]*)*)\}})?{_NUMBER} # \{{'
)
"""An exemplar has braces of its own, and so may a label's value."""
_ESCAPE = re.compile(r'\\([\\"n])')

Labels = Mapping[str, str]


class PageLimitError(ValueError):
    """The page has too much of something; the text says of what."""


class Sample(Struct, frozen=True, gc=False):
    """One line: a series and its value, which may be NaN or infinite."""

    name: str
    labels: Labels
    value: float
    line: str


class LeftOut(Struct, frozen=True):
    """Why lines of a series were left out."""

    name: str
    reason: str

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}"


class ExpositionPage(Struct, frozen=True):
    """Samples in the order of the page, and series left out for a limit."""

    samples: list[Sample]
    left_out: tuple[LeftOut, ...] = ()


def parse_page(
    text: str, is_wanted: Callable[[str], bool], *, most_series: int = MOST_SERIES
) -> ExpositionPage:
    r"""Return the samples of a page whose name is wanted. Raises PageLimitError.

    Lines end at ``\n`` alone: a label may hold every other character. A last line without it was cut off, and is left
    out.
    """
    lines = text[: text.rfind("\n") + 1].split("\n", MOST_LINES)
    if len(lines) > MOST_LINES:
        raise PageLimitError(f"its page has more than {MOST_LINES:,} lines")
    samples: list[Sample] = []
    left_out: dict[LeftOut, None] = {}
    for line in lines:
        named = _NAME.match(line)
        if named is None:
            continue
        name = named.group(1)
        if not is_wanted(name):
            continue
        try:
            sample = _sample(name, line, named.end())
        except _BeyondLimitError as error:
            if len(left_out) < MOST_TOLD:
                left_out[LeftOut(name[:LONGEST_TOLD], str(error))] = None
            continue
        if sample is None:
            continue
        if len(samples) >= most_series:
            raise PageLimitError(f"its page has more than {most_series:,} series")
        samples.append(sample)
    return ExpositionPage(samples, tuple(left_out))


def parsed_number(word: str) -> float | None:
    """Return a number as a page writes it; None for another word."""
    # Python takes 1_000 and digits of every script as well.
    if "_" in word or not word.isascii():
        return None
    try:
        return float(word)
    except ValueError:
        return None


class _BeyondLimitError(Exception):
    """A line is beyond a limit; the page is read on."""


def _sample(name: str, line: str, end: int) -> Sample | None:
    """Return the sample of a line, or None if it is malformed. Raises _BeyondLimitError.

    ``end`` is the place behind the name and the space after it.
    """
    if len(line) > LONGEST_LINE:
        raise _BeyondLimitError(f"a line of {len(line):,} characters, at most {LONGEST_LINE:,}")
    rest = _REST.fullmatch(line, end)
    if _EXEMPLAR in line:
        rest = _REST_BEFORE_EXEMPLAR.match(line, end) or rest
    if rest is None:
        return None
    text, number = rest.groups()
    if text is None:
        is_apart = line[end - 1] in " \t"
        labels = _NO_LABELS if is_apart else None
    elif len(text) <= LONGEST_CACHED:
        labels = _known_labels(text)
    else:
        labels = _decoded_labels(text)
    if labels is None:
        return None
    try:
        return Sample(name, labels, float(number), line)
    except ValueError:
        return None


_NO_LABELS: Labels = MappingProxyType({})


def _decoded_labels(text: str) -> Labels | None:
    """Decode the labels between the braces; None if malformed. Raises _BeyondLimitError."""
    labels: dict[str, str] = {}
    at = 0
    while at < len(text):
        match = _LABEL.match(text, at)
        if match is None:
            return None
        name, value = match.groups()
        if name in labels:
            return None
        if len(value) > LONGEST_LABEL:
            raise _BeyondLimitError(
                f"{name[:LONGEST_TOLD]} has {len(value):,} characters, at most {LONGEST_LABEL:,}"
            )
        labels[name] = _ESCAPE.sub(_unescaped, value) if "\\" in value else value
        if len(labels) > MOST_LABELS:
            raise _BeyondLimitError(f"more than {MOST_LABELS} labels")
        at = match.end()
    return MappingProxyType(labels)


_known_labels = lru_cache(maxsize=50_000)(_decoded_labels)
"""The next page has the same labels."""


def _unescaped(escape: re.Match[str]) -> str:
    letter = escape.group(1)
    return "\n" if letter == "n" else letter
