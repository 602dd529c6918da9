"""The collecting threads: a failing read is told, a hanging one is not waited for."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from gputop.model.snapshot import NOT_READ_YET, HostSample, ProcessSample, Snapshot
from gputop.model.source import SourceError
from gputop.sources import readers as schedules
from gputop.sources.gpu_process import GpuProcess
from gputop.sources.local import LocalSource
from gputop.sources.nvml.gpm import CLOSEST_PAIR_S
from gputop.sources.nvml.gpu_device import GpusReading
from gputop.sources.readers import (
    LEAST_HOST_S,
    LIVE_PROC_GRACE_S,
    NOTHING_READ,
    HostReading,
    MachineReader,
    Readers,
)
from gputop.sources.selection import MachineOptions

PATIENCE_S = 5.0


def scripted(
    read_gpus: Callable[[int], GpusReading], read_host: Callable[..., Any], ask_seldom: Any = lambda _: None
) -> Any:
    """A machine's reader with these answers."""
    progress = SimpleNamespace(read=(), processes=(), hung=())
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
