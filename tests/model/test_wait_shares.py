"""Shares of time by wait state: sums, means, and the way to percent and back."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import astuple, replace

from gputop.model.snapshot import FeedTime, MainTime
from gputop.model.wait_shares import (
    WAIT_STATES,
    WaitShares,
    mean_of,
    percent,
    share_of,
    sum_of,
)

EACH = WaitShares(**{state: 0.01 * place for place, state in enumerate(WAIT_STATES, 1)})
"""Another share in each state, so that no state can stand in for another."""


def test_addition_and_scaling_hold_for_every_state() -> None:
    for state in WAIT_STATES:
        alone = WaitShares(**{state: 0.25})
        assert alone + alone == WaitShares(**{state: 0.5})
        assert alone.scaled(2.0) == WaitShares(**{state: 0.5})
        assert sum_of([alone, WaitShares(), alone]) == WaitShares(**{state: 0.5})
    assert astuple(EACH + EACH) == pytest.approx(astuple(EACH.scaled(2.0)))


def test_mean_of_several_is_their_sum_over_their_number() -> None:
    idle, busy = WaitShares(poll=1.0), WaitShares(run=0.5, disk=0.5)
    assert mean_of([idle, idle, idle, busy]) == WaitShares(run=0.125, disk=0.125, poll=0.75)
    assert mean_of([EACH]) == EACH
    assert mean_of([]) == WaitShares()


def test_useful_time_is_run_queue_disk_and_network_alone() -> None:
    useful = {state for state in WAIT_STATES if WaitShares(**{state: 1.0}).useful == 1.0}
    assert useful == {"run", "queued", "disk", "network"}
    assert {s for s in WAIT_STATES if WaitShares(**{s: 1.0}).cpu == 1.0} == {"run", "queued"}


def test_states_are_named_in_the_order_of_the_fields() -> None:
    assert list(EACH.by_state()) == list(zip(WAIT_STATES, astuple(EACH), strict=True))


def test_percent_is_written_with_one_digit_and_read_back() -> None:
    assert (percent(0.0), percent(0.12345), percent(1.0)) == (0.0, 12.3, 100.0)
    assert (share_of(None), share_of(0.0), share_of(12.5)) == (0.0, 0.0, 0.125)


def test_a_worker_is_written_in_percent_under_the_old_keys() -> None:
    worker = replace(EACH, pipe=0.0, write=0.0)
    written = FeedTime.of_shares(worker)
    assert written.shares == worker
    assert msgspec.to_builtins(written) == {
        "run": 1.0,
        "queued": 2.0,
        "disk": 3.0,
        "network": 4.0,
        "lock": 5.0,
        "sleep": 6.0,
        "poll": 7.0,
        "other": 10.0,
        "unread": 11.0,
    }


def test_a_main_thread_is_written_without_its_own_run() -> None:
    waits = replace(EACH, run=0.0, queued=0.0)
    written = MainTime.of_shares(waits, saves=0.02)
    assert written.shares == waits
    assert msgspec.to_builtins(written) == {
        "disk": 3.0,
        "network": 4.0,
        "lock": 5.0,
        "sleep": 6.0,
        "poll": 7.0,
        "pipe": 8.0,
        "write": 9.0,
        "other": 10.0,
        "unread": 11.0,
        "saves": 2.0,
    }


def test_values_that_were_not_measured_count_as_no_share() -> None:
    assert FeedTime().shares == MainTime().shares == WaitShares()
