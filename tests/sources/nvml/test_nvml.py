"""How answers and errors of NVML become values and reasons, with pynvml's functions replaced and time given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pynvml
import pytest

from gputop.sources.nvml import gpu_questions
from gputop.sources.nvml.driver_processes import GpuProcesses
from gputop.sources.nvml.field_values import FieldValues, Rate
from gputop.sources.nvml.gpu_questions import EVERY_TICK, FIXED, MEMORY_V2, SELDOM, Question, Seldom
from gputop.sources.nvml.handle import Handle, LostGpu, MetricAnswers
from gputop.sources.nvml.nvml_errors import cannot_start
from tests.support.nvml_script import Script

knows_mma_stall = pytest.mark.skipif(
    not hasattr(pynvml, "NVML_FI_DEV_MMA_STALL_PERCENT"),
    reason="this nvidia-ml-py is older than the field 297",
)


def question(key: str) -> Question:
    return next(q for q in (*EVERY_TICK, *SELDOM, *FIXED, MEMORY_V2) if key in q.keys)


def ask(handle: Handle, key: str, now: float = 0.0) -> Any:
    """The value of a key, or the reason for its absence."""
    into = MetricAnswers()
    question(key).ask_into(handle, into, now)
    return into.values.get(key, into.missing.get(key))


def test_not_supported_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    fan = Script(monkeypatch, "nvmlDeviceGetFanSpeed", pynvml.NVML_ERROR_NOT_SUPPORTED)
    handle = Handle("handle")
    assert [ask(handle, "fan_pct", now) for now in (0.0, 1.0, 1e6)] == [
        "not supported by this GPU"
    ] * 3
    assert len(fan.asked) == 1


@pytest.mark.parametrize(
    "code",
    [pynvml.NVML_ERROR_NO_PERMISSION, pynvml.NVML_ERROR_UNKNOWN, pynvml.NVML_ERROR_TIMEOUT],
)
def test_a_failure_that_may_end_is_asked_again_at_once_and_then_more_seldom(
    monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    fan = Script(monkeypatch, "nvmlDeviceGetFanSpeed", code)
    handle = Handle("handle")
    asked_at = []
    for now in map(float, range(400)):
        before = len(fan.asked)
        ask(handle, "fan_pct", now)
        asked_at += [now] * (len(fan.asked) - before)
    assert asked_at == [0, 1, 5, 20, 78, 138, 198, 258, 318, 378]


def test_a_question_that_was_answered_before_is_asked_again_whatever_the_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    handle = Handle("handle")
    refusal = pynvml.NVML_ERROR_NOT_SUPPORTED
    fan = Script(monkeypatch, "nvmlDeviceGetFanSpeed", 40.0, refusal, 41.0)
    assert [ask(handle, "fan_pct", now) for now in (0.0, 1.0, 1.5, 2.0)] == [
        40.0,
        *["not supported by this GPU"] * 2,
        41.0,
    ]
    assert len(fan.asked) == 3


def test_a_call_that_an_old_driver_lacks_falls_back_to_its_older_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Script(
        monkeypatch, "nvmlDeviceGetCurrentClocksEventReasons", pynvml.NVML_ERROR_FUNCTION_NOT_FOUND
    )
    monkeypatch.setattr(pynvml, "nvmlDeviceGetCurrentClocksThrottleReasons", lambda _: 0x24)
    assert ask(Handle("handle"), "throttle_reasons") == 0x24


@pytest.mark.parametrize("code", [pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED])
def test_any_call_can_tell_that_the_gpu_is_lost(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    Script(monkeypatch, "nvmlDeviceGetFanSpeed", code)
    with pytest.raises(LostGpu):
        ask(Handle("handle"), "fan_pct")


def test_values_keep_their_exact_units(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pynvml, "nvmlDeviceGetPowerUsage", lambda _: 412345)
    monkeypatch.setattr(
        pynvml, "nvmlDeviceGetUtilizationRates", lambda _: pynvml.c_nvmlUtilization_t(97, 12)
    )
    monkeypatch.setattr(
        pynvml,
        "nvmlDeviceGetMemoryInfo",
        lambda *_: pynvml.c_nvmlMemory_v2_t(used=2**40 + 1, total=2**41, free=0),
    )
    handle = Handle("handle")
    assert ask(handle, "power_w") == 412.345
    assert (ask(handle, "util_pct"), ask(handle, "mem_util_pct")) == (97, 12)
    assert (ask(handle, "mem_used_bytes"), ask(handle, "mem_total_bytes")) == (2.0**40 + 1, 2.0**41)
    # Corrected, uncorrected, pending, failed.
    monkeypatch.setattr(pynvml, "nvmlDeviceGetRemappedRows", lambda _: [3, 2, 1, 0])
    assert (ask(handle, "remap_pending"), ask(handle, "remap_failed")) == (True, False)


@pytest.mark.parametrize(
    ("key", "name", "answer"),
    [
        ("util_pct", "nvmlDeviceGetUtilizationRates", pynvml.c_nvmlUtilization_t(255, 1)),
        ("fan_pct", "nvmlDeviceGetFanSpeed", 4000),
        ("pcie_gen", "nvmlDeviceGetCurrPcieLinkGeneration", 0xFFFFFFFF),
        ("pstate", "nvmlDeviceGetPerformanceState", 32),
        ("power_limit_w", "nvmlDeviceGetEnforcedPowerLimit", 0xFFFFFFFF),
        ("pcie_width", "nvmlDeviceGetCurrPcieLinkWidth", 0x7FFFFFFF),
    ],
)
def test_garbage_and_sentinels_are_absent_with_a_reason(
    monkeypatch: pytest.MonkeyPatch, key: str, name: str, answer: Any
) -> None:
    monkeypatch.setattr(pynvml, name, lambda _: answer)
    into = MetricAnswers()
    question(key).ask_into(Handle("handle"), into, 0.0)
    assert key not in into.values
    assert into.missing[key].startswith("the driver gives")


def test_rates_need_two_counts_and_a_counter_that_rises() -> None:
    rate = Rate()
    assert rate.feed(1000, 10.0) == "collecting: needs two reads"
    assert rate.feed(5000, 12.0) == 2000.0
    assert rate.feed(100, 13.0) == "the counter started again"
    assert rate.feed(100, 14.0) == 0.0
    rate.forget()
    assert isinstance(rate.feed(10**9, 15.0), str)


def _field(number: int, value: int, code: int = 0) -> Any:
    field = pynvml.c_nvmlFieldValue_t()
    field.fieldId, field.nvmlReturn = number, code
    field.valueType = pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG
    field.value.ullVal = value
    return field


@knows_mma_stall
def test_fields_become_values_and_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    first = [_field(82, 71), _field(197, 1000), _field(198, 0, pynvml.NVML_ERROR_NOT_SUPPORTED)]
    second = [_field(82, 72), _field(197, 4000), _field(198, 0, pynvml.NVML_ERROR_NOT_SUPPORTED)]
    sent = pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX
    first.append(_field(sent, 10))
    second.append(_field(sent, 14))
    Script(monkeypatch, "nvmlDeviceGetFieldValues", first, second)
    fields, handle = FieldValues(nvlink=True), Handle("handle")
    fields.ask_into(handle, MetricAnswers(), 10.0, frozenset())
    into = MetricAnswers()
    fields.ask_into(handle, into, 12.0, frozenset())
    assert into.values == {
        "mem_temp_c": 72,
        "pcie_tx_bytes_per_s": 1500.0,
        "nvlink_tx_bytes_per_s": 2048.0,
    }
    assert into.missing == {"pcie_rx_bytes_per_s": "not supported by this GPU"}


@knows_mma_stall
def test_mma_stall_is_asked_once_of_a_driver_that_does_not_know_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stall = pynvml.c_nvmlFieldValue_t(fieldId=297, nvmlReturn=pynvml.NVML_ERROR_NOT_SUPPORTED)
    asked = Script(monkeypatch, "nvmlDeviceGetFieldValues", [stall])
    fields, into = FieldValues(nvlink=False), MetricAnswers()
    fields.ask_into(Handle("h"), into, 1.0, frozenset())
    fields.ask_into(Handle("h"), into, 2.0, frozenset())
    assert [297 in numbers for _, numbers in asked.asked] == [True, False]
    assert into.missing["mma_stall_pct"] == "this driver or GPU does not tell it"


@pytest.mark.parametrize(
    ("name", "key"),
    [("nvmlDeviceGetPerformanceState", "pstate"), ("nvmlDeviceGetMaxPcieLinkWidth", "pcie_width_max")],
)  # fmt: skip
def test_what_is_asked_seldom_is_asked_again_within_two_seconds_of_a_failure(
    monkeypatch: pytest.MonkeyPatch, name: str, key: str
) -> None:
    handle, seldom = Handle("handle"), Seldom()
    monkeypatch.setattr(
        Handle,
        "run_bare",
        lambda _, called, *__: getattr(pynvml, called)() if called == name else 0,
    )
    script = Script(monkeypatch, name, pynvml.NVML_ERROR_UNKNOWN, 2.0)
    questions = [q for q in (*SELDOM, *FIXED) if key in q.keys]
    monkeypatch.setattr(gpu_questions, "SELDOM", tuple(q for q in questions if q in SELDOM))
    monkeypatch.setattr(gpu_questions, "FIXED", tuple(q for q in questions if q in FIXED))
    asked_at = []
    for now in map(float, range(9)):
        before = len(script.asked)
        if now >= seldom.due_at:
            seldom.ask(handle, now, 0)
        asked_at += [now] * (len(script.asked) - before)
        assert (key in seldom.answers.missing) is (now < 1.0)
        assert (key in seldom.answers.values) is (now >= 1.0)
    assert asked_at[:2] == [0.0, 1.0]
    assert len(asked_at) <= 4


def test_energy_which_costs_the_driver_milliseconds_is_asked_every_few_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []

    def run_bare(_: Handle, name: str, *_arguments: object) -> int:
        asked.append(name)
        if name != "nvmlDeviceGetTotalEnergyConsumption":
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return 1500

    monkeypatch.setattr(Handle, "run_bare", run_bare)
    seldom, handle = Seldom(), Handle("handle")
    for second in range(12):
        if second >= seldom.due_at:
            seldom.ask(handle, float(second), 0)
        assert seldom.answers.values["energy_j"] == 1.5
    assert asked.count("nvmlDeviceGetTotalEnergyConsumption") == 3


START_WORDS = {
    9: "the NVIDIA driver is not loaded: sudo modprobe nvidia",
    12: "install the driver, or start the container with GPUs",
    18: "upgraded under the running kernel module: reboot",
    999: "unknown error",
}


@pytest.mark.parametrize("code", [*range(1, 31), 999])
def test_a_driver_that_does_not_start_is_one_line_with_the_fix(code: int) -> None:
    line = str(cannot_start(code))
    assert line.endswith("gputop demo") and START_WORDS.get(code, "") in line
    assert "\n" not in line
    assert ("is too old" in line) == (code == pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)


def test_strings_of_the_driver_cannot_steer_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pynvml, "nvmlDeviceGetName", lambda _: "NVIDIA\x1b[31m H100\x07\n ")
    assert Handle("handle").text("nvmlDeviceGetName") == "NVIDIA?[31m H100?"


# A GPU's processes as NVML lists them: memory, shares of time, arrays that grow; the driver's library is replaced.

Listing = Callable[..., "list[tuple[str, int | None]]"]


@pytest.fixture
def listing(monkeypatch: pytest.MonkeyPatch) -> Listing:
    """Sets the process lists and the utilisation samples (a list, or an error)."""

    def play(
        compute: Any = (),
        graphics: Any = (),
        samples: Any = pynvml.NVML_ERROR_NOT_FOUND,
        info: Any = (),
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
        Script(
            monkeypatch,
            "nvmlDeviceGetProcessesUtilizationInfo",
            info or pynvml.NVML_ERROR_NOT_FOUND,
        )
        return asked

    return play


def row(pid: int, used: int | None) -> Any:
    return pynvml.nvmlFriendlyObject({"pid": pid, "usedGpuMemory": used})


def sample(pid: int, share: int, t: int = 1) -> Any:
    return pynvml.c_nvmlProcessUtilizationSample_t(pid, t, share)


def test_a_process_in_both_lists_is_one_process(listing: Listing) -> None:
    listing([row(7, 100), row(8, 50)], [row(7, 100), row(9, 10)])
    found = {
        p.pid: (p.gpu_mem_bytes, p.type) for p in GpuProcesses(Handle("h"), 3).read(0.0, 100.0, 50)
    }
    assert found == {7: (100.0, "X"), 8: (50.0, "C"), 9: (10.0, "G")}


def test_unknown_memory_is_absent_with_a_reason(listing: Listing) -> None:
    listing([row(7, None)])
    (process,) = GpuProcesses(Handle("h"), 0).read(0.0, 100.0, 50)
    assert process.gpu_mem_bytes is None
    assert "gpu_mem_bytes" in process.unavailable


def test_rows_of_garbage_are_dropped(listing: Listing) -> None:
    listing(
        [row(0, 1), row(4294967295, 1), row(12, 5)],
        samples=[sample(12, 255), sample(4294967295, 3)],
    )
    (process,) = GpuProcesses(Handle("h"), 0).read(0.0, 100.0, 50)
    assert process.pid == 12
    assert process.gpu_time_pct is None


def test_gpu_time_is_each_ones_newest_sample_and_nothing_for_the_idle(listing: Listing) -> None:
    listing([row(1, 5), row(2, 5)], samples=[sample(1, 30, 2000), sample(1, 90, 1000)])
    reader = GpuProcesses(Handle("h"), 0)
    assert {p.pid: p.gpu_time_pct for p in reader.read(0.0, 100.0, 50)} == {1: 30.0, 2: 0.0}


def test_a_clock_that_is_set_back_does_not_hide_samples_until_it_catches_up(
    listing: Listing,
) -> None:
    asked = listing([row(1, 5)], samples=[sample(1, 30, 5_000_000_000)])
    reader = GpuProcesses(Handle("h"), 0)
    for now, t in ((0.0, 5000.0), (2.0, 5002.0), (4.0, 1404.0)):
        reader.read(now, t, 50)
    sinces = [since for _, since in asked if since is not None]
    assert list(dict.fromkeys(sinces)) == [4_998_000_000, 5_000_000_000, 1_402_000_000]


def test_a_refused_list_gives_its_reason(listing: Listing) -> None:
    listing(pynvml.NVML_ERROR_NO_PERMISSION)
    reader = GpuProcesses(Handle("h"), 0)
    assert reader.read(0.0, 100.0, 50) == ()
    assert reader.reason is not None
    assert reader.reason.startswith("no permission")
