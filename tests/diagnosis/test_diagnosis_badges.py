"""The badges: each on both sides of its thresholds, at once for alarms, sticky where they must be."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from msgspec.structs import replace

from gputop.diagnosis.memory_trend import growth
from gputop.diagnosis.types import GpuDiagnosis
from gputop.diagnosis.window.hardware_health import Health
from gputop.model.snapshot import CgroupName, Event, GpuSample, ProcessStatic
from gputop.monitor import Monitor
from gputop.sources.simulation.life import slurm
from tests.support.scenes import (
    GIB,
    HOST,
    T0,
    Watch,
    assert_told,
    badges,
    gpu,
    snap,
    steady,
    train,
    workers,
)


def over(seconds: int, sample: Callable[[int], GpuSample]) -> Watch:
    watch = Watch()
    watch.feed(snap(tick, sample(tick), [train()]) for tick in range(seconds))
    return watch


def every(n: int, reason: int, **changes: Any) -> Callable[[int], GpuSample]:
    """Clocks held down for this reason in each ``n``-th second."""
    return lambda tick: gpu(throttle_reasons=reason if tick % n == 0 else 0, **changes)


def capped(clock: float, util: float = 98.0, n: int = 2) -> Callable[[int], GpuSample]:
    return every(n, 4, util=util, sm_clock_mhz=1980.0 * clock)


def from_second(second: int, **changes: Any) -> Callable[[int], GpuSample]:
    return lambda tick: gpu(**changes) if tick >= second else gpu()


def waves(period: int, low: float = 5.0) -> Callable[[int], GpuSample]:
    return lambda tick: gpu(util=95.0 if tick % period < period // 2 else low)


OF_A_GPU: dict[str, tuple[Callable[[int], GpuSample], dict[str, Any]]] = {
    "software heat in a tenth of the window": (every(10, 0x20), {"badges": {"thermal": "red"}}),
    "hardware heat": (every(10, 0x40), {"badges": {"thermal": "red"}}), "less": (every(15, 0x20), {"lacks": "thermal"}),
    "less of hardware": (every(15, 0x40), {"lacks": "thermal"}),
    "brake": (every(10, 0x80), {"badges": {"power_brake": "red"}}), "less brake": (every(15, 0x80), {"badges": {}}),
    "capped with low clocks": (capped(0.749), {"badges": {"power_capped": "info"}}),
    "capped as at full load": (capped(0.75), {"badges": {}}),
    "capped and hardly busy": (capped(0.6, util=79.0), {"badges": {}}),
    "seldom capped": (capped(0.6, n=3), {"badges": {}}),
    "remap failed": (from_second(0, remap_failed=True), {"badges": {"ecc": "red"}}),
    "remap pending": (from_second(0, remap_pending=True), {"badges": {"ecc": "red"}}),
    "Xid 79": (from_second(10, xid=79), {"badges": {"ecc": "red"}}),
    "Xid 48": (from_second(10, xid=48), {"badges": {"ecc": "red"}}),
    "Xid 31": (from_second(10, xid=31), {"badges": {"xid": "yellow"}}),
    "narrow link": (from_second(0, pcie_width=8), {"has": "pcie_degraded"}),
    "slow link": (from_second(0, pcie_gen=3), {"has": "pcie_degraded"}),
    "slow link of a GPU that is not busy": (from_second(0, pcie_gen=1, util=49.0, sm=40.0), {"lacks": "pcie_degraded"}),
    "a good link": (from_second(0), {"badges": {}}),
    "narrow for less than half a minute": (from_second(32, pcie_width=8), {"lacks": "pcie_degraded"}),
    "memory full": (from_second(0, mem_used_bytes=76.0 * GIB), {"badges": {"memory_full": "yellow"}}),
    "memory nearly full": (from_second(0, mem_used_bytes=75.9 * GIB), {"badges": {}}),
    "stop and start": (waves(7), {"has": "stop_start"}), "slower": (waves(10), {"lacks": "stop_start"}),
    "not the whole way down": (waves(4, low=25.0), {"lacks": "stop_start"}),
}  # fmt: skip


@pytest.mark.parametrize("name", OF_A_GPU)
def test_a_gpu_gets_the_badges_that_it_deserves(name: str) -> None:
    sample, wanted = OF_A_GPU[name]
    assert_told(over(60, sample).said[-1][1], wanted)


def queued(wait: float, main: float = 2.0, **changes: Any) -> list[Any]:
    return [train(main=main), *workers(4, 100.0 - wait, wait, **changes)]


SWAP = {"swap_used_bytes": 4e9}
XORG = train(pid=900, type="G", gpu_mem_bytes=4e7, static=ProcessStatic(name="Xorg"))
OF_THE_HOST: dict[str, tuple[float, list[Any], dict[str, float], dict[str, Any]]] = {
    "queued, with pressure": (40.0, queued(30.0), {"psi_cpu_pct": 20.0}, {"has": "core_shortage"}),
    "queued, with a full host": (40.0, queued(30.0), {"cpu_pct": 90.0}, {"has": "core_shortage"}),
    "hardly queued": (40.0, queued(29.0), {"psi_cpu_pct": 60.0}, {"lacks": "core_shortage"}),
    "no pressure": (
        40.0,
        queued(60.0),
        {"psi_cpu_pct": 19.0, "cpu_pct": 89.0},
        {"lacks": "core_shortage"},
    ),
    "a busy GPU": (
        98.0,
        queued(60.0, main=100.0),
        {"cpu_pct": 99.0, "psi_cpu_pct": 70.0},
        {"badges": {}},
    ),
    "a limit": (40.0, queued(35.0, throttled_pct=10.0), {}, {"has": "cpu_limit"}),
    "a limit on a busy GPU": (
        98.0,
        queued(35.0, throttled_pct=10.0),
        {},
        {"badges": {"cpu_limit": "info"}},
    ),
    "hardly a limit": (40.0, queued(35.0, throttled_pct=9.9), {}, {"lacks": "cpu_limit"}),
    "swap that is merely occupied": (98.0, [train()], SWAP, {"badges": {}}),
    "swapping": (98.0, [train()], {**SWAP, "psi_mem_pct": 10.0}, {"badges": {"swap": "yellow"}}),
    "swap and a full memory": (
        98.0,
        [train()],
        {**SWAP, "mem_used_bytes": 470 * GIB},
        {"badges": {"swap": "yellow"}},
    ),
    "little swap": (
        98.0,
        [train()],
        {"swap_used_bytes": 9e8, "mem_used_bytes": 470 * GIB},
        {"badges": {}},
    ),
    "two that compute": (98.0, [train(), train(pid=4500)], {}, {"badges": {"shared_gpu": "info"}}),
    "a display beside": (98.0, [train(), XORG], {}, {"badges": {}}),
}


@pytest.mark.parametrize("name", OF_THE_HOST)
def test_what_the_host_lacks_is_a_badge(name: str) -> None:
    util, processes, host, wanted = OF_THE_HOST[name]
    assert_told(steady(45, gpu(util=util), processes, replace(HOST, **host)), wanted)


def test_thermal_shows_at_once() -> None:
    watch = over(70, from_second(60, throttle_reasons=0x40))
    assert watch.first(lambda said: "thermal" in badges(said)) == 62


def test_old_errors_never_count_and_new_ones_stay_until_acknowledged() -> None:
    watch = over(40, lambda tick: gpu(ecc_uncorrected=17))
    assert badges(watch.said[-1][1]) == {}
    said = watch.feed(snap(tick, gpu(ecc_uncorrected=18), [train()]) for tick in range(40, 120))
    assert badges(said) == {"ecc": "red"} and said.badges[0].sticky
    assert "1 new uncorrected ECC error (18 " in said.badges[0].evidence
    watch.diagnoser.acknowledge(0, "ecc")
    assert badges(watch.feed([snap(120, gpu(ecc_uncorrected=18), [train()])])) == {}
    said = watch.feed([snap(121, gpu(ecc_uncorrected=20), [train()])])
    assert (
        badges(said) == {"ecc": "red"}
        and "2 new uncorrected ECC errors (20 " in said.badges[0].evidence
    )
    # A counter that was reset is no error.
    counts = [3, 3, 0, 0, None, 0]
    assert badges(over(6, lambda tick: gpu(ecc_uncorrected=counts[tick])).said[-1][1]) == {}


def test_an_xid_that_comes_as_an_event_counts_once() -> None:
    watch = Watch()
    watch.feed([snap(0, gpu())])
    event = Event(T0 + 1, "xid", "Xid 94: contained error", 0, xid=94)
    said = watch.feed([replace(snap(1, gpu(xid=94)), events=(event,))])
    assert said.badges[0].evidence == "Xid 94"
    other = replace(snap(2, gpu(index=0, xid=94)), events=(replace(event, gpu=3, text="Xid 48"),))
    assert watch.feed([other]).badges[0].evidence == "Xid 94"


def xids(watch: Watch, tick: int, *codes: int, last: int | None) -> GpuDiagnosis:
    """The diagnosis after a sample with these Xid events, whose last Xid is ``last``."""
    events = tuple(Event(T0 + tick, "xid", f"Xid {code}", 0, xid=code) for code in codes)
    return watch.feed([replace(snap(tick, gpu(xid=last)), events=events)])


def test_a_repeated_xid_is_told_again_once_it_was_acknowledged() -> None:
    for code, badge in ((31, "xid"), (94, "ecc")):
        monitor = Monitor()
        for tick, events in enumerate(((), (code,), (), (code,))):
            told = tuple(Event(T0 + tick, "xid", f"Xid {code}", 0, xid=code) for _ in events)
            last = code if tick else None
            frame = monitor.feed(replace(snap(tick, gpu(xid=last)), events=told))
            if tick == 1:
                assert badges(frame.diagnoses[0]).keys() == {badge}
                monitor.acknowledge(0, badge)
            elif tick == 2:
                assert not badges(frame.diagnoses[0])
        assert [b.evidence for b in frame.diagnoses[0].badges] == [f"Xid {code}"]
        assert [finding.id for finding in frame.findings if finding.kind == "badge"] == [badge] * 2


def test_every_xid_event_counts_once_in_the_order_of_events() -> None:
    watch = Watch()
    xids(watch, 0, last=None)
    assert xids(watch, 1, 31, 43, last=43).badges[0].evidence == "Xid 31; Xid 43"
    assert xids(watch, 2, last=43).badges[0].evidence == "Xid 31; Xid 43"
    assert xids(watch, 3, 43, 43, last=43).badges[0].evidence.count("43") == 3
    hardware = Watch()
    xids(hardware, 0, last=None)
    assert xids(hardware, 1, 63, 94, last=94).badges[0].evidence == "Xid 63; Xid 94"


def test_the_last_xid_of_a_sample_counts_where_no_event_tells_it() -> None:
    watch = Watch()
    xids(watch, 0, last=None)
    assert xids(watch, 1, 31, last=None).badges[0].evidence == "Xid 31", "the sample is later"
    assert xids(watch, 2, last=31).badges[0].evidence == "Xid 31"
    assert xids(watch, 3, last=13).badges[0].evidence == "Xid 31; Xid 13"
    assert xids(watch, 4, last=None).badges[0].evidence == "Xid 31; Xid 13"
    assert xids(watch, 5, last=13).badges[0].evidence == "Xid 31; Xid 13", "read again"
    alone = Watch()
    xids(alone, 0, last=None)
    assert xids(alone, 1, last=45).badges[0].evidence == "Xid 45"


def test_the_xids_of_hardware_are_these() -> None:
    def is_hardware(xid: int) -> bool:
        health = Health()
        health.observe(gpu(xid=xid), ())
        return bool(health.errors)

    # Those of the device, its links, its driver and its memory, for which NVIDIA asks to do something.
    assert set(filter(is_hardware, range(200))) == {
        46, 48, 61, 62, 63, 64, 74, 79, 94, 95, 109, 110, 119, 120, 136, 140, 143, 144, 145, 146, 149, 150, 151, 154,
        155, 156, 158, 171, 172,
    }  # fmt: skip


def test_a_lost_gpu_is_red_at_once_and_judged_again_when_it_is_back() -> None:
    watch = over(40, lambda tick: gpu())
    lost = watch.feed(
        [snap(40, gpu(util=None, sm=None, lost_reason="it fell off the bus; reset it"))]
    )
    assert_told(lost, {
        "verdict": "collecting", "level": "red", "title": "LOST", "state": "unmeasured",
        "evidence": ("it fell off the bus",), "badges": {"lost": "red"},
    })  # fmt: skip
    assert (lost.badges[0].evidence, lost.badges[0].remedy) == ("it fell off the bus", "reset it")
    back = watch.feed(snap(41 + tick, gpu(), [train()]) for tick in range(25))
    assert_told(back, {"verdict": "healthy", "badges": {}})


def memory(seconds: int, held: Callable[[int], float], used: float = 20 * GIB) -> dict[str, str]:
    """The badges after so many seconds of a process that holds so much."""
    rows = [(2 * t, train(gpu_mem_bytes=held(2 * t))) for t in range(seconds // 2)]
    return badges(
        Watch().feed(snap(t, gpu(mem_used_bytes=used), [p], interval_s=2.0) for t, p in rows)
    )


def test_memory_that_grows_for_ten_minutes_is_a_leak_and_one_that_settles_or_saws_is_none() -> None:
    def leak(t: int) -> float:
        return 20e9 + t * 100e6 / 60

    assert memory(800, leak) == {"memory_leak": "yellow"}
    assert memory(560, leak) == {}
    assert memory(800, leak, used=75 * GIB) == {"memory_leak": "red"}, (
        "5 GiB at 100 MB/min: full within an hour"
    )
    assert memory(800, lambda t: 20e9 + t * 19e6 / 60) == {}
    assert memory(800, lambda t: 20e9 + min(t, 200) * 100e6 / 60) == {}
    assert memory(800, lambda t: 20e9 + (t % 200) * 200e6) == {}
    assert memory(800, lambda t: 20e9 + (t // 400) * 5e9) == {}
    # Each of these is told from a leak by one condition alone: a plateau, and steps of a saw below a drop.
    assert growth([(20.0 * i, 20e9 + min(i, 27) * 100e6) for i in range(40)]) is None
    assert growth([(20.0 * i, 20e9 + i * 15e6 + i % 2 * 800e6) for i in range(40)]) is None


def test_a_server_fills_the_memory_on_purpose() -> None:
    serves = train(static=ProcessStatic(command="vllm serve llama", server="vllm"))
    assert badges(steady(40, gpu(mem_used_bytes=79 * GIB), [serves])) == {"memory_full": "info"}


def test_stop_and_start_is_counted_in_seconds_whatever_the_interval() -> None:
    # Every five seconds thirty samples are two and a half minutes: falls in them are no stop and start.
    samples = (snap(5 * i, gpu(util=95.0 if i % 3 else 5.0), interval_s=5.0) for i in range(60))
    assert "stop_start" not in badges(Watch().feed(samples))


JOB = slurm(8821)


def ranks(
    *sm: float | None, seconds: int = 85, job: CgroupName | None = JOB, **changes: Any
) -> Watch:
    """The GPUs of one job with this SM activity each; power tells where it is not known."""
    static = ProcessStatic(user="ml", command="python train.py", name="python", batch_job=job)
    gpus = [gpu(i, **{"util": 97.0, "sm": value, **changes}) for i, value in enumerate(sm)]
    if None in sm:
        gpus = [
            replace(g, sm_source="bound", power_w=650.0 if i == 0 else 400.0)
            for i, g in enumerate(gpus)
        ]
    watch = Watch()
    watch.feed(
        snap(tick, gpus, [train(i, static=static) for i in range(len(sm))])
        for tick in range(seconds)
    )
    return watch


def test_a_straggler_does_more_than_its_peers_for_a_minute() -> None:
    watch = ranks(91.0, 55.0, 53.0, 54.0)
    last = watch.said[-1][1]
    assert (
        badges(last).get("straggler") == "yellow" and "the others wait" in last.badges[0].evidence
    )
    shown = watch.first(lambda said: "straggler" in badges(said))
    assert shown is not None and 58 <= shown <= 75
    waits = ranks(55.0, 91.0, 53.0, 54.0).said[-1][1]
    assert badges(waits) == {"straggler": "info"}
    assert "waits" in waits.badges[0].evidence and "GPU 1" in waits.badges[0].evidence
    assert badges(ranks(None, None, None, None).said[-1][1]) == {"straggler": "yellow"}, "by power"
    assert badges(ranks(70.0, 54.0, 54.0, 54.0).said[-1][1]) == {"straggler": "yellow"}, (
        "by 16 points"
    )


@pytest.mark.parametrize(
    ("sm", "changes"),
    [
        ([69.0, 55.0, 53.0, 54.0], {}), ([91.0, 55.0], {}), ([30.0, 91.0, 90.0, 92.0], {}),
        ([91.0, 55.0, 53.0, 54.0], {"util": 79.0}), ([91.0, 55.0, 53.0, 54.0], {"job": None}),
        ([99.0, 40.0, 60.0, 80.0], {}),
    ],
    ids=["within 15 points", "two GPUs", "does less", "not all busy", "not one job", "wide spread"],
)  # fmt: skip
def test_no_straggler(sm: list[float], changes: dict[str, Any]) -> None:
    assert "straggler" not in badges(ranks(*sm, **changes).said[-1][1])


def test_a_badge_does_not_flicker_on_its_threshold() -> None:
    watch = over(120, lambda tick: gpu(mem_used_bytes=(76.1 if tick % 2 else 75.9) * GIB))
    shown = ["memory_full" in badges(said) for _, said in watch.said]
    assert sum(a != b for a, b in pairwise(shown)) <= 1
