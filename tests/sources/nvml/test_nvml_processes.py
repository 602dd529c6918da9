"""A GPU's processes as NVML lists them: memory, shares of time, arrays that grow; the driver's library is replaced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pynvml
import pytest

from gputop.sources.nvml.driver_processes import NO_SAMPLES, TOO_LONG, GpuProcesses
from gputop.sources.nvml.handle import Handle
from tests.support.nvml_script import Script

Listing = Callable[..., "list[tuple[str, int | None]]"]


@pytest.fixture
def listing(monkeypatch: pytest.MonkeyPatch) -> Listing:
    """Sets the process lists and the utilisation samples (a list, or an error)."""

    def play(
        compute: Any = (), graphics: Any = (), samples: Any = pynvml.NVML_ERROR_NOT_FOUND, info: Any = ()
    ) -> list[tuple[str, int | None]]:
        library = {
            "nvmlDeviceGetComputeRunningProcesses_v3": compute,
            "nvmlDeviceGetGraphicsRunningProcesses_v3": graphics,
            "nvmlDeviceGetMPSComputeRunningProcesses_v3": pynvml.NVML_ERROR_NOT_SUPPORTED,
            "nvmlDeviceGetProcessUtilization": samples,
        }
        asked: list[tuple[str, int | None]] = []

        def answer(name: str, since: int | None) -> list[Any]:
            asked.append((name, since))
            rows = library[name]
            if isinstance(rows, int):
                raise pynvml.NVMLError(rows)
            if isinstance(rows, Exception):
                raise rows
            return list(rows)

        for name in library:
            monkeypatch.setattr(pynvml, name, lambda _, since=None, name=name: answer(name, since))
        Script(monkeypatch, "nvmlDeviceGetProcessesUtilizationInfo", info or pynvml.NVML_ERROR_NOT_FOUND)
        return asked

    return play


def row(pid: int, used: int | None) -> Any:
    return pynvml.nvmlFriendlyObject({"pid": pid, "usedGpuMemory": used})


def sample(pid: int, share: int, t: int = 1) -> Any:
    return pynvml.c_nvmlProcessUtilizationSample_t(pid, t, share)


def test_a_process_in_both_lists_is_one_process(listing: Listing) -> None:
    listing([row(7, 100), row(8, 50)], [row(7, 100), row(9, 10)])
    found = {p.pid: (p.gpu_mem_bytes, p.type) for p in GpuProcesses(Handle("h"), 3).read(0.0, 100.0, 50)}
    assert found == {7: (100.0, "X"), 8: (50.0, "C"), 9: (10.0, "G")}


def test_unknown_memory_is_absent_with_a_reason(listing: Listing) -> None:
    listing([row(7, None)])
    (process,) = GpuProcesses(Handle("h"), 0).read(0.0, 100.0, 50)
    assert process.gpu_mem_bytes is None
    assert "gpu_mem_bytes" in process.unavailable


def test_rows_of_garbage_are_dropped(listing: Listing) -> None:
    listing([row(0, 1), row(4294967295, 1), row(12, 5)], samples=[sample(12, 255), sample(4294967295, 3)])
    (process,) = GpuProcesses(Handle("h"), 0).read(0.0, 100.0, 50)
    assert process.pid == 12
    assert process.gpu_time_pct is None


def test_gpu_time_is_each_ones_newest_sample_and_nothing_for_the_idle(listing: Listing) -> None:
    listing([row(1, 5), row(2, 5)], samples=[sample(1, 30, 2000), sample(1, 90, 1000)])
    reader = GpuProcesses(Handle("h"), 0)
    assert {p.pid: p.gpu_time_pct for p in reader.read(0.0, 100.0, 50)} == {1: 30.0, 2: 0.0}


def test_without_samples_gpu_time_is_unknown(listing: Listing) -> None:
    listing([row(1, 5)])
    (process,) = GpuProcesses(Handle("h"), 0).read(0.0, 100.0, 50)
    assert process.gpu_time_pct is None
    assert process.unavailable["gpu_time_pct"] == NO_SAMPLES


def test_a_clock_that_is_set_back_does_not_hide_samples_until_it_catches_up(listing: Listing) -> None:
    asked = listing([row(1, 5)], samples=[sample(1, 30, 5_000_000_000)])
    reader = GpuProcesses(Handle("h"), 0)
    for now, t in ((0.0, 5000.0), (2.0, 5002.0), (4.0, 1404.0)):
        reader.read(now, t, 50)
    sinces = [since for _, since in asked if since is not None]
    assert list(dict.fromkeys(sinces)) == [4_998_000_000, 5_000_000_000, 1_402_000_000]


def test_a_list_that_says_the_same_again_is_the_same_object(listing: Listing) -> None:
    processes = GpuProcesses(Handle("h"), 0)
    listing([row(7, 100)], samples=[sample(7, 40)])
    first = processes.read(0.0, 100.0, 50)
    assert processes.read(2.0, 102.0, 50) is first
    listing([row(7, 100)], samples=[sample(7, 41)])
    assert [p.gpu_time_pct for p in processes.read(4.0, 104.0, 50)] == [41.0]
    listing([row(7, 101)], samples=[sample(7, 41)])
    assert [p.gpu_mem_bytes for p in processes.read(6.0, 106.0, 50)] == [101.0]


def test_a_list_that_has_grown_meanwhile_is_asked_for_again(monkeypatch: pytest.MonkeyPatch, listing: Listing) -> None:
    listing([row(1, 5)])
    answers = [pynvml.NVMLError(pynvml.NVML_ERROR_INSUFFICIENT_SIZE), [row(1, 5), row(2, 5)]]

    def grown(_: object) -> list[Any]:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(pynvml, "nvmlDeviceGetComputeRunningProcesses_v3", grown)
    assert [p.pid for p in GpuProcesses(Handle("h"), 0).read(0.0, 100.0, 50)] == [1, 2]


def test_a_list_that_no_memory_can_hold_is_a_reason(listing: Listing) -> None:
    listing(MemoryError())
    reader = GpuProcesses(Handle("h"), 0)
    assert reader.read(0.0, 100.0, 50) == ()
    assert reader.reason == TOO_LONG


def test_the_processes_of_the_first_picture_are_one_question(listing: Listing) -> None:
    asked = listing([row(pid, 5) for pid in range(1, 24)])
    assert len(GpuProcesses(Handle("h"), 0).read(0.0, 100.0, 50, brief=True)) == 23
    assert asked == [("nvmlDeviceGetComputeRunningProcesses_v3", None)]


def test_where_the_older_call_always_says_zero_the_newer_is_believed(listing: Listing) -> None:
    listing([row(1, 5)], samples=[sample(1, 0)], info=[sample(1, 77)])
    (process,) = GpuProcesses(Handle("h"), 0).read(0.0, 100.0, 80)
    assert process.gpu_time_pct == 77.0


def test_a_refused_list_gives_its_reason(listing: Listing) -> None:
    listing(pynvml.NVML_ERROR_NO_PERMISSION)
    reader = GpuProcesses(Handle("h"), 0)
    assert reader.read(0.0, 100.0, 50) == ()
    assert reader.reason is not None
    assert reader.reason.startswith("no permission")
