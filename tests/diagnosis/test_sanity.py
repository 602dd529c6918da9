"""What a driver cannot mean: said as not measured, on recordings too, and never where it may be true."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from msgspec.structs import replace

from gputop.diagnosis.window.conditions import flag_now
from gputop.diagnosis.window.sanity import (
    LASTS_S,
    LASTS_SLOW_S,
    STUCK_S,
    SanityFilter,
    believed_alone,
)
from gputop.model.snapshot import GpuSample, ProcessSample, Snapshot
from gputop.monitor import Frame, Monitor
from gputop.recording.reader import read_snapshots
from tests.diagnosis.test_real_loads import EXPECTED as REAL
from tests.diagnosis.test_real_loads import recorded
from tests.diagnosis.test_vectors import EXPECTED, VECTORS
from tests.support.scenes import GIB, gpu, snap, train

BLIND = {
    "sm_source": "none", "sm_active_pct": None, "tensor_active_pct": None, "dram_active_pct": None, "sm_window_s": None
}  # fmt: skip


def thor(power: float, **changes: Any) -> GpuSample:
    sample = gpu(util=0.0, mem_util_pct=0.0, power_w=power, power_limit_w=None, **BLIND, **changes)
    return replace(sample, static=replace(sample.static, name="NVIDIA Thor", unified_memory=True))


def at_rest(**changes: Any) -> GpuSample:
    """A discrete GPU on which nothing runs, at its lowest clock."""
    rest: dict[str, Any] = {
        "util": 0.0, "sm": 0.0, "dram": 0.0, "tensor_active_pct": 0.0, "power_w": 70.0, "sm_clock_mhz": 210.0,
        "mem_used_bytes": 0.1 * GIB,
    }  # fmt: skip
    return gpu(**{**rest, **changes})


def stuck(**changes: Any) -> GpuSample:
    return at_rest(
        **{"util": 100.0, "mem_util_pct": 3.0, "power_w": 6.0, "power_limit_w": 115.0, **changes}
    )


def all_believed(samples: Iterable[tuple[GpuSample, list[ProcessSample]]]) -> list[GpuSample]:
    readings = SanityFilter()
    return [
        readings.believed(snap(t, sample, rows)).gpus[0] for t, (sample, rows) in enumerate(samples)
    ]


def loaded_thor() -> list[Snapshot]:
    """Idle for ten seconds, then at work; the driver answers 0 all the time."""
    rows = [train(cpu_pct=60.0)]
    return [snap(t, thor(4.3 if t < 10 else 20.5), rows) for t in range(60)]


def frames(snapshots: Iterable[Snapshot]) -> list[Frame]:
    monitor = Monitor(charts=False)
    return [monitor.feed(snapshot) for snapshot in snapshots]


def test_a_driver_that_always_answers_0_is_not_believed_and_the_gpu_is_called_neither_idle_nor_lost() -> (
    None
):
    said = frames(loaded_thor())
    last = said[-1].snapshot.gpus[0]
    assert (last.util_pct, last.mem_util_pct, last.power_w) == (None, None, 20.5)
    assert last.unavailable["util_pct"] == "the driver answers 0 while the GPU draws 20 W"
    diagnosis = said[-1].diagnoses[0]
    assert (diagnosis.title, diagnosis.level, diagnosis.state) == (
        "no util: not judged",
        "grey",
        "unmeasured",
    )
    assert said[int(10 + LASTS_S)].snapshot.gpus[0].util_pct is None
    assert said[int(9 + LASTS_S)].snapshot.gpus[0].util_pct == 0.0


def test_what_cannot_be_is_the_same_in_a_frame_a_replay_that_goes_on() -> None:
    snapshots = loaded_thor()
    first = Monitor(charts=False)
    for snapshot in snapshots[:30]:
        first.feed(snapshot)
    later = Monitor(charts=False, after=first.judgement())
    assert later.feed(snapshots[30]).snapshot.gpus[0].util_pct is None


@pytest.mark.parametrize("sample", [at_rest(sm=25.0), stuck()])
def test_a_util_that_is_not_believed_is_judged_in_no_sample_of_the_window(
    sample: GpuSample,
) -> None:
    said = [frame.diagnoses[0] for frame in frames(snap(t, sample) for t in range(60))]
    not_judged = next(t for t, d in enumerate(said) if d.title == "no util: not judged")
    assert not_judged <= STUCK_S
    assert {d.title for d in said[not_judged:]} == {"no util: not judged"}


@pytest.mark.parametrize(
    ("witness", "words"),
    [
        ({"sm": 45.0}, "while its SMs are active 45 % of the time"),
        ({"tensor_active_pct": 20.0}, "while a pipe is active 20 % of the time"),
        ({"graphics_active_pct": 60.0}, "while its engine is active 60 % of the time"),
    ],
)
def test_counters_that_show_work_refute_a_util_of_0(witness: dict[str, float], words: str) -> None:
    assert words in all_believed([(at_rest(**witness), [])] * 20)[-1].unavailable["util_pct"]


def test_the_driver_s_own_share_of_a_process_refutes_a_util_of_0() -> None:
    rows = [train(gpu_time_pct=40.0)]
    assert all_believed([(at_rest(), rows)] * 20)[-1].util_pct is None


def test_a_util_above_0_that_was_seen_once_is_believed_for_good() -> None:
    samples = (
        [(at_rest(sm=40.0), [])] * 20
        + [(at_rest(util=30.0, sm=40.0), [])]
        + [(at_rest(sm=40.0), [])] * 30
    )
    assert [sample.util_pct for sample in all_believed(samples)][20:] == [30.0] + [0.0] * 30


def test_a_util_stuck_after_a_suspend_is_not_believed_and_nobody_is_accused() -> None:
    said = frames(snap(t, stuck()) for t in range(180))
    last = said[-1].snapshot.gpus[0]
    assert last.util_pct is None and last.sm_active_pct == 0.0
    assert (
        "stuck at 100 since 20:26 UTC, with no process and 6 W; open and close a CUDA context"
        in last.unavailable["util_pct"]
    )
    assert said[-1].diagnoses[0].busy_not_working is None and said[-1].diagnoses[0].level == "grey"
    assert said[int(STUCK_S) - 1].snapshot.gpus[0].util_pct == 100.0


@pytest.mark.parametrize(
    "but",
    [
        {"util": 94.0}, {"sm": 0.5}, {"power_w": 30.0}, {"mem_used_bytes": 1.1 * GIB}, {"mem_used_bytes": None},
        {"power_w": None, "sm": None}, {"power_limit_w": None, "sm": None},
        {"unavailable": {"processes": "no permission"}},
    ],
)  # fmt: skip
def test_a_busy_util_is_believed_beside_anything_that_may_be_work(but: dict[str, Any]) -> None:
    assert all_believed([(stuck(**but), [])] * 60)[-1].util_pct is not None
    assert all_believed([(stuck(), [train()])] * 60)[-1].util_pct == 100.0


def test_a_util_that_moves_is_not_stuck() -> None:
    samples = [(stuck(util=100.0 if t % 20 else 99.0), []) for t in range(120)]
    assert all(sample.util_pct is not None for sample in all_believed(samples))


@pytest.mark.parametrize("clocks", [(1980.0, 210.0), (1980.0, 1500.0)])
def test_activity_per_cycle_says_so_where_the_clock_swings_and_no_flag_rests_on_it(
    clocks: tuple[float, float],
) -> None:
    busy = gpu(util=95.0, sm=10.0)
    before, now = all_believed([(replace(busy, sm_clock_mhz=clock), []) for clock in clocks])
    assert not before.doubts
    assert now.doubts == {"sm_active_pct": f"per cycle, clock {clocks[1]:.0f}–{clocks[0]:.0f} MHz"}
    assert (flag_now(before), flag_now(now)) == ("A", None)


@pytest.mark.parametrize("name", sorted((*REAL, *EXPECTED)))
def test_nothing_is_impossible_in_what_gpus_did(name: str) -> None:
    readings = SanityFilter()
    for snapshot in (
        recorded(name) if name in REAL else read_snapshots(str(VECTORS / f"{name}.jsonl"))
    ):
        for before, after in zip(snapshot.gpus, readings.believed(snapshot).gpus, strict=True):
            assert after.unavailable == before.unavailable


def _quiet(rng: random.Random) -> dict[str, Callable[[int], tuple[GpuSample, list[ProcessSample]]]]:
    """GPUs that do nothing and look as if they did, by what they are."""

    def noise(value: float) -> float:
        return max(0.0, rng.gauss(value, 0.05 * value))

    holder = [train()]
    after_load = [
        gpu(util=0.0, sm=40.0, sm_source="dcgm-exporter", power_w=400.0),
        at_rest(sm_source="dcgm-exporter"),
    ]
    parent = replace(at_rest().static, mig_enabled=True)
    instance = replace(parent, mig_parent="GPU-0", uuid="MIG-1")
    return {
        # 72 W bare, 122 W with a context, at the highest clock.
        "a context": lambda t: (
            at_rest(power_w=noise(72.0 if t < 60 else 122.0), sm_clock_mhz=1980.0),
            holder,
        ),
        # 2.9 times its power, as an L40S.
        "locked clocks": lambda t: (
            at_rest(power_w=noise(35.0 if t < 60 else 101.0), sm_clock_mhz=2520.0),
            holder,
        ),
        "a display": lambda t: (
            at_rest(util=float(t % 60 == 0), sm=noise(0.4), power_w=noise(15.0), **BLIND),
            holder,
        ),
        "the minute after a load": lambda t: (after_load[t % 3600 > 60], []),
        "copies": lambda t: (
            at_rest(dram=noise(9.0), power_w=noise(95.0), pcie_rx_bytes_per_s=noise(2e10)),
            holder,
        ),
        "a MIG parent": lambda t: (replace(at_rest(util=None, **BLIND), static=parent), []),
        "a MIG instance": lambda t: (
            replace(at_rest(util=None, sm=noise(30.0)), static=instance),
            holder,
        ),
        "hidden processes": lambda t: (
            gpu(util=100.0, sm=30.0, power_w=noise(400.0), mem_used_bytes=40 * GIB),
            [],
        ),
        "hardware counters that lie": lambda t: (at_rest(sm=80.0, sm_source="counters"), []),
        "work at a low clock": lambda t: (stuck(sm=noise(2.0)), []),
        "a slow integrated GPU": lambda t: (thor(noise(5.0 if t < 60 else 11.0)), holder),
    }


@pytest.mark.parametrize("kind", _quiet(random.Random(1)))
def test_an_hour_of_quiet_gpus_is_believed(kind: str) -> None:
    """Eleven kinds, an hour each."""
    make = _quiet(random.Random(2))[kind]
    for sample in all_believed(make(t) for t in range(3600)):
        assert not sample.unavailable, sample.unavailable


def test_a_slow_source_must_show_work_for_longer_than_its_means_are_old() -> None:
    sample = at_rest(sm=40.0, sm_source="dcgm-exporter")
    believed = all_believed([(sample, [])] * int(LASTS_SLOW_S + 2))
    assert believed[int(LASTS_SLOW_S) - 1].util_pct == 0.0
    assert believed[-1].util_pct is None


def test_the_bound_goes_with_the_util_that_it_was_made_of() -> None:
    changes = {"sm_source": "bound", "sm_low_pct": 0.0, "sm_high_pct": 0.0}
    samples = [(replace(thor(4.3 if t < 10 else 20.5), **changes), []) for t in range(30)]
    last = all_believed(samples)[-1]
    assert (last.sm_source, last.sm_low_pct, last.sm_high_pct) == ("none", None, None)


@pytest.mark.parametrize(
    "bad", [101.5, -1.0, float("nan"), float(2**31 - 1), float(2**32 - 1), 2.0**47, float("inf")]
)
@pytest.mark.parametrize("key", ["util_pct", "sm_active_pct", "dram_active_pct"])
def test_a_percentage_that_can_be_none_is_not_measured_and_rounding_is_100(
    key: str, bad: float
) -> None:
    (sample,) = all_believed([(replace(gpu(), **{key: bad}), [])])
    assert getattr(sample, key) is None and "impossible" in sample.unavailable[key]
    (rounded,) = all_believed([(replace(gpu(), **{key: 100.8}), [])])
    assert (getattr(rounded, key), dict(rounded.unavailable)) == (100.0, {})


def test_a_zero_that_dcgm_missed_is_not_shown_and_one_beside_nothing_is() -> None:
    dcgm = gpu(util=30.0, sm=0.0, dram=0.0, tensor_active_pct=0.0, sm_source="dcgm-exporter")
    beside_engine, beside_nothing, of_gpm = (
        all_believed([(sample, [])])[0]
        for sample in (
            replace(dcgm, graphics_active_pct=21.7),
            replace(dcgm, graphics_active_pct=15.0),
            replace(dcgm, graphics_active_pct=21.7, sm_source="gpm"),
        )
    )
    assert (beside_engine.sm_active_pct, beside_engine.graphics_active_pct) == (None, 21.7)
    assert "missed" in beside_engine.unavailable["sm_active_pct"]
    assert (beside_nothing.sm_active_pct, of_gpm.sm_active_pct) == (0.0, 0.0)


def test_a_second_in_which_sm_says_more_than_util_counts_as_busy_by_sm() -> None:
    """An H100 at work, whose util is 0 in every fourth second."""
    said = frames(
        snap(t, gpu(util=0.0 if t % 4 == 0 else 98.0, sm=85.0), [train()]) for t in range(60)
    )
    assert said[4].snapshot.gpus[0].doubts == {"util_pct": "SM says more"}
    assert said[4].snapshot.gpus[0].util_pct == 0.0
    assert said[-1].diagnoses[0].state == "working"
    split = gpu(util=0.0, sm=55.0)
    split = replace(split, static=replace(split.static, mig_enabled=True))
    for other in (
        split,
        gpu(util=0.0, sm=55.0, sm_source="dcgm-exporter"),
        gpu(util=52.0, sm=55.0),
    ):
        assert not all_believed([(other, [])])[0].doubts


def test_a_job_in_bursts_is_as_idle_as_its_util_says_in_the_mean_however_sm_spreads_them() -> None:
    """Util is a moment of each second, SM the mean of all of it: the larger of the two in each would be 82."""
    said = frames(
        snap(t, gpu(util=100.0 if t % 5 < 3 else 0.0, sm=45.0 if t % 5 < 4 else 0.0), [train()])
        for t in range(60)
    )
    assert said[-1].diagnoses[0].verdict == "starved_unattributed"
    assert "idle 40 %" in said[-1].diagnoses[0].evidence[0]


@pytest.mark.parametrize(("renewed_s", "first_s"), [(1.0, 9.0), (0.25, 2.25)])
def test_a_value_that_comes_four_times_is_one_sample(renewed_s: float, first_s: float) -> None:
    """As a GeForce of the Blackwell generation renews its util; one that rests counts as often as it comes."""
    monitor = Monitor(0.25, charts=False)
    judged = resting = None
    for tick in range(60):
        t = 0.25 * tick
        util = 90.0 + 3.0 * (t // renewed_s % 3)
        samples = [gpu(util=util), gpu(1, util=97.0)]
        moving, still = monitor.feed(
            snap(t, samples, [train(), train(1)], interval_s=0.25)
        ).diagnoses
        judged = t if judged is None and moving.n >= 10 else judged
        resting = t if resting is None and still.n >= 10 else resting
    assert judged == first_s
    assert resting is not None and resting <= 3.25


def test_a_counter_that_reads_0_at_work_three_times_is_broken_until_it_counts_again() -> None:
    zero, counts = gpu(util=99.0, sm=0.0), gpu(util=99.0, sm=60.0)
    said = frames(
        snap(t, sample, [train()])
        for t, sample in enumerate([counts] * 20 + [zero] * 20 + [counts] * 20)
    )
    sm = [frame.snapshot.gpus[0].sm_active_pct for frame in said]
    assert sm == [60.0] * 20 + [0.0] * 2 + [None] * 18 + [60.0] * 20
    assert [badge.id for badge in said[30].diagnoses[0].badges] == ["counter_fault"]
    little = [gpu(util=99.0, sm=0.0, power_w=100.0)] * 20
    assert [sample.sm_active_pct for sample in all_believed((sample, []) for sample in little)] == [
        0.0
    ] * 20


@pytest.mark.parametrize(
    ("changes", "sm"),
    [
        ({"sm": 88.0, "sm_source": "dcgm-exporter"}, None),
        ({"sm": 5.1, "sm_source": "dcgmi"}, None),
        ({"sm": 5.0, "sm_source": "dcgm-exporter"}, 5.0),
        ({"sm": 88.0, "sm_source": "dcgm-exporter", "util": 1.0}, 88.0),
        # GPM counts between the two readings; an H100's util is 0 in 30 of 117 s of work.
        ({"sm": 58.0, "sm_source": "gpm"}, 58.0),
    ],
)
def test_one_reading_does_not_believe_an_exporter_that_contradicts_utilisation(
    changes: dict[str, Any], sm: float | None
) -> None:
    checked = believed_alone(snap(0, gpu(**{"util": 0.0, **changes})))
    (sample,) = checked.gpus
    assert sample.sm_active_pct == sm
    told = f"{sample.sm_reason} {checked.notices}"
    assert ("contradicts utilisation 0 %" in told) is (sm is None)
    assert (sample.tensor_active_pct is None) is (sm is None)
