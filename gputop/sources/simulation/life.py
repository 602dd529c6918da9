"""Building blocks of simulated machines: chips, loads, jobs, hosts, noise.

Numbers are in the units that people use (GiB, GB/s, percent); the samplers convert them to the catalogue's units.
"""

from __future__ import annotations

from msgspec import Struct

from gputop.model.command_facts import Rule
from gputop.model.serving import Bounds, ServerKind
from gputop.model.sm import SmSource
from gputop.model.snapshot import CgroupName, Role


class Chip(Struct, frozen=True):
    """Facts of a product, from its data sheet.

    NVLink: one direction, all links.
    """

    name: str
    architecture: str
    sm_count: int
    memory_gib: float
    power_limit_w: float | None
    sm_clock_mhz: float
    mem_clock_mhz: float | None
    pcie_gen: int
    nvlink_gb_per_s: float | None
    has_fan: bool = False
    unified: bool = False
    """Whether it has no memory of its own; ``memory_gib`` is then the host's."""


H100 = Chip("NVIDIA H100 80GB HBM3", "hopper", 132, 80.0, 700.0, 1980.0, 2619.0, 5, 450.0)
H200 = Chip("NVIDIA H200", "hopper", 132, 141.0, 700.0, 1980.0, 3201.0, 5, 450.0)
A100 = Chip("NVIDIA A100-SXM4-80GB", "ampere", 108, 80.0, 400.0, 1410.0, 1593.0, 4, 300.0)
GB10 = Chip("NVIDIA GB10", "blackwell", 48, 119.7, None, 2418.0, None, 1, None, unified=True)
RTX_4090 = Chip(
    "NVIDIA GeForce RTX 4090", "ada", 128, 24.0, 450.0, 3105.0, 10501.0, 4, None, has_fan=True
)


class Load(Struct, frozen=True):
    """Activity of a GPU in one phase: percent, W, GB/s."""

    util: float = 0.0
    sm: float = 0.0
    occ: float = 0.0
    tensor: float = 0.0
    dram: float = 0.0
    fp32: float = 0.0
    power_w: float = 71.0
    pcie_rx: float = 0.0
    pcie_tx: float = 0.0
    nvlink_rx: float = 0.0
    nvlink_tx: float = 0.0


AT_REST = Load()
LOADS = {
    # util, sm, occ, tensor, dram, fp32, power_w, pcie_rx, pcie_tx, nvlink_rx, nvlink_tx
    "small_kernels": Load(97, 8, 12, 1, 12, 6, 214, 1.2, 0.1),
    "healthy.0": Load(98, 88, 38, 58, 37, 22, 689, 2.1, 0.4, 11, 11),
    "healthy.1": Load(97, 87, 37, 57, 38, 22, 684, 2.0, 0.4, 11, 11),
    "dataloader_cpu": Load(83, 73, 46, 28, 46, 15, 560, 11.8, 0.5),
    "dataloader_cpu.rest": Load(8, 6, 4, 1, 2, 1, 128, 0.8, 0.1),
    "communication": Load(99, 16, 4, 2, 6, 3, 312, 0.6, 0.5, 158, 157),
    "decoding": Load(99, 66, 10, 3, 68, 12, 424, 0.9, 0.6),
    "dataloader_io": Load(85, 73, 44, 28, 36, 16, 530, 7.2, 0.4),
    "dataloader_io.rest": Load(8, 6, 4, 1, 2, 1, 124, 0.5, 0.1),
    "small_kernels.remedied": Load(97, 86, 36, 38, 44, 20, 602, 2.4, 0.3),
    "dataloader_cpu.remedied": Load(97, 88, 46, 38, 46, 18, 640, 12.2, 0.5),
    "communication.remedied": Load(98, 84, 34, 40, 38, 20, 628, 0.8, 0.6, 92, 91),
    "decoding.remedied": Load(99, 93, 46, 44, 52, 24, 642, 1.1, 0.8),
    "dataloader_io.remedied": Load(97, 86, 44, 36, 40, 18, 618, 8.0, 0.4),
    "between_steps": Load(8, 6, 4, 1, 2, 1, 126, 0.5, 0.1),
    "serving": Load(97, 66, 10, 3, 68, 12, 424, 0.8, 0.5),
    "steps": Load(99, 91, 40, 58, 36, 24, 664, 1.2, 0.3, 4.0, 4.0),
    "steps.exchange": Load(98, 74, 22, 31, 34, 18, 505, 0.6, 0.2, 96.0, 96.0),
    "hang": Load(100, 6, 9, 0, 0.6, 0, 152),
    "straggler.waits": Load(99, 48, 21, 13, 19, 9, 450, 1.6, 0.3, 50, 50),
    "straggler": Load(98, 88, 38, 58, 37, 22, 689, 1.6, 0.3, 50, 50),
    "main_process": Load(84, 70, 40, 26, 34, 15, 520, 3.0, 0.3),
    "pcie_transfer": Load(88, 78, 44, 26, 40, 16, 520, 19.0, 0.5),
    "pcie_transfer.rest": Load(9, 7, 4, 1, 4, 1, 140, 23.0, 0.3),
    "worker_restart": Load(96, 84, 40, 34, 38, 18, 600, 4.0, 0.4),
    "unattributed": Load(86, 76, 42, 28, 38, 16, 540, 3.0, 0.3),
    "hollow": Load(20, 0.2, 0, 0, 0, 0, 84, 0.1, 0.1),
    "stalled": Load(99, 92, 61, 0, 3, 2, 231, 0.1, 0.1),
    "no_sm_counter": Load(97, 84, 36, 40, 44, 24, 391, 1.6, 0.2),
    "checkpoint": Load(98, 90, 38, 44, 40, 22, 650, 2.0, 0.4),
    "fp32": Load(99, 90, 22, 1.5, 18, 70, 573, 1.4, 0.3),
    "pipeline.0": Load(98, 47, 20, 13, 18, 9, 450, 0.9, 0.5, 52, 50),
    "pipeline.1": Load(98, 50, 21, 14, 19, 9, 462, 0.9, 0.5, 50, 52),
    "low_sm": Load(96, 14, 12, 1, 10, 6, 152, 0.9, 0.1),
    "thermal": Load(99, 89, 38, 57, 37, 22, 548, 1.5, 0.3),
    "mig": Load(97, 87, 37, 57, 38, 22, 684, 1.8, 0.3),
    "power_capped": Load(99, 90, 38, 56, 36, 22, 349, 1.4, 0.3),
    "unified_memory": Load(97, 86, 34, 41, 43, 23, 88, 0.0, 0.0),
    "asleep": Load(97, 86, 34, 41, 43, 23, 391, 1.5, 0.3),
}
"""Loads of the scenarios."""


class Cpu(Struct, frozen=True):
    """Activity of a process in one phase.

    ``run`` is CPU time of all threads in percent of one core, ``main`` the main thread's (None: the same, at
    most 100), ``wait`` its time queued for a core. ``disk`` is the share of time in uninterruptible sleep. ``waits``
    is its wait state when asleep. Traffic in MB/s.
    """

    run: float = 0.0
    wait: float = 0.0
    main: float | None = None
    disk: float = 0.0
    waits: str = "queue"
    read_mb: float = 0.0
    write_mb: float = 0.0
    mount: str | None = None
    """The networked file system under its disk waits."""


class Workers(Struct, frozen=True):
    """Dataloader workers of one job, with a busy and a resting phase."""

    count: int
    busy: Cpu
    resting: Cpu | None = None
    rss_gib: float = 1.1
    kind: str = "torch"
    rule_text: str = "R1 comm pt_data_worker"
    rule: Rule = "R1"
    name: str = "pt_data_worker"
    role: Role = "loader"
    throttled_pct: float = 0.0
    reborn_every_s: float | None = None
    """Period after which all workers are restarted, in step with the GPU's cycle."""
    uneven: bool = False
    """Only the first one works: the others wait for it to be done. What each does is measured feeder by feeder."""


class Announced(Struct, frozen=True):
    """Announced steps of a job: seconds, tokens, samples, MFU in percent."""

    step_s: float
    tokens: float
    samples: float
    mfu_pct: float


class Served(Struct, frozen=True):
    """Metrics of an inference server: rates, queue, bounds of latencies."""

    kind: ServerKind
    place: str
    requests_per_s: float
    tokens_per_s: float
    prompt_tokens_per_s: float
    queue: float
    running: float
    first_token_s: tuple[Bounds, Bounds]
    between_tokens_s: tuple[Bounds, Bounds]


def slurm(number: int) -> CgroupName:
    """Return a Slurm job's name."""
    return CgroupName("slurm", str(number))


class SimulatedProcess(Struct, frozen=True):
    """A process that holds a GPU context, with its children."""

    pid: int
    command: str
    memory_gib: float
    age_s: float
    busy: Cpu
    resting: Cpu | None = None
    user: str = "ml"
    job: CgroupName | None = None
    container: CgroupName | None = None
    rss_gib: float = 12.0
    threads: int = 60
    nccl: bool = False
    pin_memory: bool = False
    workers: Workers | None = None
    util_share: float = 1.0
    announced: Announced | None = None
    visible: bool = True
    """Whether /proc shows the process; False as in a container without the host's PID namespace."""


class Counter(Struct, frozen=True):
    """How SM activity is obtained on a GPU."""

    source: SmSource = "gpm"
    reason: str | None = None
    window_s: float | None = None
    faulty: bool = False


GPM = Counter()


class GpuLife(Struct, frozen=True):
    """A GPU's behaviour over time.

    It alternates between ``busy`` and ``resting`` when it has a period. Times named ``*_after_s`` count from the start
    of the program.
    """

    busy: Load
    used_gib: float
    temp_c: float
    jobs: tuple[SimulatedProcess, ...] = ()
    resting: Load = AT_REST
    period_s: float | None = None
    duty: float = 1.0
    clock_share: float = 1.0
    throttle: int = 0
    throttle_share: float = 0.0
    power_limit_w: float | None = None
    counter: Counter = GPM
    growth_mib_per_min: float = 0.0
    lost_after_s: float | None = None
    rests_after_s: float | None = None
    """From then on it is ``resting`` for good."""
    asleep: bool = False
    ecc_after_s: float | None = None
    mig_instances: int = 0
    mig_parent: int | None = None
    mig_share: float = 1.0
    in_step: bool = False
    """With the machine's other GPUs: one cycle for all, as ranks of one job have."""


class HostLife(Struct, frozen=True):
    """The host's behaviour over time: percent, GiB, MB/s."""

    cpu: float = 34.0
    psi_cpu: float = 2.0
    psi_io: float = 0.4
    cores: int = 32
    memory_gib: float = 201.0
    total_gib: float = 512.0
    disk_read_mb: float = 3.0
    disk_write_mb: float = 1.0
    net_rx_mb: float = 24.0
    net_tx_mb: float = 6.0


QUIET_HOST = HostLife()


class FabricLife(Struct, frozen=True):
    """InfiniBand ports of one kind.

    Speeds in Gb/s each way, traffic in percent of them, losses per second of all.
    """

    ports: int = 8
    gigabits: float = 400.0
    width: str = "4X NDR"
    rx: float = 12.0
    tx: float = 12.0
    drops_per_s: float = 0.0
    retransmits_per_s: float = 0.0
    down_after_s: float | None = None
    """When the last port loses its link, counted from the start of the program."""


class NodeLife(Struct, frozen=True):
    """A machine: GPUs of one kind and the host around them."""

    gpus: tuple[GpuLife, ...]
    chip: Chip = H100
    host: HostLife = QUIET_HOST
    hostname: str = "node-17"
    fabric: FabricLife | None = None
    served: tuple[Served, ...] = ()
