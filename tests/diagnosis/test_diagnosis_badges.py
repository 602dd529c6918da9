"""The badges: each on both sides of its thresholds, at once for alarms, sticky where they must be."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from gputop.model.snapshot import CgroupName, Event, GpuSample, ProcessStatic, Snapshot
from gputop.sources.simulation.life import slurm
from tests.support.scenes import GIB, HOST, T0, Watch, badges, gpu, snap, steady, train, workers


def after(seconds: int, sample: Callable[[int], GpuSample]) -> dict[str, str]:
    return badges(Watch().feed(snap(tick, sample(tick), [train()]) for tick in range(seconds)))


@pytest.mark.parametrize("bit", [0x20, 0x40])
@pytest.mark.parametrize(("every", "found"), [(10, True), (15, False)])
def test_thermal_slowdown_in_a_tenth_of_the_window(bit: int, every: int, found: bool) -> None:
    shown = after(60, lambda tick: gpu(throttle_reasons=bit if tick % every == 0 else 0))
    assert shown.get("thermal") == ("red" if found else None)


def test_thermal_shows_at_once() -> None:
    watch = Watch()
    watch.feed(snap(tick, gpu(throttle_reasons=0x40 if tick >= 60 else 0), [train()]) for tick in range(70))
    assert watch.first(lambda said: "thermal" in badges(said)) == 62


def test_power_brake() -> None:
    assert after(60, lambda tick: gpu(throttle_reasons=0x80 if tick % 10 == 0 else 0)) == {"power_brake": "red"}
    assert after(60, lambda tick: gpu(throttle_reasons=0x80 if tick % 15 == 0 else 0)) == {}


@pytest.mark.parametrize(
    ("clock", "util", "share", "found"),
    [(0.749, 98.0, 2, True), (0.75, 98.0, 2, False), (0.6, 79.0, 2, False), (0.6, 98.0, 3, False)],
)
def test_power_capping_is_normal_unless_clocks_are_low(clock: float, util: float, share: int, found: bool) -> None:
    shown = after(
        60, lambda tick: gpu(util=util, throttle_reasons=4 if tick % share == 0 else 0, sm_clock_mhz=1980.0 * clock)
    )
    assert shown == ({"power_capped": "info"} if found else {})


def test_old_errors_never_count_and_new_ones_stay_until_acknowledged() -> None:
    watch = Watch()
    watch.feed(snap(tick, gpu(ecc_uncorrected=17), [train()]) for tick in range(40))
    assert badges(watch.said[-1][1]) == {}
    said = watch.feed([snap(40, gpu(ecc_uncorrected=18), [train()])])
    assert badges(said) == {"ecc": "red"}
    assert said.badges[0].sticky and "1 new uncorrected ECC error (18 " in said.badges[0].evidence
    said = watch.feed(snap(tick, gpu(ecc_uncorrected=18), [train()]) for tick in range(41, 200))
    assert badges(said) == {"ecc": "red"}
    watch.diagnoser.acknowledge(0, "ecc")
    assert badges(watch.feed([snap(200, gpu(ecc_uncorrected=18), [train()])])) == {}
    said = watch.feed([snap(201, gpu(ecc_uncorrected=20), [train()])])
    assert badges(said) == {"ecc": "red"}
    assert "2 new uncorrected ECC errors (20 " in said.badges[0].evidence


def test_a_counter_that_was_reset_is_no_error() -> None:
    watch = Watch()
    counts = [3, 3, 0, 0, None, 0]
    said = watch.feed(snap(tick, gpu(ecc_uncorrected=count)) for tick, count in enumerate(counts))
    assert badges(said) == {}


@pytest.mark.parametrize("key", ["remap_failed", "remap_pending"])
def test_row_remapping_trouble(key: str) -> None:
    assert after(20, lambda tick: gpu(**{key: True})) == {"ecc": "red"}


@pytest.mark.parametrize(
    ("xid", "shown"), [(79, {"ecc": "red"}), (48, {"ecc": "red"}), (31, {"xid": "yellow"}), (None, {})]
)
def test_xid_errors(xid: int | None, shown: dict[str, str]) -> None:
    assert after(20, lambda tick: gpu(xid=xid if tick >= 10 else None)) == shown


def test_an_xid_that_comes_as_an_event_counts_once() -> None:
    watch = Watch()
    watch.feed([snap(0, gpu())])
    event = Event(T0 + 1, "xid", "Xid 94: contained error", 0, xid=94)
    said = watch.feed([replace(snap(1, gpu(xid=94)), events=(event,))])
    assert said.badges[0].evidence == "Xid 94"
    other = replace(snap(2, gpu(index=0, xid=94)), events=(replace(event, gpu=3, text="Xid 48"),))
    assert watch.feed([other]).badges[0].evidence == "Xid 94"


def test_a_lost_gpu_is_grey_at_once_and_judged_again_when_it_is_back() -> None:
    watch = Watch()
    watch.feed(snap(tick, gpu(), [train()]) for tick in range(40))
    lost = watch.feed([snap(40, gpu(util=None, sm=None, lost_reason="it fell off the bus; reset it"))])
    assert (lost.verdict, lost.level, lost.title, lost.state) == ("collecting", "grey", "LOST", "unmeasured")
    assert lost.evidence == ("it fell off the bus",)
    assert badges(lost) == {"lost": "red"}
    assert (lost.badges[0].evidence, lost.badges[0].remedy) == ("it fell off the bus", "reset it")
    back = watch.feed(snap(41 + tick, gpu(), [train()]) for tick in range(25))
    assert (back.verdict, badges(back)) == ("healthy", {})


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"pcie_width": 8}, True),
        ({"pcie_gen": 3}, True),
        ({"pcie_gen": 1, "util": 49.0, "sm": 40.0}, False),
        ({}, False),
    ],
)
def test_a_degraded_link_counts_while_busy(changes: dict[str, Any], found: bool) -> None:
    assert ("pcie_degraded" in after(60, lambda tick: gpu(**changes))) == found


def test_a_degraded_link_needs_half_a_minute() -> None:
    assert "pcie_degraded" not in after(60, lambda tick: gpu(pcie_width=8 if tick >= 32 else 16))


@pytest.mark.parametrize(("used", "found"), [(76.0, True), (75.9, False)])
def test_memory_full_at_ninety_five_percent(used: float, found: bool) -> None:
    assert after(40, lambda tick: gpu(mem_used_bytes=used * GIB)) == ({"memory_full": "yellow"} if found else {})


def memory(seconds: int, held: Callable[[int], float], used: float = 20 * GIB) -> dict[str, str]:
    watch = Watch()
    said = watch.feed(
        snap(2.0 * t, gpu(mem_used_bytes=used), [train(gpu_mem_bytes=held(2 * t))], interval_s=2.0)
        for t in range(seconds // 2)
    )
    return badges(said)


def test_memory_that_grows_for_ten_minutes_is_a_leak() -> None:
    def leak(t: int) -> float:
        return 20e9 + t * 100e6 / 60

    assert memory(800, leak) == {"memory_leak": "yellow"}
    assert memory(560, leak) == {}
    assert memory(800, leak, used=75 * GIB) == {"memory_leak": "red"}, "5 GiB at 100 MB/min: full within an hour"
    assert memory(800, lambda t: 20e9 + t * 19e6 / 60) == {}


def test_memory_that_settles_or_saws_is_no_leak() -> None:
    assert memory(800, lambda t: 20e9 + min(t, 200) * 100e6 / 60) == {}
    assert memory(800, lambda t: 20e9 + (t % 200) * 200e6) == {}
    assert memory(800, lambda t: 20e9 + (t // 400) * 5e9) == {}


def test_core_shortage_needs_queued_workers_and_pressure() -> None:
    def said(wait: float, **host: float) -> bool:
        processes = [train(main=2.0), *workers(4, 100.0 - wait, wait)]
        return "core_shortage" in badges(steady(45, gpu(util=40.0), processes, replace(HOST, **host)))

    assert said(30.0, psi_cpu_pct=20.0)
    assert said(30.0, cpu_pct=90.0)
    assert not said(29.0, psi_cpu_pct=60.0)
    assert not said(60.0, psi_cpu_pct=19.0, cpu_pct=89.0)


def test_core_shortage_is_said_only_of_a_starved_gpu() -> None:
    processes = [train(main=100.0), *workers(4, 40.0, 60.0)]
    host = replace(HOST, cpu_pct=99.0, psi_cpu_pct=70.0)
    assert badges(steady(45, gpu(), processes, host)) == {}


@pytest.mark.parametrize(("throttled", "found"), [(10.0, True), (9.9, False)])
def test_cpu_limit(throttled: float, found: bool) -> None:
    processes = [train(main=2.0), *workers(4, 60.0, 35.0, throttled_pct=throttled)]
    assert ("cpu_limit" in badges(steady(45, gpu(util=40.0), processes))) == found


def test_swap_that_is_merely_occupied_is_not_swapping() -> None:
    assert badges(steady(45, gpu(), [train()], replace(HOST, swap_used_bytes=4e9))) == {}
    assert badges(steady(45, gpu(), [train()], replace(HOST, swap_used_bytes=4e9, psi_mem_pct=10.0))) == {
        "swap": "yellow"
    }
    full = replace(HOST, swap_used_bytes=4e9, mem_used_bytes=470 * GIB)
    assert badges(steady(45, gpu(), [train()], full)) == {"swap": "yellow"}


def test_two_compute_processes_share_a_gpu_and_a_display_does_not_count() -> None:
    assert badges(steady(45, gpu(), [train(), train(pid=4500)])) == {"shared_gpu": "info"}
    display = train(pid=900, type="G", gpu_mem_bytes=4e7, static=ProcessStatic(name="Xorg"))
    assert badges(steady(45, gpu(), [train(), display])) == {}


@pytest.mark.parametrize(("period", "found"), [(7, True), (10, False)])
def test_stop_and_start(period: int, found: bool) -> None:
    shown = after(60, lambda tick: gpu(util=95.0 if tick % period < period // 2 else 5.0))
    assert ("stop_start" in shown) == found


def test_stop_and_start_is_counted_in_seconds_whatever_the_interval() -> None:
    # Every five seconds thirty samples are two and a half minutes: falls in them are no stop and start.
    said = Watch().feed(
        replace(snap(5 * tick, gpu(util=95.0 if tick % 3 else 5.0)), interval_s=5.0) for tick in range(60)
    )
    assert "stop_start" not in badges(said)


def test_stop_and_start_needs_the_whole_way_down() -> None:
    assert "stop_start" not in after(60, lambda tick: gpu(util=95.0 if tick % 4 < 2 else 25.0))


JOB = slurm(8821)


def job(sm: list[float], seconds: int, util: float = 97.0, name: CgroupName | None = JOB, **changes: Any) -> Watch:
    watch = Watch()
    names = [name] * len(sm)

    def ranks() -> Iterator[Snapshot]:
        for tick in range(seconds):
            gpus = [gpu(i, util=util, sm=value, **changes) for i, value in enumerate(sm)]
            rows = [
                train(i, static=ProcessStatic(user="ml", command="python train.py", name="python", batch_job=names[i]))
                for i in range(len(sm))
            ]
            yield snap(tick, gpus, rows)

    watch.feed(ranks())
    return watch


def test_a_straggler_does_more_than_its_peers_for_a_minute() -> None:
    watch = job([91.0, 55.0, 53.0, 54.0], 85)
    assert badges(watch.said[-1][1]).get("straggler") == "yellow"
    shown = watch.first(lambda said: "straggler" in badges(said))
    assert shown is not None and 58 <= shown <= 75
    assert "the others wait" in watch.said[-1][1].badges[0].evidence


def test_those_that_wait_are_told_for_whom() -> None:
    said = job([55.0, 91.0, 53.0, 54.0], 85).said[-1][1]
    assert badges(said) == {"straggler": "info"}
    assert "waits" in said.badges[0].evidence and "GPU 1" in said.badges[0].evidence


@pytest.mark.parametrize(
    ("sm", "changes"),
    [
        ([69.0, 55.0, 53.0, 54.0], {}),
        ([91.0, 55.0], {}),
        ([30.0, 91.0, 90.0, 92.0], {}),
        ([91.0, 55.0, 53.0, 54.0], {"util": 79.0}),
        ([91.0, 55.0, 53.0, 54.0], {"name": None}),
        ([99.0, 40.0, 60.0, 80.0], {}),
    ],
    ids=["within 15 points", "two GPUs", "does less", "not all busy", "not one job", "wide spread"],
)
def test_no_straggler(sm: list[float], changes: dict[str, Any]) -> None:
    assert "straggler" not in badges(job(sm, 90, **changes).said[-1][1])


def test_power_tells_the_straggler_where_sm_is_not_measured() -> None:
    def ranks(tick: int) -> Snapshot:
        gpus = [gpu(i, sm=None, sm_source="bound", power_w=650.0 if i == 0 else 400.0) for i in range(4)]
        rows = [train(i, static=ProcessStatic(batch_job=slurm(1), name="python")) for i in range(4)]
        return snap(tick, gpus, rows)

    said = Watch().feed(ranks(tick) for tick in range(90))
    assert badges(said) == {"straggler": "yellow"}


def test_a_badge_does_not_flicker_on_its_threshold() -> None:
    watch = Watch()
    watch.feed(snap(tick, gpu(mem_used_bytes=(76.1 if tick % 2 else 75.9) * GIB), [train()]) for tick in range(120))
    changes = sum(
        1
        for (_, before), (_, now) in zip(watch.said, watch.said[1:], strict=False)
        if ("memory_full" in badges(before)) != ("memory_full" in badges(now))
    )
    assert changes <= 1
