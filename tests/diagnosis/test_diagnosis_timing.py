"""Time: how soon a verdict comes and goes, and that it does not flap."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import count, islice

import pytest
from msgspec.structs import replace

from gputop.diagnosis.host.idle_runs import DEMAND_PAUSES, BurstDetector
from gputop.diagnosis.verdict.verdict_state import THINNED
from gputop.model.feeders import main_looks
from gputop.model.snapshot import Event, GpuSample, ProcessSample, Snapshot
from tests.support.scenes import GIB, HOST, T0, Watch, badges, gpu, snap, train, workers

Scene = tuple[GpuSample, list[ProcessSample]]

HEALTHY: Scene = (gpu(), [train(main=30.0), *workers(4, 10.0)])
LIMIT_S = 35.0


def scene(sample: GpuSample, *processes: ProcessSample) -> Scene:
    return sample, list(processes)


SCENES: dict[str, Scene] = {
    "dataloader_cpu": scene(gpu(util=38.0, sm=33.0), train(main=2.0), *workers(4, 88.0, 12.0)),
    "dataloader_io": scene(
        gpu(util=47.0, sm=40.0),
        train(main_looks=main_looks([("lock", 4)]), main=1.0),
        *workers(4, 1.0, state="D", waiting_on="disk"),
    ),
    "main_process": scene(gpu(util=28.0, sm=25.0), train(main=95.0), *workers(4, 5.0)),
    "pcie_transfer": scene(
        gpu(util=45.0, sm=40.0, pcie_rx_bytes_per_s=15e9), train(main=95.0), *workers(4, 20.0)
    ),
    "small_kernels": scene(gpu(util=96.0, sm=8.0, dram=12.0), train(main=100.0), *workers(4, 5.0)),
    "communication": scene(
        gpu(util=96.0, sm=15.0, dram=8.0, tensor_active_pct=2.0, nvlink_rx_bytes_per_s=158e9),
        train(main=100.0),
    ),
    "memory_bandwidth": scene(gpu(dram=85.0), train(main=60.0)),
    "idle": scene(gpu(util=0.0, sm=0.0, power_w=70.0), train(main=0.0), *workers(4, 0.0)),
}


def watch_change(before: Scene, during: Scene, after: Scene, changed_s: int = 120) -> Watch:
    watch = Watch()
    for begin, seconds, (sample, processes) in (
        (0, 90, before),
        (90, changed_s, during),
        (90 + changed_s, 90, after),
    ):
        watch.feed(snap(begin + tick, sample, processes) for tick in range(seconds))
    return watch


@pytest.mark.parametrize("verdict", sorted(SCENES))
def test_a_verdict_comes_and_goes_within_35_s(verdict: str) -> None:
    watch = watch_change(HEALTHY, SCENES[verdict], HEALTHY)
    came = watch.first(lambda said: said.verdict == verdict)
    assert came is not None and came - 90 <= LIMIT_S
    went = watch.first(lambda said: said.verdict != verdict, after=205)
    assert went is not None and 0 <= went - 210 <= LIMIT_S


def test_a_cause_on_a_threshold_cannot_keep_an_old_verdict_alive() -> None:
    watch = Watch()
    watch.feed(snap(tick, *HEALTHY) for tick in range(60))
    for tick in range(60, 160):
        # L(w) swings through one half for five ticks each: neither verdict ever wins eight of ten.
        run = 100.0 if (tick // 5) % 2 else 0.0
        watch.feed([snap(tick, gpu(util=20.0, sm=18.0), [train(main=1.0), *workers(4, run)])])
    assert watch.said[-1][1].verdict != "healthy"


def _fast(seconds: float, every_s: float) -> list[Snapshot]:
    """Readings of a healthy job at this pace."""
    return [
        snap(
            k * every_s,
            gpu(util=97.0 + 0.5 * (k % 5), power_w=600.0 + k % 7),
            HEALTHY[1],
            interval_s=every_s,
        )
        for k in range(round(seconds / every_s))
    ]


def test_of_hundreds_of_readings_a_second_ten_are_judged() -> None:
    fast = _fast(4.0, 0.01)
    event = Event(T0 + 2.03, "xid", "Xid 94: contained error", 0, xid=94)
    fast[203] = replace(fast[203], events=(event,))
    said = Watch().feed(fast)
    assert said.n == 40 and THINNED in said.notes
    assert "ecc" in badges(said), "an event counts, whichever reading brought it"


@pytest.mark.parametrize("every_s", [0.1, 0.25])
def test_at_an_ordinary_pace_every_reading_is_judged(every_s: float) -> None:
    said = Watch().feed(_fast(4.0, every_s))
    assert said.n == round(4.0 / every_s) and THINNED not in said.notes


def test_a_gpu_that_appears_at_once_is_judged_at_once() -> None:
    watch = Watch()
    watch.feed(_fast(1.0, 0.25))
    both = watch.diagnoser.diagnose(snap(0.76, [HEALTHY[0], gpu(index=1)], HEALTHY[1]))
    assert len(both) == 2


def test_a_gap_longer_than_the_window_begins_the_window_again() -> None:
    watch = Watch()
    watch.feed(snap(tick, *SCENES["dataloader_cpu"]) for tick in range(60))
    back = watch.feed([snap(200, *HEALTHY)])
    assert (back.n, back.verdict) == (1, "dataloader_cpu"), (
        "the old verdict stands until there is a new one"
    )
    last = watch.feed(snap(201 + tick, *HEALTHY) for tick in range(30))
    assert last.verdict == "healthy"
    assert last.seconds is not None
    assert sum(last.seconds.values()) == pytest.approx(59 + 1 + 30, abs=0.01), (
        "the gap itself is nobody's time"
    )


@pytest.mark.parametrize("hole_s", [20.0, 3000.0])
def test_durations_are_recorded_time_and_a_hole_in_them_is_told(hole_s: float) -> None:
    """A hole is neither idle nor busy: 2 min before it and 1 min after it are three."""
    asleep = replace(train(main=0.0), state="T", gpu_mem_bytes=2 * GIB)
    ticks = [*range(120), *(120 + hole_s + tick for tick in range(60))]
    d = Watch().feed(snap(tick, gpu(util=0.0, sm=0.0), [asleep]) for tick in ticks)
    assert d.evidence[0].startswith("util 0 % for 3 min")
    assert ("50 min more are not recorded" in d.evidence[0]) is (hole_s > 30.0)
    assert "stopped by a signal (SIGSTOP) for 3 min" in d.evidence[1]
    assert d.lasted_s == pytest.approx(180.0, abs=2.0)
    assert d.began == pytest.approx(T0, abs=1.0)


def test_a_hole_is_no_pause_between_requests() -> None:
    seen = BurstDetector()
    for burst in range(DEMAND_PAUSES + 1):
        t = 100.0 * burst
        assert not seen.observe(t, 50.0), "what comes and goes is the recording"
        seen.observe(t + 1.0, 0.0)
        seen.pass_hole(98.0)


WANDERING: dict[str, tuple[float, float]] = {
    "util": (85.0, 100.0), "ratio": (0.75, 1.0), "tensor_active_pct": (15.0, 60.0), "dram": (15.0, 58.0),
    "power_w": (400.0, 690.0), "sm_clock_mhz": (1500.0, 1980.0), "pcie_rx_bytes_per_s": (0.0, 12e9),
    "mem_used_bytes": (50e9, 70e9), "main": (0.0, 100.0), "run": (0.0, 70.0), "cpu_pct": (5.0, 100.0),
}  # fmt: skip
"""What wanders on a healthy GPU that is well used, and on its host."""


def wandering(seed: int) -> Iterator[Snapshot]:
    """A snapshot a second; each value keeps nine tenths of its distance to the middle, and noise is added."""
    draw = random.Random(seed)
    now = {key: draw.uniform(low, high) for key, (low, high) in WANDERING.items()}
    for tick in count():
        for key, (low, high) in WANDERING.items():
            middle = (low + high) / 2
            step = draw.gauss(middle + 0.9 * (now[key] - middle), (high - low) / 6)
            now[key] = min(high, max(low, step))
        of_gpu = {key: now[key] for key in now if key not in ("ratio", "main", "run", "cpu_pct")}
        waits = main_looks(
            (draw.choice(("queue", "lock", "sleep", "network", "pipe", "disk", "run")), 1)
            for _ in "12"
        )
        sample = gpu(
            **of_gpu,
            sm=now["util"] * now["ratio"],
            throttle_reasons=draw.choice((0, 4)),
            ecc_uncorrected=2,
        )
        feeders = workers(
            2, now["run"], 0.3 * now["run"], waiting_on=draw.choice((None, "poll", "disk", "lock"))
        )
        yield snap(
            tick,
            sample,
            [train(main=now["main"], main_looks=waits), *feeders],
            replace(HOST, cpu_pct=now["cpu_pct"]),
        )


@pytest.mark.parametrize("seed", range(3))
def test_a_quarter_of_an_hour_of_healthy_noise_raises_no_alarm(seed: int) -> None:
    watch = Watch()
    watch.feed(islice(wandering(seed), 900))
    assert {
        f"{found.kind} {found.id}"
        for found in watch.diagnoser.findings()
        if found.level in ("yellow", "red")
    } == set()


def test_while_a_verdict_is_still_to_hold_the_words_say_so() -> None:
    watch = Watch()
    sample, processes = HEALTHY
    watch.feed(snap(tick, sample, processes) for tick in range(30))
    said = {
        tick: now.evidence
        for tick, (_, now) in enumerate(watch.said)
        if now.verdict == "collecting"
    }
    assert said[4] == ("5 of 10 samples",)
    assert said[12] == ("13 samples: a verdict shows once it has held for 5 s",)
    assert max(said) < 20
