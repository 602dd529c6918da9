"""Exceptions of gputop come through pickle and copy: a worker process hands them on as they are."""

from __future__ import annotations

import copy
import importlib
import inspect
import pickle
import re
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "gputop"


def exceptions() -> list[type[Exception]]:
    """All classes of the package that are named or derived as exceptions, from the modules that hold them."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        names = re.findall(r"^class (\w+)\(\w*(?:Error|Exception)\):", path.read_text(encoding="utf-8"), re.M)
        # The protocol of assistants is an extra, and its exceptions never leave it.
        if names and path.parent.name != "mcp":
            parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
            module = importlib.import_module(".".join(part for part in parts if part != "__init__"))
            found += [getattr(module, name) for name in names]
    return found


def test_every_exception_comes_through_pickle_and_copy_with_its_words_and_what_it_holds() -> None:
    kinds = exceptions()
    assert {"AlertError", "ExpressionError", "SmReadFailed", "QueryError", "TraceError"} <= {
        kind.__name__ for kind in kinds
    }
    for kind in kinds:
        wanted = inspect.signature(kind).parameters.values() if "__init__" in vars(kind) else ()
        values = {"int": 3, "int | None": 3, "bool": True}
        made = kind(*(values.get(str(p.annotation), "words") for p in wanted if p.kind is not p.KEYWORD_ONLY))
        for back in (pickle.loads(pickle.dumps(made)), copy.copy(made), copy.deepcopy(made)):
            assert type(back) is kind and str(back) == str(made) and vars(back) == vars(made), kind
