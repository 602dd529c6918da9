"""How much there is to read, by package: ``python -m tests.tools.size``.

A code line holds more than blanks, a comment or a docstring. Tokens are those of Python's tokenizer without comments,
docstrings and layout; an f-string is one, with every version of Python. For information: nothing is limited by it.
"""

import io
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path

_TREES = ("gputop", "tests")
_COLUMNS = ("files", "lines", "code lines", "tokens")
_LAYOUT = (
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
)
_OPENS, _CLOSES = getattr(tokenize, "FSTRING_START", -1), getattr(tokenize, "FSTRING_END", -1)


def count(source: str) -> Counter[str]:
    """Count one file: itself, its lines, code lines and tokens."""
    statement: list[tokenize.TokenInfo] = []
    lines: set[int] = set()
    tokens = depth = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        depth -= token.type == _CLOSES
        if token.type not in _LAYOUT:
            statement.append(token._replace(type=tokenize.STRING if depth else token.type))
            tokens += not depth and token.type != _CLOSES
        elif token.type == tokenize.NEWLINE:
            if all(part.type == tokenize.STRING for part in statement):  # a docstring
                tokens -= len(statement)
            else:
                lines.update(
                    line for part in statement for line in range(part.start[0], part.end[0] + 1)
                )
            statement.clear()
        depth += token.type == _OPENS
    return Counter(dict(zip(_COLUMNS, (1, source.count("\n"), len(lines), tokens), strict=True)))


def packages(files: Iterable[tuple[str, str]]) -> dict[str, Counter[str]]:
    sums: dict[str, Counter[str]] = defaultdict(Counter)
    for path, source in files:
        tree, *rest = path.split("/")
        for package in (tree, f"{tree}/{rest[0] if len(rest) > 1 else '*'}"):
            sums[package].update(count(source))
    return sums


if __name__ == "__main__":
    sizes = packages(
        (str(path), path.read_text()) for tree in _TREES for path in Path(tree).rglob("*.py")
    )
    print(f"{'':24}" + "".join(f"{column:>12}" for column in _COLUMNS))
    for package, size in sorted(sizes.items()):
        print(f"{package:24}" + "".join(f"{size[column]:>12,}" for column in _COLUMNS))
