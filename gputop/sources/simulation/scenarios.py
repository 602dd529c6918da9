"""The demo's scenarios by name: what each shows, its expected diagnosis, and its machine.

To add a scenario, add a builder and its row. Machines are built only when needed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from types import MappingProxyType

from msgspec import Struct

from gputop.model.source import UsageError
from gputop.sources.simulation import eight_gpu_node, small_machines
from gputop.sources.simulation.life import NodeLife


class Expected(Struct, frozen=True):
    """The diagnosis that a GPU of a scenario must reach after ``after_s`` seconds, with at least these badges."""

    verdict: str
    flag: str | None = None
    badges: tuple[str, ...] = ()
    gpu: int = 0
    after_s: float = 40.0


class Scenario(Struct, frozen=True):
    """One row of ``gputop demo --list``. ``title`` is one line: what it shows."""

    name: str
    title: str
    build: Callable[[], NodeLife]
    expected: tuple[Expected, ...]


DEFAULT = "node"

_NODE = (
    Expected("small_kernels", "A"),
    Expected("healthy", gpu=1),
    Expected("healthy", gpu=2),
    Expected("dataloader_cpu", gpu=3),
    Expected("communication", "A", gpu=4),
    Expected("memory_bandwidth", gpu=5),
    Expected("dataloader_io", gpu=6),
    Expected("idle_holding_memory", gpu=7),
)


def _one(name: str, title: str, build: Callable[[], NodeLife], verdict: str, *badges: str) -> Scenario:
    return Scenario(name, title, build, (Expected(verdict, badges=badges),))


_REMEDIED = (
    *(Expected("healthy", gpu=gpu) for gpu in range(7)),
    Expected("idle", gpu=7),
)

_ROWS = (
    Scenario("node", "eight GPUs of one node, each in a different situation (the default)", eight_gpu_node.node, _NODE),
    Scenario("remedied", "the same node after every remedy was applied", eight_gpu_node.remedied, _REMEDIED),
    _one("healthy", "a training job that uses the whole chip", small_machines.healthy, "healthy"),
    Scenario(
        "small_kernels",
        "busy but not working: a stream of tiny kernels, launch-bound",
        small_machines.small_kernels,
        (Expected("small_kernels", "A"),),
    ),
    Scenario(
        "communication",
        "busy but not working: waiting in NCCL for other ranks",
        small_machines.communication,
        (Expected("communication", "A", ("fabric_errors",)),),
    ),
    Scenario(
        "useful_work",
        "a job's steps, tokens and MFU, and what a server serves",
        small_machines.useful_work,
        (Expected("healthy"), Expected("low_demand", gpu=1)),
    ),
    _one(
        "step_time",
        "two ranks whose step shows in NVLink's traffic (-i 0.25 measures it)",
        small_machines.step_time,
        "healthy",
    ),
    _one("dataloader_cpu", "starved: workers decode all the time", small_machines.dataloader_cpu, "dataloader_cpu"),
    _one(
        "dataloader_cpu_throttled",
        "starved: workers cut short by the cgroup's CPU limit",
        small_machines.dataloader_cpu_throttled,
        "dataloader_cpu",
        "cpu_limit",
    ),
    _one(
        "uneven_workers",
        "starved: one of four workers does all the work",
        small_machines.uneven_workers,
        "dataloader_cpu",
    ),
    _one("dataloader_io", "starved: workers wait for the disk", small_machines.dataloader_io, "dataloader_io"),
    _one(
        "dataloader_network",
        "starved: workers wait for the network",
        small_machines.dataloader_network,
        "dataloader_io",
    ),
    _one("main_process", "starved: the main thread is the bottleneck", small_machines.main_process, "main_process"),
    _one("pcie_transfer", "starved: pageable copies over PCIe", small_machines.pcie_transfer, "pcie_transfer"),
    _one(
        "worker_restart", "starved: workers are restarted each epoch", small_machines.worker_restart, "worker_restart"
    ),
    _one(
        "checkpoint_pause", "pauses while a checkpoint is written", small_machines.checkpoint_pause, "checkpoint_pause"
    ),
    _one(
        "starved_unattributed",
        "starved, and the host shows no cause",
        small_machines.starved_unattributed,
        "starved_unattributed",
    ),
    _one("low_demand", "a server with bursts of requests", small_machines.low_demand, "low_demand"),
    _one(
        "memory_bandwidth", "decoding: bound by memory bandwidth", small_machines.memory_bandwidth, "memory_bandwidth"
    ),
    _one("no_tensor_cores", "all in FP32: the tensor cores sleep", small_machines.no_tensor_cores, "no_tensor_cores"),
    Scenario(
        "half_working",
        "two stages of a pipeline: half of the chip while kernels run",
        small_machines.half_working,
        (Expected("half_working", gpu=0), Expected("half_working", gpu=1)),
    ),
    Scenario(
        "hollow",
        "busy but not working: kernels run, and hardly reach a multiprocessor",
        small_machines.hollow,
        (Expected("small_kernels", "C"),),
    ),
    _one("stalled", "warps spin on a lock: resident, and nothing is computed", small_machines.stalled, "stalled"),
    Scenario(
        "low_sm",
        "SM activity low, and no DRAM counter to say why",
        small_machines.low_sm,
        (Expected("low_sm", "A"),),
    ),
    _one(
        "no_sm_counter", "a GPU without an SM counter: only a bound", small_machines.no_sm_counter, "no_bottleneck_seen"
    ),
    _one(
        "idle_holding_memory",
        "a forgotten notebook holds memory",
        small_machines.idle_holding_memory,
        "idle_holding_memory",
    ),
    _one("thermal", "hot: clocks cut", small_machines.thermal, "healthy", "thermal"),
    _one("memory_leak", "memory grows until it is full", small_machines.memory_leak, "healthy", "memory_leak"),
    Scenario(
        "straggler",
        "four ranks of one job wait for the slowest",
        small_machines.straggler,
        (
            Expected("healthy", badges=("straggler",), gpu=2),
            *(Expected("half_working", badges=("straggler",), gpu=gpu) for gpu in (0, 1, 3)),
        ),
    ),
    Scenario(
        "hang",
        "three ranks spin inside a kernel for one that waits for its files",
        small_machines.hang,
        (
            *(Expected("hang", "A", gpu=gpu) for gpu in (0, 1, 3)),
            Expected("idle", gpu=2),
        ),
    ),
    Scenario(
        "fabric_link",
        "two ranks, and one of the fabric's two links goes down",
        small_machines.fabric_link,
        (Expected("healthy", badges=("fabric_errors",), gpu=0), Expected("healthy", badges=("fabric_errors",), gpu=1)),
    ),
    Scenario(
        "lost_gpu",
        "one of four GPUs falls off the bus after a minute",
        small_machines.lost_gpu,
        (Expected("healthy", gpu=0), Expected("collecting", badges=("lost",), gpu=2, after_s=75.0)),
    ),
    _one(
        "counter_fault",
        "a broken SM counter reads 0",
        small_machines.counter_fault,
        "no_bottleneck_seen",
        "counter_fault",
    ),
    _one("one_gpu", "one big GPU, starved by its dataloader", small_machines.one_gpu, "dataloader_cpu"),
    Scenario(
        "mig",
        "a GPU split into two instances",
        small_machines.mig,
        (Expected("healthy", gpu=1), Expected("healthy", gpu=2)),
    ),
    Scenario("sixteen", "sixteen GPUs", lambda: eight_gpu_node.node(16), _NODE),
    _one(
        "power_capped",
        "a low power limit holds the clocks down",
        small_machines.power_capped,
        "healthy",
        "power_capped",
    ),
    _one("ecc", "an uncorrected memory error", small_machines.ecc, "healthy", "ecc"),
    _one(
        "pid_namespace",
        "processes of another PID namespace: no host signals",
        small_machines.pid_namespace,
        "starved_unattributed",
    ),
    _one("unified_memory", "a GPU that shares the host's memory", small_machines.unified_memory, "healthy"),
    Scenario(
        "asleep",
        "two GPUs, of which one is asleep and left asleep",
        small_machines.asleep,
        (Expected("no_bottleneck_seen"), Expected("collecting", gpu=1)),
    ),
    _one("shared_gpu", "two jobs on one GPU", small_machines.shared_gpu, "healthy", "shared_gpu"),
)

SCENARIOS: Mapping[str, Scenario] = MappingProxyType({row.name: row for row in _ROWS})


def find(name: str | None) -> Scenario:
    """The scenario of that name, or the default one. Raises UsageError with the nearest name."""
    scenario = SCENARIOS.get(name or DEFAULT)
    if scenario is None:
        near = get_close_matches(str(name), SCENARIOS, 1)
        hint = f": did you mean {near[0]}?" if near else ";"
        raise UsageError(f"no demo scenario {name!r}{hint} `gputop demo --list` names them all")
    return scenario
