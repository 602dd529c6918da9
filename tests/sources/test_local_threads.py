"""The collecting threads: a failing read is told, a hanging one is not waited for."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import count

import pytest
from msgspec.structs import replace

from gputop.diagnosis.window.conditions import flag_now
from gputop.model.sm import SmOptions
from gputop.model.snapshot import GpuSample, GpuStatic, HostSample, Machine, Snapshot
from gputop.output.snapshot_data import once_data
from gputop.session.arrivals import Arrivals
from gputop.sources.activity.fallback_chain import SmReadFailed
from gputop.sources.local import LocalSource
from gputop.sources.nvml.gpu_device import GpusReading
from gputop.sources.one_reading import OneReading, incomplete, waiting_for
from gputop.sources.pollers import machine
from gputop.sources.pollers.nvml import LOOK_AGAIN_S, NvmlPoller
from gputop.sources.pollers.process import HostReading, ProcessPoller
from gputop.sources.selection import MachineOptions
from tests.support.waiting import until

PATIENCE_S = 5.0


@pytest.fixture
def host_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(poller: ProcessPoller) -> HostReading:
        return HostReading(HostSample(cpu_pct=5.0), (), (), poller._known_gpus().is_read)

    monkeypatch.setattr(ProcessPoller, "read", read)


def test_a_command_that_reads_once_reads_proc_also_where_the_driver_does_not_answer(
    host_is_read: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs = threading.Event()
    monkeypatch.setattr(
        NvmlPoller, "read", lambda *_: hangs.wait(PATIENCE_S) and GpusReading(1.0, (), ())
    )
    monkeypatch.setattr(machine, "SILENT_S", 0.0)
    source = LocalSource(MachineOptions(interval_s=60.0), own_process=False)
    try:
        reading = source.read_once(0.3)
    finally:
        hangs.set()
        source.close()
    assert not reading.complete and reading.snapshot.host.cpu_pct == 5.0


def test_a_command_that_reads_once_has_the_reading_for_which_an_exporter_had_answered(
    host_is_read: None,
) -> None:
    """An answer may come while the driver is still asked for the rest of a reading."""
    sm = SmOptions("http://127.0.0.1:1/metrics")
    source = LocalSource(MachineOptions(interval_s=0.05, sm=sm), own_process=False)
    exporter, numbers = source._poller.nvml.sm_readers._made_exporter(), count()

    def read(*_: object) -> GpusReading:
        number = next(numbers)
        if number == 3:
            exporter.scrape(0.0)
        with suppress(SmReadFailed):
            exporter.newest(("GPU-0", None), 0.0)
        if number == 3:
            time.sleep(2.0 * LOOK_AGAIN_S)
        return GpusReading(float(number), (), (), notices=(f"reading {number}",))

    vars(source._poller.nvml.session).update(ready=True, read=read, ask_seldom=lambda *_: None)
    try:
        reading = source.read_once(PATIENCE_S)
    finally:
        source.close()
    assert (reading.complete, reading.snapshot.notices) == (True, ("reading 3",))


def test_values_of_a_driver_that_is_late_have_their_age(
    host_is_read: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "LATE_S", 0.0)
    numbers, comes, seen = count(), threading.Event(), list[Snapshot]()

    def read(*_: object) -> GpusReading:
        if next(numbers) == 2:
            comes.wait(PATIENCE_S)
        return GpusReading(time.time(), (), ())

    def taken(enough: Callable[[], bool]) -> bool:
        seen.extend(arrivals.new())
        return bool(seen) and enough()

    monkeypatch.setattr(NvmlPoller, "read", read)
    source = LocalSource(MachineOptions(interval_s=0.05), own_process=False)
    source._poller.nvml.looked.set()
    arrivals = Arrivals(source)
    arrivals.start()
    try:
        until(lambda: taken(lambda: sum("nvml" in s.stale for s in seen) >= 3))
        comes.set()
        until(lambda: taken(lambda: not seen[-1].stale))
    finally:
        comes.set()
        source.close()
    late = [s for s in seen if "nvml" in s.stale]
    ages = [s.stale["nvml"] for s in late]
    assert ages == sorted(set(ages)) and all("nvml" in s.repeats for s in late)


# What a command that looks once has when the driver is slow: all of it, or what is missing by name.

CARDS = tuple(GpuStatic(i, f"GPU-{i}", "NVIDIA H100 80GB HBM3") for i in range(4))
SAMPLE = GpuSample(
    CARDS[0], util_pct=90.0, sm_active_pct=20.0, sm_source="gpm", power_w=500.0, power_limit_w=700.0
)
SNAPSHOT = Snapshot(1.0, Machine("node"))


def samples(*indices: int) -> tuple[GpuSample, ...]:
    return tuple(replace(SAMPLE, static=CARDS[i]) for i in indices)


def under_way(
    chosen: tuple[GpuStatic, ...] = (), read: tuple[GpuSample, ...] = (), hung: tuple[int, ...] = ()
) -> GpusReading:
    return GpusReading(0.0, read, (), hung=hung, chosen=chosen)


def test_gpus_that_were_not_reached_are_named() -> None:
    reading = incomplete(
        replace(SNAPSHOT, gpus=samples(0)), under_way(CARDS, samples(0)), 10.0, False
    )
    assert (reading.complete, reading.has_measured) == (False, True)
    assert [(gpu.index, gpu.reason) for gpu in reading.missing] == [
        (i, "not read within 10 s") for i in (1, 2, 3)
    ]
    assert reading.snapshot.notices == (
        "GPU 1-3: not read within 10 s, the driver answers slowly; --wait gives it longer",
    )


def test_a_gpu_that_hangs_is_missing_though_it_has_a_row() -> None:
    hung = replace(GpuSample(CARDS[1]), lost_reason="NVML call x has not returned for 9 s")
    progress = under_way(CARDS[:2], (*samples(0), hung), (1,))
    reading = incomplete(replace(SNAPSHOT, gpus=progress.gpus), progress, 10.0, True)
    assert [(gpu.index, gpu.reason) for gpu in reading.missing] == [(1, hung.lost_reason)]
    assert reading.data()["missing_gpus"][0]["uuid"] == "GPU-1"
    assert reading.snapshot.notices == ()


def test_a_single_reading_is_not_called_complete() -> None:
    reading = incomplete(
        replace(SNAPSHOT, gpus=samples(0, 1)), under_way(CARDS[:2], samples(0, 1)), 10.0, True
    )
    assert (reading.complete, reading.missing) == (False, ())
    assert "need a second reading" in reading.snapshot.notices[0]


def test_nothing_is_measured_only_where_something_was_asked_for() -> None:
    assert OneReading(SNAPSHOT).has_measured, "every GPU was left out on purpose"
    assert not incomplete(SNAPSHOT, under_way(CARDS), 10.0, False).has_measured
    lost = replace(SAMPLE, lost_reason="GPU is lost")
    assert not OneReading(replace(SNAPSHOT, gpus=(lost,))).has_measured


@pytest.mark.parametrize(
    ("progress", "once", "words"),
    [
        (under_way(), False, "waiting for the driver to list its GPUs; at most 10 s"),
        (under_way(CARDS, samples(0)), False, "waiting for the driver: 1 of 4 GPUs read so far; at most 10 s"),
        (under_way(CARDS, samples(0, 1, 2, 3)), True, "waiting for the driver's second reading; at most 10 s"),
        (under_way(CARDS, samples(0), (2,)), False,
         "waiting for GPU 2, where a driver call has not returned; at most 10 s"),
    ],
)  # fmt: skip
def test_it_is_said_what_is_waited_for(progress: GpusReading, once: bool, words: str) -> None:
    assert waiting_for(progress, 10.0, once) == words


@pytest.mark.parametrize(
    ("util", "sm", "flag"),
    [(80.0, 29.9, "A"), (80.0, 30.0, None), (79.9, 20.0, "B"), (50.0, 15.0, None), (50.0, 14.9, "B"), (49.9, 5.0, None),
     (49.9, 4.9, "C"),
     (None, 5.0, None), (90.0, None, None)],
)  # fmt: skip
def test_one_sample_is_flagged_by_the_bounds_of_the_verdict(
    util: float | None, sm: float | None, flag: str | None
) -> None:
    gpu = replace(SAMPLE, util_pct=util, sm_active_pct=sm)
    assert flag_now(gpu) == flag
    (given,) = once_data(replace(SNAPSHOT, gpus=(gpu,)))["gpus"]
    assert (given["in_sample"] == "busy, not working") is (flag is not None)
    assert given["gap_pct"] == (None if util is None or sm is None else pytest.approx(util - sm))
    assert "busy_not_working" not in given
