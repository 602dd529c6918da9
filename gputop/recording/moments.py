"""Parse times such as ``12:03``, ``-10m`` or an ISO date.

Results are seconds since 1970. Nothing here reads a clock.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from gputop.model.quantity import SECONDS

_DISTANCE = re.compile(r"([+-])(\d+(?:\.\d+)?)(s|m|min|h|d)?")
WITHIN_S = 0.999
"""Seconds to the end of the second that a clock shows."""
TIME_OF_DAY = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?")


def moment(
    text: str, begin: float, end: float, now: float | None = None, *, keep: bool = True
) -> float:
    """Parse a time within a recording into Unix seconds.

    The recording lasts from ``begin`` to ``end``. ``-10m`` counts back from ``now``, or from the end without ``now``;
    ``+10m`` counts on from ``now``, or from the beginning. ``12:03`` is the first such local time of day at or after
    the beginning, taken at the end of its second: a screen shows whole seconds, and the frame that it showed is meant.
    ISO dates without a zone are local; a plain number is Unix time. With ``keep`` the result is clamped to the
    recording. Raises ValueError.
    """
    text = text.strip()
    if match := _DISTANCE.fullmatch(text):
        seconds = float(match.group(2)) * SECONDS[match.group(3) or ""]
        back = match.group(1) == "-"
        start = now if now is not None else (end if back else begin)
        t = start - seconds if back else start + seconds
    elif match := TIME_OF_DAY.fullmatch(text):
        t = _time_of_day(int(match.group(1)), int(match.group(2)), int(match.group(3) or 0), begin)
    else:
        try:
            t = float(text)
        except ValueError:
            t = _iso(text)
    return min(max(t, begin), end) if keep else t


def _time_of_day(hour: int, minute: int, second: int, begin: float) -> float:
    if hour > 23 or minute > 59 or second > 59:
        raise ValueError(f"{hour}:{minute:02d} is not a time of day")
    first = datetime.fromtimestamp(begin).astimezone()
    day = first.replace(hour=hour, minute=minute, second=second, microsecond=0)
    if day.timestamp() < int(begin):
        day += timedelta(days=1)
    return day.timestamp() + WITHIN_S


def _iso(text: str) -> float:
    try:
        # Python 3.10 does not know the Z of UTC.
        return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
    except (ValueError, OverflowError) as error:
        raise ValueError(
            f"{text}: not a time; write 12:03, -10m, +1h, 2026-11-20T12:03 or Unix seconds"
        ) from error
