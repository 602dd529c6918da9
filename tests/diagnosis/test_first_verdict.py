"""A start is sampled four times a second: a verdict comes sooner, and says what one sample a second says later."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from statistics import median

import pytest
from msgspec.structs import replace

from gputop.diagnosis.types import GpuDiagnosis
from gputop.diagnosis.verdict.figure import UNDECIDED
from gputop.diagnosis.window.window import Second, evenly, gpu_means, gpu_second
from gputop.model.snapshot import Snapshot
from gputop.model.source import FAST_FOR_S, FAST_S
from gputop.monitor import Monitor
from gputop.recording.reader import read_snapshots
from gputop.sources.simulation.scenarios import SCENARIOS
from gputop.sources.simulation.simulated import snapshot_at
from tests.support.scenes import Watch, gpu, snap, train, workers

T0 = 1_780_000_000.0
WATCHED_S = 60.0
EARLY_S = 12.0
"""One sample a second gives no verdict before."""
RECORDED = sorted(Path(__file__).parents[1].glob("telemetry/*.gz"))
VECTORS = sorted(Path(__file__).parents[1].glob("vectors/*.jsonl"))
FILES = {path.name.split(".")[0]: path for path in (*RECORDED, *VECTORS)}
ALL_CLEAR = {"healthy", "working", "no_bottleneck_seen", "idle", "low_demand"}


def simulated(name: str, begin: float, fast_s: float) -> Iterator[Snapshot]:
    t = 0.0
    while t <= WATCHED_S:
        every = FAST_S if t <= fast_s else 1.0
        yield snapshot_at(T0 + begin + t, scenario=name, started=T0 - 300.0, interval_s=every)
        t += FAST_S if t < fast_s else 1.0


def resampled(snapshots: list[Snapshot], begins_fast: float, fast_s: float) -> Iterator[Snapshot]:
    """A recording, with every sample of some seconds four times, of which power alone differs."""
    for number, snapshot in enumerate(snapshots):
        if not begins_fast <= snapshot.t < begins_fast + fast_s:
            yield snapshot
            continue
        for quarter in range(4):
            power = 1.0 + 0.001 * ((4 * number + quarter) % 7)
            gpus = tuple(
                replace(g, power_w=None if g.power_w is None else g.power_w * power)
                for g in snapshot.gpus
            )
            yield replace(
                snapshot, t=snapshot.t - 0.75 + 0.25 * quarter, gpus=gpus, interval_s=FAST_S
            )


def said(snapshots: Iterator[Snapshot]) -> list[list[tuple[float, GpuDiagnosis]]]:
    """Each GPU's diagnoses, with the seconds since the first snapshot."""
    monitor, begin, frames = Monitor(charts=False), None, []
    for snapshot in snapshots:
        begin = snapshot.t if begin is None else begin
        frames.append([(snapshot.t - begin, d) for d in monitor.feed(snapshot).diagnoses])
    return [list(column) for column in zip(*frames, strict=True)]


def told(diagnosis: GpuDiagnosis) -> tuple[str, str | None]:
    return diagnosis.verdict, diagnosis.busy_not_working


def firsts(runs: Iterable[list[tuple[float, GpuDiagnosis]]], *but: str) -> list[float]:
    """Seconds until the first verdict, of GPUs that are not well."""
    judged = [
        next(((t, d) for t, d in run if d.verdict not in (*UNDECIDED, *but)), None) for run in runs
    ]
    return [found[0] for found in judged if found is not None and found[1].verdict not in ALL_CLEAR]


@cache
def recorded(path: Path) -> list[Snapshot]:
    return list(read_snapshots(str(path)))


def from_each_start(
    make: Callable[[float, float], Iterator[Snapshot]], begins: list[float]
) -> list[float]:
    """Seconds until a first verdict of a GPU that is not well; all early ones are seen later or elsewhere."""
    slow = [said(make(begin, 0.0)) for begin in begins]
    shown = [{told(d) for run in slow for _, d in run[place]} for place in range(len(slow[0]))]
    times = []
    for begin in begins:
        runs = said(make(begin, FAST_FOR_S))
        times += firsts(runs)
        for place, diagnoses in enumerate(runs):
            early = {told(d) for t, d in diagnoses if t < EARLY_S} - {
                ("collecting", None),
                ("startup", None),
            }
            assert early <= shown[place], (begin, place, early - shown[place])
    return times


STARTS = [0.0, 1.7, 3.3, 5.1, 8.9, 13.7, 21.0, 29.5]
QUICK = ("low_sm", "worker_restart")
LONG = ("node", "remedied", "sixteen", "hang")
"""Scenes of many GPUs, whose verdicts other scenes have, too."""
QUICK_FILES = ("h200_loader_cpu", "train_untuned", "dataloader_cpu", "busy_not_working_A")


def _marks(name: str) -> tuple[pytest.MarkDecorator, ...]:
    if name in QUICK:
        return ()
    return (pytest.mark.slow, pytest.mark.weekly) if name in LONG else (pytest.mark.slow,)


@pytest.mark.parametrize("name", [pytest.param(n, marks=_marks(n)) for n in SCENARIOS])
def test_an_early_verdict_of_a_simulated_gpu_is_one_that_it_gets_anyway(name: str) -> None:
    times = from_each_start(lambda begin, fast_s: simulated(name, begin, fast_s), STARTS)
    assert name != "low_sm" or max(times) <= 6.0


@pytest.mark.slow
def test_most_gpus_that_are_not_well_are_judged_within_six_seconds() -> None:
    runs = [said(simulated(name, begin, FAST_FOR_S)) for name in SCENARIOS for begin in STARTS[:2]]
    assert median(firsts(each for run in runs for each in run)) <= 6.0


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in QUICK_FILES else pytest.mark.slow) for n in FILES]
)
def test_an_early_verdict_of_a_recorded_gpu_is_one_that_it_gets_anyway(name: str) -> None:
    snapshots = recorded(FILES[name])
    begin = snapshots[0].t
    last = max(begin, snapshots[-1].t - 45.0)
    starts = [begin + share * (last - begin) for share in (0.0, 0.3, 0.6, 1.0)]

    def make(start: float, fast_s: float) -> Iterator[Snapshot]:
        return resampled([s for s in snapshots if s.t >= start], start, fast_s)

    from_each_start(make, starts)


def test_jobs_that_were_recorded_as_they_began_are_judged_within_eight_seconds_of_their_first_kernels() -> (
    None
):
    times = []
    for path in RECORDED:
        if not path.name.startswith("h200"):
            continue
        snapshots = recorded(path)
        kernels = next(s.t for s in snapshots if (s.gpus[0].util_pct or 0.0) >= 1.0)
        run = said(resampled(snapshots, kernels - 1.0, FAST_FOR_S))
        times += [t - (kernels - snapshots[0].t) for t in firsts(run, "idle")]
    assert len(times) >= 6 and median(times) <= 8.0, times


def test_a_steady_util_counts_as_often_as_anything_beside_it_moves() -> None:
    monitor = Monitor(charts=False)
    n = []
    for tick in range(10):
        samples = [gpu(util=97.0, power_w=200.0 + tick), gpu(1, util=97.0)]
        moving, still = monitor.feed(
            snap(0.25 * tick, samples, [train()], interval_s=0.25)
        ).diagnoses
        n.append((moving.n, still.n))
    assert n[3] == (4, 1) and n[9][0] == 10 > n[9][1]


def test_means_are_those_of_time_where_samples_are_not_of_one_length() -> None:
    lengths = [(0.25, 0.0)] * 8 + [(1.0, 100.0)] * 2
    window = [
        Second(float(t), dt, gpu_second(gpu(util=util), None))
        for t, (dt, util) in enumerate(lengths)
    ]
    assert gpu_means(evenly(window)).util_pct == 50.0
    assert evenly(window[:8]) == window[:8]


def test_a_new_job_begins_undecided_and_is_not_called_idle_beside_its_kernels() -> None:
    monitor = Monitor(charts=False)
    idle = gpu(util=0.0, sm=0.0, power_w=70.0)
    before = [
        monitor.feed(snap(t, idle, [train(main=99.0, age_s=t)])).diagnoses[0] for t in range(30)
    ]
    begun = monitor.feed(snap(30, gpu(util=99.0), [train(age_s=30)])).diagnoses[0]
    assert before[-1].verdict in ("idle", "startup") and begun.verdict in UNDECIDED


def test_workers_are_counted_by_samples_and_not_by_the_length_of_samples() -> None:
    """At its end a job's workers go one after the other: the most of the last samples is how many there are."""
    steps = [(4, FAST_S)] * 8 + [(4, 1.0)] * 12 + [(1, 1.0)]
    t, watch = 0.0, Watch()
    for count, every in steps:
        t += every
        said = watch.feed(
            [snap(t, gpu(util=40.0), [train(main=2.0), *workers(count, 95.0)], interval_s=every)]
        )
    assert said.feeders is not None and said.feeders.count == 4
