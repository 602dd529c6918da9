"""Pages of each exporter that a fleet understands, of one host with two GPUs: one at work, one idle.

That of nvitop-exporter is what the program wrote beside the stand-in driver; the others are made after their
documentation: dcgm-exporter (default-counters.csv), nvidia_gpu_exporter (docs/METRICS.md), all-smi (API.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

UUIDS = tuple(f"GPU-5ca1ab1e-0000-4000-8000-{gpu:012x}" for gpu in range(2))
MODEL = "NVIDIA H100 80GB HBM3"
GIB = 2**30


def _page(labels: tuple[str, str], series: Mapping[str, tuple[object, object]]) -> str:
    lines = []
    for name, values in series.items():
        lines += [f"# HELP {name} What it is.", f"# TYPE {name} gauge"]
        lines += [
            f"{name}{{{of_gpu}}} {value}" for of_gpu, value in zip(labels, values, strict=True)
        ]
    return "\n".join((*lines, ""))


def _dcgm(hostname: str, series: Mapping[str, tuple[object, object]]) -> str:
    pods = ('container="train",namespace="ml",pod="big-0"', 'container="",namespace="",pod=""')
    first, second = (
        f'gpu="{gpu}",UUID="{uuid}",pci_bus_id="00000000:1{gpu}:00.0",device="nvidia{gpu}",modelName="{MODEL}",'
        f'{hostname}="box-7",DCGM_FI_DRIVER_VERSION="535.154.05",{pods[gpu]}'
        for gpu, uuid in enumerate(UUIDS)
    )  # fmt: skip
    return _page((first, second), series)


DCGM_OLD = _dcgm("Hostname", {
    "DCGM_FI_DEV_GPU_UTIL": (90, 0), "DCGM_FI_DEV_POWER_USAGE": ("400.000000", "70.000000"),
    "DCGM_FI_DEV_GPU_TEMP": (60, 30), "DCGM_FI_DEV_FB_USED": (40960, 0), "DCGM_FI_DEV_FB_FREE": (40960, 81920),
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": (0.9, 0.0), "DCGM_FI_PROF_SM_ACTIVE": (0.25, 0.0),
    "DCGM_FI_PROF_DRAM_ACTIVE": (0.5, 140737488355328.0),
})  # fmt: skip
DCGM_NEW = _dcgm("hostname", {
    "DCGM_FI_DEV_GPU_UTIL_RATIO": (0.9, 0), "DCGM_FI_DEV_BOARD_POWER_WATTS": (400, 70),
    "DCGM_FI_DEV_GPU_TEMP_CELSIUS": (60, 30), "DCGM_FI_DEV_FB_USED_BYTES": (40 * GIB, 0),
    "DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO": (0.9, 0), "DCGM_FI_PROF_SM_UTIL_RATIO": (0.25, 0),
})  # fmt: skip
DCGM_NEW_IN_PERCENT = DCGM_NEW.replace("} 0.9\n", "} 90\n", 1)
"""Percent under a ratio's name, as some builds have it."""
GPUTOP = _page(
    tuple(f'gpu="{gpu}",uuid="{uuid}",mig=""' for gpu, uuid in enumerate(UUIDS)),  # type: ignore[arg-type]
    {
        "gputop_gpu_info": (1, 1), "gputop_gpu_utilization_ratio": (0.9, 0), "gputop_gpu_sm_active_ratio": (0.25, 0),
        "gputop_gpu_power_watts": (400, 70), "gputop_gpu_temperature_celsius": (60, 30),
        "gputop_gpu_memory_used_bytes": (40 * GIB, 0),
    },
) + 'gputop_up 1\ngputop_host_info{hostname="box-7"} 1\n'  # fmt: skip
NVIDIA_GPU_EXPORTER = _page(
    tuple(f'uuid="{uuid.removeprefix("GPU-")}"' for uuid in UUIDS),  # type: ignore[arg-type]
    {
        "nvidia_smi_utilization_gpu_ratio": (0.9, 0), "nvidia_smi_power_draw_watts": (400, 70),
        "nvidia_smi_temperature_gpu": (60, 30), "nvidia_smi_memory_used_bytes": ("4.294967296e+10", 0),
        "nvidia_smi_memory_total_bytes": (80 * GIB, 80 * GIB),
    },
) + "".join(
    f'nvidia_smi_gpu_info{{uuid="{uuid.removeprefix("GPU-")}",name="{MODEL}",driver_version="535.154.05",'
    f'vbios_version="96",index="{gpu}"}} 1\n'
    for gpu, uuid in enumerate(UUIDS)
) + (
    'nvidia_smi_compute_app_info{pid="10291",process_name="/home/ann/bin/gpu_burn",'
    f'uuid="{UUIDS[0].removeprefix("GPU-")}"}} 1\n'
) + "nvidia_smi_command_exit_code 0\n"  # fmt: skip
NVIDIA_GPU_EXPORTER_OLD = NVIDIA_GPU_EXPORTER.replace(',index="0"', "").replace(',index="1"', "")
"""Its info named no number before 1.3."""
_SMI = {
    "all_smi_gpu_utilization": (90, 0), "all_smi_gpu_power_consumption_watts": (400, 70),
    "all_smi_gpu_temperature_celsius": (60, 30), "all_smi_gpu_memory_used_bytes": (40 * GIB, 0),
    "all_smi_gpu_memory_total_bytes": (80 * GIB, 80 * GIB),
}  # fmt: skip
ALL_SMI = _page(
    tuple(f'gpu="{MODEL}", instance="box-7", uuid="{uuid}", index="{gpu}"' for gpu, uuid in enumerate(UUIDS)),  # type: ignore[arg-type]
    _SMI,
)  # fmt: skip
ALL_SMI_NEW = _page(
    tuple(f'gpu="{MODEL}",instance="box-7",gpu_uuid="{uuid}",gpu_index="{gpu}"' for gpu, uuid in enumerate(UUIDS)),  # type: ignore[arg-type]
    _SMI,
)  # fmt: skip
_SMI_PROCESS = (
    'all_smi_process_memory_used_bytes{pid="8004",name="python",user="ann",device_id="0",gpu_index="0",'
    f'device_uuid="{UUIDS[0]}",command="python train.py"}} 3221225472\n'
)
ALL_SMI += _SMI_PROCESS.replace('gpu_index="0",', "")
ALL_SMI_NEW += _SMI_PROCESS
NVITOP = (Path(__file__).parent / "nvitop.txt").read_text(encoding="utf-8")

PAGES: Mapping[str, str] = {
    "gputop": GPUTOP, "dcgm-exporter, old names": DCGM_OLD, "dcgm-exporter, new names": DCGM_NEW,
    "dcgm-exporter, ratio in percent": DCGM_NEW_IN_PERCENT, "nvidia_gpu_exporter": NVIDIA_GPU_EXPORTER,
    "nvidia_gpu_exporter, old": NVIDIA_GPU_EXPORTER_OLD, "nvitop-exporter": NVITOP, "all-smi": ALL_SMI,
    "all-smi, new labels": ALL_SMI_NEW,
}  # fmt: skip
DIALECT_OF: Mapping[str, str] = {
    "gputop": "gputop", "dcgm-exporter, old names": "legacy", "dcgm-exporter, new names": "4.9",
    "dcgm-exporter, ratio in percent": "4.9", "nvidia_gpu_exporter": "nvidia_gpu_exporter",
    "nvidia_gpu_exporter, old": "nvidia_gpu_exporter", "nvitop-exporter": "nvitop", "all-smi": "all-smi",
    "all-smi, new labels": "all-smi",
}  # fmt: skip
