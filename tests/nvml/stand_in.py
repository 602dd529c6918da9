"""The stand-in ``libnvidia-ml.so.1``: how a test builds it, tells it what to answer and reads what was asked of it.

The library itself is the C beside this file. A program under test finds it by ``LD_LIBRARY_PATH`` and talks to it
through the real nvidia-ml-py. Values and errors come from a text file that ``Scenario.write`` replaces in one step, so
they may change while the program runs: the library looks at the file at most every 20 ms.
"""

from __future__ import annotations

import math
import mmap
import os
import struct
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

LIBRARY = "libnvidia-ml.so.1"
NOT_AVAILABLE = "none"
MIB = 1024 * 1024
GIB = 1024 * MIB

# What stays the same on every GPU of a model: published sheet values where the stand-in needs them to be believable,
# round numbers elsewhere. Hopper has GPM, Ampere has not.
H100: dict[str, float] = {
    "architecture": 9, "brand": 14, "compute_major": 9, "compute_minor": 0, "cores": 132 * 128,
    "mem_total_bytes": 80 * GIB, "mem_reserved_bytes": 600 * MIB, "bar1_total_bytes": 128 * GIB,
    "power_limit_w": 700, "power_default_w": 700, "power_min_w": 200, "power_max_w": 700,
    "sm_clock_max_mhz": 1980, "graphics_clock_max_mhz": 1980, "video_clock_max_mhz": 1545, "mem_clock_max_mhz": 2619,
    "pcie_gen_max": 5, "pcie_gen_gpu_max": 5, "pcie_gen": 5, "nvlink_links": 18, "nvlink_mbps": 26562,
    "nvlink_version": 7, "gpm_supported": 1, "temp_slowdown_c": 90, "temp_shutdown_c": 95, "temp_gpu_max_c": 87,
    "temp_mem_max_c": 95,
}  # fmt: skip
A100: dict[str, float] = {
    "architecture": 7, "brand": 14, "compute_major": 8, "compute_minor": 0, "cores": 108 * 64,
    "mem_total_bytes": 80 * GIB, "mem_reserved_bytes": 600 * MIB, "bar1_total_bytes": 128 * GIB,
    "power_limit_w": 400, "power_default_w": 400, "power_min_w": 100, "power_max_w": 400,
    "sm_clock_max_mhz": 1410, "graphics_clock_max_mhz": 1410, "video_clock_max_mhz": 1290, "mem_clock_max_mhz": 1593,
    "pcie_gen_max": 4, "pcie_gen_gpu_max": 4, "pcie_gen": 4, "nvlink_links": 12, "nvlink_mbps": 25000,
    "nvlink_version": 5, "gpm_supported": 0, "temp_slowdown_c": 90, "temp_shutdown_c": 95, "temp_gpu_max_c": 87,
    "temp_mem_max_c": 95,
}  # fmt: skip
MODELS = {"NVIDIA H100 80GB HBM3": H100, "NVIDIA A100-SXM4-80GB": A100}

# A GPU at work, until the test says otherwise. Units are in the names; throttle is NVML's bit mask; ecc 1 means on.
RUNNING: dict[str, float] = {
    "util": 90, "mem_util": 40, "mem_used_bytes": 40 * GIB, "bar1_used_bytes": 4 * MIB, "encoder": 0, "decoder": 0,
    "jpeg": 0, "ofa": 0, "temp_c": 60, "mem_temp_c": 70, "power_w": 400, "energy_j": 1_000_000, "sm_clock_mhz": 1400,
    "graphics_clock_mhz": 1400, "mem_clock_mhz": 1590, "video_clock_mhz": 1200, "pstate": 0, "throttle": 0,
    "pcie_width": 16, "pcie_width_max": 16, "pcie_replays": 0, "pcie_tx_mib": 500, "pcie_rx_mib": 1000,
    "nvlink_tx_mib": 2000, "nvlink_rx_mib": 3000, "ecc": 1, "ecc_corrected": 0, "ecc_uncorrected": 0,
    "ecc_corrected_volatile": 0, "ecc_uncorrected_volatile": 0, "retired_pending": 0, "remap_corrected": 0,
    "remap_uncorrected": 0, "remap_pending": 0, "remap_failed": 0, "mig": 0, "compute_mode": 0, "persistence": 1,
    "display_mode": 0, "display_active": 0, "recovery_action": 0, "nvlink_down_mask": 0,
}  # fmt: skip
# GPM metric id → percent: busy by the clock (util 90), a quarter of the chip in use.
RUNNING_GPM: dict[int, float] = {1: 88, 2: 25, 3: 12, 4: 6, 5: 10, 10: 15, 11: 0, 12: 4, 13: 1}

_COUNT = struct.Struct("56sQ")


@dataclass
class Failure:
    """In the place of a number: the query fails with this NVML return code (3 = not supported)."""

    code: int


Number = float | Failure | None


@dataclass
class Process:
    """One process on a device. ``gpu_mem_bytes`` None is NVML's sentinel; ``type`` is C, G or M (MPS)."""

    pid: int
    gpu_mem_bytes: int | None
    type: str = "C"
    sm: int = 0
    mem: int = 0
    enc: int = 0
    dec: int = 0


@dataclass
class Device:
    """A GPU or a MIG instance. ``values`` by the names of stand_in.h; a missing or None value is not supported."""

    name: str
    uuid: str
    pci: str = ""
    serial: str = ""
    values: dict[str, Number] = field(default_factory=dict)
    gpm: dict[int, Number] = field(default_factory=dict)
    processes: list[Process] = field(default_factory=list)
    xids: list[int] = field(default_factory=list)

    def set(self, **values: Number) -> None:
        """Change some values: ``set(util=12, power_w=None, temp_c=Failure(15))``."""
        self.values.update(values)


@dataclass
class Mig(Device):
    """A MIG instance of a GPU, in GPU instance ``gi`` and compute instance ``ci``."""

    gi: int = 1
    ci: int = 0


@dataclass
class Gpu(Device):
    """A physical GPU and its MIG instances. Set ``mig`` to 1 in ``values`` when there are any."""

    instances: list[Mig] = field(default_factory=list)


def build(directory: Path) -> Path:
    """Compile the library into ``directory`` and return its path. Raises CalledProcessError."""
    path = directory / LIBRARY
    sources = sorted(str(source) for source in Path(__file__).parent.glob("*.c"))
    flags = ["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror"]
    subprocess.run(
        ["cc", *flags, "-o", str(path), *sources, "-lm", "-lpthread"],
        check=True,
        capture_output=True,
        text=True,
    )
    return path


def uuid_of(gpu: int) -> str:
    """The UUID that the stand-in gives to the GPU of an index, unless a test chooses another."""
    return f"GPU-5ca1ab1e-0000-4000-8000-{gpu:012x}"


def make_gpu(index: int, model: str = "NVIDIA H100 80GB HBM3") -> Gpu:
    """A GPU of a model at work: util 90 %, SM 25 % where it has GPM, 400 W or its limit, no processes."""
    gpu = Gpu(model, uuid_of(index), f"00000000:{0x1A + index:02X}:00.0", f"16520{index:08d}")
    gpu.set(**MODELS[model], **RUNNING)
    gpu.set(
        nvlink_active=MODELS[model]["nvlink_links"],
        power_w=min(RUNNING["power_w"], MODELS[model]["power_limit_w"]),
    )
    if MODELS[model]["gpm_supported"]:
        gpu.gpm.update(RUNNING_GPM)
    return gpu


def split(
    gpu: Gpu, gpu_index: int, instances: int, sm_count: int = 16, gpu_mem_bytes: int = 10 * GIB
) -> None:
    """Turn MIG on: the GPU stops to give utilisation, and ``instances`` devices of equal size appear."""
    gpu.set(mig=1, util=None, mem_util=None, encoder=None, decoder=None)
    for number in range(instances):
        mig = Mig(
            f"{gpu.name} MIG 1g.10gb",
            f"MIG-5ca1ab1e-{gpu_index:04x}-4000-8000-{number:012x}",
            gi=7 + number,
        )
        mig.set(
            mem_total_bytes=gpu_mem_bytes, mem_used_bytes=gpu_mem_bytes // 4, attributes_sm=sm_count
        )
        mig.set(bar1_total_bytes=gpu_mem_bytes, bar1_used_bytes=MIB, gpu_slices=1, compute_slices=1)
        mig.set(gpm_supported=gpu.values.get("gpm_supported"))
        mig.gpm.update(
            {key: value for key, value in gpu.gpm.items() if key not in (20, 21, 60, 61)}
        )
        gpu.instances.append(mig)


class Scenario:
    """What the library answers, and what a program asked. Change it, then ``write`` it.

    ``directory`` is where its files go; ``library_directory`` holds the compiled library.
    """

    def __init__(
        self,
        directory: Path,
        library_directory: Path,
        gpus: int = 1,
        model: str = "NVIDIA H100 80GB HBM3",
    ):
        self.path = directory / "scenario.txt"
        self.counts_path = directory / "calls.bin"
        self.log_path = directory / "sessions.log"
        self.library_directory = library_directory
        self.gpus = [make_gpu(index, model) for index in range(gpus)]
        self.driver = "570.86.15"
        self.nvml = "12.570.86.15"
        self.branch = "r570_00"
        self.cuda = 12080
        self.latency_us = 0.0
        self.serial = False
        self.loads = 1
        """How often the driver was loaded; 0: it is not. A program must shut down and init again after each load."""
        self.count_at_init = False
        """Whether a GPU that comes later is only counted after the next init."""
        self.wave_s = 0.0
        self.wave_depth = 0.5
        self._rules: list[str] = []
        self._environment = {
            "LD_LIBRARY_PATH": str(library_directory),
            "NVML_STAND_IN": str(self.path),
            "NVML_STAND_IN_COUNTS": str(self.counts_path),
            "NVML_STAND_IN_LOG": str(self.log_path),
        }

    def error(
        self, function: str, code: int, gpu: int | None = None, after: int = 0, times: int = 0
    ) -> None:
        """Let a function (``*`` = all; with or without _v2) fail with a return code, on one GPU or everywhere.

        The first ``after`` calls still succeed; with ``times`` only so many fail.
        """
        self._rules.append(
            f"error {function} {'*' if gpu is None else gpu} {code} after {after} times {times}"
        )

    def hang(
        self, function: str, seconds: float, gpu: int | None = None, after: int = 0, times: int = 0
    ) -> None:
        """Let a function block for some seconds before it answers. ``after`` and ``times`` as for ``error``."""
        self._rules.append(
            f"hang {function} {'*' if gpu is None else gpu} {seconds:g} after {after} times {times}"
        )

    def clear_trouble(self) -> None:
        """Forget all errors and hangs."""
        self._rules.clear()

    def write(self) -> None:
        """Put the scenario in force, in one step: the library never reads half of it."""
        draft = self.path.with_suffix(".draft")
        draft.write_text("\n".join(self._lines()) + "\n")
        draft.replace(self.path)

    def environment(self) -> dict[str, str]:
        """This process's environment plus what a program needs to find the library and its scenario."""
        return {**os.environ, **self._environment}

    def calls(self) -> dict[str, int]:
        """How often each NVML function was called, by all programs that ran under this scenario."""
        if not self.counts_path.exists():
            return {}
        with (
            self.counts_path.open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as counts,
        ):
            rows = [
                _COUNT.unpack_from(counts, offset) for offset in range(0, len(counts), _COUNT.size)
            ]
        return {name.rstrip(b"\0").decode(): calls for name, calls in rows if calls}

    def sessions(self) -> list[str]:
        """A line for each first init and last shutdown, with what is open: ``PID shutdown samples=0 event_sets=0``"""
        return self.log_path.read_text().splitlines() if self.log_path.exists() else []

    def _lines(self) -> Iterable[str]:
        yield f"driver {self.driver}"
        yield f"nvml {self.nvml}"
        yield f"branch {self.branch}"
        yield f"cuda {self.cuda}"
        yield f"latency_us {self.latency_us:g}"
        yield f"serial {int(self.serial)}"
        yield f"loads {self.loads}"
        yield f"count_at_init {int(self.count_at_init)}"
        yield f"wave {self.wave_s:g} {self.wave_depth:g}"
        yield from self._rules
        for index, gpu in enumerate(self.gpus):
            yield f"gpu {index}"
            yield from _device_lines(gpu)
        for index, gpu in enumerate(self.gpus):
            for number, mig in enumerate(gpu.instances):
                yield f"mig_device {index} {number} {mig.gi} {mig.ci}"
                yield from _device_lines(mig)


def _word(number: Number) -> str:
    if number is None:
        return "none"
    if isinstance(number, Failure):
        return f"!{number.code}"
    return "nan" if math.isnan(number) else f"{number:.17g}"


def _device_lines(device: Device) -> Iterable[str]:
    for key in ("name", "uuid", "pci", "serial"):
        if getattr(device, key):
            yield f"{key} {getattr(device, key)}"
    for key, number in device.values.items():
        yield f"{key} {_word(number)}"
    for metric, number in device.gpm.items():
        yield f"gpm {metric} {_word(number)}"
    for serial, code in enumerate(device.xids, 1):
        yield f"xid {serial} {code}"
    for p in device.processes:
        memory = NOT_AVAILABLE if p.gpu_mem_bytes is None else p.gpu_mem_bytes
        yield f"process {p.pid} {memory} {p.type} sm={p.sm} mem={p.mem} enc={p.enc} dec={p.dec}"
