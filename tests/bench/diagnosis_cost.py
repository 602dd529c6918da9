"""What the diagnosis of one GPU holds more of as time passes."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Iterator

from gputop.diagnosis.engine import Diagnoser
from gputop.model.snapshot import GpuSample, GpuStatic, HostSample, Machine, ProcessSample, ProcessStatic, Snapshot
from tests.support.held import held_bytes

GPUS = 8
MACHINE = Machine("bench")
TRAIN = ProcessStatic(user="ml", command="python train.py", name="python")
WORKER = ProcessStatic(
    user="ml", command="python train.py", name="python", loader="torch", why="R1 comm pt_data_worker"
)


def snapshots(ticks: int, loaders: int, count: int = GPUS) -> Iterator[Snapshot]:
    """GPUs of which half are healthy, half starved by their loaders."""
    rng = random.Random(1)
    statics = [GpuStatic(i, f"GPU-{i}", "H100", nvlink_peak_bytes_per_s=450e9) for i in range(count)]
    host = HostSample(cpu_pct=40.0, psi_cpu_pct=1.0, mem_used_bytes=1e11, mem_total_bytes=5e11, swap_used_bytes=0.0)
    for tick in range(ticks):
        gpus = []
        processes = []
        for i, static in enumerate(statics):
            noise = rng.random()
            util, sm = (96.0 + noise, 90.0 + noise) if i % 2 else (40.0 + noise, 35.0 + noise)
            gpus.append(
                GpuSample(
                    static=static,
                    util_pct=util,
                    sm_active_pct=sm,
                    sm_occupancy_pct=40.0,
                    tensor_active_pct=45.0,
                    dram_active_pct=40.0,
                    fp32_active_pct=6.0,
                    mem_used_bytes=6e10,
                    mem_total_bytes=8e10,
                    power_w=600.0,
                    power_limit_w=700.0,
                    sm_clock_mhz=1980.0,
                    sm_clock_max_mhz=1980.0,
                    pcie_rx_bytes_per_s=2e9,
                    pcie_tx_bytes_per_s=1e8,
                    pcie_gen=5,
                    pcie_gen_max=5,
                    pcie_width=16,
                    pcie_width_max=16,
                    nvlink_rx_bytes_per_s=1e8,
                    nvlink_tx_bytes_per_s=1e8,
                    throttle_reasons=0,
                    ecc_uncorrected=0,
                    sm_source="gpm",
                )
            )
            pid = 4000 + 100 * i
            processes.append(
                ProcessSample(
                    pid=pid,
                    starttime=7000,
                    ppid=1,
                    role="gpu",
                    gpu=i,
                    gpu_mem_bytes=6e10,
                    cpu_pct=20.0,
                    main_run_pct=10.0,
                    main_wait_pct=0.0,
                    main_state="S",
                    age_s=3600.0 + tick,
                    static=TRAIN,
                )
            )
            processes.extend(
                ProcessSample(
                    pid=pid + 1 + w,
                    starttime=7100,
                    ppid=pid,
                    role="loader",
                    gpu=i,
                    cpu_pct=88.0,
                    run_pct=88.0,
                    wait_pct=12.0,
                    state="R",
                    read_bytes_per_s=1e6,
                    write_bytes_per_s=0.0,
                    age_s=3600.0 + tick,
                    static=WORKER,
                )
                for w in range(loaders)
            )
        yield Snapshot(
            t=1.78e9 + tick, machine=MACHINE, gpus=tuple(gpus), processes=tuple(processes), host=host, interval_s=1.0
        )


def growth_bytes(ticks: int) -> int:
    """Bytes by which the diagnosis of one GPU grows in the second half of so many ticks."""
    diagnoser = Diagnoser()
    before = 0
    tracemalloc.start()
    for number, snapshot in enumerate(snapshots(ticks, 1, count=1)):
        diagnoser.observe(snapshot)
        if number == ticks // 2:
            before = held_bytes()
    after = held_bytes()
    tracemalloc.stop()
    return after - before
