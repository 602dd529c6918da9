"""The parts of PromQL that every query is built from. Pure text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_SPECIAL = re.compile(r"([.+*?()|\[\]{}^$\\])")


def selector(name: str, *matchers: str) -> str:
    """A series by its name and by matchers such as ``cluster="a"``; empty ones are left out."""
    kept = ",".join(part for part in matchers if part)
    return f"{name}{{{kept}}}" if kept else name


def named(names: Iterable[str], *matchers: str) -> str:
    """Series under any of these names."""
    return selector("", any_of("__name__", names), *matchers)


def any_of(label: str, values: Iterable[str]) -> str:
    """A matcher for any of these values, whatever characters they hold."""
    pattern = "|".join(_SPECIAL.sub(r"\\\1", value) for value in values)
    escaped = pattern.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'{label}=~"{escaped}"'


def window(seconds: float) -> str:
    """A duration in its largest whole unit: ``5m``, ``90s``."""
    for unit in ("h", "m"):
        if seconds % UNITS_S[unit] == 0:
            return f"{seconds / UNITS_S[unit]:.0f}{unit}"
    return f"{seconds:.0f}s"


def over(function: str, series: str, seconds: float, *arguments: str) -> str:
    """A function of a selector's samples in a window; arguments stand before it, as a quantile does."""
    return f"{function}({', '.join((*arguments, f'{series}[{window(seconds)}]'))})"


def max_by(labels: Iterable[str], expr: str) -> str:
    """One series per combination of labels: drops the second of two replicas, and keeps MIG instances apart."""
    return f"max by ({', '.join(dict.fromkeys(labels))}) ({expr})"


def marked(expr: str, label: str, value: str) -> str:
    """The series with one more label."""
    return f'label_replace({expr}, "{label}", "{value}", "", "")'


def renamed(expr: str, to: str, label: str, pattern: str = "(.+)") -> str:
    """The series with label ``to``: the first group of a pattern matched on another label."""
    return f'label_replace({expr}, "{to}", "$1", "{label}", "{pattern}")'


def union(parts: Sequence[str]) -> str:
    """All series of these; empty for none."""
    return " or ".join(parts)
