"""Training steps as a job announces them: how many in about a second, and how long they took.

A job says so by ``gputop.watch``; nobody outside can measure it. What a datagram or a recording claims is checked here.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

from msgspec import Struct

from gputop.model.secrets import masked_text
from gputop.model.text import clean_text

MOST_NAME = 64
"""Characters of the name of a run."""
MOST_STEPS = 10_000_000
_MOST_S = 1e7
_MOST_ID = 2**31
_MOST_SAMPLES = 1e15
_LEEWAY = 1e-3
"""Rounding of sums against minimum and maximum, as a share."""


class StepRow(Struct, frozen=True):
    """The steps of one process in about a second.

    ``pid`` is as this machine sees it. ``rank`` is the job's, ``gpu`` an index where the job knows it; both may be
    None. ``count`` steps took ``sum_s`` seconds together; the shortest, the longest, the median and the 99th
    percentile follow. The order of the fields up to here is that of the rows in a recording. ``samples`` is how many
    samples these steps had, ``wait_s`` how many of their seconds the process waited for others, ``data_wait_s`` for
    its own batches; each None where the job does not say.
    """

    pid: int
    rank: int | None
    gpu: int | None
    name: str
    count: int
    sum_s: float
    min_s: float
    max_s: float
    p50_s: float
    p99_s: float
    samples: float | None = None
    wait_s: float | None = None
    data_wait_s: float | None = None


BESIDE = ("samples", "wait_s", "data_wait_s")
COLUMNS = StepRow.__struct_fields__[: -len(BESIDE)]
"""The fields of a row in a recording; samples and waits stand beside the rows."""


def step_row(
    values: Sequence[object], samples: object = None, wait_s: object = None, data_wait_s: object = None
) -> StepRow | None:
    """A row of these values, in the order of the fields, its samples and waits; None where they cannot be true."""
    if len(values) != len(COLUMNS):
        return None
    pid, rank, gpu, name, count, *times = values
    if not (_is_whole(pid, 1) and _is_whole(count, 1, MOST_STEPS) and isinstance(name, str)):
        return None
    if not all(value is None or _is_whole(value, 0) for value in (rank, gpu)):
        return None
    if not all(_is_number(t) and isfinite(t) for t in times):  # type: ignore[arg-type]
        return None
    total, least, most, p50, p99 = (float(t) for t in times)  # type: ignore[arg-type]
    steps = float(count)  # type: ignore[arg-type]
    above, below = 1.0 + _LEEWAY, 1.0 - _LEEWAY
    if not (0.0 <= least <= most * above and most <= _MOST_S and least * below <= p50 <= most * above):
        return None
    if not (p50 * below <= p99 <= most * above and steps * least * below <= total <= steps * most * above):
        return None
    if samples is not None and not _is_amount(samples):
        return None
    for wait in (wait_s, data_wait_s):
        if wait is not None and not (_is_number(wait) and 0.0 <= wait <= total * above):  # type: ignore[operator]
            return None
    label = masked_text(clean_text(name))[:MOST_NAME]
    return StepRow(
        pid, rank, gpu, label, count, total, least, most, p50, p99, samples, wait_s, data_wait_s,  # type: ignore[arg-type]
    )  # fmt: skip


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_amount(value: object) -> bool:
    return _is_number(value) and 0.0 < value <= _MOST_SAMPLES  # type: ignore[operator]


def _is_whole(value: object, least: int, most: int = _MOST_ID) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value < most
