"""Measure the language of docstrings and names, and the share of public functions that have a docstring.

The words are a thermometer: a docstring that begins with a pronoun or a preposition, or contains one of the clumsy
constructions, usually needs its neighbours to be understood.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from msgspec import Struct

ODD_START = re.compile(
    r"(What|Who|Whom|Whose|Of|Since|From|Until|Where|That|Which|Those|These|Besides?|Without|With|For|In|At|By|Its?|They|"
    r"There|Then|So|Nothing|Nobody|Somebody|Something)"
)
CLUMSY = re.compile(
    r"\b(whom|in whose place|of which|those of|is told|are told|that of|as it was|what (?:was|is|has|had|came|comes)|"
    r"of it that|of them that|where there is none|has lasted|stands?|in the way of)\b",
    re.IGNORECASE,
)
BARE_NAME = re.compile(
    r"(of|at|by|beside|apart|inside|instead|alone|now|was|had|told|seen|found|done|kin|owes|saw|holds|stands|lasting|"
    r"goes_on|whom?|whose|what|why|then|before|after|most|least|rest|[A-Za-su-z_])"
)
Function = (ast.FunctionDef, ast.AsyncFunctionDef)


class Language(Struct):
    """Sums over files: docstrings, their faults, bare names, and public functions with and without a docstring."""

    docstrings: int = 0
    odd_starts: int = 0
    clumsy: int = 0
    first_line_words: int = 0
    bare_names: int = 0
    public_functions: int = 0
    documented: int = 0


def measure(sources: Iterable[str]) -> Language:
    """Return the sums over these Python sources."""
    sums = Language()
    for source in sources:
        tree = ast.parse(source)
        for node in ast.walk(tree):
            if isinstance(node, (*Function, ast.ClassDef, ast.Module)):
                _add_docstring(sums, ast.get_docstring(node))
            if isinstance(node, (*Function, ast.ClassDef)):
                sums.bare_names += sum(
                    BARE_NAME.fullmatch(name) is not None for name in _names(node)
                )
        for function in _public_functions(tree):
            sums.public_functions += 1
            sums.documented += ast.get_docstring(function) is not None
    return sums


def _add_docstring(sums: Language, text: str | None) -> None:
    if not text or not (words := text.strip().split("\n")[0].split()):
        return
    sums.docstrings += 1
    sums.odd_starts += ODD_START.fullmatch(words[0].strip("`*")) is not None
    sums.clumsy += CLUMSY.search(text) is not None
    sums.first_line_words += len(words)


def _names(node: ast.AST) -> Iterator[str]:
    """Yield the name of a function or class if it has two letters or more, and those of a class's fields."""
    if isinstance(node, (*Function, ast.ClassDef)) and len(node.name) > 1:
        yield node.name.strip("_")
    if isinstance(node, ast.ClassDef):
        for item in node.body:
            if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
                yield item.target.id.strip("_")


def _public_functions(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield public functions of the module and public methods of its public classes."""
    for node in tree.body:
        inside = (
            node.body
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
            else [node]
        )
        yield from (
            item for item in inside if isinstance(item, Function) and not item.name.startswith("_")
        )
