"""Faults of the driver: NVML's return codes at the start and while running, hangs, GPUs that go, odd values."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pynvml

from gputop.sources.nvml.nvml_errors import LOST_CODES
from tests.faults.row import Row, Watcher, World, holds, is_explained, is_healthy
from tests.nvml.stand_in import GIB, Process

START_CODES = {
    9: "the NVIDIA driver is not loaded: sudo modprobe nvidia",
    12: "install the driver, or start the container with GPUs",
    18: "upgraded under the running kernel module: reboot",
    999: "unknown error",
}
"""NVML's return code at the start → the text that the user needs."""
RUNNING_CODES = {
    3: "not supported",
    9: "the driver was unloaded",
    15: "GPU is lost: it fell off the bus",
    16: "GPU needs a reset",
}
"""NVML's return code from a running GPU → the reason that is shown."""
ALWAYS_LOST = (15, 16)
"""Codes that mean that the GPU is gone, whichever call returns them."""


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
UTILISATION = 1 + CALLS.index("nvmlDeviceGetUtilizationRates")
"""The GPU on which this call is struck."""
ALL_ASKED_S = 0.7
"""After the first complete reading, here with four a second: by then each call was made three times or more."""
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


def _one_cannot_be_opened(row: Row, world: World) -> None:
    scenario = world.make(2)
    scenario.error("nvmlDeviceGetHandleByIndex", 15, gpu=0)
    scenario.gpus[1].set(util=77)
    done = world.run(scenario, "once")
    holds(row, done)
    assert "77" in done.stdout


def rows() -> list[Row]:
    """Rows about the driver's answers."""
    return [
        *(Row(f"NVML error {code} at the start", shown, 3, _start(code)) for code, shown in START_CODES.items()),
        *(
            Row(f"NVML error {code} from one call of one GPU", shown, None, _one_call(code), slow=True)
            for code, shown in RUNNING_CODES.items()
        ),
        *(
            Row(f"NVML error {code} from every call", RUNNING_CODES[code], None, _all(code), slow=True)
            for code in (9, 15)
        ),
        Row("an NVML error while a GPU is found", "unknown error", 0, _facts, slow=True),
        Row("WSL 2: no utilisation", "unknown error", 0, _refused_utilisation),
        Row("GPM: another structure", "this driver wants another structure", 0, _other_gpm),
        Row("any NVML error from a running GPU", "infoROM", None, _every_code),
        Row(
            "no GPU",
            "the NVIDIA driver shows no GPU: see nvidia-smi -L",
            3,
            lambda row, world: holds(row, world.run(world.make(0), "once")),
        ),
        Row("a GPU that cannot be opened", "LOST: GPU is lost", 0, _one_cannot_be_opened),
    ]
