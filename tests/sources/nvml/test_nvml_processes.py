"""A GPU's processes as NVML lists them: memory, shares of time, arrays that grow; the driver's library is replaced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pynvml
import pytest

from gputop.sources.nvml.driver_processes import NO_SAMPLES, DriverRows, GpuProcesses
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

        def call_library(_: Handle, name: str, *given: Any) -> int:
            """As the driver: writes rows into the array if they fit, else says how many there are."""
            rows, since = library[name], given[2].value if len(given) > 2 else None
            asked.append((name, since))
            if isinstance(rows, int):
                return rows
            array, count = (given[0], given[1]) if since is not None else (given[1], given[0])
            room, count._obj.value = count._obj.value, len(rows)
            if rows and (array is None or len(rows) > room):
                return int(pynvml.NVML_ERROR_INSUFFICIENT_SIZE)
            for place, each in enumerate(rows):
                array[place] = each
            return int(pynvml.NVML_SUCCESS)

        monkeypatch.setattr(Handle, "call_library", call_library)
        Script(monkeypatch, "nvmlDeviceGetProcessesUtilizationInfo", info or pynvml.NVML_ERROR_NOT_FOUND)
        return asked

    return play


def row(pid: int, used: int | None) -> Any:
    return pynvml.c_nvmlProcessInfo_v2_t(pid, 2**64 - 1 if used is None else used)


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


def test_each_list_of_processes_is_one_call_until_it_has_outgrown_its_array(listing: Listing) -> None:
    samples = [sample(pid, 1, pid) for pid in (1, 2)]
    reader, compute = GpuProcesses(Handle("h"), 0), [row(1, 5), row(2, 5)]
    listing(compute, samples=samples)
    reader.read(0.0, 100.0, 50)
    asked = listing(compute, samples=samples)
    reader.read(2.0, 102.0, 50)
    assert len(asked) == len({name for name, _ in asked}) == 3, asked
    # Rows that fill the array to its end may have been cut off there.
    many = [row(pid, 5) for pid in range(1, 500)]
    for count in (23, 24, 25, 499):
        asked = listing(many[:count], samples=samples)
        assert len(reader.read(4.0, 104.0, 50)) == count
    assert sum("Compute" in name for name, _ in asked[:3]) == 2


@pytest.mark.parametrize("count", [0, 8, 23])
def test_the_processes_of_the_first_picture_are_one_call(listing: Listing, count: int) -> None:
    asked = listing([row(pid, 5) for pid in range(1, count + 1)])
    assert len(GpuProcesses(Handle("h"), 0).read(0.0, 100.0, 50, brief=True)) == count
    assert asked == [("nvmlDeviceGetComputeRunningProcesses_v3", None)]


def test_where_the_older_call_always_says_zero_the_newer_is_believed(listing: Listing) -> None:
    listing([row(1, 5)], samples=[sample(1, 0)], info=[sample(1, 77)])
    (process,) = GpuProcesses(Handle("h"), 0).read(0.0, 100.0, 80)
    assert process.gpu_time_pct == 77.0


def test_a_list_that_fills_its_array_to_the_end_is_asked_for_in_a_larger_one() -> None:
    """Should a driver cut a list off at the end of the array and call that a success."""
    rows = DriverRows(pynvml.c_nvmlProcessInfo_v2_t)

    def ask(array: Any, count: Any) -> int:
        count._obj.value = 0 if array is None else min(100, len(array))
        return int(pynvml.NVML_ERROR_INSUFFICIENT_SIZE if array is None else pynvml.NVML_SUCCESS)

    assert len(rows.read(ask)) == 100


def test_a_refused_list_gives_its_reason(listing: Listing) -> None:
    listing(pynvml.NVML_ERROR_NO_PERMISSION)
    reader = GpuProcesses(Handle("h"), 0)
    assert reader.read(0.0, 100.0, 50) == ()
    assert reader.reason is not None
    assert reader.reason.startswith("no permission")
