"""Faults of the driver: NVML's return codes at the start and while running, hangs, GPUs that go, odd values."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pynvml

from gputop.sources.nvml.nvml_errors import LOST_CODES
from tests.faults.row import Row, Watcher, World, holds, is_explained, is_healthy
from tests.nvml.stand_in import GIB, Process

EACH_TICK = (
    "nvmlDeviceGetUtilizationRates",
    "nvmlDeviceGetMemoryInfo",
    "nvmlDeviceGetPowerUsage",
    "nvmlDeviceGetTemperature",
    "nvmlDeviceGetClockInfo",
    "nvmlDeviceGetFieldValues",
    "nvmlDeviceGetCurrentClocksEventReasons",
    "nvmlGpmSampleGet",
)
NOW_AND_THEN = (
    "nvmlDeviceGetComputeRunningProcesses",
    "nvmlDeviceGetGraphicsRunningProcesses",
    "nvmlDeviceGetPerformanceState",
    "nvmlDeviceGetCurrPcieLinkGeneration",
    "nvmlDeviceGetCurrPcieLinkWidth",
    "nvmlDeviceGetTotalEccErrors",
    "nvmlDeviceGetEnforcedPowerLimit",
    "nvmlDeviceGetFanSpeed",
    "nvmlDeviceGetMPSComputeRunningProcesses",
    "nvmlDeviceGetMigMode",
    "nvmlDeviceGetRemappedRows",
    "nvmlDeviceGetEncoderUtilization",
    "nvmlDeviceGetProcessUtilization",
)
CALLS = EACH_TICK + NOW_AND_THEN
"""Calls of one GPU that are made again and again."""
ASKED_ONCE = {"nvmlDeviceGetMigMode"}
"""Asked while the GPUs are looked for, where only their values decide whether they are gone."""


_CODE_NAMES = [name for name in vars(pynvml) if name.startswith("NVML_ERROR_")]
FACTS = (
    "nvmlDeviceGetName",
    "nvmlDeviceGetArchitecture",
    "nvmlDeviceGetNumGpuCores",
    "nvmlDeviceGetPciInfo",
    "nvmlDeviceGetCudaComputeCapability",
    "nvmlDeviceGetVirtualizationMode",
    "nvmlDeviceGetAttributes",
    "nvmlGpmQueryDeviceSupport",
    "nvmlDeviceRegisterEvents",
)
"""Calls of one GPU that are made when it is found."""


def _unstruck(gpus: Sequence[Mapping[str, Any]]) -> set[str]:
    """The calls whose failure has not cost their GPU."""
    return {CALLS[i] for i, gpu in enumerate(gpus[1:]) if gpu["lost_reason"] is None}


def _start(row: Row, world: World) -> None:
    scenario = world.make(2)
    scenario.error("nvmlInitWithFlags", 9)
    done = world.run(scenario, "once")
    holds(row, done)
    assert "gputop demo" in done.stderr


def _lost_in_any_call(row: Row, world: World) -> None:
    scenario = world.make(1 + len(CALLS))
    for gpu, call in enumerate(CALLS, 1):
        scenario.error(call, 15, gpu=gpu, after=2 if call in EACH_TICK else 0)
        scenario.gpus[gpu].processes.append(Process(1, GIB))
    with Watcher(scenario) as watcher:
        watcher.until(lambda s: bool(s["gpus"]) and is_healthy(s["gpus"][0]))
        gpus = watcher.until(lambda s: _unstruck(s["gpus"]) <= ASKED_ONCE)["gpus"]
    assert len(gpus) == 1 + len(CALLS)
    assert is_healthy(gpus[0])
    assert all(row.sees in (gpu["lost_reason"] or row.sees) for gpu in gpus)


def _every_code(row: Row, world: World) -> None:
    """Each code of NVML strikes a GPU of its own, in one of the calls that every working GPU answers."""
    codes = sorted(
        {code for code in map(pynvml.__dict__.get, _CODE_NAMES) if isinstance(code, int)}
    )
    scenario = world.make(1 + len(codes))
    for gpu, code in enumerate(codes, 1):
        scenario.error("nvmlDeviceGetPowerUsage", code, gpu=gpu, after=2)
    with Watcher(scenario) as watcher:
        watcher.until(lambda s: bool(s["gpus"]) and is_healthy(s["gpus"][0]))
        gpus = watcher.until(lambda s: all(gpu["power_w"] is None for gpu in s["gpus"][1:]))["gpus"]
    assert is_healthy(gpus[0])
    assert all(is_explained(gpu) for gpu in gpus)
    told = {
        code: gpu["lost_reason"] or gpu["unavailable"]["power_w"]
        for code, gpu in zip(codes, gpus[1:], strict=True)
    }
    assert row.sees in told[14]
    assert all(
        is_healthy(gpu) for code, gpu in zip(codes, gpus[1:], strict=True) if code not in LOST_CODES
    )


def _facts(row: Row, world: World) -> None:
    """Each fact that is asked once is refused by a GPU of its own; one gives no UUID, and one cannot be opened."""
    scenario = world.make(3 + len(FACTS))
    for gpu, call in enumerate(FACTS, 1):
        scenario.error(call, 999, gpu=gpu)
    scenario.error("nvmlDeviceGetUUID", 999, gpu=1 + len(FACTS))
    scenario.error("nvmlDeviceGetHandleByIndex", 15, gpu=2 + len(FACTS))
    done = world.run(scenario, "once", "--json")
    assert done.returncode == row.status
    *gpus, nobody, closed = json.loads(done.stdout)["gpus"]
    assert row.sees in nobody["lost_reason"] and "GPU is lost" in closed["lost_reason"]
    assert all(gpu["util_pct"] == 90 and gpu["lost_reason"] is None for gpu in gpus)
    assert all(map(is_explained, gpus))


def rows() -> list[Row]:
    """Rows about the driver's answers."""
    return [
        Row(
            "NVML error 9 at the start",
            "the NVIDIA driver is not loaded: sudo modprobe nvidia",
            3,
            _start,
        ),
        Row(
            "a GPU is lost in any call",
            "GPU is lost: it fell off the bus",
            None,
            _lost_in_any_call,
            slow=True,
        ),
        Row("an NVML error while a GPU is found", "unknown error", 0, _facts, slow=True),
        Row("any NVML error from a running GPU", "infoROM", None, _every_code),
        Row(
            "no GPU",
            "the NVIDIA driver shows no GPU: see nvidia-smi -L",
            3,
            lambda row, world: holds(row, world.run(world.make(0), "once")),
        ),
    ]
