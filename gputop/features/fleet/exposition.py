"""An exporter's page, read: series with their labels and values. Pure; nothing on a page is believed or can hurt.

https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from types import MappingProxyType

from gputop.features.fleet.client import number

LONGEST_LINE = 4096
_LINE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})?[ \t]+(\S+)")
_LABEL = re.compile(r'[ \t]*([a-zA-Z_][a-zA-Z0-9_]*)[ \t]*=[ \t]*"((?:[^"\\]|\\.)*)"[ \t]*(?:,|$)')
_ESCAPE = re.compile(r"\\(.)")
_MEANT = {"n": "\n"}


def samples(page: str, wanted: Collection[str]) -> Iterator[tuple[str, Mapping[str, str], float]]:
    """Name, labels and value of the series of these names, in their order. Lines that are none are left out, values
    that are no numbers too: login noise before a page says nothing."""
    for line in page.splitlines():
        # A page has hundreds of lines of other names.
        if line[: line.find("{")].rstrip() not in wanted and line.partition(" ")[0] not in wanted:
            continue
        match = _LINE.match(line) if len(line) <= LONGEST_LINE else None
        if match is None or match[1] not in wanted or (value := number(match[3])) is None:
            continue
        labels = _labels(match[2] or "")
        if labels is not None:
            yield match[1], labels, value


@lru_cache(maxsize=50_000)
def _labels(text: str) -> Mapping[str, str] | None:
    """The labels between the braces; None where they are none. Kept: they are the same on the next page."""
    labels, at = {}, 0
    while at < len(text):
        match = _LABEL.match(text, at)
        if match is None:
            return None
        labels[match[1]] = _ESCAPE.sub(lambda escape: _MEANT.get(escape[1], escape[1]), match[2])
        at = match.end()
    return MappingProxyType(labels)
