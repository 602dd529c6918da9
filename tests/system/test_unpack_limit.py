"""A packed file gives at most a multiple of its size."""

from __future__ import annotations

import gzip
import json

from gputop.system.unpack_limit import FREE_BYTES, MOST_BYTES, most_unpacked


def test_limit_grows_with_the_packed_size_up_to_a_fixed_one() -> None:
    assert most_unpacked(0) == FREE_BYTES
    assert most_unpacked(10**6) == FREE_BYTES + 10**8
    assert most_unpacked(10**12) == MOST_BYTES


def test_what_programs_write_is_below_it_and_empty_filling_above() -> None:
    events = [
        {"ph": "X", "cat": "kernel", "name": "ampere_sgemm_128x64_tn", "pid": 0, "tid": 7,
         "ts": 1.7e15 + 13.127 * number, "dur": 9.3 + number % 7, "args": {"correlation": number}}
        for number in range(20_000)
    ]  # fmt: skip
    honest, filling = json.dumps(events).encode(), b"{}," * 4_000_000
    assert len(honest) < most_unpacked(len(gzip.compress(honest)))
    assert len(filling) > most_unpacked(len(gzip.compress(filling)))
