"""What processes did before: bounded, per identity, forgotten after their end; values in, columns out."""

from __future__ import annotations

from math import floor, isnan, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gputop.model.derived import slowed
from gputop.model.history import History
from gputop.model.process_history import KEPT_AFTER_END_S, ProcessHistory
from gputop.model.snapshot import ProcessSample
from gputop.monitor import Monitor
from tests.support.examples import looks
from tests.support.frames import MOMENT
from tests.support.scenes import gpu, snap


def _process(pid: int = 1, role: str = "gpu", **changes: object) -> ProcessSample:
    return replace(ProcessSample(pid, starttime=7, gpu=0, role=role, state="R"), **changes)  # type: ignore[arg-type]


def _fed(seconds: int, *processes: ProcessSample) -> ProcessHistory:
    history = ProcessHistory()
    for second in range(seconds):
        history.observe(MOMENT + second, processes)
    return history


def test_values_come_back_as_time_weighted_columns() -> None:
    history = _fed(20, _process(cpu_pct=80.0, main_run_pct=60.0, main_wait_pct=50.0))
    assert history.columns((1, 7, 0), "cpu_pct", 1.0, 3) == [80.0, 80.0, 80.0]
    assert history.columns((1, 7, 0), "main_pct", 1.0, 1) == [100.0]


def test_what_was_not_measured_is_a_gap_and_not_zero() -> None:
    history = _fed(5, _process(cpu_pct=None, state=None))
    for name in ("cpu_pct", "main_pct", "in_disk_pct", "on_network_pct"):
        assert history.columns((1, 7, 0), name, 1.0, 2) == [None, None]


def test_another_process_with_the_same_pid_has_its_own_series() -> None:
    history = _fed(5, _process(cpu_pct=80.0))
    history.observe(MOMENT + 5, [_process(starttime=8, cpu_pct=5.0)])
    assert history.columns((1, 7, 0), "cpu_pct", 1.0, 1) == [None]
    assert history.columns((1, 8, 0), "cpu_pct", 1.0, 1) == [5.0]


def test_no_more_than_one_value_a_second_is_kept() -> None:
    history = ProcessHistory(0.25)
    for tick in range(9):
        history.observe(MOMENT + tick / 4, [_process(cpu_pct=100.0 if tick % 4 == 0 else 0.0)])
    assert history.columns((1, 7, 0), "cpu_pct", 1.0, 2) == [100.0, 100.0]


def test_an_ended_process_is_kept_for_a_minute_and_then_forgotten() -> None:
    history = _fed(5, _process(), _process(2))
    for second in range(5, 5 + int(KEPT_AFTER_END_S)):
        history.observe(MOMENT + second, [_process(2)])
    assert history.has((1, 7, 0))
    history.observe(MOMENT + 6 + KEPT_AFTER_END_S, [_process(2)])
    assert not history.has((1, 7, 0))
    assert history.columns((1, 7, 0), "cpu_pct", 1.0, 2) == [None, None]
    assert history.has((2, 7, 0))


def test_what_held_the_clocks_down_is_a_share_of_time() -> None:
    assert slowed(gpu(throttle_reasons=None))["slowed_heat_pct"] is None
    heat = slowed(gpu(throttle_reasons=0x8 | 0x40))
    assert (heat["slowed_heat_pct"], heat["slowed_brake_pct"], heat["slowed_cap_pct"]) == (
        100.0,
        0.0,
        0.0,
    )
    assert slowed(gpu(throttle_reasons=0x8))["slowed_brake_pct"] == 100.0
    monitor = Monitor()
    frames = [
        monitor.feed(snap(tick, gpu(throttle_reasons=4 * (tick % 2)), [])) for tick in range(9)
    ]
    (share,) = frames[-1].history.columns("GPU-0", "slowed_cap_pct", 4.0, 1)
    assert share == 50.0


@looks(25)
@given(
    st.lists(st.one_of(st.none(), st.integers(0, 100).map(float)), min_size=40, max_size=80),
    st.sampled_from((1.0, 2.0, 20.0)),
    st.sampled_from((1.0, 60.0)),
)
def test_a_minute_s_mean_is_that_of_all_its_values_however_few_are_kept_at_full_rate(
    values: list[float | None], step_s: float, interval_s: float
) -> None:
    history, minutes = History(interval_s), dict[int, list[float]]()
    for i, value in enumerate(values):
        t = MOMENT + i * step_s
        history.add(t, "gpu", {"a": value} if i % 3 else {"a": value, "b": 1.0})
        minutes.setdefault(floor(t / 60.0), [])
        if value is not None:
            minutes[floor(t / 60.0)].append(value)
    *over, _ = minutes.values()
    kept = history._tracks["gpu"].minutes
    found = [kept.series("a"), kept.series("b")]
    assert all(series is None or len(series) == len(kept.times) == len(over) for series in found)
    means = [nan] * len(over) if found[0] is None else list(found[0])
    assert [None if isnan(mean) else mean for mean in means] == [
        pytest.approx(sum(known) / len(known)) if known else None for known in over
    ]
