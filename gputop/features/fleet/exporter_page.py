"""Read a Prometheus text page line by line. Nothing on a page is trusted.

https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType

from gputop.features.fleet.engine_client import number
from gputop.features.fleet.exporter_names import DIALECTS

LONGEST_LINE = 4096
_LINE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})?[ \t]+(\S+)")
_LABEL = re.compile(r'[ \t]*([a-zA-Z_][a-zA-Z0-9_]*)[ \t]*=[ \t]*"((?:[^"\\]|\\.)*)"[ \t]*(?:,|$)')
_ESCAPE = re.compile(r"\\(.)")

PageRows = Mapping[str, Sequence[tuple[Mapping[str, str], float]]]
"""Name of a series → the labels and value of each line."""


def page_rows(page: str, names: Collection[str]) -> PageRows:
    """Group the lines of these names."""
    rows: dict[str, list[tuple[Mapping[str, str], float]]] = defaultdict(list)
    for name, labels, value in samples(page, names):
        rows[name].append((labels, value))
    return rows


def samples(page: str, names: Collection[str]) -> Iterator[tuple[str, Mapping[str, str], float]]:
    """Yield name, labels and value of the lines of these names.

    Malformed lines, login banners and values that are no finite numbers are skipped.
    """
    for line in page.splitlines():
        # A page has hundreds of lines of other names.
        if line[: line.find("{")].rstrip() not in names and line.partition(" ")[0] not in names:
            continue
        match = _LINE.match(line) if len(line) <= LONGEST_LINE else None
        if match is None or match[1] not in names or (value := number(match[3])) is None:
            continue
        labels = _labels(match[2] or "")
        if labels is not None:
            yield match[1], labels, value


@lru_cache(maxsize=50_000)
def _labels(text: str) -> Mapping[str, str] | None:
    """Decode the labels between the braces; None if malformed.

    Cached: the next page has the same ones.
    """
    labels, at = {}, 0
    while at < len(text):
        match = _LABEL.match(text, at)
        if match is None:
            return None
        labels[match[1]] = _ESCAPE.sub(lambda escape: "\n" if escape[1] == "n" else escape[1], match[2])
        at = match.end()
    return MappingProxyType(labels)


def other_exporter(page: str) -> str:
    """Name the exporter of a page that is not gputop's; empty if unknown."""
    for dialect in DIALECTS.values():
        if dialect.id != "gputop" and f"\n{dialect.signals['util_pct'].name}" in f"\n{page}":
            return dialect.words
    return ""
