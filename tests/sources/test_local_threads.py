"""The collecting threads: a failing read is told, a hanging one is not waited for."""

from __future__ import annotations

import json
import os
import queue
import threading
import time
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from gputop.diagnosis.conditions import flag_now
from gputop.model.snapshot import NOT_READ_YET, GpuSample, GpuStatic, HostSample, Machine, ProcessSample, Snapshot
from gputop.model.source import SourceError
from gputop.output.snapshot_data import once_data
from gputop.sources import readers as schedules
from gputop.sources.gpu_process import GpuProcess
from gputop.sources.local import LocalSource
from gputop.sources.machine_reader import LEAST_HOST_S, HostReading, MachineReader
from gputop.sources.nvml.gpm import CLOSEST_PAIR_S
from gputop.sources.nvml.gpu_device import GpusReading
from gputop.sources.one_reading import OneReading, incomplete, waiting_for
from gputop.sources.readers import LIVE_PROC_GRACE_S, NOTHING_READ, Readers
from gputop.sources.selection import MachineOptions
from tests.nvml.stand_in import GIB, Process, Scenario
from tests.support.local_reader import Run
from tests.support.sm_words import sm_words

PATIENCE_S = 5.0


def scripted(
    read_gpus: Callable[[int], GpusReading], read_host: Callable[..., Any], ask_seldom: Any = lambda _: None
) -> Any:
    """A machine's reader with these answers."""
    progress = NOTHING_READ
    session = SimpleNamespace(ticket=1, close=lambda: None, supersede=lambda _: None, progress=lambda: progress)
    reading = {"read_gpus": read_gpus, "read_host": read_host, "ask_seldom": ask_seldom}
    return SimpleNamespace(session=session, close_host=lambda: None, **reading)


def test_what_the_gpus_are_asked_seldom_comes_after_each_reading_once_that_was_handed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log: list[str] = []
    asked = threading.Semaphore(0)

    def ask_seldom(_: int) -> None:
        log.append("seldom")
        asked.release()

    def read_gpus(_: int) -> GpusReading:
        log.append("read")
        return NOTHING_READ

    monkeypatch.setattr(Readers, "_tell", lambda _: log.append("handed over"))
    readers = Readers(MachineOptions(interval_s=60.0), scripted(read_gpus, lambda *_: None, ask_seldom), lambda: None)
    for _ in range(2):
        readers._nvml.ask()
        assert asked.acquire(timeout=PATIENCE_S)
    readers.stop(PATIENCE_S)
    assert log == ["read", "handed over", "seldom"] * 2 and not readers._nvml.alive


def test_a_snapshot_that_cannot_be_made_ends_no_reading() -> None:
    failed, published = threading.Event(), threading.Event()

    def publish() -> None:
        if not failed.is_set():
            failed.set()
            raise RecursionError
        published.set()

    reader = scripted(lambda _: NOTHING_READ, lambda *_, **__: SimpleNamespace(knew_gpus=True))
    schedule = Readers(MachineOptions(interval_s=0.05), reader, publish)
    schedule.ask_driver()
    schedule.start()
    assert published.wait(PATIENCE_S)
    schedule.stop(PATIENCE_S)


@pytest.mark.parametrize("slow", [False, True])
def test_proc_is_read_before_the_gpus_processes_are_known_only_while_the_driver_is_slow(slow: bool) -> None:
    passes: list[bool] = []
    answers, published = threading.Event(), threading.Event()

    def read_gpus(_: int) -> GpusReading:
        answers.wait(PATIENCE_S)
        return GpusReading(1.0, (), ())

    def read_host(*_: object, knew_gpus: bool, with_host: bool) -> Any:
        assert not with_host, "the first picture does not wait for the host"
        passes.append(knew_gpus)
        answers.set()
        return SimpleNamespace(knew_gpus=knew_gpus)

    schedule = Readers(MachineOptions(interval_s=60.0), scripted(read_gpus, read_host), published.set)
    if not slow:
        answers.set()
    schedule.ask_driver()
    while not slow and schedule._nvml.busy_since is not None:
        time.sleep(0.001)
    assert not passes
    schedule.start()
    assert published.wait(PATIENCE_S)
    schedule.stop(PATIENCE_S)
    assert passes == ([False, True] if slow else [True])


def test_a_source_that_is_opened_asks_the_driver_alone_until_it_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = threading.Event()

    def read_gpus(reader: MachineReader, _: int) -> GpusReading:
        reader.looked.set()
        asked.set()
        return GpusReading(1.0, (), ())

    monkeypatch.setattr(MachineReader, "read_gpus", read_gpus)
    monkeypatch.setattr(
        MachineReader, "read_host", lambda *_, knew_gpus, with_host: HostReading(HostSample(), (), (), knew_gpus)
    )
    before = set(threading.enumerate())
    source = LocalSource(MachineOptions(interval_s=60.0), own_process=False)

    def begun() -> set[str]:
        return {thread.name for thread in {*threading.enumerate()} - before}

    try:
        source.open()
        assert asked.wait(PATIENCE_S)
        assert begun() == {"gputop-nvml"}
        source.start(lambda: None)
        wanted = {"gputop-nvml", "gputop-proc", "gputop-schedule"}
        for _ in range(1000):
            if begun() == wanted:
                break
            time.sleep(0.01)
        assert begun() == wanted
    finally:
        source.close()


def test_a_command_that_reads_once_reads_proc_after_each_of_two_readings_and_waits_for_a_slow_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    order: list[str] = []

    def read_gpus(_: MachineReader, __: int) -> GpusReading:
        order.append("gpus")
        return GpusReading(float(len(order)), (), (GpuProcess(0, 7, 1e9, "C"),))

    def read_host(
        _: MachineReader, listed: Sequence[GpuProcess], *__: object, knew_gpus: bool, with_host: bool
    ) -> HostReading:
        assert with_host
        time.sleep(1.5 * LIVE_PROC_GRACE_S)
        order.append(f"proc {knew_gpus}")
        samples = tuple([ProcessSample(process.pid, 7, gpu_mem_bytes=process.gpu_mem_bytes) for process in listed])
        return HostReading(HostSample(), samples, (), knew_gpus)

    monkeypatch.setattr(MachineReader, "read_gpus", read_gpus)
    monkeypatch.setattr(MachineReader, "read_host", read_host)
    source = LocalSource(MachineOptions(interval_s=60.0), own_process=False)
    try:
        reading = source.read_once(PATIENCE_S)
    finally:
        source.close()
    assert reading.complete and [process.starttime for process in reading.snapshot.processes] == [7]
    assert order == ["gpus", "proc True", "gpus", "proc True"] and not reading.snapshot.repeats


def test_two_looks_are_apart_as_rates_need_it_however_long_the_first_one_took(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus: list[float] = []
    proc: list[tuple[float, float]] = []

    def read_gpus(*_: object) -> GpusReading:
        gpus.append(time.monotonic())
        return GpusReading(float(len(gpus)), (), ())

    def read_host(*_: object, knew_gpus: bool, **__: object) -> HostReading:
        begun = time.monotonic()
        time.sleep(2 * CLOSEST_PAIR_S)
        proc.append((begun, time.monotonic()))
        return HostReading(HostSample(), (), (), knew_gpus)

    monkeypatch.setattr(MachineReader, "read_gpus", read_gpus)
    monkeypatch.setattr(MachineReader, "read_host", read_host)
    source = LocalSource(MachineOptions(interval_s=60.0), own_process=False)
    try:
        source.look()
        assert len(proc) == 1, "a look ends with its pass over /proc"
        assert source.read_once(PATIENCE_S).complete
    finally:
        source.close()
    (first, second), ((_, ended), (begun, _)) = gpus, proc
    assert second - first >= CLOSEST_PAIR_S and begun - ended >= LEAST_HOST_S


def test_a_command_that_reads_once_reads_proc_also_where_the_driver_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hangs = threading.Event()
    monkeypatch.setattr(MachineReader, "read_gpus", lambda *_: hangs.wait(PATIENCE_S) and GpusReading(1.0, (), ()))
    monkeypatch.setattr(
        MachineReader,
        "read_host",
        lambda *_, knew_gpus, with_host: HostReading(HostSample(cpu_pct=5.0), (), (), knew_gpus),
    )
    monkeypatch.setattr(schedules, "SILENT_S", 0.0)
    source = LocalSource(MachineOptions(interval_s=60.0), own_process=False)
    try:
        reading = source.read_once(0.3)
    finally:
        hangs.set()
        source.close()
    assert not reading.complete and reading.snapshot.host.cpu_pct == 5.0


def test_processes_that_a_picture_did_not_wait_for_are_not_read_yet_in_it_and_the_next_follows_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    release, pictures = threading.Event(), queue.Queue[Snapshot]()

    def read_gpus(reader: MachineReader, _: int) -> GpusReading:
        reader.looked.set()
        return GpusReading(1.0, (), tuple([GpuProcess(0, pid, 1e9 + pid, "C") for pid in range(1000)]))

    def read_host(
        _: MachineReader, listed: Sequence[GpuProcess], *__: object, knew_gpus: bool, with_host: bool
    ) -> HostReading:
        assert release.wait(PATIENCE_S)
        samples = tuple([ProcessSample(process.pid, 7, gpu_mem_bytes=process.gpu_mem_bytes) for process in listed])
        return HostReading(HostSample(), samples, (), knew_gpus)

    def shown() -> None:
        if (snapshot := source.poll()) is not None:
            pictures.put(snapshot)
            release.set()

    monkeypatch.setattr(MachineReader, "read_gpus", read_gpus)
    monkeypatch.setattr(MachineReader, "read_host", read_host)
    # What follows the first picture is no second reading of the GPUs.
    monkeypatch.setattr(schedules, "PAIR_S", 60.0)
    source = LocalSource(MachineOptions(interval_s=60.0), own_process=False)
    try:
        source.start(shown)
        first = pictures.get(timeout=PATIENCE_S)
        assert {process.unavailable.get("cpu_pct") for process in first.processes} == {NOT_READ_YET}
        assert {process.starttime for process in first.processes} == {None}
        assert [process.gpu_mem_bytes for process in first.processes] == [1e9 + pid for pid in range(1000)]
        second = pictures.get(timeout=PATIENCE_S)
        assert [(process.pid, process.starttime) for process in second.processes] == [(pid, 7) for pid in range(1000)]
    finally:
        source.close()


def test_a_clock_beyond_what_python_can_read_is_one_line_before_any_thread_begins() -> None:
    def clock() -> float:
        raise OverflowError("timestamp too large to convert to C _PyTime_t")

    before = threading.active_count()
    for begin in (lambda source: source.read_once(1.0), lambda source: source.start(lambda: None)):
        with pytest.raises(SourceError, match="beyond the year 2262"):
            begin(LocalSource(MachineOptions(clock=clock)))
    assert threading.active_count() == before


# What a command that looks once has when the driver is slow: all of it, or what is missing by name.

CARDS = tuple(GpuStatic(i, f"GPU-{i}", "NVIDIA H100 80GB HBM3") for i in range(4))
SAMPLE = GpuSample(CARDS[0], util_pct=90.0, sm_active_pct=20.0, sm_source="gpm", power_w=500.0, power_limit_w=700.0)
SNAPSHOT = Snapshot(1.0, Machine("node"))


def samples(*indices: int) -> tuple[GpuSample, ...]:
    return tuple(replace(SAMPLE, static=CARDS[i]) for i in indices)


def under_way(
    chosen: tuple[GpuStatic, ...] = (), read: tuple[GpuSample, ...] = (), hung: tuple[int, ...] = ()
) -> GpusReading:
    return GpusReading(0.0, read, (), hung=hung, chosen=chosen)


def test_gpus_that_were_not_reached_are_named() -> None:
    reading = incomplete(replace(SNAPSHOT, gpus=samples(0)), under_way(CARDS, samples(0)), 10.0, False)
    assert (reading.complete, reading.has_measured) == (False, True)
    assert [(gpu.index, gpu.reason) for gpu in reading.missing] == [(i, "not read within 10 s") for i in (1, 2, 3)]
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
    reading = incomplete(replace(SNAPSHOT, gpus=samples(0, 1)), under_way(CARDS[:2], samples(0, 1)), 10.0, True)
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


def test_one_sample_does_not_flag_what_it_cannot_know() -> None:
    assert flag_now(replace(SAMPLE, sm_source="bound")) is None
    assert flag_now(replace(SAMPLE, static=replace(CARDS[0], mig_enabled=True))) is None
    assert flag_now(replace(SAMPLE, sm_active_pct=0.0)) is None, "a counter that reads 0 at work may be broken"
    assert flag_now(replace(SAMPLE, sm_active_pct=0.0, power_w=90.0)) == "A"


@pytest.mark.nvml
def test_what_was_read_of_a_first_pass_is_shown_with_its_processes(nvml_scenario: Callable[..., Scenario]) -> None:
    scenario = nvml_scenario(4)
    scenario.gpus[0].processes = [Process(os.getpid(), GIB)]
    # The third GPU takes longer than anybody waits; it does not hang.
    scenario.hang("nvmlDeviceGetUtilizationRates", 0.7, gpu=2)
    scenario.hang("nvmlDeviceGetPowerUsage", 0.7, gpu=2)
    scenario.hang("nvmlDeviceGetTemperature", 0.7, gpu=2)
    run = Run(scenario, "once", wait_s=1.6)
    assert [gpu["static"]["index"] for gpu in run.last["gpus"]] == [0, 1]
    assert run.last["notices"] == ["GPU 2, 3: not read within 1.6 s, the driver answers slowly; --wait gives it longer"]
    assert [p["pid"] for p in run.last["processes"] if p["role"] == "gpu"] == [os.getpid()]
    assert json.dumps(sm_words(run.last["gpus"][0])) == '"collecting: needs two samples"'
