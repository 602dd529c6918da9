"""The default machine: eight GPUs of one node, each in a different situation, as in the project's pictures."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from gputop.model.snapshot import CgroupName
from gputop.sources.simulation.life import (
    LOADS,
    Cpu,
    FabricLife,
    GpuLife,
    HostLife,
    Load,
    NodeLife,
    SimulatedProcess,
    Workers,
    slurm,
)

HOUR_S = 3600.0
DAY_S = 86400.0
STEP_PERIOD_S = 10.0
"""Bursts of a starved GPU. Three of them fill the diagnosis window of 30 s exactly, so its means stand still."""

SPINNING = Cpu(103.0, main=99.0)
"""A main thread that waits for the GPU: CUDA spins while it waits, so a healthy job shows 100 %."""
SERVER = "python -m vllm.entrypoints.openai.api_server --model llama"

SMALL_KERNELS = GpuLife(
    LOADS["small_kernels"], 61.2, 54,
    (SimulatedProcess(4711, "python rl.py --batch 1", 58.1, 2470, SPINNING, user="rl", job=slurm(8830), rss_gib=12.2),),
)  # fmt: skip


def healthy(rank: int = 0) -> GpuLife:
    """Return one of two data-parallel ranks that work well.

    Its level is that of a well-tuned job on a real H100.
    """
    job = SimulatedProcess(
        4301 + rank,
        "python train.py --config big.yaml",
        70.4,
        11529,
        SPINNING,
        job=slurm(8821),
        rss_gib=18.0,
        threads=92,
        nccl=True,
        pin_memory=True,
        workers=Workers(4, Cpu(26.0)),
    )
    return GpuLife(LOADS[f"healthy.{rank % 2}"], 72.0, 61 - rank % 2, (job,))


DATALOADER_CPU = GpuLife(
    LOADS["dataloader_cpu"], 31.4, 47,
    (SimulatedProcess(
        4802, "python train.py --aug heavy", 30.8, 3764, Cpu(4.0, main=3.0), Cpu(1.0, main=1.0), job=slurm(8825),
        rss_gib=20.4, workers=Workers(8, busy=Cpu(68.0, 1.0), resting=Cpu(95.0, 2.0)),
    ),),
    LOADS["dataloader_cpu.rest"], STEP_PERIOD_S, 0.4,
)  # fmt: skip
"""Eight workers decode as fast as they can; the GPU computes for 4 s of every 10."""

COMMUNICATION = GpuLife(
    LOADS["communication"], 70.2, 48,
    (SimulatedProcess(
        4901, "python fsdp.py --nodes 4", 68.6, 8040, SPINNING, job=slurm(8827), rss_gib=16.3, threads=110, nccl=True,
        workers=Workers(2, Cpu(8.0)),
    ),),
)  # fmt: skip

MEMORY_BANDWIDTH = GpuLife(
    LOADS["decoding"], 75.4, 63,
    (SimulatedProcess(
        6001, SERVER, 74.2, 5 * DAY_S + 2 * HOUR_S, Cpu(63.0, main=58.0, waits="network"), user="serve", rss_gib=22.1,
        threads=140, container=CgroupName("vllm-llama-0"),
        workers=Workers(
            1, Cpu(6.0, waits="network"), rss_gib=0.9, kind="", rule_text="R5 other child", rule="R5", name="python",
            role="helper",
        ),
    ),),
)  # fmt: skip
"""As vLLM decodes on a real H100: the tensor cores hardly matter, the memory does."""

DATALOADER_IO = GpuLife(
    LOADS["dataloader_io"], 44.0, 48,
    (SimulatedProcess(
        5002, "python train.py --data /mnt/images", 42.9, 6310, Cpu(5.0, main=4.0), Cpu(1.0, main=1.0),
        job=slurm(8829), rss_gib=14.7, workers=Workers(6, Cpu(2.0, disk=0.98, waits="disk", read_mb=2.0)),
    ),),
    LOADS["dataloader_io.rest"], STEP_PERIOD_S, 0.5,
)  # fmt: skip
"""Six workers sit in disk wait; together they read 12 MB/s."""

_NOTEBOOK = "python -m ipykernel_launcher -f kernel-5120.json"
IDLE_HOLDING_MEMORY = GpuLife(
    Load(power_w=71), 30.0, 34,
    (SimulatedProcess(5120, _NOTEBOOK, 29.4, 9 * HOUR_S, Cpu(0.0), rss_gib=3.1, threads=31),),
)  # fmt: skip

BUSY_HOST = HostLife(54, 11, 3, disk_read_mb=12, disk_write_mb=2, net_rx_mb=1100, net_tx_mb=210)
"""A third of its 32 cores and more are free: more workers, as the remedy of the CPU-bound GPU says, find room."""
DECODING_HOST = HostLife(31, 6, 0.5, net_rx_mb=1100, net_tx_mb=40)


def node(gpus: int = 8) -> NodeLife:
    """The default machine with any number of GPUs: the eight situations in turn, with their own process ids."""
    fates = (
        SMALL_KERNELS, healthy(0), healthy(1), DATALOADER_CPU, COMMUNICATION, MEMORY_BANDWIDTH, DATALOADER_IO,
        IDLE_HOLDING_MEMORY,
    )  # fmt: skip
    lives = []
    for index in range(gpus):
        jobs = (replace(job, pid=job.pid + 10000 * (index // 8)) for job in fates[index % 8].jobs)
        lives.append(replace(fates[index % 8], jobs=tuple(jobs)))
    return NodeLife(
        tuple(lives), host=replace(BUSY_HOST, cores=4 * gpus), fabric=FabricLife(rx=3.1, tx=3.0)
    )


def changed(life: GpuLife, job: dict[str, Any], **changes: Any) -> GpuLife:
    """Return a GPU with changes to it and its first job."""
    return replace(life, jobs=(replace(life.jobs[0], **job),), **changes)


# The default machine once more, after the remedy of each GPU was applied: what the tour of the demo shows.
FREED = GpuLife(Load(power_w=69), 0.6, 31)
"""A GPU on which no process holds memory: what is left is the driver's own."""
_FED = {"busy": SPINNING, "resting": None}
_STEADY = {"period_s": None, "duty": 1.0}
REMEDIED = NodeLife(
    (
        changed(SMALL_KERNELS, {"command": "python rl.py --batch 512 --cuda-graphs", "memory_gib": 66.3},
                busy=LOADS["small_kernels.remedied"], used_gib=69.4, temp_c=62),
        healthy(0),
        healthy(1),
        # Decoding has left the CPU: the loaders only pass data on, and wait for the GPU.
        changed(DATALOADER_CPU, {**_FED, "command": "python train.py --aug gpu", "workers": Workers(8, Cpu(24.0))},
                busy=LOADS["dataloader_cpu.remedied"], temp_c=61, **_STEADY),
        changed(COMMUNICATION, {"command": "python fsdp.py --nodes 4 --accumulate 8"},
                busy=LOADS["communication.remedied"], temp_c=60),
        # Larger batches bring more arithmetic for every byte that is read.
        changed(MEMORY_BANDWIDTH, {"command": f"{SERVER} --kv-cache-dtype fp8"},
                busy=LOADS["decoding.remedied"]),
        changed(DATALOADER_IO, {**_FED, "command": "python train.py --data /local/shards",
                                "workers": Workers(6, Cpu(22.0, read_mb=80.0))},
                busy=LOADS["dataloader_io.remedied"], temp_c=60, **_STEADY),
        FREED,
    ),
    host=HostLife(47, 3, 0.6, disk_read_mb=480, disk_write_mb=2, net_rx_mb=1100, net_tx_mb=210),
)  # fmt: skip
"""The same node with every remedy applied; the GPUs that had none go on as they were."""
