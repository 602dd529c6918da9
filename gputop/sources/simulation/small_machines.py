"""Small machines with one scenario each: what starves a GPU, what keeps it busy without work, what is normal."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from msgspec.structs import replace

from gputop.model.derived import POWER_CAP, SOFTWARE_THERMAL
from gputop.model.snapshot import CgroupName
from gputop.sources.simulation import eight_gpu_node
from gputop.sources.simulation.life import (
    A100,
    AT_REST,
    GB10,
    H100,
    H200,
    QUIET_HOST,
    RTX_4090,
    Announced,
    Chip,
    Counter,
    Cpu,
    FabricLife,
    GpuLife,
    HostLife,
    Load,
    NodeLife,
    Served,
    SimulatedProcess,
    Workers,
    slurm,
)

_LOW = Load(8, 6, 4, 1, 2, 1, 126, 0.5, 0.1)
"""Between two steps: a few small kernels."""


STEP_S = 5.8
"""The step of the job that does not announce it."""


_TRAINER = SimulatedProcess(4802, "python train.py", 30.8, 3764, Cpu(), job=slurm(8825), rss_gib=20.4)
"""The job of most starved GPUs: each scenario says what it does differently."""


def _rank(number: int = 0, *, job: Mapping[str, Any] = MappingProxyType({}), **changes: Any) -> GpuLife:
    """A GPU of a healthy pair with changes, also of its job."""
    life = eight_gpu_node.healthy(number)
    return replace(life, jobs=(replace(life.jobs[0], **job),), **changes)


def machine(life: GpuLife, host: HostLife = QUIET_HOST, chip: Chip = H100) -> NodeLife:
    """A machine with one GPU."""
    return NodeLife((life,), chip, host)


def healthy() -> NodeLife:
    return NodeLife((eight_gpu_node.healthy(0), eight_gpu_node.healthy(1)))


def useful_work() -> NodeLife:
    """A job that announces its steps, and a server that publishes what it serves."""
    train = eight_gpu_node.healthy(0)
    announced = Announced(step_s=0.412, tokens=65_536.0, samples=32.0, mfu_pct=43.0)
    job = replace(train.jobs[0], pid=4730, announced=announced, nccl=False)
    server = low_demand().gpus[0]
    served = Served(
        "vllm", "localhost:8000", 12.0, 1430.0, 5200.0, 3.0, 8.0, ((0.08, 0.1), (0.25, 0.5)), ((0.01, 0.025),) * 2
    )
    return NodeLife((replace(train, jobs=(job,)), server), host=HostLife(cpu=9), served=(served,))


def step_time() -> NodeLife:
    """Two ranks that exchange gradients at the end of each step, which they do not announce."""
    job = SimulatedProcess(
        4720, "torchrun --nproc-per-node 2 train.py", 61.0, 7300, eight_gpu_node.SPINNING, job=slurm(8841), nccl=True
    )
    computes = Load(99, 91, 40, 58, 36, 24, 664, 1.2, 0.3, nvlink_rx=4.0, nvlink_tx=4.0)
    exchanges = Load(98, 74, 22, 31, 34, 18, 505, 0.6, 0.2, nvlink_rx=96.0, nvlink_tx=96.0)
    life = GpuLife(computes, 62.0, 60, (job,), exchanges, STEP_S, 0.6, in_step=True)
    return NodeLife((life, replace(life, jobs=(replace(job, pid=4721),))))


def small_kernels() -> NodeLife:
    return machine(eight_gpu_node.small_kernels(), HostLife(cpu=9))


def communication() -> NodeLife:
    fabric = FabricLife(ports=1, rx=3.0, tx=3.0, drops_per_s=40.0)
    return replace(machine(eight_gpu_node.communication(), HostLife(cpu=12)), fabric=fabric)


def dataloader_cpu() -> NodeLife:
    return machine(eight_gpu_node.dataloader_cpu(), eight_gpu_node.DECODING_HOST)


def dataloader_cpu_throttled() -> NodeLife:
    life = eight_gpu_node.dataloader_cpu()
    workers = Workers(8, busy=Cpu(30, 40), rest=Cpu(42, 56), throttled_pct=62)
    return machine(replace(life, jobs=(replace(life.jobs[0], workers=workers),)), HostLife(cpu=31, psi_cpu=9))


def dataloader_io() -> NodeLife:
    return machine(eight_gpu_node.dataloader_io(), HostLife(11, 1, 38, disk_read_mb=12))


def dataloader_network() -> NodeLife:
    job = SimulatedProcess(
        5002,
        "python train.py --data s3://images",
        42.9,
        6310,
        Cpu(1.5, main=1.0),
        job=slurm(8829),
        rss_gib=14.7,
        workers=Workers(8, Cpu(1.2, waits="network")),
    )
    life = replace(eight_gpu_node.dataloader_io(), duty=0.45, jobs=(job,))
    return machine(life, HostLife(cpu=4, net_rx_mb=38))


def main_process() -> NodeLife:
    """The main thread augments and copies between the steps; two workers have nothing to do."""
    job = replace(
        _TRAINER,
        command="python train.py --metrics-every 1",
        busy=Cpu(92, main=88),
        rest=Cpu(101, main=97),
        workers=Workers(2, Cpu(3.0, waits="queue")),
    )
    life = GpuLife(
        Load(84, 70, 40, 26, 34, 15, 520, 3.0, 0.3), 31.4, 43, (job,), _LOW, eight_gpu_node.STEP_PERIOD_S, 0.2
    )
    return machine(life, HostLife(cpu=8))


def pcie_transfer() -> NodeLife:
    """Pageable copies: the main thread works on every byte, and the link is half full."""
    workers = Workers(8, Cpu(22, 1, waits="queue"))
    job = replace(_TRAINER, command="python train.py --no-pin", busy=Cpu(96, main=95), workers=workers)
    computes, copies = Load(88, 78, 44, 26, 40, 16, 520, 19.0, 0.5), Load(9, 7, 4, 1, 4, 1, 140, 23.0, 0.3)
    life = GpuLife(computes, 31.4, 46, (job,), copies, eight_gpu_node.STEP_PERIOD_S, 0.45)
    return machine(life, HostLife(cpu=21))


def worker_restart() -> NodeLife:
    """Every 10 s an epoch ends and four workers are born; for 3 s nothing runs on the GPU."""
    workers = Workers(4, busy=Cpu(22, waits="queue"), rest=Cpu(90, 2), reborn_every_s=10.0)
    job = replace(_TRAINER, command="python finetune.py --epochs 400", rss_gib=9.4, workers=workers)
    job = replace(job, busy=Cpu(70, main=60), rest=Cpu(12, main=10))
    life = GpuLife(
        Load(96, 84, 40, 34, 38, 18, 600, 4.0, 0.4), 31.4, 50, (job,), Load(power_w=118), period_s=10.0, duty=0.68
    )
    return machine(life, HostLife(cpu=22))


def checkpoint_pause() -> NodeLife:
    """A checkpoint every 15 s, 4 s long: too often, as happens with a small model and a cautious script."""
    writes, workers = Cpu(70, main=64, disk=0.3, waits="disk", write_mb=820), Workers(4, Cpu(24, waits="queue"))
    job = replace(_TRAINER, command="python train.py --save-every 50", memory_gib=62.0, age_s=7210, rss_gib=24.0)
    job = replace(job, busy=eight_gpu_node.SPINNING, rest=writes, pin_memory=True, workers=workers)
    life = GpuLife(
        Load(98, 90, 38, 44, 40, 22, 650, 2.0, 0.4), 66.0, 56, (job,), Load(power_w=120, pcie_tx=2.4), 15.0, 0.72
    )
    return machine(life, HostLife(cpu=18, psi_io=9, disk_write_mb=230))


def starved_unattributed() -> NodeLife:
    """Main thread and workers asleep: a lock, an RPC, something that a look from outside cannot name."""
    job = replace(_TRAINER, command="python train.py --sync-server", busy=Cpu(3, main=2, waits="lock"), rss_gib=11.0)
    job = replace(job, workers=Workers(4, Cpu(3, waits="queue")))
    life = GpuLife(
        Load(86, 76, 42, 28, 38, 16, 540, 3.0, 0.3), 31.4, 46, (job,), _LOW, eight_gpu_node.STEP_PERIOD_S, 0.46
    )
    return machine(life, HostLife(cpu=5))


def low_demand() -> NodeLife:
    server = "python -m vllm.entrypoints.openai.api_server --model llama"
    job = SimulatedProcess(
        6001,
        server,
        66.0,
        439200,
        busy=Cpu(60, main=48, waits="network"),
        rest=Cpu(4, main=3, waits="network"),
        user="serve",
        container=CgroupName("vllm-llama-0"),
        rss_gib=22.1,
        threads=140,
    )
    life = GpuLife(
        Load(97, 66, 10, 3, 68, 12, 424, 0.8, 0.5), 68.0, 46, (job,), Load(power_w=112), period_s=15.0, duty=0.31
    )
    return machine(life, HostLife(cpu=5))


def memory_bandwidth() -> NodeLife:
    return machine(eight_gpu_node.memory_bandwidth(), HostLife(cpu=7))


def no_tensor_cores() -> NodeLife:
    job = {"command": "python train.py --fp32", "nccl": False}
    return machine(_rank(job=job, busy=Load(99, 90, 22, 1.5, 18, 70, 573, 1.4, 0.3)))


def half_working() -> NodeLife:
    """Two stages of a pipeline: each computes, hands its activations over and waits for the other, level for level as
    training over two real nodes of H100."""
    stages = (
        Load(98, 47, 20, 13, 18, 9, 450, 0.9, 0.5, 52, 50),
        Load(98, 50, 21, 14, 19, 9, 462, 0.9, 0.5, 50, 52),
    )
    job = SimulatedProcess(
        4911,
        "python pretrain.py --tensor 4 --pipeline 4",
        71.3,
        20400,
        eight_gpu_node.SPINNING,
        job=slurm(8829),
        rss_gib=21.0,
        threads=104,
        nccl=True,
        pin_memory=True,
    )
    gpus = (GpuLife(load, 72.9, 52, (replace(job, pid=job.pid + rank),)) for rank, load in enumerate(stages))
    return NodeLife(tuple(gpus), host=HostLife(cpu=11))


def hollow() -> NodeLife:
    """Additions of a few elements in a loop, as on a real T4: the driver sees kernels, the chip has nothing to do."""
    job = SimulatedProcess(
        4713, "python loop.py --elements 64", 3.1, 1800, Cpu(38.0, main=36.0, waits="sleep"), rss_gib=3.0
    )
    return machine(GpuLife(Load(20, 0.2, 0, 0, 0, 0, 84, 0.1, 0.1), 3.6, 38, (job,)), HostLife(cpu=3))


def stalled() -> NodeLife:
    """Warps that spin on a lock: resident on every multiprocessor, and no pipe computes."""
    job = SimulatedProcess(
        4719, "./graph --hashtable global", 9.0, 900, eight_gpu_node.SPINNING, user="sim", rss_gib=4.0
    )
    return machine(GpuLife(Load(99, 92, 61, 0, 3, 2, 231, 0.1, 0.1), 9.8, 47, (job,)), HostLife(cpu=4))


def low_sm() -> NodeLife:
    """An exporter publishes SM activity as a mean of 30 s, but not DRAM activity."""
    life = eight_gpu_node.small_kernels()
    counter = Counter("dcgm-exporter", "the running dcgm-exporter does not publish it", 30.0)
    load = Load(96, 14, 12, 1, 10, 6, 152, 0.9, 0.1)
    return machine(replace(life, busy=load, counter=counter), HostLife(cpu=9), A100)


def no_sm_counter() -> NodeLife:
    job = SimulatedProcess(
        3301, "python train.py --lora", 17.8, 5230, eight_gpu_node.SPINNING, user="ana", rss_gib=9.0, pin_memory=True
    )
    job = replace(job, workers=Workers(4, Cpu(22, waits="queue")))
    counter = Counter("bound", "GeForce RTX 40 has no SM activity counter for users")
    return machine(
        GpuLife(Load(97, 84, 36, 40, 44, 24, 391, 1.6, 0.2), 19.4, 66, (job,), counter=counter), chip=RTX_4090
    )


def idle_holding_memory() -> NodeLife:
    return machine(eight_gpu_node.idle_holding_memory(), HostLife(cpu=2, psi_cpu=0))


def uneven_workers() -> NodeLife:
    """One of four workers has all the large images. Batches come in order, so the GPU waits for it alone."""
    life = eight_gpu_node.dataloader_cpu()
    workers = Workers(4, busy=Cpu(90.0, 8.0, waits="queue"), rest=Cpu(91.0, 8.0, waits="queue"), uneven=True)
    job = replace(life.jobs[0], command="python train.py --shards by-size", workers=workers)
    return machine(replace(life, jobs=(job,)), eight_gpu_node.DECODING_HOST)


def one_gpu() -> NodeLife:
    life = eight_gpu_node.dataloader_cpu()
    job = replace(life.jobs[0], memory_gib=43.6)
    host = replace(eight_gpu_node.BUSY_HOST, disk_read_mb=2)
    return NodeLife((replace(life, used_gib=44.1, jobs=(job,)),), H200, host, "node-3")


# Small machines with something wrong beside the verdict: heat, leaks, lost GPUs, broken counters, hidden processes.


def thermal() -> NodeLife:
    load = Load(99, 89, 38, 57, 37, 22, 548, 1.5, 0.3)
    return machine(_rank(busy=load, temp_c=88, clock_share=0.71, throttle=SOFTWARE_THERMAL, throttle_share=0.85))


def memory_leak() -> NodeLife:
    """192 MiB a minute, in steps of an allocator's block: full in about three hours."""
    job = {"memory_gib": 42.0, "command": "python train.py --keep-losses", "nccl": False}
    return machine(_rank(job=job, used_gib=43.4, growth_mib_per_min=192))


def straggler() -> NodeLife:
    """Ranks 0, 1 and 3 spin in an all-reduce until rank 2, which does more, arrives."""
    waiter = Load(99, 48, 21, 13, 19, 9, 450, 1.6, 0.3, 50, 50)
    late = Load(98, 88, 38, 58, 37, 22, 689, 1.6, 0.3, 50, 50)
    gpus = []
    for rank in range(4):
        job = {"pid": 4301 + rank, "job": slurm(8840), "command": "python train.py --ranks 4"}
        load, temp = (late, 62) if rank == 2 else (waiter, 53)
        gpus.append(_rank(job=job, busy=load, temp_c=temp))
    return NodeLife(tuple(gpus), host=HostLife(cpu=44))


def hang() -> NodeLife:
    """For a minute rank 2 has read from a file server that does not answer, and the others spin in a collective."""
    spins, reads = Load(100, 6, 9, 0, 0.6, 0, 152), Cpu(1.0, main=1.0, disk=98.0, mount="nas:/data")
    workers = Workers(4, Cpu(26.0, waits="queue"), Cpu(waits="queue"))
    gpus = []
    for rank in range(4):
        rest, cpu = (AT_REST, reads) if rank == 2 else (spins, eight_gpu_node.SPINNING)
        job = {"pid": 4361 + rank, "job": slurm(8841), "command": "python train.py --ranks 4"}
        gpus.append(_rank(job={**job, "rest": cpu, "workers": workers}, rest=rest, rests_after_s=-60.0))
    return NodeLife(tuple(gpus), host=HostLife(cpu=14))


def fabric_link() -> NodeLife:
    """Two ranks over two ports: the second loses its link after half a minute, the first drops what it cannot carry."""
    fabric = FabricLife(ports=2, rx=61.0, tx=60.0, drops_per_s=24.0, retransmits_per_s=9.0, down_after_s=30.0)
    return NodeLife((eight_gpu_node.healthy(0), eight_gpu_node.healthy(1)), host=HostLife(cpu=31), fabric=fabric)


def lost_gpu() -> NodeLife:
    gpus = []
    for i in range(4):
        job = {"pid": 4301 + i, "job": slurm(8850 + i), "nccl": False}
        gpus.append(_rank(i, job=job, lost_after_s=60.0 if i == 2 else None))
    return NodeLife(tuple(gpus), host=HostLife(cpu=44))


def unified_memory() -> NodeLife:
    """A workstation whose GPU has no memory of its own: the job fills the host's."""
    job = {"memory_gib": 71.0, "command": "python finetune.py --lora", "nccl": False, "job": None}
    life = _rank(job=job, used_gib=71.0, busy=Load(97, 86, 34, 41, 43, 23, 88, 0.0, 0.0))
    return machine(life, HostLife(cpu=22, cores=20, memory_gib=84.0, total_gib=119.7), chip=GB10)


def asleep() -> NodeLife:
    """A workstation whose second GPU is switched off while it is not used."""
    counter = Counter("bound", "GeForce RTX 40 has no SM activity counter for users")
    job = {"memory_gib": 17.0, "command": "python train.py", "nccl": False, "job": None}
    life = _rank(job=job, used_gib=17.8, busy=Load(97, 86, 34, 41, 43, 23, 391, 1.5, 0.3), counter=counter)
    return NodeLife((life, GpuLife(AT_REST, 0.0, 40, asleep=True)), chip=RTX_4090)


def counter_fault() -> NodeLife:
    return machine(_rank(counter=Counter("gpm", faulty=True)))


def mig() -> NodeLife:
    """One GPU in two halves; the driver reports no utilisation for a GPU in MIG mode."""
    whole = GpuLife(Load(97, 87, 37, 57, 38, 22, 684, 1.8, 0.3), 52.0, 58, mig_instances=2)
    halves = []
    for i in range(2):
        job = {"memory_gib": 25.0, "job": slurm(8860 + i), "nccl": False}
        halves.append(_rank(i, job=job, used_gib=25.6, mig_parent=0, mig_share=0.5))
    return NodeLife((whole, *halves))


def power_capped() -> NodeLife:
    load = Load(99, 90, 38, 56, 36, 22, 349, 1.4, 0.3)
    life = _rank(busy=load, power_limit_w=350.0, temp_c=46, clock_share=0.62, throttle=POWER_CAP, throttle_share=0.97)
    return machine(life)


def ecc() -> NodeLife:
    return machine(_rank(ecc_after_s=20.0))


def pid_namespace() -> NodeLife:
    life = eight_gpu_node.dataloader_cpu()
    return machine(replace(life, jobs=(replace(life.jobs[0], visible=False, workers=None),)), HostLife(cpu=58))


def shared_gpu() -> NodeLife:
    first = replace(eight_gpu_node.healthy(0).jobs[0], memory_gib=38.2, util_share=0.62, nccl=False)
    second = SimulatedProcess(
        4977,
        "python eval.py --every 100",
        24.5,
        2890,
        Cpu(88, main=84),
        user="ana",
        job=slurm(8834),
        rss_gib=8.8,
        util_share=0.36,
        workers=Workers(2, Cpu(31, waits="queue")),
    )
    return machine(replace(eight_gpu_node.healthy(0), used_gib=64.6, jobs=(first, second)), HostLife(cpu=29))
