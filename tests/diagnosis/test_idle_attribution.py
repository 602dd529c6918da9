"""The account of idle time: between its bounds lies the truth, bursts are not averaged away, and who has nothing to do
with the GPU is accused at no interval."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gputop.diagnosis.host.idle_attribution import (
    IdleAttribution,
    IdleSample,
    IdleTime,
    idle_attribution,
)
from gputop.diagnosis.window.host_activity import FeederRow
from gputop.diagnosis.window.host_side import HostMeans
from gputop.model.feeders import WaitEnd, main_looks
from gputop.model.snapshot import FeedTime, MainTime, ProcessSample, Snapshot
from gputop.monitor import Monitor
from tests.support.examples import looks
from tests.support.scenes import Watch, gpu, snap, train, workers


def main(**percent: float) -> HostMeans:
    return HostMeans(**{name: value / 100.0 for name, value in percent.items()})


def filled(
    seconds: list[tuple[float, HostMeans, list[FeederRow]]], busiest: int = 1, looked: int = 8
) -> IdleAttribution:
    """The account of these seconds, each with its util, main thread and feeders."""
    idle = IdleTime()
    for t, (util, did, rows) in enumerate(seconds):
        idle.add(IdleSample(float(t), 1.0, util, looked, did, rows))
    return idle_attribution(idle.intervals, busiest, moments=idle.moments)[0]


@looks(30)
@given(
    data=st.lists(
        st.lists(st.tuples(st.booleans(), st.booleans()), min_size=8, max_size=8),
        min_size=3,
        max_size=30,
    )
)
def test_the_true_share_always_lies_between_the_sums(data: list[list[tuple[bool, bool]]]) -> None:
    """Each second has eight parts, in which the GPU works or not and the main thread runs or not."""
    idle = sum(not works for second in data for works, _ in second)
    both = sum(runs and not works for second in data for works, runs in second)
    found = filled(
        [
            (
                12.5 * sum(works for works, _ in second),
                main(main=12.5 * sum(runs for _, runs in second)),
                [],
            )
            for second in data
        ]
    )
    if idle:
        assert found.main_run - 1e-6 <= both / idle <= found.most_main_run + 1e-6


def test_what_was_looked_at_enters_less_one_standard_error_and_what_was_counted_whole() -> None:
    ran = filled([(0.0, main(main=60.0), [])] * 8)
    assert ran.main_run == pytest.approx(0.6)
    waited = filled([(0.0, main(main_disk=60.0), [])] * 8)
    assert waited.main_disk == pytest.approx(0.6 - (0.6 * 0.4 / (30 * 8)) ** 0.5)


def test_few_looks_make_longer_cells_and_too_few_cells_say_nothing() -> None:
    assert filled([(0.0, main(main=90.0), [])] * 15, looked=1) == IdleAttribution()
    assert filled([(0.0, main(main=90.0), [])] * 16, looked=1).main_run == pytest.approx(0.9)


LOOKS_A_READING = {0.25: 2, 1.0: 6, 5.0: 6}
FOR_S = {0.25: 120.0, 1.0: 240.0, 5.0: 240.0}


def independent(
    util: float,
    interval_s: float,
    *,
    moments: bool,
    seed: int,
    listens: bool = False,
    server: str | None = None,
    for_s: float = 0.0,
) -> list[Snapshot]:
    """A GPU and a main thread that know nothing of each other, both read as they are: looks are single moments, and
    util is a mean over the interval, or of the last sixth of a second. The thread sleeps in four of five looks; that of
    a server polls."""
    draw, p = random.Random(seed), train(main=5.0, age_s=900.0)
    snapshots = []
    for tick in range(round((for_s or FOR_S[interval_s]) / interval_s)):
        parts = max(1, round(interval_s / 0.25))
        busy = [draw.random() < util / 100.0 for _ in range(parts)]
        read = 100.0 * busy[-1] if moments else 100.0 * sum(busy) / parts
        waited = [draw.random() < 0.8 for _ in range(LOOKS_A_READING[interval_s])]
        share = 95.0 * sum(waited) / len(waited)
        serves = listens or server is not None
        times = MainTime(
            disk=0.0, network=0.0, lock=0.0, sleep=0.0 if serves else share, poll=share if serves else 0.0, pipe=0.0,
            write=0.0, other=95.0 - share, unread=0.0,
        )  # fmt: skip
        process = replace(
            p, main=times, main_looks=main_looks([("other", len(waited))]),
            feeder_threads=2, listens=listens, net_rx_bytes_per_s=0.0, static=replace(p.static, server=server),
        )  # fmt: skip
        snapshots.append(snap(tick * interval_s, gpu(util=read, sm=0.9 * read), [process]))
    return snapshots


def verdicts(snapshots: list[Snapshot], interval_s: float) -> Counter[str]:
    monitor = Monitor(interval_s, charts=False)
    said = [monitor.feed(replace(s, interval_s=interval_s)).diagnoses[0].verdict for s in snapshots]
    return Counter(said[round(60.0 / interval_s) :])


NO_ACCUSATION = {"starved_unattributed", "healthy", "working", "low_demand", "idle"}
"""Six moments of a GPU in a window of 30 s may all be busy, or idle."""


@pytest.mark.parametrize("interval_s", sorted(LOOKS_A_READING))
@pytest.mark.parametrize("moments", [False, True])
@pytest.mark.parametrize("util", [pytest.param(70.0, marks=pytest.mark.slow), 85.0])
def test_a_main_thread_that_is_independent_of_its_gpu_is_never_accused(
    util: float, moments: bool, interval_s: float
) -> None:
    said = verdicts(independent(util, interval_s, moments=moments, seed=7), interval_s)
    assert said.keys() <= NO_ACCUSATION, said


@pytest.mark.slow
@pytest.mark.parametrize("seed", [505, 14, 17])
def test_no_other_run_of_chance_accuses_it_either(seed: int) -> None:
    said = verdicts(independent(70.0, 1.0, moments=False, seed=seed, for_s=1800.0), 1.0)
    assert said.keys() <= NO_ACCUSATION, said


@pytest.mark.parametrize("moments", [False, True])
@pytest.mark.parametrize("server", ["vllm", None])
def test_a_server_gets_the_same_verdict_at_each_interval_and_is_never_accused(
    server: str | None, moments: bool
) -> None:
    for interval_s in LOOKS_A_READING:
        said = verdicts(
            independent(
                35.0, interval_s, moments=moments, seed=3, listens=server is None, server=server
            ),
            interval_s,
        )
        assert said.most_common(1)[0][0] == "low_demand" and said.keys() <= NO_ACCUSATION, (
            interval_s,
            said,
        )


def test_who_is_not_waited_for_is_a_bystander() -> None:
    """An asynchronous checkpoint, a child by fork as the worker is, waits for its disk; main waits for the worker."""
    rows = workers(2, 0.0)
    computes = replace(
        rows[0], run_pct=99.0, feed=FeedTime(99.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0)
    )
    saves = replace(
        rows[1], feed=FeedTime(0.0, 0.0, 100.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0), write_bytes_per_s=2e7
    )

    def said(ends: tuple[WaitEnd, ...] | None) -> tuple[str, str, int]:
        p = replace(
            train(main=2.0, feeder_threads=0, main_looks=main_looks([("pipe", 4)])), waits_for=ends,
            main=MainTime(0.0, 0.0, 0.0, 0.0, 0.0, 98.0, 0.0, 0.0, 0.0),
        )  # fmt: skip
        watch = Watch()
        found = watch.feed(
            snap(t, gpu(util=20.0, sm=15.0), [p, computes, saves]) for t in range(45)
        )
        assert found.feeders is not None
        return found.verdict, found.cause or "", found.feeders.count

    assert said((WaitEnd("pipe", 98.0, (computes.pid,)),)) == ("dataloader_cpu", "cpu", 1)
    # Where nobody was seen at the other end, both may be it.
    assert said(None)[2] == said((WaitEnd("unknown", 98.0),))[2] == 2


def test_a_hole_is_no_information() -> None:
    """A GPU idles for thirteen minutes of which fifty seconds are not recorded: those are told apart."""
    p: ProcessSample = train(main=0.0, age_s=9000.0, gpu_mem_bytes=2.0**35)
    watch = Watch()
    watch.feed(snap(t, gpu(util=0.0, sm=0.0), [p]) for t in range(780) if not 400 <= t < 450)
    said = watch.said[-1][1]
    assert said.verdict == "idle_holding_memory" and "12 min" in said.title
    assert "50 s more are not recorded" in said.evidence[0]
    assert {d.verdict for t, d in watch.said if t >= 450} == {"idle_holding_memory"}
    # Another process on the other side is another story.
    other = Watch()
    other.feed(
        snap(t, gpu(util=0.0, sm=0.0), [p if t < 400 else replace(p, pid=9, starttime=1)])
        for t in range(500)
        if not 400 <= t < 450
    )
    assert other.said[-1][1].verdict == "idle"


@pytest.mark.parametrize(("bound", "least", "most"), [(0.62, 0.85, 1.0), (0.42, 0.0, 0.05)])
def test_the_sampling_error_is_that_of_the_whole_window(
    bound: float, least: float, most: float
) -> None:
    """Fifteen intervals with twelve looks each: an error for each of them would hide a true bound of 0.62."""
    draw, idle, windows, named = random.Random(11), 0.7, 200, 0
    waits = 1.0 - idle * (1.0 - bound)
    for _ in range(windows):
        time = IdleTime()
        for t in range(30):
            seen = sum(draw.random() < waits for _ in range(6)) / 6.0
            time.add(
                IdleSample(
                    float(t),
                    1.0,
                    100.0 * (1.0 - idle),
                    6,
                    main(main=0.0, main_network=100.0 * seen),
                )
            )
        named += "main_network" in idle_attribution(time.intervals, None, moments=time.moments)[1]
    assert least <= named / windows <= most, named
