"""gputop.features.traces.idle_causes: which long gaps happened once, at the limits of "long" and "once"."""

from __future__ import annotations

import pytest

from gputop.features.traces.host_causes import CAUSES, Cause
from gputop.features.traces.idle_causes import (
    LONG_PART,
    RECURS,
    START_CALL_NS,
    Gap,
    IdleTime,
    LongIdle,
    happened_once,
)

WINDOW_NS = 1_000_000_000
LONG_NS = int(LONG_PART * WINDOW_NS)


def idle(cause: Cause, spent_ns: int, elsewhere_ns: int, steps: int = 2) -> IdleTime:
    """One gap in the first step, and idle time of the same cause in the last."""
    rows = [dict.fromkeys(CAUSES, 0) for _ in range(steps)]
    rows[0][cause] += spent_ns
    rows[-1][cause] += elsewhere_ns
    gap = Gap(0, spent_ns, 1, (0, spent_ns))
    return IdleTime(rows, long=[LongIdle(gap, 0, {cause: spent_ns})])


def is_once(cause: Cause, spent_ns: int, elsewhere_ns: int = 0, steps: int = 2) -> bool:
    found = happened_once(idle(cause, spent_ns, elsewhere_ns, steps), WINDOW_NS, named=False)
    return bool(found)


@pytest.mark.parametrize(("spent_ns", "once"), [(LONG_NS - 1, False), (LONG_NS, True)])
def test_a_gap_is_long_from_a_twentieth_of_the_window_on(spent_ns: int, once: bool) -> None:
    assert is_once("host_work", spent_ns) == once


@pytest.mark.parametrize("steps", [1, 2])
def test_a_cause_that_recurs_elsewhere_did_not_happen_once(steps: int) -> None:
    quarter_ns = int(RECURS * LONG_NS)
    assert is_once("host_work", LONG_NS, quarter_ns - 1, steps)
    assert not is_once("host_work", LONG_NS, quarter_ns, steps)


def test_a_start_of_a_library_is_told_from_a_loop_by_its_length_where_one_step_is_seen() -> None:
    # In one step that nobody announced; what recurs elsewhere does not matter there.
    assert is_once("allocator", START_CALL_NS, START_CALL_NS, steps=1)
    assert not is_once("allocator", START_CALL_NS - 1, START_CALL_NS, steps=1)


def test_what_was_not_recorded_is_no_cause() -> None:
    assert not is_once("not_recorded", WINDOW_NS)
