"""Signals: all that the rules read about one GPU.

A rule is a pure function of one ``Signals``. GPU metrics are percentages (0–100), as everywhere on screen; what the
host did is a share of the window (0–1), as in the bounds of ``attribution``. None is "not measured", never 0.
"""

from __future__ import annotations

from msgspec import Struct

from gputop.diagnosis.host.idle_attribution import IdleAttribution, IdleCause
from gputop.diagnosis.host.idle_runs import Pause, Restarts, SteadyState
from gputop.diagnosis.types import Flag
from gputop.diagnosis.window.conditions import Conditions
from gputop.diagnosis.window.device_signs import NO_SIGNS, DeviceSigns
from gputop.diagnosis.window.doubtful_util import NO_DOUBT, DoubtfulReadings
from gputop.diagnosis.window.fabric_window import FabricSignals
from gputop.diagnosis.window.host_activity import GpuHostActivity
from gputop.diagnosis.window.host_side import HostMeans
from gputop.diagnosis.window.window import GpuMeans
from gputop.model.durations import duration
from gputop.model.feeders import Feeders, MainWaits, Outsider
from gputop.model.sm import SmLack
from gputop.model.snapshot import GpuSample, HostSample
from gputop.model.step_pace import StepPeriod

LEAST_SAMPLES = 10
"""With fewer samples no verdict is given (or as many as fit into W, where that is less)."""
SURE_S = 8.0
"""What the window covers at least before a GPU whose util changes is judged, or one is called well: ten samples in less
time are taken at a start, four times a second."""

TRAINS_S = 15.0
"""A job must have trained for so long before its loaders are called too slow: its util still rises [judged]."""
EFFICIENCY_UTIL = 10.0
"""Efficiency = SM / util × 100 means something from this util on (Packet.ai)."""


class Leak(Struct, frozen=True):
    """Device memory of one process that only ever grows."""

    pid: int
    name: str
    bytes_per_min: float
    over_s: float
    r2: float
    full_in_s: float | None

    @property
    def rate_words(self) -> str:
        """Rate, and time to full: ``120 MB a minute, full in 3 h``."""
        rate = f"{self.bytes_per_min / 1e6:.0f} MB a minute"
        return rate if self.full_in_s is None else f"{rate}, full in {duration(self.full_in_s)}"


class Peer(Struct, frozen=True):
    """The straggler of a job, and the GPUs that wait for it.

    ``measure`` is "SM" or "power".
    """

    straggler: int
    measure: str
    value: float
    median: float
    gpus: int
    waits: frozenset[int] = frozenset()
    """GPUs that show signs of waiting.

    Without such a witness no GPU is reported as waiting.
    """


class Turns(Struct, frozen=True):
    """GPUs of one process or job that work one at a time."""

    gpus: tuple[int, ...]
    sum_pct: float
    """Mean sum of the GPUs' util."""
    share: float
    """Share of samples in which the sum was at most one GPU's."""
    is_seen: bool
    """Turns are longer than a sample: one GPU works in each, and then another."""
    is_one_process: bool
    has_nccl: bool
    serve: bool
    """The processes are engines that answer requests."""


WAITS_S = 30.0
"""Seconds that a GPU must look like waiting inside a kernel."""
ENDED = "its process has ended"


class LaggingRank(Struct, frozen=True):
    """The rank for which the others wait inside their kernels.

    Its GPU, and the reason in words.
    """

    gpu: int
    pid: int
    rank: int | None
    reason: str

    @property
    def name(self) -> str:
        """``rank 3 (GPU 3)``."""
        return f"GPU {self.gpu}" if self.rank is None else f"rank {self.rank} (GPU {self.gpu})"


class BusyWait(Struct, frozen=True):
    """GPU whose samples look like waiting inside a kernel.

    They have done so for half a minute. ``waiting`` counts the GPUs of the job in this state, ``behind`` are the ranks
    that differ.
    """

    for_s: float
    is_hang: bool
    """Whether the wait is a hang.

    The job worked before, and a lagging rank or a sleeping main thread confirms the hang.
    """
    is_collective: bool
    waiting: int
    behind: tuple[LaggingRank, ...]
    is_asleep: bool
    """The main thread has slept all the time."""
    holds_all: bool = False
    """One kernel holds all multiprocessors, and nothing else works."""
    worked_w: float | None = None
    """Mean power of the job while it worked."""
    together: int = 1
    """GPUs of the job that fell into this state at the same moment."""
    serving: int | None = None
    """GPU of a member of the job that waits for requests, if any."""

    @property
    def late(self) -> str:
        """The lagging ranks, with the state of the first.

        ``GPU 3: main: waits on nas:/data for 45 s``.
        """
        names = [rank.name for rank in self.behind[:3]]
        more = f" and {len(self.behind) - 3} more" if len(self.behind) > 3 else ""
        return f"{', '.join(names)}{more}: {self.behind[0].reason}"


class HostSide(Struct, frozen=True):
    """Activity of the processes of one GPU over the window.

    Without arguments: nothing is known.
    """

    reason: str | None = None
    """Reason if the main thread could not be measured."""
    is_old: bool = False
    """Process data are too old for evidence."""
    mean: HostMeans = HostMeans()
    fetches: bool = False
    """The main thread polls, and its process receives data or opens connections again and again."""
    served: bool = False
    """The GPU's process has no socket of its own, and its parent, with which it is connected, takes requests."""
    rx: float | None = None
    """Bytes a second that the GPU's process receives, if measured."""
    address: str = ""
    """Address of the main thread's own connection; empty if not seen."""
    loaders: int = 0
    feeders: Feeders | None = None
    """None if no feeder was seen."""
    accounted: bool = False
    """Whether the idle time can already be attributed."""
    attribution: IdleAttribution = IdleAttribution()
    """Share of the GPU's idle time that each cause explains."""
    named: frozenset[IdleCause] = frozenset()
    """Causes that explain most of the idle time."""
    why_no_waits: str | None = None
    """Why the loaders' waits are not known; None where they are."""
    why_no_reads: str | None = None
    """Why the bytes that the job reads are not known; None where they are."""
    restarts: Restarts = Restarts()
    born_kind: str | None = None
    """Kind of the last loaders; between epochs there are none."""
    pauses: tuple[Pause, ...] = ()
    main_state: SteadyState | None = None
    """Steady state of the main thread."""
    worker_state: SteadyState | None = None
    outsiders: tuple[Outsider, ...] = ()
    outsider_cores: float | None = None
    cores: float | None = None
    """Cores available within the cgroup's limit and the affinity."""

    @property
    def waits(self) -> MainWaits | None:
        """Waits of the main thread; None if they cannot be seen."""
        return self.mean.waits

    @property
    def is_measured(self) -> bool:
        """Whether the main thread of the GPU's process could be measured."""
        return self.reason is None


class Signals(Struct, frozen=True):
    """One GPU over the window.

    Shares 0–1 unless the name or the comment says otherwise.
    """

    t: float
    gpu: GpuSample
    tick: GpuHostActivity
    """Host side of the GPU now: its owners and loaders."""
    machine: HostSample
    host: HostSide
    samples: int
    min_samples: int
    covered_s: float
    """Seconds of the window covered by samples."""
    util_pct: float
    """Util in percent, or its lower bound (MIG instances).

    SM, tensor and DRAM activity only rise while a kernel runs. ``idle`` is percent too.
    """
    idle: float
    is_steady: bool
    """Both halves of the window are alike, kernels ran, and no requests come by chance."""
    util_known: bool
    mean: GpuMeans
    """Mean values of the window, without SM if ``sm_off`` is set."""
    sm_off: SmLack | None
    """Reason for not using SM; None if SM was measured."""
    measure: str
    """Remedy for missing SM measurement on this GPU."""
    conditions: Conditions
    comes_and_goes: bool
    """Work and pauses have alternated for minutes.

    No visible cause but demand explains the pauses.
    """
    pcie_bytes_per_s: float | None
    """Usable bandwidth of the PCIe link in one direction."""
    quiet: bool
    """p95 of util below 5 %."""
    quiet_s: float
    """Recorded seconds since it has been quiet."""
    quiet_hole_s: float
    """Seconds since then in which nothing was recorded."""
    stopped_s: float
    """Length of the current run without any kernel, seconds; 0 when there is none."""
    falls: int
    """Falls from busy to idle in the last 30 s."""
    degraded: str
    degraded_s: float
    little_tensor_s: float
    """Seconds that busy SMs have hardly used the tensor cores."""
    errors: tuple[str, ...]
    xids: tuple[str, ...]
    leak: Leak | None
    has_trained: bool
    """The job trains: kernels ran in 10 of the last 15 s."""
    kernels_s: float
    """Seconds of the last fifteen in which any kernel ran."""
    has_worked: bool
    """Whether the job has run a kernel since it was first seen."""
    changed_s: float | None
    """Seconds since a changed cause restarted the window.

    None if the cause never changed.
    """
    resumed: bool
    """The same job continues after a gap, with few samples.

    There are fewer samples than a verdict needs.
    """
    steps_now: bool
    """Kernels ran in four of the last five seconds."""
    trains_s: float | None
    """Seconds since the job was first seen training, or None."""
    job_ended: bool
    """Whether the window's processes are gone."""
    fabric: FabricSignals | None
    """None without a fabric and TCP retransmissions."""
    hardware_xids: tuple[int, ...] = ()
    other_xids: tuple[int, ...] = ()
    """Numbers of the Xids in ``errors`` and in ``xids``."""
    doubts: DoubtfulReadings = NO_DOUBT
    device: DeviceSigns = NO_SIGNS
    """What speaks against the device itself."""
    is_thinned: bool = False
    """Whether readings came too fast to be judged one by one."""
    demand: str = ""
    """Why the job as a whole waits for requests, in words; empty if that is not seen."""
    holds_up: int = 0
    """GPUs that hang and wait for this one."""
    peer: Peer | None = None
    spin: BusyWait | None = None
    turns: Turns | None = None
    period: StepPeriod | None = None
    """Step of the job as found in its GPUs' rhythm."""

    @property
    def index(self) -> int:
        """Index of the GPU."""
        return self.gpu.static.index

    @property
    def waits_for(self) -> int | None:
        """Index of the straggler for which this GPU shows to wait."""
        return (
            self.peer.straggler if self.peer is not None and self.index in self.peer.waits else None
        )

    @property
    def is_early(self) -> bool:
        """True if the window is too short to say that nothing is wrong."""
        return self.covered_s < SURE_S

    @property
    def begins(self) -> bool:
        """True in the first 15 s of training, once idle time is attributed."""
        is_new = self.trains_s is not None and self.trains_s < TRAINS_S
        return is_new and self.steps_now and self.host.accounted

    @property
    def flag(self) -> Flag | None:
        """The definition of a flag that holds."""
        return self.conditions.flag

    @property
    def sm_ratio(self) -> float | None:
        """SM / util: how much of the chip kernels use while they run."""
        return self.mean.sm_ratio

    @property
    def is_dark(self) -> bool:
        """True if nothing but the GPU itself is visible."""
        return not self.tick.computing and not self.host.is_measured
