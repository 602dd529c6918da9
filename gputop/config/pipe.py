"""A configuration from a pipe, such as ``--config <(make-config)``, whose writer may never write or never end."""

from __future__ import annotations

import os
import time
from select import select

PIPE_S = 2.0
"""How long its writer has, from the first byte to the end."""


def read_pipe(pipe: int, most: int) -> bytes:
    """At most ``most`` bytes from a pipe, given as an open descriptor. Raises TimeoutError."""
    data, end = bytearray(), time.monotonic() + PIPE_S
    while len(data) < most:
        if not select([pipe], (), (), max(0.0, end - time.monotonic()))[0]:
            raise TimeoutError(0, f"it is a pipe, and its writer has not finished within {PIPE_S:g} s")
        piece = os.read(pipe, most - len(data))
        if not piece:
            break
        data += piece
    return bytes(data)
