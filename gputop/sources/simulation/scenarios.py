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


def _row(build: Callable[[], NodeLife], title: str, *expected: Expected) -> Scenario:
    """A scenario of its builder's name."""
    return Scenario(build.__name__, title, build, expected)


_REMEDIED = (
    *(Expected("healthy", gpu=gpu) for gpu in range(7)),
    Expected("idle", gpu=7),
)

_ROWS = (
    _row(eight_gpu_node.node, "eight GPUs of one node, each in a different situation (the default)", *_NODE),
    _row(eight_gpu_node.remedied, "the same node after every remedy was applied", *_REMEDIED),
    _row(small_machines.healthy, "a training job that uses the whole chip", Expected("healthy")),
    _row(
        small_machines.small_kernels,
        "busy but not working: a stream of tiny kernels, launch-bound",
        Expected("small_kernels", "A"),
    ),
    _row(
        small_machines.communication,
        "busy but not working: waiting in NCCL for other ranks",
        Expected("communication", "A", badges=("fabric_errors",)),
    ),
    _row(
        small_machines.useful_work,
        "a job's steps, tokens and MFU, and what a server serves",
        Expected("healthy"),
        Expected("low_demand", gpu=1),
    ),
    _row(
        small_machines.step_time,
        "two ranks whose step shows in NVLink's traffic (-i 0.25 measures it)",
        Expected("healthy"),
    ),
    _row(small_machines.dataloader_cpu, "starved: workers decode all the time", Expected("dataloader_cpu")),
    _row(
        small_machines.dataloader_cpu_throttled,
        "starved: workers cut short by the cgroup's CPU limit",
        Expected("dataloader_cpu", badges=("cpu_limit",)),
    ),
    _row(small_machines.uneven_workers, "starved: one of four workers does all the work", Expected("dataloader_cpu")),
    _row(small_machines.dataloader_io, "starved: workers wait for the disk", Expected("dataloader_io")),
    _row(small_machines.dataloader_network, "starved: workers wait for the network", Expected("dataloader_io")),
    _row(small_machines.main_process, "starved: the main thread is the bottleneck", Expected("main_process")),
    _row(small_machines.pcie_transfer, "starved: pageable copies over PCIe", Expected("pcie_transfer")),
    _row(small_machines.worker_restart, "starved: workers are restarted each epoch", Expected("worker_restart")),
    _row(small_machines.checkpoint_pause, "pauses while a checkpoint is written", Expected("checkpoint_pause")),
    _row(small_machines.starved_unattributed, "starved, and the host shows no cause", Expected("starved_unattributed")),
    _row(small_machines.low_demand, "a server with bursts of requests", Expected("low_demand")),
    _row(small_machines.memory_bandwidth, "decoding: bound by memory bandwidth", Expected("memory_bandwidth")),
    _row(small_machines.no_tensor_cores, "all in FP32: the tensor cores sleep", Expected("no_tensor_cores")),
    _row(
        small_machines.half_working,
        "two stages of a pipeline: half of the chip while kernels run",
        Expected("half_working"),
        Expected("half_working", gpu=1),
    ),
    _row(
        small_machines.hollow,
        "busy but not working: kernels run, and hardly reach a multiprocessor",
        Expected("small_kernels", "C"),
    ),
    _row(small_machines.stalled, "warps spin on a lock: resident, and nothing is computed", Expected("stalled")),
    _row(small_machines.low_sm, "SM activity low, and no DRAM counter to say why", Expected("low_sm", "A")),
    _row(small_machines.no_sm_counter, "a GPU without an SM counter: only a bound", Expected("no_bottleneck_seen")),
    _row(small_machines.idle_holding_memory, "a forgotten notebook holds memory", Expected("idle_holding_memory")),
    _row(small_machines.thermal, "hot: clocks cut", Expected("healthy", badges=("thermal",))),
    _row(small_machines.memory_leak, "memory grows until it is full", Expected("healthy", badges=("memory_leak",))),
    _row(
        small_machines.straggler,
        "four ranks of one job wait for the slowest",
        Expected("healthy", badges=("straggler",), gpu=2),
        *(Expected("half_working", badges=("straggler",), gpu=gpu) for gpu in (0, 1, 3)),
    ),
    _row(
        small_machines.hang,
        "three ranks spin inside a kernel for one that waits for its files",
        *(Expected("hang", "A", gpu=gpu) for gpu in (0, 1, 3)),
        Expected("idle", gpu=2),
    ),
    _row(
        small_machines.fabric_link,
        "two ranks, and one of the fabric's two links goes down",
        Expected("healthy", badges=("fabric_errors",)),
        Expected("healthy", badges=("fabric_errors",), gpu=1),
    ),
    _row(
        small_machines.lost_gpu,
        "one of four GPUs falls off the bus after a minute",
        Expected("healthy"),
        Expected("collecting", badges=("lost",), gpu=2, after_s=75.0),
    ),
    _row(
        small_machines.counter_fault,
        "a broken SM counter reads 0",
        Expected("no_bottleneck_seen", badges=("counter_fault",)),
    ),
    _row(small_machines.one_gpu, "one big GPU, starved by its dataloader", Expected("dataloader_cpu")),
    _row(small_machines.mig, "a GPU split into two instances", Expected("healthy", gpu=1), Expected("healthy", gpu=2)),
    _row(eight_gpu_node.sixteen, "sixteen GPUs", *_NODE),
    _row(
        small_machines.power_capped,
        "a low power limit holds the clocks down",
        Expected("healthy", badges=("power_capped",)),
    ),
    _row(small_machines.ecc, "an uncorrected memory error", Expected("healthy", badges=("ecc",))),
    _row(
        small_machines.pid_namespace,
        "processes of another PID namespace: no host signals",
        Expected("starved_unattributed"),
    ),
    _row(small_machines.unified_memory, "a GPU that shares the host's memory", Expected("healthy")),
    _row(
        small_machines.asleep,
        "two GPUs, of which one is asleep and left asleep",
        Expected("no_bottleneck_seen"),
        Expected("collecting", gpu=1),
    ),
    _row(small_machines.shared_gpu, "two jobs on one GPU", Expected("healthy", badges=("shared_gpu",))),
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
