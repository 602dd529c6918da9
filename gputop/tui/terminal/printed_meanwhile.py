"""What a library, such as the driver's, prints while a screen is drawn: it must not stand in the picture."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def dropped() -> Iterator[None]:
    """Meanwhile stdout and stderr lead nowhere, and the screen is drawn by a descriptor of its own: ``sys.__stderr__``.

    The terminal must be on both.
    """
    own = sys.__stderr__
    assert own is not None
    kept = [(number, os.dup(number)) for number in (1, 2)]
    nowhere = os.open(os.devnull, os.O_WRONLY)
    sys.__stderr__ = open(os.dup(2), "w", encoding=own.encoding, errors=own.errors)  # type: ignore[misc]  # noqa: SIM115
    for number, _ in kept:
        os.dup2(nowhere, number)
    try:
        yield
    finally:
        for number, terminal in kept:
            os.dup2(terminal, number)
            os.close(terminal)
        sys.__stderr__ = own  # type: ignore[misc]
        os.close(nowhere)
