"""Scenes after public reports of GPU faults, as snapshots: any length, so that tests can vary them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from gputop.model.quantity import GIB
from gputop.model.snapshot import (
    GpuSample,
    GpuStatic,
    HostSample,
    Machine,
    MainTime,
    ProcessSample,
    ProcessStatic,
    Snapshot,
)

T0 = 1_790_000_000.0
H100 = "NVIDIA H100 80GB HBM3"
_BUSY = GpuSample(
    mem_used_bytes=60 * GIB, mem_total_bytes=80 * GIB, temp_c=45.0, pcie_gen=5, pcie_gen_max=5, pcie_width=16,
    pcie_width_max=16, pcie_rx_bytes_per_s=1e8, pcie_tx_bytes_per_s=1e7, throttle_reasons=0, sm_source="gpm",
    sm_window_s=1.0, sm_age_s=0.0,
)  # fmt: skip
_NO_SM: dict[str, Any] = {
    "sm_active_pct": None, "tensor_active_pct": None, "dram_active_pct": None, "sm_source": "none",
    "sm_window_s": None, "sm_age_s": None, "unavailable": {"sm_active_pct": "Ada has no GPM counters"},
}  # fmt: skip


class Scene(Struct, frozen=True):
    """``gpu`` gives the values of a GPU by second and index."""

    gpu: Callable[[int, int], Mapping[str, Any]]
    names: tuple[str, ...] = (H100,)
    architecture: str = "hopper"
    seconds: int = 90
    main_run_pct: float = 100.0


def _takes_turns(second: int, gpu: int) -> Mapping[str, Any]:
    """The values of four GPUs that hold the layers of one model and compute one after the other, 3 s each."""
    share = 1.0 if second // 3 % 4 == gpu else 0.0
    return _sm(98 * share, 80 * share, 30 * share, 30 * share, power_w=120 + 380 * share, mem_used_bytes=20 * GIB)


def _sm(util: float, sm: float, tensor: float, dram: float, **more: Any) -> dict[str, Any]:
    names = ("util_pct", "sm_active_pct", "tensor_active_pct", "dram_active_pct")
    clocks = {"power_limit_w": 700.0, "sm_clock_mhz": 1980.0, "sm_clock_max_mhz": 1980.0}
    return {**dict(zip(names, map(float, (util, sm, tensor, dram)), strict=True)), **clocks, **more}


SCENES: Mapping[str, Scene] = {
    "low_clock": Scene(lambda s, i: _sm(99, 92, 50, 40, power_w=150.0, sm_clock_mhz=345.0)),
    "p8_stuck": Scene(
        lambda s, i: {
            **_NO_SM, "util_pct": 100.0, "mem_used_bytes": 7 * GIB, "mem_total_bytes": 10 * GIB, "power_w": 21.0,
            "power_limit_w": 225.0, "sm_clock_mhz": 300.0, "sm_clock_max_mhz": 2115.0, "pcie_gen": 3, "pcie_gen_max": 3,
        },
        ("NVIDIA CMP 50HX",), "turing",
    ),
    "frozen_power": Scene(
        lambda s, i: {
            **_NO_SM, "util_pct": 99.0, "mem_used_bytes": 6 * GIB, "mem_total_bytes": 8 * GIB, "power_w": 588.7,
            "power_limit_w": 35.0, "temp_c": 48.0, "sm_clock_mhz": 210.0, "sm_clock_max_mhz": 3105.0,
            "throttle_reasons": 0x24, "pcie_gen": 4, "pcie_gen_max": 4, "pcie_width": 8, "pcie_width_max": 8,
        },
        ("NVIDIA RTX 2000 Ada Generation Laptop GPU",), "ada",
    ),
    "pcie_x1": Scene(
        lambda s, i: _sm(
            45, 35, 12, 10, power_w=260.0, pcie_gen=1, pcie_width=1, pcie_rx_bytes_per_s=1.99e8, pcie_tx_bytes_per_s=5e6
        ),
        main_run_pct=5.0,
    ),
    "hbm_hot": Scene(
        lambda s, i: _sm(100, 80, 6, 58, power_w=520.0, temp_c=58.0, mem_temp_c=99.0, sm_clock_mhz=1755.0)
    ),
    "device_map": Scene(_takes_turns, (H100,) * 4, seconds=120),
    "device_map_fast": Scene(
        lambda s, i: _sm(25, 20, 8, 8, power_w=215.0, mem_used_bytes=20 * GIB), (H100,) * 4, seconds=120
    ),
}  # fmt: skip


def snapshots(scene: Scene) -> Iterator[Snapshot]:
    """Yield one snapshot a second of a scene, in which one process uses every GPU."""
    statics = [
        GpuStatic(
            i, f"GPU-0000000{i}-0000-0000-0000-000000000000", name, scene.architecture, 132,
            f"00000000:{16 + i:02X}:00.0", mig_enabled=False,
        )
        for i, name in enumerate(scene.names)
    ]  # fmt: skip
    runs = scene.main_run_pct > 50.0
    process = ProcessSample(
        4000, 1, 1, gpu_mem_bytes=20 * GIB, type="C", cpu_pct=scene.main_run_pct, main_run_pct=scene.main_run_pct,
        main_wait_pct=0.0, state="R" if runs else "S", static=ProcessStatic("ml", "python train.py", "python"),
        main=MainTime(*[0.0] * len(MainTime.__struct_fields__)) if runs else MainTime(),
    )  # fmt: skip
    for second in range(scene.seconds):
        yield Snapshot(
            T0 + second,
            Machine("node", "b", "580.0"),
            tuple(replace(_BUSY, static=static, **scene.gpu(second, i)) for i, static in enumerate(statics)),
            tuple(replace(process, gpu=i, age_s=100.0 + second) for i in range(len(statics))),
            HostSample(cpu_pct=10.0, cpu_count=64.0),
        )
