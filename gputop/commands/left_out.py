"""Keeps libraries that others import if installed out of the start: see ``docs/design/speed.md``.

Neither gputop nor anything called from it uses them. A later import gets the real one. Commands import
msgspec and pynvml before they start a thread; a program that imports gputop as a library gets everything.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from threading import get_ident
from types import ModuleType
from typing import NoReturn

NOT_FOR_TEXTUAL = (
    "platformdirs",
    "rich.table",
    "textual.command",
    "textual.widgets._directory_tree",
    "textual.widgets._input",
    "textual.widgets._option_list",
    "textual.widgets._placeholder",
    "textual.widgets._select",
    "uuid",
)
"""Left out while other threads read the machine. Code that reads imports none of these, or it would get the blank."""


@contextmanager
def without(left_out: str) -> Iterator[None]:
    """Imports on this thread find no module of that name, as on a machine that lacks it."""
    absence = _Absence(left_out)
    sys.meta_path.insert(0, absence)
    try:
        yield
    finally:
        sys.meta_path.remove(absence)


class _Absence:
    """Refuses on this thread alone: another may be importing ``ssl`` to ask an exporter over https."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._thread = get_ident()

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> None:
        if name == self._name and get_ident() == self._thread:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


@contextmanager
def blank(*names: str) -> Iterator[None]:
    """Imports of these modules find blank ones, from which every name can be taken and nothing used."""
    blanks = {name: _Blank(name) for name in names if name not in sys.modules}
    sys.modules.update(blanks)
    try:
        yield
    finally:
        for name in blanks:
            del sys.modules[name]


class _Blank(ModuleType):
    """A module in which each name is a distinct class without instances."""

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Nobody(name, (), {"__module__": self.__name__})


class _Nobody(type):
    """The type of such classes. Their attributes may be asked for as well: an enumeration has members."""

    def __getattr__(cls, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return cls

    def __call__(cls, *_given: object, **_named: object) -> NoReturn:
        raise ImportError(f"{cls.__module__}.{cls.__name__} was left out of gputop's start", name=cls.__module__)


def _import_without(name: str, *left_out: str) -> None:
    with suppress(ImportError), blank(*left_out):
        import_module(name)
    # Again, and in full, if a later version uses one of them at once.
    import_module(name)


def import_msgspec() -> None:
    """Without what it imports for types of values that gputop does not have.

    Without ``typing_extensions``, which brings ``inspect``, ``ast`` and ``tokenize`` along: from Python 3.11 on all
    that msgspec takes from it is in ``typing``. Without ``uuid``, which brings ``platform``: it uses one class to
    recognise its values. Without its parts that describe types and write JSON schemas.
    """
    if sys.version_info < (3, 11) or "msgspec" in sys.modules:
        return
    with without("typing_extensions"):
        _import_without("msgspec", "uuid", "msgspec.inspect", "msgspec._json_schema")


def import_pynvml() -> None:
    """Without ``ctypes.util``, from which it takes a name and never calls it: that brings ``subprocess``, ``shutil``
    and ``tempfile`` along.
    """
    _import_without("pynvml", "ctypes.util")


def import_asyncio() -> None:
    """Without ``ssl``, as on a Python built without it: OpenSSL is 4 MB in a program that never uses TLS over
    asyncio.
    """
    with without("ssl"):
        _import_without("asyncio", "asyncio.sslproto")


def import_textual() -> None:
    """Without what it takes for downloads and for errors in style sheets, without its command palette, which comes
    when it is opened, and without widgets whose modules it imports for the name of a type.
    """
    _import_without("textual.app", *NOT_FOR_TEXTUAL)
