"""The demo's scenarios by name.

To add a scenario, add a row; the tests have the diagnosis that it must reach.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from gputop.model.derived import POWER_CAP, SOFTWARE_THERMAL
from gputop.model.expression import nearest
from gputop.model.snapshot import CgroupName
from gputop.model.source import UsageError
from gputop.sources.simulation.eight_gpu_node import (
    BUSY_HOST,
    COMMUNICATION,
    DATALOADER_CPU,
    DATALOADER_IO,
    DECODING_HOST,
    IDLE_HOLDING_MEMORY,
    MEMORY_BANDWIDTH,
    REMEDIED,
    SERVER,
    SMALL_KERNELS,
    SPINNING,
    STEP_PERIOD_S,
    changed,
    healthy,
    node,
)
from gputop.sources.simulation.life import (
    A100,
    AT_REST,
    GB10,
    H100,
    H200,
    LOADS,
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


class Scenario(Struct, frozen=True):
    """One row of ``gputop demo --list``; ``title`` is one line."""

    name: str
    title: str
    machine: NodeLife


DEFAULT = "node"
STEP_S = 5.8
"""The step of the job that does not announce it."""
_LOW = LOADS["between_steps"]
"""Between two steps: a few small kernels."""
_NO_COUNTER = Counter("bound", "GeForce RTX 40 has no SM activity counter for users")


def _one(
    life: GpuLife, host: HostLife = QUIET_HOST, chip: Chip = H100, **host_side: Any
) -> NodeLife:
    """Return a machine with one GPU and a changed host."""
    return NodeLife((life,), chip, replace(host, **host_side))


def _rank(number: int = 0, job: Mapping[str, Any] = {}, **changes: Any) -> GpuLife:
    """Return a GPU of a healthy pair with changes to it and its job."""
    return changed(healthy(number), {**job}, **changes)


def _starved(
    busy: Load, temp_c: float, rest: Load, period_s: float, duty: float, /, **job: Any
) -> GpuLife:
    """Return a GPU that waits for its job; ``job`` changes the job."""
    trainer = SimulatedProcess(
        4802, "python train.py", 30.8, 3764, Cpu(), job=slurm(8825), rss_gib=20.4
    )
    return GpuLife(busy, 31.4, temp_c, (replace(trainer, **job),), rest, period_s, duty)


_SERVING = GpuLife(
    LOADS["serving"], 68.0, 46,
    (SimulatedProcess(
        6001, SERVER, 66.0, 439200, Cpu(60, main=48, waits="network"), Cpu(4, main=3, waits="network"), user="serve",
        container=CgroupName("vllm-llama-0"), rss_gib=22.1, threads=140,
    ),),
    Load(power_w=112), 15.0, 0.31,
)  # fmt: skip
_STEPS = SimulatedProcess(
    4720, "torchrun --nproc-per-node 2 train.py", 61.0, 7300, SPINNING, job=slurm(8841), nccl=True
)
_STEPPING = GpuLife(
    LOADS["steps"], 62.0, 60, (_STEPS,),
    LOADS["steps.exchange"], STEP_S, 0.6, in_step=True,
)  # fmt: skip
_STAGE = SimulatedProcess(
    4911, "python pretrain.py --tensor 4 --pipeline 4", 71.3, 20400, SPINNING, job=slurm(8829), rss_gib=21.0,
    threads=104, nccl=True, pin_memory=True,
)  # fmt: skip
_LORA = SimulatedProcess(
    3301, "python train.py --lora", 17.8, 5230, SPINNING, user="ana", rss_gib=9.0, pin_memory=True,
    workers=Workers(4, Cpu(22)),
)  # fmt: skip
_EVALUATION = SimulatedProcess(
    4977, "python eval.py --every 100", 24.5, 2890, Cpu(88, main=84), user="ana", job=slurm(8834), rss_gib=8.8,
    util_share=0.36, workers=Workers(2, Cpu(31)),
)  # fmt: skip


def _spins(rank: int) -> GpuLife:
    """Return a rank of a hung job.

    For a minute rank 2 has read from a file server that does not answer, and the others spin in a collective.
    """
    rest, cpu = LOADS["hang"], SPINNING
    if rank == 2:
        rest, cpu = AT_REST, Cpu(1.0, main=1.0, disk=98.0, mount="nas:/data")
    job = {
        "pid": 4361 + rank,
        "job": slurm(8841),
        "command": "python train.py --ranks 4",
        "resting": cpu,
    }
    return _rank(
        job={**job, "workers": Workers(4, Cpu(26.0), Cpu())}, resting=rest, rests_after_s=-60.0
    )


def _waits_for_slowest(rank: int) -> GpuLife:
    """Return a rank of a job with a straggler.

    Ranks 0, 1 and 3 spin in an all-reduce until rank 2, which does more, arrives.
    """
    busy, temp_c = LOADS["straggler.waits"], 53
    if rank == 2:
        busy, temp_c = LOADS["straggler"], 62
    job = {"pid": 4301 + rank, "job": slurm(8840), "command": "python train.py --ranks 4"}
    return _rank(job=job, busy=busy, temp_c=temp_c)


_ROWS = (
    Scenario("node", "eight GPUs of one node, each in a different situation (the default)", node()),
    Scenario("remedied", "the same node after every remedy was applied", REMEDIED),
    Scenario("healthy", "a training job that uses the whole chip", NodeLife((healthy(0), healthy(1)))),
    Scenario("small_kernels", "busy but not working: a stream of tiny kernels, launch-bound",
        _one(SMALL_KERNELS, cpu=9)),
    Scenario("communication", "busy but not working: waiting in NCCL for other ranks",
        replace(_one(COMMUNICATION, cpu=12), fabric=FabricLife(1, rx=3.0, tx=3.0, drops_per_s=40.0))),
    Scenario("useful_work", "a job's steps, tokens and MFU, and what a server serves",
        NodeLife(
            (_rank(job={"pid": 4730, "announced": Announced(0.412, 65_536.0, 32.0, 43.0), "nccl": False}), _SERVING),
            host=HostLife(cpu=9),
            served=(Served("vllm", "localhost:8000", 12.0, 1430.0, 5200.0, 3.0, 8.0, ((0.08, 0.1), (0.25, 0.5)),
                           ((0.01, 0.025),) * 2),))),
    # Two ranks that exchange gradients at the end of each step, which they do not announce.
    Scenario("step_time", "two ranks whose step shows in NVLink's traffic (-i 0.25 measures it)",
        NodeLife((_STEPPING, changed(_STEPPING, {"pid": 4721})))),
    Scenario("dataloader_cpu", "starved: workers decode all the time", _one(DATALOADER_CPU, DECODING_HOST)),
    Scenario("dataloader_cpu_throttled", "starved: workers cut short by the cgroup's CPU limit",
        _one(changed(DATALOADER_CPU, {"workers": Workers(8, Cpu(30, 40), Cpu(42, 56), throttled_pct=62)}),
             cpu=31, psi_cpu=9)),
    # One of four workers has all the large images. Batches come in order, so the GPU waits for it alone.
    Scenario("uneven_workers", "starved: one of four workers does all the work",
        _one(changed(DATALOADER_CPU, {"command": "python train.py --shards by-size",
                                      "workers": Workers(4, Cpu(96.0, 1.0), Cpu(97.0, 1.0), uneven=True)}),
             DECODING_HOST)),
    Scenario("dataloader_io", "starved: workers wait for the disk",
        _one(DATALOADER_IO, cpu=11, psi_cpu=1, psi_io=38, disk_read_mb=12)),
    Scenario("dataloader_network", "starved: workers wait for the network",
        _one(changed(DATALOADER_IO, {"command": "python train.py --data s3://images", "busy": Cpu(1.5, main=1.0),
                                     "resting": None, "workers": Workers(8, Cpu(1.2, waits="network"))}, duty=0.45),
             cpu=4, net_rx_mb=38)),
    # The main thread augments and copies between the steps; two workers have nothing to do.
    Scenario("main_process", "starved: the main thread is the bottleneck",
        _one(_starved(LOADS["main_process"], 43, _LOW, STEP_PERIOD_S, 0.2,
                      command="python train.py --metrics-every 1", busy=Cpu(92, main=88), resting=Cpu(101, main=97),
                      workers=Workers(2, Cpu(3.0))),
             cpu=8)),
    # Pageable copies: the main thread works on every byte, and the link is half full.
    Scenario("pcie_transfer", "starved: pageable copies over PCIe",
        _one(_starved(LOADS["pcie_transfer"], 46, LOADS["pcie_transfer.rest"],
                      STEP_PERIOD_S, 0.45, command="python train.py --no-pin", busy=Cpu(96, main=95),
                      workers=Workers(8, Cpu(22, 1))),
             cpu=21)),
    # Every 10 s an epoch ends and four workers are born; for 3 s nothing runs on the GPU.
    Scenario("worker_restart", "starved: workers are restarted each epoch",
        _one(_starved(LOADS["worker_restart"], 50, Load(power_w=118), 10.0, 0.68,
                      command="python finetune.py --epochs 400", rss_gib=9.4, busy=Cpu(70, main=60),
                      resting=Cpu(12, main=10), workers=Workers(4, Cpu(22), Cpu(90, 2), reborn_every_s=10.0)),
             cpu=22)),
    # A checkpoint every 15 s, 4 s long: too often, as happens with a small model and a cautious script.
    Scenario("checkpoint_pause", "pauses while a checkpoint is written",
        _one(replace(
            _starved(LOADS["checkpoint"], 56, Load(power_w=120, pcie_tx=2.4), 15.0, 0.72,
                     command="python train.py --save-every 50", memory_gib=62.0, age_s=7210, rss_gib=24.0,
                     busy=SPINNING, resting=Cpu(70, main=64, disk=0.3, waits="disk", write_mb=820), pin_memory=True,
                     workers=Workers(4, Cpu(24))),
            used_gib=66.0), cpu=18, psi_io=9, disk_write_mb=230)),
    # Main thread and workers asleep: a lock, an RPC, something that a look from outside cannot name.
    Scenario("starved_unattributed", "starved, and the host shows no cause",
        _one(_starved(LOADS["unattributed"], 46, _LOW, STEP_PERIOD_S, 0.46,
                      command="python train.py --sync-server", busy=Cpu(3, main=2, waits="lock"), rss_gib=11.0,
                      workers=Workers(4, Cpu(3))),
             cpu=5)),
    Scenario("low_demand", "a server with bursts of requests", _one(_SERVING, cpu=5)),
    Scenario("memory_bandwidth", "decoding: bound by memory bandwidth", _one(MEMORY_BANDWIDTH, cpu=7)),
    Scenario("no_tensor_cores", "all in FP32: the tensor cores sleep",
        _one(_rank(job={"command": "python train.py --fp32", "nccl": False},
                   busy=LOADS["fp32"]))),
    # Each computes, hands its activations over and waits for the other, as training over two real nodes of H100.
    Scenario("half_working", "two stages of a pipeline: half of the chip while kernels run",
        NodeLife((GpuLife(LOADS["pipeline.0"], 72.9, 52, (_STAGE,)),
                  GpuLife(LOADS["pipeline.1"], 72.9, 52, (replace(_STAGE, pid=4912),))),
                 host=HostLife(cpu=11))),
    # Additions of a few elements in a loop, as on a real T4: the driver sees kernels, the chip has nothing to do.
    Scenario("hollow", "busy but not working: kernels run, and hardly reach a multiprocessor",
        _one(GpuLife(LOADS["hollow"], 3.6, 38,
                     (SimulatedProcess(4713, "python loop.py --elements 64", 3.1, 1800,
                                       Cpu(38.0, main=36.0, waits="sleep"), rss_gib=3.0),)),
             cpu=3)),
    # Resident on every multiprocessor, and no pipe computes.
    Scenario("stalled", "warps spin on a lock: resident, and nothing is computed",
        _one(GpuLife(LOADS["stalled"], 9.8, 47,
                     (SimulatedProcess(4719, "./graph --hashtable global", 9.0, 900, SPINNING, user="sim",
                                       rss_gib=4.0),)),
             cpu=4)),
    # An exporter publishes SM activity as a mean of 30 s, but not DRAM activity.
    Scenario("low_sm", "SM activity low, and no DRAM counter to say why",
        _one(replace(SMALL_KERNELS, busy=LOADS["low_sm"],
                     counter=Counter("dcgm-exporter", "the running dcgm-exporter does not publish it", 30.0)),
             cpu=9, chip=A100)),
    Scenario("no_sm_counter", "a GPU without an SM counter: only a bound",
        _one(GpuLife(LOADS["no_sm_counter"], 19.4, 66, (_LORA,), counter=_NO_COUNTER),
             chip=RTX_4090)),
    Scenario("idle_holding_memory", "a forgotten notebook holds memory", _one(IDLE_HOLDING_MEMORY, cpu=2, psi_cpu=0)),
    # Machines with something wrong beside the verdict: heat, leaks, lost GPUs, broken counters, hidden processes.
    Scenario("thermal", "hot: clocks cut",
        _one(_rank(busy=LOADS["thermal"], temp_c=88, clock_share=0.71,
                   throttle=SOFTWARE_THERMAL, throttle_share=0.85))),
    # 192 MiB a minute, in steps of an allocator's block: full in about three hours.
    Scenario("memory_leak", "memory grows until it is full",
        _one(_rank(job={"memory_gib": 42.0, "command": "python train.py --keep-losses", "nccl": False},
                   used_gib=43.4, growth_mib_per_min=192))),
    Scenario("straggler", "four ranks of one job wait for the slowest",
        NodeLife(tuple(map(_waits_for_slowest, range(4))), host=HostLife(cpu=44))),
    Scenario("hang", "three ranks spin inside a kernel for one that waits for its files",
        NodeLife(tuple(map(_spins, range(4))), host=HostLife(cpu=14))),
    # The second port loses its link after half a minute, the first drops what it cannot carry.
    Scenario("fabric_link", "two ranks, and one of the fabric's two links goes down",
        NodeLife((healthy(0), healthy(1)), host=HostLife(cpu=31),
                 fabric=FabricLife(ports=2, rx=61.0, tx=60.0, drops_per_s=24.0, retransmits_per_s=9.0,
                                   down_after_s=30.0))),
    Scenario("lost_gpu", "one of four GPUs falls off the bus after a minute",
        NodeLife(tuple(_rank(i, {"job": slurm(8850 + i), "nccl": False}, lost_after_s=60.0 if i == 2 else None)
                       for i in range(4)), host=HostLife(cpu=44))),
    Scenario("counter_fault", "a broken SM counter reads 0", _one(_rank(counter=Counter("gpm", faulty=True)))),
    Scenario("one_gpu", "one big GPU, starved by its dataloader",
        NodeLife((changed(DATALOADER_CPU, {"memory_gib": 43.6}, used_gib=44.1),), H200,
                 replace(BUSY_HOST, disk_read_mb=2), "node-3")),
    # The driver reports no utilisation for a GPU in MIG mode.
    Scenario("mig", "a GPU split into two instances",
        NodeLife((GpuLife(LOADS["mig"], 52.0, 58, mig_instances=2),
                  *(_rank(i, {"memory_gib": 25.0, "job": slurm(8860 + i), "nccl": False}, used_gib=25.6,
                          mig_parent=0, mig_share=0.5) for i in range(2))))),
    Scenario("sixteen", "sixteen GPUs", node(16)),
    Scenario("power_capped", "a low power limit holds the clocks down",
        _one(_rank(busy=LOADS["power_capped"], power_limit_w=350.0, temp_c=46,
                   clock_share=0.62, throttle=POWER_CAP, throttle_share=0.97))),
    Scenario("ecc", "an uncorrected memory error", _one(_rank(ecc_after_s=20.0))),
    Scenario("pid_namespace", "processes of another PID namespace: no host signals",
        _one(changed(DATALOADER_CPU, {"visible": False, "workers": None}), cpu=58)),
    # A workstation whose GPU has no memory of its own: the job fills the host's.
    Scenario("unified_memory", "a GPU that shares the host's memory",
        _one(_rank(job={"memory_gib": 71.0, "command": "python finetune.py --lora", "nccl": False, "job": None},
                   used_gib=71.0, busy=LOADS["unified_memory"]),
             cpu=22, cores=20, memory_gib=84.0, total_gib=119.7, chip=GB10)),
    # A workstation whose second GPU is switched off while it is not used.
    Scenario("asleep", "two GPUs, of which one is asleep and left asleep",
        NodeLife((_rank(job={"memory_gib": 17.0, "command": "python train.py", "nccl": False, "job": None},
                        used_gib=17.8, busy=LOADS["asleep"], counter=_NO_COUNTER),
                  GpuLife(AT_REST, 0.0, 40, asleep=True)), RTX_4090)),
    Scenario("shared_gpu", "two jobs on one GPU",
        _one(replace(healthy(0), used_gib=64.6, jobs=(
            replace(healthy(0).jobs[0], memory_gib=38.2, util_share=0.62, nccl=False), _EVALUATION)),
            cpu=29)),
)  # fmt: skip

SCENARIOS: Mapping[str, Scenario] = {row.name: row for row in _ROWS}


def find(name: str | None) -> Scenario:
    """Return a scenario by name, or the default.

    Raises UsageError with the nearest name.
    """
    scenario = SCENARIOS.get(name or DEFAULT)
    if scenario is None:
        hint = nearest(str(name), SCENARIOS) or ";"
        raise UsageError(f"no demo scenario {name!r}{hint} `gputop demo --list` names them all")
    return scenario
