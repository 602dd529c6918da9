"""Small machines with something wrong beside the verdict: heat, leaks, lost GPUs, broken counters, hidden processes."""

from __future__ import annotations

from msgspec.structs import replace

from gputop.model.throttle import POWER_CAP, SOFTWARE_THERMAL
from gputop.sources.simulation import node
from gputop.sources.simulation.life import Counter, Cpu, FabricLife, GpuLife, HostLife, Job, Load, NodeLife, Workers
from gputop.sources.simulation.single import machine


def thermal() -> NodeLife:
    life = replace(
        node.healthy(0),
        busy=Load(99, 92, 38, 44, 40, 22, 548, 1.5, 0.3),
        temp_c=88,
        clock_share=0.71,
        throttle=SOFTWARE_THERMAL,
        throttle_share=0.85,
    )
    return machine(life)


def memory_leak() -> NodeLife:
    """192 MiB a minute, in steps of an allocator's block: full in about three hours."""
    life = node.healthy(0)
    job = replace(life.jobs[0], memory_gib=42.0, command="python train.py --keep-losses", nccl=False)
    return machine(replace(life, used_gib=43.4, growth_mib_per_min=192, jobs=(job,)))


def straggler() -> NodeLife:
    """Ranks 0, 1 and 3 spin in an all-reduce until rank 2, which does more, arrives."""
    waiter = Load(99, 53, 22, 22, 22, 12, 430, 1.6, 0.3, 6, 6)
    late = Load(98, 91, 38, 45, 40, 22, 664, 1.6, 0.3, 6, 6)
    gpus = []
    for rank in range(4):
        job = replace(node.healthy(0).jobs[0], pid=4301 + rank, job="slurm 8840", command="python train.py --ranks 4")
        load, temp = (late, 62) if rank == 2 else (waiter, 53)
        gpus.append(replace(node.healthy(0), busy=load, temp_c=temp, jobs=(job,)))
    return NodeLife(tuple(gpus), host=HostLife(cpu=44))


def fabric_link() -> NodeLife:
    """Two ranks over two ports: the second loses its link after half a minute, the first drops what it cannot carry."""
    fabric = FabricLife(ports=2, rx=61.0, tx=60.0, drops_per_s=24.0, retransmits_per_s=9.0, down_after_s=30.0)
    return NodeLife((node.healthy(0), node.healthy(1)), host=HostLife(cpu=31), fabric=fabric)


def lost_gpu() -> NodeLife:
    gpus = []
    for i in range(4):
        job = replace(node.healthy(0).jobs[0], pid=4301 + i, job=f"slurm {8850 + i}", nccl=False)
        gpus.append(replace(node.healthy(i), jobs=(job,), lost_after_s=60.0 if i == 2 else None))
    return NodeLife(tuple(gpus), host=HostLife(cpu=44))


def counter_fault() -> NodeLife:
    counter = Counter("gpm", faulty=True)
    return machine(replace(node.healthy(0), counter=counter))


def mig() -> NodeLife:
    """One GPU in two halves; the driver reports no utilisation for a GPU in MIG mode."""
    whole = GpuLife(Load(97, 88, 36, 40, 38, 20, 610, 1.8, 0.3), 52.0, 58, mig_instances=2)
    halves = []
    for i in range(2):
        job = replace(node.healthy(i).jobs[0], memory_gib=25.0, job=f"slurm {8860 + i}", nccl=False)
        halves.append(replace(node.healthy(i), used_gib=25.6, jobs=(job,), mig_parent=0, mig_share=0.5))
    return NodeLife((whole, *halves))


def power_capped() -> NodeLife:
    load = Load(99, 93, 38, 45, 38, 22, 349, 1.4, 0.3)
    life = replace(
        node.healthy(0),
        busy=load,
        power_limit_w=350.0,
        temp_c=46,
        clock_share=0.62,
        throttle=POWER_CAP,
        throttle_share=0.97,
    )
    return machine(life)


def ecc() -> NodeLife:
    return machine(replace(node.healthy(0), ecc_after_s=20.0))


def pid_namespace() -> NodeLife:
    life = node.dataloader_cpu()
    return machine(replace(life, jobs=(replace(life.jobs[0], visible=False, workers=None),)), HostLife(cpu=58))


def shared_gpu() -> NodeLife:
    first = replace(node.healthy(0).jobs[0], memory_gib=38.2, util_share=0.62, nccl=False)
    second = Job(
        4977,
        "python eval.py --every 100",
        24.5,
        2890,
        Cpu(88, main=84),
        user="ana",
        job="slurm 8834",
        rss_gib=8.8,
        util_share=0.36,
        workers=Workers(2, Cpu(31, waits="queue")),
    )
    return machine(replace(node.healthy(0), used_gib=64.6, jobs=(first, second)), HostLife(cpu=29))
