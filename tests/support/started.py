"""A program that a test has started: it is gone when the test is."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from typing import Any

ENDS_S = 20.0
"""How long a program may take to end when it is asked to."""


@contextlib.contextmanager
def started(command: list[str], log: Any, **more: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A program that writes to ``log``; asked to end at the end of the block, and killed where it does not."""
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, **more
    )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(ENDS_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
