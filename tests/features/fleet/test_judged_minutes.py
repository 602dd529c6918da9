"""The last hour of a GPU judged from samples: a minute by those since its owner came, and under that owner."""

from __future__ import annotations

from array import array

from gputop.features.fleet.fleet_reading import JobName
from gputop.features.fleet.read.decode_labels import GpuIdentity
from gputop.features.fleet.read.last_hour import COLUMNS, WINDOW, Owner, _GpuHour, _judged_minutes

ANNA: Owner = (JobName("slurm", "1"), "anna")
BOB: Owner = (JobName("slurm", "2"), "bob")


def _hour(before: float, after: float, change: int) -> _GpuHour:
    """A GPU whose utilisation and owner change at a minute; its SM activity is as its utilisation."""
    hour = _GpuHour(GpuIdentity("node-1", "0", "GPU-1", "H100", ("node-1:9400",)))
    hour.util = array("d", [before] * change + [after] * (COLUMNS - change))
    hour.sm, hour.owners = array("d", hour.util), [ANNA] * change + [BOB] * (COLUMNS - change)
    return hour


def test_a_new_owner_is_judged_by_its_own_minutes_alone() -> None:
    rows = list(_judged_minutes(_hour(0.0, 95.0, 30)))
    assert [column for column, *_ in rows] == list(range(WINDOW - 1, COLUMNS))
    assert {(owner, state, share) for column, owner, state, share in rows if column < 30} == {
        (ANNA, "allocated_unused", 1.0)
    }
    assert {(owner, state, share) for column, owner, state, share in rows if column >= 30} == {
        (BOB, "working", 0.0)
    }


def test_a_node_that_counts_its_seconds_is_believed_and_minutes_without_a_sample_are_no_minutes() -> (
    None
):
    hour = _hour(95.0, float("nan"), 40)
    hour.states = dict.fromkeys(range(20, 40), "starved")
    hour.counted_s = array("d", [15.0 * column for column in range(COLUMNS)])
    rows = {column: (state, share) for column, _, state, share in _judged_minutes(hour)}
    assert max(rows) == 39 and rows[10] == ("working", 0.0) and rows[30] == ("starved", 0.25)
