"""Libraries that others take along where they are installed, kept out of the start: see ``docs/design/speed.md``.

Each is optional for who imports it, and nothing of it is used here. Whoever imports one later gets it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import get_ident


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
    """Says so on this thread alone: another may be importing ``ssl`` to ask an exporter over https."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._thread = get_ident()

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> None:
        if name == self._name and get_ident() == self._thread:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def import_msgspec() -> None:
    """Without ``typing_extensions``: it brings ``inspect``, ``ast`` and ``tokenize`` along.

    From Python 3.11 on all that msgspec takes from it is in ``typing``.
    """
    if sys.version_info >= (3, 11):
        with without("typing_extensions"):
            import msgspec  # noqa: F401


def import_asyncio() -> None:
    """Without ``ssl``, as on a Python built without it: OpenSSL is 4 MB in a program that talks TLS over asyncio to
    nobody.
    """
    with without("ssl"):
        import asyncio  # noqa: F401
