"""The default machine: eight GPUs of one node, each in a different situation, as in the project's pictures."""

from __future__ import annotations

from msgspec.structs import replace

from gputop.model.snapshot import CgroupName
from gputop.sources.simulation.life import (
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
WAITING = Cpu(2.0, main=2.0, waits="queue")


def small_kernels() -> GpuLife:
    load = Load(97, 8, 12, 1, 12, 6, 214, 1.2, 0.1)
    job = SimulatedProcess(
        4711, "python rl.py --batch 1", 58.1, 2470, SPINNING, user="rl", job=slurm(8830), rss_gib=12.2
    )
    return GpuLife(load, 61.2, 54, (job,))


def healthy(rank: int = 0) -> GpuLife:
    """One of a pair of data-parallel ranks that does what it should: the level of a well-tuned job on a real H100."""
    load = (
        Load(98, 88, 38, 58, 37, 22, 689, 2.1, 0.4, 11, 11),
        Load(97, 87, 37, 57, 38, 22, 684, 2.0, 0.4, 11, 11),
    )[rank % 2]
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
        workers=Workers(4, Cpu(26.0, waits="queue")),
    )
    return GpuLife(load, 72.0, 61 - rank % 2, (job,))


def dataloader_cpu() -> GpuLife:
    """Eight workers decode as fast as they can; the GPU computes for 4 s of every 10."""
    workers = Workers(8, busy=Cpu(66.0, 8.0), rest=Cpu(88.0, 12.0))
    job = SimulatedProcess(
        4802,
        "python train.py --aug heavy",
        30.8,
        3764,
        busy=Cpu(4.0, main=3.0),
        rest=Cpu(1.0, main=1.0),
        job=slurm(8825),
        rss_gib=20.4,
        workers=workers,
    )
    return GpuLife(
        busy=Load(83, 73, 46, 28, 46, 15, 560, 11.8, 0.5),
        rest=Load(8, 6, 4, 1, 2, 1, 128, 0.8, 0.1),
        period_s=STEP_PERIOD_S,
        duty=0.4,
        used_gib=31.4,
        temp_c=47,
        jobs=(job,),
    )


def communication() -> GpuLife:
    load = Load(99, 16, 4, 2, 6, 3, 312, 0.6, 0.5, 158, 157)
    job = SimulatedProcess(
        4901,
        "python fsdp.py --nodes 4",
        68.6,
        8040,
        SPINNING,
        job=slurm(8827),
        rss_gib=16.3,
        threads=110,
        nccl=True,
        workers=Workers(2, Cpu(8.0, waits="queue")),
    )
    return GpuLife(load, 70.2, 48, (job,))


def memory_bandwidth() -> GpuLife:
    # As vLLM decodes on a real H100: the tensor cores hardly matter, the memory does.
    load = Load(99, 66, 10, 3, 68, 12, 424, 0.9, 0.6)
    server = "python -m vllm.entrypoints.openai.api_server --model llama"
    job = SimulatedProcess(
        6001,
        server,
        74.2,
        5 * DAY_S + 2 * HOUR_S,
        Cpu(63.0, main=58.0, waits="network"),
        user="serve",
        rss_gib=22.1,
        threads=140,
        container=CgroupName("vllm-llama-0"),
        workers=Workers(
            1,
            Cpu(6.0, waits="network"),
            rss_gib=0.9,
            kind="",
            why="R5 other child",
            rule="R5",
            name="python",
            role="helper",
        ),
    )
    return GpuLife(load, 75.4, 63, (job,))


def dataloader_io() -> GpuLife:
    """Six workers sit in disk wait; together they read 12 MB/s."""
    reading = Cpu(2.0, disk=0.98, waits="disk", read_mb=2.0)
    job = SimulatedProcess(
        5002,
        "python train.py --data /mnt/images",
        42.9,
        6310,
        busy=Cpu(5.0, main=4.0),
        rest=Cpu(1.0, main=1.0),
        job=slurm(8829),
        rss_gib=14.7,
        workers=Workers(6, reading),
    )
    return GpuLife(
        busy=Load(85, 73, 44, 28, 36, 16, 530, 7.2, 0.4),
        rest=Load(8, 6, 4, 1, 2, 1, 124, 0.5, 0.1),
        period_s=STEP_PERIOD_S,
        duty=0.5,
        used_gib=44.0,
        temp_c=48,
        jobs=(job,),
    )


def idle_holding_memory() -> GpuLife:
    notebook = "python -m ipykernel_launcher -f kernel-5120.json"
    job = SimulatedProcess(5120, notebook, 29.4, 9 * HOUR_S, Cpu(0.0, waits="queue"), rss_gib=3.1, threads=31)
    return GpuLife(Load(power_w=71), 30.0, 34, (job,))


BUSY_HOST = HostLife(87, 41, 3, disk_read_mb=12, disk_write_mb=2, net_rx_mb=1100, net_tx_mb=210)
DECODING_HOST = HostLife(87, 14, 0.5, net_rx_mb=1100, net_tx_mb=40)


def node(gpus: int = 8) -> NodeLife:
    """The default machine with any number of GPUs: the eight situations in turn, with their own process ids."""
    fates = (
        small_kernels(),
        healthy(0),
        healthy(1),
        dataloader_cpu(),
        communication(),
        memory_bandwidth(),
        dataloader_io(),
        idle_holding_memory(),
    )
    return NodeLife(
        tuple(_again(fates[i % 8], i // 8) for i in range(gpus)), host=BUSY_HOST, fabric=FabricLife(rx=3.1, tx=3.0)
    )


def sixteen() -> NodeLife:
    """Twice as many."""
    return node(16)


def _again(life: GpuLife, copy: int) -> GpuLife:
    """The same situation on another GPU: process ids must differ."""
    return life if copy == 0 else replace(life, jobs=tuple(replace(j, pid=j.pid + 10000 * copy) for j in life.jobs))


# The default machine once more, after the remedy of each GPU was applied: what the tour of the demo shows.

HELD_BY_NOBODY_GIB = 0.6
"""What the driver keeps for itself on a GPU without processes."""
RELIEVED_HOST = HostLife(66, 3, 0.6, disk_read_mb=480, disk_write_mb=2, net_rx_mb=1100, net_tx_mb=210)


def remedied(gpus: int = 8) -> NodeLife:
    """The same node with every remedy applied; the GPUs that had none go on as they were."""
    fates = (_whole_batches(), healthy(0), healthy(1), _fed(), _overlapped(), _batched(), _local(), freed())
    return NodeLife(fates[:gpus], host=RELIEVED_HOST)


def freed() -> GpuLife:
    """A GPU on which no process holds memory."""
    return GpuLife(Load(power_w=69), HELD_BY_NOBODY_GIB, 31)


def _whole_batches() -> GpuLife:
    life = small_kernels()
    job = replace(life.jobs[0], command="python rl.py --batch 512 --cuda-graphs", memory_gib=66.3)
    return replace(life, busy=Load(97, 86, 36, 38, 44, 20, 602, 2.4, 0.3), used_gib=69.4, temp_c=62, jobs=(job,))


def _fed() -> GpuLife:
    """Decoding has left the CPU: the loaders only pass data on, and wait for the GPU."""
    life = dataloader_cpu()
    job = replace(
        life.jobs[0],
        command="python train.py --aug gpu",
        busy=SPINNING,
        rest=None,
        workers=Workers(8, Cpu(24.0, waits="queue")),
    )
    return _steady(replace(life, busy=Load(97, 88, 46, 38, 46, 18, 640, 12.2, 0.5), temp_c=61, jobs=(job,)))


def _overlapped() -> GpuLife:
    life = communication()
    job = replace(life.jobs[0], command="python fsdp.py --nodes 4 --accumulate 8")
    return replace(life, busy=Load(98, 84, 34, 40, 38, 20, 628, 0.8, 0.6, 92, 91), temp_c=60, jobs=(job,))


def _batched() -> GpuLife:
    """Larger batches bring more arithmetic for every byte that is read."""
    life = memory_bandwidth()
    server = life.jobs[0].command + " --kv-cache-dtype fp8"
    job = replace(life.jobs[0], command=server)
    return replace(life, busy=Load(99, 93, 46, 44, 52, 24, 642, 1.1, 0.8), jobs=(job,))


def _local() -> GpuLife:
    life = dataloader_io()
    workers = Workers(6, Cpu(22.0, waits="queue", read_mb=80.0))
    job = replace(
        life.jobs[0], command="python train.py --data /local/shards", busy=SPINNING, rest=None, workers=workers
    )
    return _steady(replace(life, busy=Load(97, 86, 44, 36, 40, 18, 618, 8.0, 0.4), temp_c=60, jobs=(job,)))


def _steady(life: GpuLife) -> GpuLife:
    """Without pauses."""
    return replace(life, period_s=None, duty=1.0)
