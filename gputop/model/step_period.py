"""The length of a job's step as seen from outside: a value with its source. Checked here, found in the diagnosis."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any, Literal, cast, get_args

from msgspec import Struct

PeriodSource = Literal["nvlink", "power", "tensor"]
SOURCES: tuple[PeriodSource, ...] = get_args(PeriodSource)
SOURCE_WORDS: Mapping[PeriodSource, str] = {"nvlink": "NVLink", "power": "power", "tensor": "tensor activity"}
MOST_PERIODS = 256
_MOST_GPUS = 256
_MOST_S, _MOST_T = 1e5, 1e11


class StepPeriod(Struct, frozen=True):
    """A step of about ``period_s`` seconds on the GPUs with these indices, as ``source`` shows it.

    ``first_s`` is the length that was found first; ``grown_t`` is when it had become longer by a tenth, Unix time, None
    while it has not.
    """

    gpus: tuple[int, ...]
    period_s: float
    source: PeriodSource
    first_s: float
    grown_t: float | None = None


def period_value(period: StepPeriod) -> dict[str, Any]:
    """A period as an object of a recording."""
    given = {"gpus": list(period.gpus), "period_s": round(period.period_s, 3), "source": period.source,
             "first_s": round(period.first_s, 3)}  # fmt: skip
    return given if period.grown_t is None else {**given, "grown_t": round(period.grown_t, 3)}


def step_period(given: object) -> StepPeriod | None:
    """A period of what a recording says; None where it cannot be true."""
    if not isinstance(given, dict) or given.get("source") not in SOURCES:
        return None
    gpus, grown = given.get("gpus"), given.get("grown_t")
    if not isinstance(gpus, list) or not 0 < len(gpus) <= _MOST_GPUS:
        return None
    if not all(isinstance(gpu, int) and not isinstance(gpu, bool) and 0 <= gpu < 2**31 for gpu in gpus):
        return None
    times = given.get("period_s"), given.get("first_s")
    if not all(_is_time(time, _MOST_S) for time in times) or not (grown is None or _is_time(grown, _MOST_T)):
        return None
    period_s, first_s = cast("tuple[float, float]", times)
    return StepPeriod(tuple(gpus), float(period_s), given["source"], float(first_s), grown)


def _is_time(value: object, most: float) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and isfinite(value) and 0.0 < value < most
