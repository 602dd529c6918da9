"""Signals: what the rules see of one GPU, the means over the window W and the state that outlives it.

A rule is a pure function of one ``Signals``. GPU metrics are percentages (0–100), as everywhere on screen; what the
host did is a share of the window (0–1), as in the bounds of ``attribution``. None is "not measured", never 0.
"""

from __future__ import annotations

from msgspec import Struct

from gputop.diagnosis.fabric_window import FabricSignals
from gputop.diagnosis.hysteresis import Holds, Stands, WindowMeans, next_flag, ratio
from gputop.diagnosis.types import Flag
from gputop.model.feeders import Feeders, MainWaits, Outsider
from gputop.model.sm import SmLack
from gputop.model.steps import StepPeriod

WINDOW_S = 30.0
"""W: rules are evaluated on means over this many seconds, whatever the interval."""
LEAST_SAMPLES = 10
"""With fewer samples no verdict is given (or as many as fit into W, where that is less)."""

EFFICIENCY_UTIL = 10.0
"""Efficiency = SM / util × 100 means something from this util on (Packet.ai)."""


class Pause(Struct, frozen=True):
    """A run of samples without any kernel: when it ended, how long it was, and what the job's tree wrote during it.

    ``main_saves`` is the share of it in which the main thread waited for a file to be written, ``main_runs`` that in
    which it was runnable.
    """

    ended: float
    length_s: float
    write_bytes_per_s: float | None
    main_saves: float = 0.0
    main_runs: float = 0.0


class Leak(Struct, frozen=True):
    """Device memory of one process that only ever grows."""

    pid: int
    name: str
    bytes_per_min: float
    over_s: float
    r2: float
    full_in_s: float | None


class Peer(Struct, frozen=True):
    """One GPU of a job that does more than the others, which wait for it. ``measure`` is "SM" or "power"."""

    straggler: int
    measure: str
    value: float
    median: float
    gpus: int


class Signals(Struct, frozen=True):
    """One GPU over the window. Shares 0–1 unless the name or the comment says otherwise."""

    t: float
    gpu: int
    """Index of the GPU."""
    n: int
    least: int
    window_s: float
    covered_s: float
    """Share of the window covered by samples."""
    # GPU, percent
    u: float
    """Where util is not measured (MIG instances) the least that it can be: SM, tensor and DRAM only move while a kernel
    runs."""
    idle: float
    util_known: bool
    sm: float | None
    occ: float | None
    tensor: float | None
    fp32: float | None
    dram: float | None
    sm_off: SmLack | None
    """Why SM is not used; None when it was measured."""
    measure: str
    """What to do to have SM measured on this GPU."""
    u_of_sm: float | None
    """Mean util of the samples in which SM was measured: what SM is a part of."""
    holds: Holds
    comes_and_goes: bool
    """Work and pauses have alternated for minutes, and nothing but demand can be seen to cause it."""
    # GPU, shares of a limit
    pcie_rx: float | None
    pcie_tx: float | None
    pcie_bytes_per_s: float | None
    """Usable bandwidth of the PCIe link in one direction."""
    nvlink: float | None
    power: float | None
    clock: float | None
    thermal: float
    brake: float
    capped: float
    # GPU, state
    quiet: bool
    """p95 of util below 5 %."""
    quiet_s: float
    stopped_s: float
    """Length of the current run without any kernel, seconds; 0 when there is none."""
    pauses: tuple[Pause, ...]
    falls: int
    """Falls from busy to idle in the last 30 s."""
    degraded_s: float
    degraded: str
    little_tensor_s: float
    """How long the tensor cores have hardly been used by SMs that are busy."""
    fault: bool
    mem_used: float | None
    mem_total: float | None
    mem_filled: float | None
    """Share of the memory in use, 0 to 1; where the GPU shares the host's, of what the host or the cgroup has."""
    unified: bool
    """Whether the GPU has no memory of its own."""
    errors: tuple[str, ...]
    xids: tuple[str, ...]
    leak: Leak | None
    # host
    host: bool
    """Whether the main thread of the GPU's process could be measured."""
    host_reason: str | None
    main: float | None
    main_disk: float | None
    loaders: int
    workers: float | None
    """w: mean over loaders of run + queued."""
    running: float | None
    queued: float | None
    disk: float | None
    network: float | None
    waits_known: bool
    tree_cores: float | None
    read_bytes_per_s: float | None
    write_bytes_per_s: float | None
    io_known: bool
    throttled: float | None
    births: int
    churn_per_min: float
    birth_gap_s: float
    """Longest run without a kernel beside the birth of loaders, seconds; 0 when there is none."""
    born_kind: str | None
    """The kind of the loaders seen last: between two epochs there is none at this moment."""
    host_cpu: float | None
    psi_cpu: float | None
    swapping: str | None
    # processes
    processes: int
    process_bytes: float | None
    age_s: float | None
    name: str
    pid: int | None
    server: str | None
    nccl: bool
    graphics: bool
    renders: bool
    """Whether any process draws on this GPU; ``graphics`` is about its main one."""
    framework: str | None
    """torch, jax or tensorflow, where the GPU's process shows which it has loaded."""
    listed: bool
    """Whether processes of any GPU are known at all."""
    loader_kind: str | None
    pin_memory: bool | None
    pool_cores: float | None
    peer: Peer | None = None
    fabric: FabricSignals | None = None
    """None where the machine has no fabric and TCP retransmits nothing."""
    feeders: Feeders | None = None
    """None in recordings made before feeders were measured: they are judged by the means over loaders."""
    knows_feeders: bool = False
    """Whether feeders could be measured; a GPU may still have none."""
    cores: float | None = None
    """Cores available within the cgroup's limit and the affinity."""
    main_waits: MainWaits | None = None
    main_looks: int = 1
    """Looks at the main thread in each sample."""
    main_fetches: bool = False
    """The main thread polls, and its process receives data or opens connections again and again."""
    served: bool = False
    """The GPU's process has no socket of its own, and its parent, with which it is connected, takes requests."""
    main_queued: float | None = None
    main_rx: float | None = None
    """Bytes a second that the GPU's process receives, where its sockets were asked."""
    listens: float = 0.0
    outsiders: tuple[Outsider, ...] = ()
    outsider_cores: float | None = None
    worked: bool = False
    """Kernels ran in 10 of the last 15 s: the job trains, however young it is."""
    kernels_s: float = 0.0
    """Seconds of the last fifteen in which any kernel ran."""
    host_is_old: bool = False
    """Processes were not read for so long that what is known of them is no evidence."""
    restart_s: float = 0.0
    """Seconds of the window without a kernel beside the birth of all loaders."""
    paused_main_s: float = 0.0
    """Seconds of the window in which no kernel ran and the main thread was runnable, in pauses long enough to tell."""
    has_worked: bool = True
    """Whether the job has run a kernel since it was first seen."""
    main_stands: Stands | None = None
    """What the main thread has been in without a break."""
    feeders_stand: Stands | None = None
    changed_s: float | None = None
    """Seconds since the window was restarted because the cause had changed; None when it never has."""
    period: StepPeriod | None = None
    """The job's step as its GPUs' rhythm shows it."""

    @property
    def flag(self) -> Flag | None:
        """The definition of a flag that holds."""
        return self.holds.flag

    @property
    def r(self) -> float | None:
        """SM / util of the same samples, 0–1 and more where clocks swing; None without either."""
        return ratio(self.sm, self.u_of_sm) if self.util_known else None

    @property
    def is_dark(self) -> bool:
        """Whether nothing but the GPU itself is visible: neither its processes nor what the host does for them."""
        return not self.processes and not self.host

    @property
    def queue_share(self) -> float | None:
        """rq: how much of the loaders' runnable time was spent queued for a core."""
        if self.queued is None or not self.workers:
            return None
        return self.queued / self.workers

    @property
    def pcie(self) -> float | None:
        """The busier direction of the PCIe link, as a share of what it can carry."""
        if self.pcie_rx is None or self.pcie_tx is None:
            return self.pcie_rx if self.pcie_tx is None else self.pcie_tx
        return max(self.pcie_rx, self.pcie_tx)


def busy_not_working(
    util: float, sm: float | None, *, dram: float | None = None, may_be_hollow: bool = False
) -> Flag | None:
    """The flag of means in percent, without a past: where it enters. C only where ``may_be_hollow``.

    Comparisons are strict where the definition is: 80/30 and 50/15 are none.
    """
    alone = WindowMeans(
        util, True, util, util, sm, None, dram, None, None, None, None, None, may_be_hollow, None, None, None, ()
    )
    return next_flag(None, alone)
