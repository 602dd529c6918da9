"""Faults of the driver: NVML's return codes at the start and while running, hangs, GPUs that go, odd values."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pynvml

from gputop.sources.nvml.handle import LOST_CODES
from tests.faults.row import Row, Watcher, World, holds, is_explained, is_healthy
from tests.nvml.stand_in import GIB, Failure, Process

START_CODES = {
    1: ("NVML is not initialised", "UNINITIALIZED"),
    4: ("the user needs to read and write /dev/nvidiactl", "NO_PERMISSION: /dev/nvidia* closed to this user"),
    9: ("the NVIDIA driver is not loaded: sudo modprobe nvidia", "DRIVER_NOT_LOADED: no kernel module"),
    12: ("install the driver, or start the container with GPUs", "LIBRARY_NOT_FOUND"),
    15: ("GPU is lost: it fell off the bus", "GPU_IS_LOST"),
    17: ("NVML error 17", "OPERATING_SYSTEM: blocked, as by a sandbox"),
    18: ("upgraded under the running kernel module: reboot", "LIB_RM_VERSION_MISMATCH: the driver was upgraded"),
    20: ("NVML error 20", "MEMORY"),
    999: ("unknown error", "UNKNOWN"),
}
"""NVML's return code → what the user is told, and what the code means."""

RUNNING_CODES = {
    1: "UNINITIALIZED",
    3: "NOT_SUPPORTED",
    4: "NO_PERMISSION",
    9: "DRIVER_NOT_LOADED: driver unloaded or reloaded",
    10: "TIMEOUT",
    15: "GPU_IS_LOST: fell off the bus",
    16: "RESET_REQUIRED",
    18: "LIB_RM_VERSION_MISMATCH: driver upgraded",
    999: "UNKNOWN",
}
ALWAYS_LOST = {15: "GPU is lost: it fell off the bus", 16: "GPU needs a reset"}
"""Codes that mean that the GPU is gone, whichever call says so."""

QUICK = (3, 9, 15)
"""Codes whose rows are in the quick part, beside the two rows that try every code: a call that this GPU does not have,
a driver that goes, a GPU that goes."""

EACH_TICK = (
    "nvmlDeviceGetUtilizationRates", "nvmlDeviceGetMemoryInfo", "nvmlDeviceGetPowerUsage", "nvmlDeviceGetTemperature",
    "nvmlDeviceGetClockInfo", "nvmlDeviceGetFieldValues", "nvmlDeviceGetCurrentClocksEventReasons", "nvmlGpmSampleGet",
)  # fmt: skip
NOW_AND_THEN = (
    "nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetGraphicsRunningProcesses", "nvmlDeviceGetPerformanceState",
    "nvmlDeviceGetCurrPcieLinkGeneration", "nvmlDeviceGetCurrPcieLinkWidth", "nvmlDeviceGetTotalEccErrors",
    "nvmlDeviceGetEnforcedPowerLimit", "nvmlDeviceGetFanSpeed", "nvmlDeviceGetMPSComputeRunningProcesses",
    "nvmlDeviceGetMigMode", "nvmlDeviceGetRemappedRows", "nvmlDeviceGetEncoderUtilization",
    "nvmlDeviceGetProcessUtilization",
)  # fmt: skip
CALLS = EACH_TICK + NOW_AND_THEN
"""Calls of one GPU that are made again and again."""
UTILISATION = 1 + CALLS.index("nvmlDeviceGetUtilizationRates")
"""The GPU on which this call is struck."""
ALL_ASKED_S = 0.7
"""After the first complete reading, here with four a second: by then each call was made three times or more."""
ASKED_ONCE = {"nvmlDeviceGetMigMode"}
"""Asked while the GPUs are looked for, where only their values decide whether they are gone."""


_CODE_NAMES = [name for name in vars(pynvml) if name.startswith("NVML_ERROR_")]
FACTS = (
    "nvmlDeviceGetName", "nvmlDeviceGetArchitecture", "nvmlDeviceGetNumGpuCores", "nvmlDeviceGetPciInfo",
    "nvmlDeviceGetCudaComputeCapability", "nvmlDeviceGetVirtualizationMode", "nvmlDeviceGetAttributes",
    "nvmlGpmQueryDeviceSupport", "nvmlDeviceRegisterEvents",
)  # fmt: skip
"""Calls of one GPU that are made when it is found."""


def _told(gpu: Mapping[str, Any]) -> str:
    return f"{gpu['lost_reason']} {gpu['unavailable']}"


def _unstruck(gpus: Sequence[Mapping[str, Any]]) -> set[str]:
    """The calls whose failure has not cost their GPU."""
    return {CALLS[i] for i, gpu in enumerate(gpus[1:]) if gpu["lost_reason"] is None}


def _start(code: int) -> Callable[[Row, World], None]:
    def proof(row: Row, world: World) -> None:
        scenario = world.make(2)
        scenario.error("nvmlInitWithFlags", code)
        done = world.run(scenario, "once")
        holds(row, done)
        assert "gputop demo" in done.stderr

    return proof


def _one_call(code: int) -> Callable[[Row, World], None]:
    def proof(row: Row, world: World) -> None:
        scenario = world.make(1 + len(CALLS))
        for gpu, call in enumerate(CALLS, 1):
            scenario.error(call, code, gpu=gpu, after=2 if call in EACH_TICK else 0)
            scenario.gpus[gpu].processes.append(Process(1, GIB))
        with Watcher(scenario) as watcher:
            watcher.until(lambda s: bool(s["gpus"]) and is_healthy(s["gpus"][0]))
            after = watcher.last["t"] + ALL_ASKED_S
            seen = watcher.until(lambda s: s["t"] > after and row.sees in _told(s["gpus"][UTILISATION]))
            if code in ALWAYS_LOST:
                seen = watcher.until(lambda s: _unstruck(s["gpus"]) <= ASKED_ONCE)
        gpus = seen["gpus"]
        assert len(gpus) == 1 + len(CALLS)
        assert is_healthy(gpus[0])
        assert all(is_explained(gpu) for gpu in gpus)

    return proof


def _every_code(row: Row, world: World) -> None:
    """Each code of NVML strikes a GPU of its own, in one of the calls that every working GPU answers."""
    codes = sorted({code for code in map(pynvml.__dict__.get, _CODE_NAMES) if isinstance(code, int)})
    scenario = world.make(1 + len(codes))
    for gpu, code in enumerate(codes, 1):
        scenario.error("nvmlDeviceGetPowerUsage", code, gpu=gpu, after=2)
    with Watcher(scenario) as watcher:
        watcher.until(lambda s: bool(s["gpus"]) and is_healthy(s["gpus"][0]))
        gpus = watcher.until(lambda s: all(gpu["power_w"] is None for gpu in s["gpus"][1:]))["gpus"]
    assert is_healthy(gpus[0])
    assert all(is_explained(gpu) for gpu in gpus)
    told = {
        code: gpu["lost_reason"] or gpu["unavailable"]["power_w"] for code, gpu in zip(codes, gpus[1:], strict=True)
    }
    assert row.sees in told[14]
    assert all(is_healthy(gpu) for code, gpu in zip(codes, gpus[1:], strict=True) if code not in LOST_CODES)


def _refused_utilisation(row: Row, world: World) -> None:
    scenario = world.make(1)
    scenario.error("nvmlDeviceGetUtilizationRates", 999)
    done = world.run(scenario, "once", "--json")
    assert done.returncode == row.status
    (gpu,) = json.loads(done.stdout)["gpus"]
    assert (gpu["lost_reason"], gpu["util_pct"], gpu["power_w"]) == (None, None, 400)
    assert row.sees in gpu["unavailable"]["util_pct"]
    scenario.gpus[0].set(encoder=2_147_483_632)
    told = " ".join(world.run(scenario, "doctor").stdout.split())
    assert "GPU 0: utilisation is not measured: the driver answers with an unknown error" in told
    assert "GPU 0: ENC is not measured: the driver gives an impossible value" in told


def _always_zero(row: Row, world: World) -> None:
    scenario = world.make(1)
    scenario.gpus[0].set(util=0, mem_util=0)
    done = world.run(scenario, "diagnose", "--for", "14s", "--json")
    (gpu,) = json.loads(done.stdout)["gpus"]
    assert row.sees in json.dumps(gpu) and gpu["verdict"] == "collecting", gpu


def _renewed(row: Row, world: World) -> None:
    scenario = world.make(2)
    scenario.wave_s, scenario.wave_depth = 7.0, 0.2
    scenario.gpus[0].set(util_renew_s=2)
    done = world.run(scenario, "diagnose", "--for", "5s", "--json")
    slow, quick = json.loads(done.stdout)["gpus"]
    assert slow["n"] <= 8 < 10 <= quick["n"], (slow["n"], quick["n"])
    assert slow["verdict"] == "collecting" and row.sees in json.dumps(slow)


def _tray(row: Row, world: World) -> None:
    done = world.run(world.make(4, "NVIDIA GB300"), "once", "--json")
    assert done.returncode == row.status
    gpus = json.loads(done.stdout)["gpus"]
    assert all(is_healthy(gpu) and is_explained(gpu) for gpu in gpus)
    assert {gpu["nvlink_peak_bytes_per_s"] for gpu in gpus} == {18 * 53.125e9}
    assert row.sees in gpus[0]["unavailable"]["temp_slowdown_c"]


def _other_gpm(row: Row, world: World) -> None:
    scenario = world.make(1)
    scenario.error("nvmlGpmQueryDeviceSupport", 25)
    done = world.run(scenario, "doctor")
    assert row.sees in done.stdout
    assert "needs Hopper" not in done.stdout and "virtual machines" not in done.stdout


def _facts(row: Row, world: World) -> None:
    """Each fact that is asked once is refused by a GPU of its own, the last one does not even give its UUID."""
    scenario = world.make(2 + len(FACTS))
    for gpu, call in enumerate(FACTS, 1):
        scenario.error(call, 999, gpu=gpu)
    scenario.error("nvmlDeviceGetUUID", 999, gpu=1 + len(FACTS))
    done = world.run(scenario, "once", "--json")
    assert done.returncode == row.status
    *gpus, nobody = json.loads(done.stdout)["gpus"]
    assert row.sees in nobody["lost_reason"]
    assert all(gpu["util_pct"] == 90 and gpu["lost_reason"] is None for gpu in gpus)
    assert all(map(is_explained, gpus))


def _uncounted(row: Row, world: World) -> None:
    scenario = world.make(1)
    scenario.error("nvmlDeviceGetCount", 999)
    done = world.run(scenario, "once")
    holds(row, done)
    assert "gputop demo" in done.stderr


def _all(code: int) -> Callable[[Row, World], None]:
    def proof(row: Row, world: World) -> None:
        scenario = world.make(2)
        with Watcher(scenario) as watcher:
            watcher.until(lambda s: bool(s["gpus"]) and all(map(is_healthy, s["gpus"])))
            scenario.error("*", code)
            scenario.write()
            struck = watcher.until(lambda s: len(s["gpus"]) == 2 and not any(map(is_healthy, s["gpus"])))
            later = watcher.until(lambda s: s["t"] > struck["t"])
        assert all(map(is_explained, later["gpus"]))
        assert row.sees in json.dumps(later)
        assert later["host"]["cpu_pct"] is not None

    return proof


def _gpm(value: float | Failure, reason: str) -> Callable[[Row, World], None]:
    def proof(row: Row, world: World) -> None:
        scenario = world.make(2)
        scenario.gpus[1].gpm[2] = value
        done = world.run(scenario, "once", "--json")
        assert done.returncode == row.status
        healthy, struck = json.loads(done.stdout)["gpus"]
        assert healthy["sm_active_pct"] == 25
        assert struck["sm_active_pct"] is None
        assert struck["sm_source"] != "gpm"
        assert reason in struck["sm_reason"]
        assert row.sees in done.stdout

    return proof


def _gpm_zero(row: Row, world: World) -> None:
    scenario = world.make(1)
    scenario.gpus[0].gpm = dict.fromkeys(scenario.gpus[0].gpm, 0.0)
    done = world.run(scenario, "once", "--json")
    assert done.returncode == row.status
    (gpu,) = json.loads(done.stdout)["gpus"]
    assert (gpu["sm_active_pct"], gpu["sm_source"], gpu["util_pct"]) == (0, "gpm", 90)
    assert row.sees in done.stdout


def _sixteen(row: Row, world: World) -> None:
    done = world.run(world.make(16), "once")
    holds(row, done)
    assert done.stdout.count("H100") >= 16


def _one_cannot_be_opened(row: Row, world: World) -> None:
    scenario = world.make(2)
    scenario.error("nvmlDeviceGetHandleByIndex", 15, gpu=0)
    scenario.gpus[1].set(util=77)
    done = world.run(scenario, "once")
    holds(row, done)
    assert "77" in done.stdout


def _sentinels(row: Row, world: World) -> None:
    scenario = world.make(1)
    scenario.gpus[0].processes = [
        Process(0, None), Process(4_194_305, GIB), Process(1, None, sm=200), Process(1, None), Process(2**31, 7),
    ]  # fmt: skip
    done = world.run(scenario, "once", "--json")
    assert done.returncode == row.status
    found = {p["pid"]: p for p in json.loads(done.stdout)["processes"] if p["role"] == "gpu"}
    assert 0 not in found
    assert found[1]["gpu_mem_bytes"] is None
    assert row.sees in done.stdout
    assert all(p["gpu_time_pct"] is None or 0 <= p["gpu_time_pct"] <= 100 for p in found.values())


def rows() -> list[Row]:
    """The driver's part of the matrix."""
    seen = {1: "not initialised", 3: "not supported", 4: "no permission", 9: "the driver was unloaded", 10: "timed out"}
    seen |= ALWAYS_LOST | {18: "the driver was upgraded under us", 999: "unknown error"}
    rows = [
        Row(
            f"NVML error {code} at the start", f"`nvmlInit`: {text}", sees, "–", 3, _start(code), slow=code not in QUICK
        )
        for code, (sees, text) in START_CODES.items()
    ]
    rows += [
        Row(
            f"NVML error {code} from one call of one GPU",
            f"{text} from any call of a running GPU",
            seen[code],
            "the other GPUs, and all other values unless the GPU is lost",
            None,
            _one_call(code),
            slow=code not in QUICK,
        )
        for code, text in RUNNING_CODES.items()
    ]
    rows += [
        Row(
            f"NVML error {code} from every call",
            f"{RUNNING_CODES[code]} for all GPUs at once",
            seen[code],
            "host, processes, charts; GPUs are tried again",
            None,
            _all(code),
            slow=code not in QUICK,
        )
        for code in (1, 9, 15, 18, 999)
    ]
    here = "tests/sources/test_local.py::"
    readings = "tests/diagnosis/test_readings.py::"
    return [
        *rows,
        Row("any other NVML error at the start", "`nvmlInit`: each of NVML's codes", "the NVIDIA driver does not start",
            "–", 3, "tests/sources/nvml/test_nvml.py::test_a_driver_that_does_not_start_is_one_line_with_the_fix"),
        Row("NVML cannot count its GPUs", "`nvmlDeviceGetCount` fails at the start", "unknown error", "–", 3,
            _uncounted),
        Row("an NVML error while a GPU is found", "one of its facts is refused, or its UUID", "unknown error",
            "its values without that fact; without a UUID the other GPUs", 0, _facts),
        Row("WSL 2: no utilisation", "`UtilizationRates` answers UNKNOWN, everything else is well", "unknown error",
            "the GPU, with all other values", 0, _refused_utilisation),
        Row("GPM: another structure", "VERSION_MISMATCH from the question whether a GPU has GPM",
            "this driver wants another structure", "everything; SM activity is a bound, and asked for again", 0,
            _other_gpm),
        Row("any NVML error from a running GPU", "each of NVML's codes, 1 to 30 and 999", "infoROM",
            "the other GPUs, and all other values unless the GPU is lost", None, _every_code),
        Row("no NVML library", "no NVIDIA driver at all", "gputop demo", "–", 3,
            "tests/commands/test_cli.py::test_without_a_driver_the_fix_and_the_demo_are_named_with_exit_3"),
        Row("no GPU", "the driver shows no GPU", "the NVIDIA driver shows no GPU: see nvidia-smi -L", "–", 3,
            lambda row, world: holds(row, world.run(world.make(0), "once"))),
        Row("another vendor's GPU", "AMD or Intel, and none of NVIDIA's", "gputop measures NVIDIA's GPUs alone", "–", 3,
            "tests/sources/test_asleep.py::test_gpus_of_others_are_named_by_their_pci_ids"),
        Row("a Jetson before JetPack 7", "its driver has no NVML", "tegrastats shows its load", "–", 3,
            "tests/sources/test_asleep.py::test_a_jetson_is_told_where_its_load_is_shown"),
        Row("WSL 2", "the driver of Windows answers, or is missing there", "under WSL the driver is that of Windows",
            "with a driver: utilisation, memory and power; no process is named, SM activity is a bound", None,
            "tests/sources/test_asleep.py::test_wsl_is_told_that_the_driver_is_windows"),
        Row("a virtual GPU", "a vGPU, seen from its virtual machine", "SM activity is counted by the host alone",
            "memory, processes and utilisation", None,
            "tests/sources/test_asleep.py::test_a_virtual_gpu_says_whose_numbers_it_shows"),
        Row("unified memory", "GB10, Thor: no memory of its own, no power limit, PCIe x1", "unified",
            "everything: used is what its processes hold, full is when the host is", 0,
            "tests/sources/test_unified_memory.py::test_its_memory_is_what_its_processes_hold_of_the_host_s"),
        Row("a driver that answers only how many GPUs there are", "NOT_SUPPORTED to every other question",
            "not supported by this GPU", "the host; every missing value has its reason", 0,
            "tests/sources/test_unified_memory.py::"
            "test_a_driver_that_refuses_all_but_the_count_is_not_taken_for_a_unified_one"),
        Row("16 GPUs", "a node of sixteen", "15", "everything", 0, _sixteen),
        Row("a GPU that cannot be opened", "`GetHandleByIndex` fails on one GPU", "LOST: GPU is lost",
            "the other GPUs", 0, _one_cannot_be_opened),
        Row("no GPM", "a GPU before Hopper", "has no GPM counters", "everything; SM activity is bounded, not guessed",
            0, here + "test_without_gpm_utilisation_bounds_sm_activity"),
        Row("GPM: not a number", "SM activity is NaN", "GPM gives no number", "the other GPUs and values", 0,
            _gpm(math.nan, "GPM gives no number")),
        Row("GPM: above 100", "SM activity is 250 %", "GPM gives an impossible value (250)",
            "the other GPUs and values", 0, _gpm(250.0, "GPM gives an impossible value (250)")),
        Row("GPM: a refused metric", "SM activity alone is refused", "SM activity", "the other GPUs and values", 0,
            _gpm(Failure(3), "SM activity")),
        Row("GPM: zeros", "all counters are zero while the GPU is busy", '"sm_active_pct": 0',
            "everything: zero is a measurement", 0, _gpm_zero),
        Row("GPM: first sample", "one sample makes no pair", "…", "everything; values from the second tick", None,
            "tests/sources/nvml/test_gpm.py::test_the_value_exists_from_the_second_sample_with_its_window"),
        Row("SUCCESS, and always 0", "utilisation is 0 beside counters, a process or power that show work",
            "the driver answers 0 while", "all other values; the GPU is called neither idle nor lost", None,
            _always_zero, slow=True),
        Row("utilisation that is seldom renewed", "it comes several times, as on a GeForce of the Blackwell generation",
            "of 10 samples", "everything; a repeated value is one sample", None, _renewed, slow=True),
        Row("a tray of GB300", "no retired pages, no thresholds of temperature, 18 links of 53 GB/s",
            "not supported by this GPU", "everything", 0, _tray),
        Row("utilisation stuck at 100", "after a suspend: no process, little power, a low clock", "stuck at 100",
            "all other values; nobody is accused", None,
            readings + "test_a_util_stuck_after_a_suspend_is_not_believed_and_nobody_is_accused"),
        Row("GPM: a clock that swings", "activity per cycle, while the clock moves by more than a fifth",
            "per cycle, clock 210–1980 MHz", "everything", None,
            readings + "test_activity_per_cycle_says_so_where_the_clock_swings_and_no_flag_rests_on_it"),
        Row("process list with sentinels", "pid 0, a pid beyond all, memory not available, the same pid twice",
            '"gpu_mem_bytes": null', "every real process", 0, _sentinels),
        Row("a refused process list", "NO_PERMISSION for the list of processes", "no process list",
            "all values of the GPU", None,
            "tests/sources/test_local.py::test_a_refused_process_list_is_a_notice"),
    ]  # fmt: skip
