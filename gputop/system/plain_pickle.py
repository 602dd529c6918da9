"""Reads pickles of plain containers, numbers and texts only.

A pickle can call anything that it can name. A name (of a class, a function, a persistent object, an extension) is
refused before it is looked up, so that only dict, list, tuple, set, str, bytes, int, float, bool and None can come
out. A few bytes can still ask for a table of any size, or for a key whose hash never ends, in C code that hears no
signal: a file from outside is read within ``system.children.in_a_fork``.
"""

from __future__ import annotations

import os
import pickle
from typing import Any, NoReturn

from gputop.system.safe_open import open_regular

LARGEST_FILE = 4 << 30


class NotPlain(Exception):
    """Reason why a file is no plain pickle; follows the file's name."""


class _Plain(pickle.Unpickler):
    def find_class(self, module: str, name: str, /) -> NoReturn:
        del module, name
        raise NotPlain(
            "holds more than plain containers, numbers and texts: it is not read, since a pickle can run code"
        )

    def persistent_load(self, pid: Any) -> NoReturn:
        del pid
        raise NotPlain("refers to objects outside of itself")


def load_plain(path: str) -> Any:
    """Load a file. Raises NotPlain, OSError and MemoryError."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > LARGEST_FILE:
            raise NotPlain(
                f"is larger than {LARGEST_FILE >> 30} GiB: record fewer entries (max_entries)"
            )
        if file.read(1) != b"\x80":
            raise NotPlain(
                "is no pickle: a snapshot is what torch.cuda.memory._dump_snapshot writes"
            )
        file.seek(0)
        try:
            return _Plain(file).load()
        except (NotPlain, OSError, MemoryError):
            raise
        except Exception:  # noqa: BLE001 - a damaged pickle can raise anything
            raise NotPlain("is a damaged pickle, or cut off: write it again") from None
