"""``python -m tests.tools.density``: how much logic a line of the code holds, by package.

Nodes of the syntax tree per 1,000 code lines (without blanks, comments and docstrings). The same
count gives for nvitop, memray, posting, httpx and Textual: conditional expressions 6 to 14,
comprehensions 6 to 10, ``and`` and ``or`` 11 to 19, reads by constant place 6 to 8, starred
arguments 0.3 to 4, lines over 100 columns 0 to 32. ``--worst N`` lists the densest statements.
"""

from __future__ import annotations

import argparse
import ast
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from tests.tools.size import count as count_size

CONDITIONALS = "conditional expressions"
COMPREHENSIONS = "comprehensions"
CONDITIONS = "and, or"
PLACES = "reads by constant place"
STARRED = "starred arguments"
LONG_LINES = "lines over 100 columns"
KINDS = (CONDITIONALS, COMPREHENSIONS, CONDITIONS, PLACES, STARRED, LONG_LINES)
CODE_LINES = "code lines"
DIVIDED = ("features", "sources")
"""Packages whose folders are counted one by one."""

_KIND_OF_NODE: Mapping[type[ast.AST], str] = {
    ast.IfExp: CONDITIONALS,
    ast.ListComp: COMPREHENSIONS,
    ast.SetComp: COMPREHENSIONS,
    ast.DictComp: COMPREHENSIONS,
    ast.GeneratorExp: COMPREHENSIONS,
    ast.BoolOp: CONDITIONS,
    ast.Starred: STARRED,
}
_STATEMENTS = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Return, ast.Expr)


def kind_of(node: ast.AST) -> str | None:
    """Return the kind under which a node is counted, if any."""
    if isinstance(node, ast.Subscript):
        place = node.slice
        is_place = isinstance(place, ast.Constant) and isinstance(place.value, int)
        return PLACES if is_place else None
    return _KIND_OF_NODE.get(type(node))


def count(source: str) -> Counter[str]:
    """Count the nodes of one file by kind, and its code lines."""
    counts: Counter[str] = Counter()
    counts[CODE_LINES] = count_size(source)[CODE_LINES]
    counts[LONG_LINES] = sum(len(line) > 100 for line in source.splitlines())
    for node in ast.walk(ast.parse(source)):
        kind = kind_of(node)
        if kind is not None:
            counts[kind] += 1
    return counts


def rates(counts: Mapping[str, int]) -> dict[str, float]:
    """Return each kind per 1,000 code lines."""
    lines = max(1, counts[CODE_LINES])
    return {kind: 1000.0 * counts[kind] / lines for kind in KINDS}


def package_of(path: Path) -> str:
    """Return the package of a file below ``gputop``, or ``*`` for a file beside the packages."""
    parts = path.relative_to("gputop").parts
    if len(parts) > 2 and parts[0] in DIVIDED:
        return "/".join(parts[:2])
    return parts[0] if len(parts) > 1 else "*"


def by_package(files: Iterable[tuple[Path, str]]) -> dict[str, Counter[str]]:
    """Count files by package; the sum over all stands under ``in all``, last."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    whole: Counter[str] = Counter()
    for path, source in files:
        counted = count(source)
        counts[package_of(path)].update(counted)
        whole.update(counted)
    return {**dict(sorted(counts.items())), "in all": whole}


def sources() -> Iterator[tuple[Path, str]]:
    """Yield the files of the program with their text."""
    for path in sorted(Path("gputop").rglob("*.py")):
        yield path, path.read_text()


def _weight(statement: ast.AST) -> int:
    """Return how much a statement holds: each counted node, more where it stands inside another."""
    weight = 0
    waiting = [(statement, 0)]
    while waiting:
        node, depth = waiting.pop()
        if kind_of(node) is not None:
            depth += 1
            weight += depth
        waiting.extend((child, depth) for child in ast.iter_child_nodes(node))
    return weight


def worst(files: Iterable[tuple[Path, str]], most: int) -> list[tuple[int, str, str]]:
    """Return the densest statements: their weight, place and beginning."""
    found = []
    for path, source in files:
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, _STATEMENTS):
                text = " ".join((ast.get_source_segment(source, node) or "").split())
                found.append((_weight(node), f"{path}:{node.lineno}", text[:150]))
    return sorted(found, reverse=True)[:most]


def main() -> None:
    """Print the table, or the densest statements."""
    parser = argparse.ArgumentParser(prog="python -m tests.tools.density")
    parser.add_argument("--worst", type=int, metavar="N", help="list the N densest statements")
    options = parser.parse_args()
    if options.worst:
        for weight, place, text in worst(sources(), options.worst):
            print(f"{weight:4} {place}\n     {text}")
        return
    print(f"{'per 1,000 code lines':24}" + "".join(f"{kind:>25}" for kind in KINDS))
    for package, counts in by_package(sources()).items():
        print(f"{package:24}" + "".join(f"{rate:25.1f}" for rate in rates(counts).values()))


if __name__ == "__main__":
    main()
