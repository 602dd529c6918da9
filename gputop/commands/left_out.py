"""Keeps libraries that others import if installed out of the start: see ``docs/design/speed.md``.

Neither gputop nor anything called from it uses them. A later import gets the real one, and whoever calls what was
left out calls the real one. Commands import msgspec and pynvml before they start a thread; a program that imports
gputop as a library gets everything.
"""

from __future__ import annotations

import sys
import typing
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import import_module
from operator import attrgetter
from threading import get_ident
from types import ModuleType

NOT_FOR_ASYNCIO = ("asyncio.sslproto", "linecache", "locale", "tokenize", "traceback")
"""The last four are what ``inspect`` reads source code with, and what ``subprocess`` and ``logging`` seldom need."""
NOT_FOR_TEXTUAL = (
    "mimetypes",
    "pickle",
    "platformdirs",
    "rich.panel",
    "rich.table",
    "rich.tree",
    "textual.canvas",
    "textual.command",
    "textual.css._help_text",
    "textual.suggestions",
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
def instead(modules: Mapping[str, ModuleType]) -> Iterator[None]:
    """Imports find these modules where the true ones are not imported yet."""
    taken = {name: module for name, module in modules.items() if name not in sys.modules}
    sys.modules.update(taken)
    try:
        yield
    finally:
        for name in taken:
            del sys.modules[name]


def blank(*names: str) -> dict[str, ModuleType]:
    """Modules by these names, from which every name can be taken. What it stands for is imported when it is called."""
    return {name: _Blank(name) for name in names}


class _Blank(ModuleType):
    """A module in which each name is a distinct class without instances, until the true one is imported."""

    def __getattr__(self, name: str) -> object:
        true = sys.modules.get(self.__name__, self)
        return _stand_in(self.__name__, name) if true is self else getattr(true, name)


class _StandIn(type):
    """The type of such classes. Their attributes may be asked for as well: an enumeration has members."""

    def __getattr__(cls, name: str) -> type:
        return _stand_in(cls.__module__, f"{cls.__qualname__}.{name}")

    def __call__(cls, *given: object, **named: object) -> object:
        true = attrgetter(cls.__qualname__)(import_module(cls.__module__))
        if isinstance(true, _StandIn):
            # Called while it is left out, or derived from what was.
            raise ImportError(f"{cls.__module__}.{cls.__qualname__} was left out of gputop's start")
        return true(*given, **named)


def _stand_in(module: str, path: str) -> type:
    """The class for what a module calls by that name, or by names joined with dots."""
    name = path.rpartition(".")[2]
    if name.startswith("__"):
        raise AttributeError(name)
    return _StandIn(name, (), {"__module__": module, "__qualname__": path})


def _import_with(name: str, modules: Mapping[str, ModuleType]) -> None:
    with suppress(ImportError), instead(modules):
        import_module(name)
    # Again, and in full, if a later version needs more of them at once.
    import_module(name)


def import_argparse() -> None:
    """With texts as they are: to look for translations, of which Python has none, ``gettext`` imports ``locale``."""
    english = ModuleType("gettext")
    english.__dict__.update(gettext=str, ngettext=lambda one, many, count: one if count == 1 else many)
    _import_with("argparse", {"gettext": english})


def import_msgspec() -> None:
    """Without what it imports for types of values that gputop does not have.

    Without ``typing_extensions``, which brings ``inspect``, ``ast`` and ``tokenize`` along: from Python 3.11 on all
    that msgspec takes from it is in ``typing``. Without ``uuid``, which brings ``platform``: it uses one class to
    recognise its values. Without its parts that describe types and write JSON schemas.
    """
    if sys.version_info < (3, 11) or "msgspec" in sys.modules:
        return
    with without("typing_extensions"):
        _import_with("msgspec", blank("uuid", "msgspec.inspect", "msgspec._json_schema"))


def import_pynvml() -> None:
    """Without ``ctypes.util``, from which it takes a name and never calls it: that brings ``subprocess``, ``shutil``
    and ``tempfile`` along.
    """
    _import_with("pynvml", blank("ctypes.util"))


def import_asyncio() -> None:
    """Without ``ssl``, as on a Python built without it: OpenSSL is 4 MB in a program that never uses TLS over
    asyncio.
    """
    with without("ssl"):
        _import_with("asyncio", blank(*NOT_FOR_ASYNCIO))


def import_textual() -> None:
    """Without what it takes for downloads, errors in style sheets and lines between widgets, without its command
    palette, which comes when it is opened, and without widgets whose modules it imports for the name of a type.

    From Python 3.11 on ``typing`` has all that it takes from ``typing_extensions``.
    """
    # pathlib imports urllib with ipaddress, to write a path as a URL.
    _import_with("pathlib", blank("urllib.parse"))
    modules = blank(*NOT_FOR_TEXTUAL)
    if sys.version_info >= (3, 11):
        modules["typing_extensions"] = typing
    for name in ("textual.app", "textual.drivers.linux_driver"):
        _import_with(name, modules)
