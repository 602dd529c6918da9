"""Reads pickles of plain containers, numbers and texts only.

A pickle can call anything that it can name. A name (of a class, a function, a persistent object, an extension) is
refused before it is looked up, so that only dict, list, tuple, set, str, bytes, int, float, bool and None can come
out. The address space is limited meanwhile, because a few bytes can ask for a table of any size.
"""

from __future__ import annotations

import os
import pickle
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from gputop.system.safe_open import open_regular

LARGEST_FILE = 4 << 30
BYTES_A_BYTE, BYTES_MORE = 30, 256 << 20
"""Memory that a file may take to read: real snapshots take 4 to 8 times their size."""


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
    """Load a file. Raises NotPlain and OSError."""
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
            with _bounded(BYTES_A_BYTE * size + BYTES_MORE):
                return _Plain(file).load()
        except (NotPlain, OSError):
            raise
        except MemoryError:
            raise NotPlain("asks for more memory than its size explains") from None
        except Exception:  # noqa: BLE001 - a damaged pickle can raise anything
            raise NotPlain("is a damaged pickle, or cut off: write it again") from None


@contextmanager
def _bounded(growth_bytes: int) -> Iterator[None]:
    """Limit the growth of the address space within the block."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm", "rb") as statm:
        limit = int(statm.read().split()[0]) * resource.getpagesize() + growth_bytes
    limit = limit if soft == resource.RLIM_INFINITY else min(limit, soft)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
