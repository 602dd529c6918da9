"""Limits the size that a packed file may unpack to.

A kilobyte of gzip can stand for a megabyte that says nothing. Whoever unpacks asks as it goes,
with the packed bytes taken so far::

    if given > most_unpacked(taken):
        raise Damage(f"it unpacks to {TOO_MUCH}")
"""

from __future__ import annotations

FREE_BYTES = 1 << 20
"""A short text of one repeated line packs well: so much is never refused."""
TIMES = 100
"""Recordings and traces pack to a fifth to a thirtieth; gzip's own limit is a thousandth."""
MOST_BYTES = 16 << 30
"""More than any trace or recording holds."""
TOO_MUCH = f"more than {TIMES} times its size, as no recording or trace does"


def most_unpacked(packed_bytes: int) -> int:
    """Return the most bytes that so many packed bytes may give."""
    return min(MOST_BYTES, FREE_BYTES + TIMES * packed_bytes)
