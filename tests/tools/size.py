"""How much there is to read, by package: ``python -m tests.tools.size [REVISION]``, beside what a revision of git held.

A code line holds more than blanks, a comment or a docstring. Tokens are those of Python's tokenizer without comments,
docstrings and layout; an f-string is one, with every version of Python.
"""

import io
import subprocess
import sys
import tarfile
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

_TREES = ("gputop", "tests")
_COLUMNS = ("files", "lines", "code lines", "tokens")
_LAYOUT = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
_OPENS, _CLOSES = getattr(tokenize, "FSTRING_START", -1), getattr(tokenize, "FSTRING_END", -1)


def _count(source: str) -> Counter[str]:
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
                lines.update(line for part in statement for line in range(part.start[0], part.end[0] + 1))
            statement.clear()
        depth += token.type == _OPENS
    return Counter(dict(zip(_COLUMNS, (1, source.count("\n"), len(lines), tokens), strict=True)))


def _archived(revision: str) -> Iterator[tuple[str, str]]:
    archive = subprocess.run(["git", "archive", revision, *_TREES], check=True, stdout=subprocess.PIPE).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        files = {name: tar.extractfile(name) for name in tar.getnames() if name.endswith(".py")}
        yield from ((name, file.read().decode()) for name, file in files.items() if file)


def packages(files: Iterable[tuple[str, str]]) -> dict[str, Counter[str]]:
    sums: dict[str, Counter[str]] = defaultdict(Counter)
    for path, source in files:
        tree, *rest = path.split("/")
        for package in (tree, f"{tree}/{rest[0] if len(rest) > 1 else '*'}"):
            sums[package].update(_count(source))
    return sums


if __name__ == "__main__":
    now = packages((str(path), path.read_text()) for tree in _TREES for path in Path(tree).rglob("*.py"))
    before = packages(_archived(sys.argv[1])) if len(sys.argv) > 1 else now
    print(f"{'':24}" + "".join(f"{column:>18}" for column in _COLUMNS))
    for package in sorted({*now, *before}):
        pairs = [(now[package][column], now[package][column] - before[package][column]) for column in _COLUMNS]
        print(
            f"{package:24}" + "".join(f"{value:>10,}{f'{change:+,}' if change else '':>8}" for value, change in pairs)
        )
