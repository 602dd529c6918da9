"""The soak itself: what it measures with is right, and a short one passes through everything."""

from __future__ import annotations

import pytest

from tests.bench.soak import BEGUN, drawn, read, slope, started, ticks


def test_the_slope_is_bytes_a_tick() -> None:
    assert slope([(0, 100), (10, 150), (20, 200)]) == pytest.approx(5.0)
    assert slope([(0, 7), (5, 7), (9, 7)]) == 0.0


def test_processes_change_and_gpus_are_lost_and_found() -> None:
    seen = list(ticks(400))
    assert [s.t for s in seen] == [BEGUN + k for k in range(400)]
    lost = [[g.lost_reason is not None for g in s.gpus] for s in seen]
    assert lost[0] != lost[-1]
    assert any(not any(row) or row.count(True) < len(row) for row in lost)
    pids = [{p.pid for p in s.processes} for s in (seen[0], seen[-1])]
    assert not pids[0] & pids[1]


def test_a_short_soak_leaves_no_thread_and_no_descriptor_behind() -> None:
    assert drawn(20)["ticks"] == 20
    first, last = read(20)["descriptors"]
    assert last <= first
    assert started(5)["left"] == 0
