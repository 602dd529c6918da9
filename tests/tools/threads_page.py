"""The page of all threads, read from the calls that make them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from gputop.model.source import CLOSE_S
from gputop.sources.pollers.machine import HUNG_ONCE_S, LIVE_GRACE_S, ONCE_GRACE_S
from gputop.sources.selection import HUNG_S

PACKAGE = Path(__file__).parent.parent.parent / "gputop"
MAKERS = ("Worker", "Awaited", "once", "Thread")
LIMITS = {
    "Awaited": "awaited with a limit by a coroutine; left behind at the end",
    "Worker": "nobody waits without a limit; left behind at the end",
    "once": "runs once, then ends; left behind at the end",
    "Thread": "a daemon: left behind at the end",
}


PACES = {"Thread": "begins once, goes on by itself", "once": "once"}


class MadeThread(NamedTuple):
    """One call that makes a thread."""

    name: str
    file: str
    does: str
    pace: str
    limit: str


class _Module:
    """One file: its functions' docstrings and its constants by name."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tree = ast.parse(path.read_text(encoding="utf-8"))
        self.docs: dict[str, str] = {}
        self.constants: dict[str, str] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                self.docs.setdefault(node.name, _first_line(node))
        for statement in self.tree.body:
            if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
                self.constants[statement.targets[0].id] = ast.unparse(statement.value)

    def said_of(self, work: ast.expr) -> str:
        """What a function that a thread runs says of itself."""
        for node in ast.walk(work):
            name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
            if self.docs.get(name):
                return self.docs[name]
        return ""

    def pace(self, again: ast.expr | None) -> str:
        """When a turn comes unasked."""
        if again is None:
            return "when asked"
        value = self.constants.get(ast.unparse(again), ast.unparse(again))
        if value == "0.0":
            return "without a pause; its work waits"
        try:
            return f"every {float(value):g} s"
        except ValueError:
            return self.said_of(again).rstrip(".") or f"by `{value.removeprefix('lambda: ')}`"


def _first_line(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> str:
    return (ast.get_docstring(node) or "").partition("\n")[0]


def _maker(call: ast.Call) -> str:
    function = call.func.value if isinstance(call.func, ast.Subscript) else call.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def made_threads() -> list[MadeThread]:
    """Every thread that the package makes, by name and file."""
    return sorted(row for path in PACKAGE.rglob("*.py") for row in _made_in(path))


def _made_in(path: Path) -> Iterator[MadeThread]:
    if path == PACKAGE / "system/worker.py":
        # Where every worker's own thread is made.
        return
    module = _Module(path)
    for outer in ast.walk(module.tree):
        if not isinstance(outer, ast.ClassDef | ast.FunctionDef):
            continue
        for node in _own_calls(outer):
            yield _row(module, outer, node)


def _own_calls(outer: ast.ClassDef | ast.FunctionDef) -> Iterator[ast.Call]:
    """The makers' calls whose innermost class, else function, is this one."""
    within = [n for n in ast.walk(outer) if isinstance(n, ast.ClassDef) and n is not outer]
    hidden = {id(n) for inner in within for n in ast.walk(inner)}
    is_method = isinstance(outer, ast.FunctionDef) and outer.args.args[:1]
    if is_method and outer.args.args[0].arg == "self":
        return
    for node in ast.walk(outer):
        if isinstance(node, ast.Call) and _maker(node) in MAKERS and id(node) not in hidden:
            yield node


def _row(module: _Module, outer: ast.ClassDef | ast.FunctionDef, call: ast.Call) -> MadeThread:
    maker = _maker(call)
    named = {word.arg: word.value for word in call.keywords if word.arg}
    first = call.args[0] if call.args else named.get("name")
    name = first.value if isinstance(first, ast.Constant) else ""
    work = named.get("target") or (call.args[1] if len(call.args) > 1 else None)
    does = (module.said_of(work) if work is not None else "") or _first_line(outer)
    return MadeThread(
        str(name).removeprefix("gputop-") or "(without a name)",
        str(module.path.relative_to(PACKAGE)),
        does,
        PACES.get(maker) or module.pace(named.get("again")),
        LIMITS[maker],
    )


def page(made_by: str) -> str:
    """Return the page as Markdown."""
    lines = [
        f"<!-- Made by `{made_by}` from the code: change that. -->",
        "",
        "# Threads",
        "",
        "The screen's loop, or the main thread of a command, runs what cannot block. All else runs on the threads",
        "below, each called `gputop-NAME`. All are daemons: what hangs is left behind at the end, and nobody waits",
        "for it without a limit (`system/worker.py`). The pollers are coroutines: the screen runs them in its loop,",
        "and every other command on the thread `pollers` ([architecture](architecture.md)).",
        "",
        f"A call of `nvml` counts as hung after {HUNG_S:g} s ({HUNG_ONCE_S:g} s for a command that reads once): a new",
        f"thread goes on with the other GPUs. A tick waits {LIVE_GRACE_S:g} s for `proc` ({ONCE_GRACE_S:g} s where it",
        f"reads once). A closing source waits {CLOSE_S:g} s for all of them together.",
        "",
        "| thread | made in | what it does | pace | time limit |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| {row.name} | `{row.file}` | {row.does} | {row.pace} | {row.limit} |"
        for row in dict.fromkeys(made_threads())
    ]
    return "\n".join(lines) + "\n"
