"""What processes did before: bounded, per identity, forgotten after their end; values in, columns out."""

from __future__ import annotations

from math import floor, isnan, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gputop.model.derived import slowed
from gputop.model.history import KEPT_AFTER_END_S, MOST_PROCESSES, History, ProcessHistory
from gputop.model.snapshot import NOT_READ_YET, MainTime, ProcessSample
from gputop.monitor import Monitor
from gputop.sources.gpu_process import GpuProcess, unseen
from tests.support.examples import looks
from tests.support.frames import MOMENT
from tests.support.scenes import T0, gpu, snap, train


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


def test_a_process_that_was_not_read_yet_begins_no_series_of_its_own() -> None:
    history = ProcessHistory()
    history.observe(MOMENT, [unseen(GpuProcess(0, 1, 1e9), NOT_READ_YET)])
    assert not history.holds((1, None, 0))
    history.observe(MOMENT + 0.3, [_process(cpu_pct=80.0)])
    assert history.columns((1, 7, 0), "cpu_pct", 1.0, 1) == [80.0]


def test_what_was_not_measured_is_a_gap_and_not_zero() -> None:
    history = _fed(5, _process(cpu_pct=None, state=None))
    for name in ("cpu_pct", "main_pct", "in_disk_pct", "on_network_pct"):
        assert history.columns((1, 7, 0), name, 1.0, 2) == [None, None]


def test_a_sleeper_without_a_wait_channel_is_neither_on_the_network_nor_not() -> None:
    key = (1, 7, 0)
    unknown = _fed(5, _process(state="S"))
    assert unknown.columns(key, "on_network_pct", 1.0, 1) == [None]
    assert unknown.columns(key, "in_disk_pct", 1.0, 1) == [0.0]
    network = _fed(5, _process(state="S", main=MainTime(network=97.0)))
    assert network.columns(key, "on_network_pct", 1.0, 1) == [100.0]
    disk = _fed(5, _process(state="D", main=MainTime(network=97.0)))
    assert (disk.columns(key, "in_disk_pct", 1.0, 1), disk.columns(key, "on_network_pct", 1.0, 1)) == ([100.0], [0.0])


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
    assert history.holds((1, 7, 0))
    history.observe(MOMENT + 6 + KEPT_AFTER_END_S, [_process(2)])
    assert not history.holds((1, 7, 0))
    assert history.columns((1, 7, 0), "cpu_pct", 1.0, 2) == [None, None]
    assert history.holds((2, 7, 0))


def test_the_number_of_processes_is_bounded_and_gpu_processes_come_first() -> None:
    helpers = [_process(pid, "helper") for pid in range(100, 200)]
    loaders = [_process(pid, "loader") for pid in range(200, 240)]
    owners = [_process(pid, gpu_mem_bytes=1e9) for pid in range(300, 330)]
    history = _fed(3, *helpers, *loaders, *owners)
    held = [p for p in (*helpers, *loaders, *owners) if history.holds((p.pid, 7, 0))]
    assert len(held) == MOST_PROCESSES
    assert all(history.holds((p.pid, 7, 0)) for p in owners)
    assert not any(p.role == "helper" for p in held)


def test_a_crowd_that_changes_all_the_time_does_not_grow_the_history() -> None:
    history = ProcessHistory()
    for second in range(300):
        history.observe(MOMENT + second, [_process(pid) for pid in range(second, second + 20)])
    assert sum(history.holds((pid, 7, 0)) for pid in range(400)) == MOST_PROCESSES


def test_the_monitor_feeds_it_and_begins_afresh_when_the_clock_steps_back() -> None:
    monitor = Monitor()
    frames = [monitor.feed(snap(tick, gpu(), [train(cpu_pct=50.0)])) for tick in range(5)]
    key = (4000, 7000, 0)
    assert frames[-1].process_history.columns(key, "cpu_pct", 1.0, 2) == [50.0, 50.0]
    stepped = monitor.feed(snap(-100, gpu(), []))
    assert not stepped.process_history.holds(key)


def test_what_held_the_clocks_down_is_a_share_of_time() -> None:
    assert slowed(gpu(throttle_reasons=None))["slowed_heat_pct"] is None
    heat = slowed(gpu(throttle_reasons=0x8 | 0x40))
    assert (heat["slowed_heat_pct"], heat["slowed_brake_pct"], heat["slowed_cap_pct"]) == (100.0, 0.0, 0.0)
    assert slowed(gpu(throttle_reasons=0x8))["slowed_brake_pct"] == 100.0
    monitor = Monitor()
    frames = [monitor.feed(snap(tick, gpu(throttle_reasons=4 * (tick % 2)), [])) for tick in range(9)]
    (share,) = frames[-1].history.columns("GPU-0", "slowed_cap_pct", 4.0, 1)
    assert share == 50.0


def test_a_history_can_forget_a_key_and_say_how_far_back_it_reaches() -> None:
    history = History()
    for second in range(31):
        history.add(MOMENT + second, "a", {"x": 1.0})
        history.add(MOMENT + second, "b", {"x": 2.0})
    assert history.covered_s("a") == 30.0
    assert history.columns("a", "x", 1.0, 1) == [1.0]
    history.forget("a")
    assert history.covered_s("a") == 0.0
    assert history.columns("a", "x", 1.0, 1) == [None]
    assert history.columns("b", "x", 1.0, 1) == [2.0]


def test_marks_are_found_by_key_and_time() -> None:
    history = History()
    for t, key, text in ((T0, "a", "early"), (T0 + 5, "b", "other"), (T0 + 6, None, "all"), (T0 + 7, "a", "mine")):
        history.mark(t, key, text)
    assert history.marks_within("a", T0 + 1, T0 + 10) == [(T0 + 6, "all"), (T0 + 7, "mine")]


def test_a_sample_stands_for_as_long_as_its_own_source_aims_at() -> None:
    """A recording taken every five seconds, and the coarse past of a scenario, have no holes between their samples."""
    history = History()
    for second in range(0, 60, 5):
        history.add(MOMENT + second, "a", {"x": 1.0}, 5.0)
    assert history.columns("a", "x", 1.0, 50) == [1.0] * 50
    history.add(MOMENT + 100, "a", {"x": 1.0}, 5.0)
    assert history.columns("a", "x", 1.0, 20) == [None] * 15 + [1.0] * 5


def test_charts_that_nobody_looks_at_are_let_go_and_come_back_whole() -> None:
    history = History()
    for second in range(300):
        history.add(MOMENT + second, "a", {"x": float(second)})
    before = history.columns("a", "x", 1.0, 40)
    for width in range(2, 200):
        history.columns("a", "x", float(width), 40)
    for second in range(300, 340):
        history.add(MOMENT + second, "a", {"x": float(second)})
    history.columns("a", "x", 0.5, 40)
    assert len(history._charts) == 1
    assert history.columns("a", "x", 1.0, 80)[:40] == before


def test_a_chart_reaches_back_as_far_as_it_is_wide_however_long_the_past() -> None:
    history = History()
    for minute in range(300):
        history.add(MOMENT + 60 * minute, "a", {"x": float(minute)}, 60.0)
    hours = history.columns("a", "x", 600.0, 29)
    assert None not in hours
    assert hours == sorted(hours, key=float)  # type: ignore[arg-type]


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
