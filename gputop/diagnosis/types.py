"""The vocabulary of a diagnosis: frozen data whose ids, levels and states are API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Literal

from msgspec import Struct

from gputop.model.feeders import Cause, Feeders

Level = Literal["green", "info", "yellow", "red", "grey"]
Flag = Literal["A", "B", "C"]
Confidence = Literal["high", "medium", "low"]
State = Literal["working", "busy_not_working", "starved", "idle_allocated", "idle", "unmeasured"]
Role = Literal["work", "waiting", "not_working", "information", "unknown"]
"""What a verdict means, and so its colour: the same on the screen, in lanes, on pages and in the fleet."""

VerdictId = Literal[
    "collecting",
    "startup",
    "idle_holding_memory",
    "idle",
    "take_turns",
    "kv_cache_full",
    "low_demand",
    "checkpoint_pause",
    "worker_restart",
    "pcie_transfer",
    "dataloader_io",
    "dataloader_cpu",
    "main_process",
    "starved_unattributed",
    "hang",
    "memory_bandwidth",
    "communication",
    "small_kernels",
    "low_sm",
    "stalled",
    "low_clock",
    "no_tensor_cores",
    "half_working",
    "healthy",
    "working",
    "no_bottleneck_seen",
]
"""Ids of the verdicts. What is remembered of a verdict is its id: ``rules.RULE_OF`` has the rest."""
BadgeId = Literal[
    "lost",
    "ecc",
    "thermal",
    "power_brake",
    "low_clock",
    "memory_hot",
    "xid",
    "counter_fault",
    "memory_leak",
    "memory_full",
    "straggler",
    "step_growth",
    "pcie_degraded",
    "fabric_errors",
    "core_shortage",
    "cpu_limit",
    "swap",
    "power_capped",
    "stop_start",
    "shared_gpu",
    "recovery",
    "corrected_ecc",
    "remapped_rows",
    "nvlink_down",
    "unowned_memory",
]
DEVICE_BADGES: tuple[BadgeId, ...] = (
    "recovery",
    "ecc",
    "unowned_memory",
    "nvlink_down",
    "corrected_ecc",
    "remapped_rows",
    "fabric_errors",
)
"""Badges for a broken device, or its link to others; the first one first."""

Change = tuple[float, VerdictId, Flag | None]
"""Unix time at which a verdict was first shown, the verdict, and its flag."""

STATES: tuple[State, ...] = (
    "working",
    "busy_not_working",
    "starved",
    "idle_allocated",
    "idle",
    "unmeasured",
)
HOLDING_MEMORY = "holding memory"
"""The label under which idle GPUs with memory held are counted, apart from those that are free."""
STATE_WORDS: Mapping[State, str] = MappingProxyType({
    "working": "working",
    "busy_not_working": "busy, not working",
    "starved": "starved",
    "idle_allocated": f"idle, {HOLDING_MEMORY}",
    "idle": "idle",
    "unmeasured": "not judged",
})  # fmt: skip
NOT_WORK: tuple[State, ...] = ("busy_not_working", "starved", "idle_allocated", "idle")
HALF_WORKING = "half working"
LOW_CLOCK = "low clock"
HARDWARE_ERROR = "hardware error"
"""Titles that single samples and counts share with verdicts and badges."""
NOT_WORKING = STATE_WORDS["busy_not_working"]
NO_HOST = "no host signals"
"""That nothing is known of what the host did."""
NOT_WORKING_ALARM = NOT_WORKING.upper()


def full_title(title: str, flag: Flag | None, *, alarm: bool = False) -> str:
    """A verdict's title, after the state if the GPU is flagged.

    The state is in capitals for an ``alarm``.
    """
    if flag is None:
        return title
    return f"{NOT_WORKING_ALARM if alarm else NOT_WORKING}: {title}"


class Badge(Struct, frozen=True):
    """A remark beside the verdict.

    ``sticky`` badges stay until they are acknowledged.

    ``about`` is the index of another GPU whose fault it is; None on that one.

    ``since`` is the Unix time at which the badge was first shown, ``lasted_s`` the measured seconds since then.
    """

    id: BadgeId
    level: Level
    title: str
    evidence: str
    remedy: str = ""
    sticky: bool = False
    about: int | None = None
    since: float | None = None
    lasted_s: float = 0.0


class Attribution(Struct, frozen=True):
    """Host activity while the GPU was idle, percent of idle time.

    None if not known.

    ``idle_pct`` is the share of the window in which no kernel ran. ``loaders`` counts the workers. ``main_busy_pct`` is
    how much of the window the main thread ran, where that may be computing or spinning; else None. ``facts`` are in
    words: the feeders and the busiest of them, the main thread's waits, ``pin_memory``. ``taken_by`` names who else
    used the cores.
    """

    idle_pct: float
    loaders: int = 0
    running_pct: float | None = None
    queued_pct: float | None = None
    disk_pct: float | None = None
    network_pct: float | None = None
    main_pct: float | None = None
    main_busy_pct: float | None = None
    facts: tuple[str, ...] = ()
    taken_by: str | None = None


class GpuOwner(Struct, frozen=True):
    """The process that a verdict is about.

    None is what cannot be read; ``others`` counts those beside it.
    """

    pid: int
    user: str | None = None
    command: str | None = None
    job: str | None = None
    others: int = 0


class Means(Struct, frozen=True):
    """Means over the window that a verdict rests on, percent.

    None where nothing was measured.

    ``is_few``: fewer samples than a verdict needs, so that a single second weighs too much.
    """

    n: int
    is_few: bool
    util_pct: float | None
    sm_active_pct: float | None
    sm_occupancy_pct: float | None
    tensor_active_pct: float | None
    fp32_active_pct: float | None
    fp64_active_pct: float | None
    dram_active_pct: float | None


class GpuDiagnosis(Struct, frozen=True):
    """The verdict on one GPU, with its evidence and remedy.

    ``level`` is the one in which every output shows the GPU, badges included: see ``summary.level_of``. ``title`` is
    the verdict in words ("starved: dataloader, CPU-bound"); for a busy-not-working verdict it is the cause
    alone ("small kernels"), because the screen leads with the flag. ``plain_title`` is the title without its duration.
    ``since`` is the Unix time at which the verdict was first shown. ``seconds`` integrates measured time by state since
    the monitor began, and ``causes`` the ``busy_not_working`` time by verdict; both add up to the same. ``timeline``
    holds every change of verdict or flag as (Unix time, verdict, flag), oldest first. ``figure`` is the verdict's
    number, as (word, percent), of the same moment as the evidence; None where nothing is judged yet. ``cause`` and
    ``feeders`` are set for a starved GPU; ``uneven`` says that few of many feeders work.
    """

    index: int
    uuid: str
    verdict: VerdictId
    level: Level
    title: str
    short: str
    busy_not_working: Flag | None = None
    efficiency_pct: float | None = None
    efficiency_reason: str | None = None
    confidence: Confidence = "low"
    window_s: float = 0.0
    n: int = 0
    evidence: tuple[str, ...] = ()
    remedy: str = ""
    remedy_short: str = ""
    notes: tuple[str, ...] = ()
    badges: tuple[Badge, ...] = ()
    attribution: Attribution | None = None
    state: State = "unmeasured"
    since: float | None = None
    seconds: Mapping[State, float] | None = None
    causes: Mapping[VerdictId, float] | None = None
    timeline: Sequence[Change] = ()
    figure: tuple[str, float | None] | None = None
    cause: Cause | None = None
    uneven: bool = False
    feeders: Feeders | None = None
    means: Means | None = None
    """None if no verdict is possible, as for a lost GPU."""
    plain_title: str = ""
    host_reason: str | None = None
    """Reason if the host's activity during idle time is unknown.

    None if known or irrelevant.
    """
    owner: GpuOwner | None = None
    """Process with most memory on this GPU; None if not seen."""
    began: float | None = None
    """Unix time when the state of the verdict began.

    An idle GPU's verdict is shown only some time later.
    """
    lasted_s: float = 0.0
    """Seconds since ``began``."""
    charged_s: float = 0.0
    """Seconds of that time that were wasted."""
    lost: Mapping[VerdictId, float] | None = None
    """Wasted seconds since the monitor began, by verdict.

    Shares of each second; see ``time_ledger.lost_share``.
    """
    about: int | None = None
    """Index of the GPU that this one waits for, if any."""
    role: Role | None = None
    """What the verdict means without its badges; None: what its state means, see ``summary.role_of``."""

    def __repr__(self) -> str:
        """One line for a log or a notebook.

        ``str`` of the fields would be two thousand characters.
        """
        evidence = f": {self.evidence[0]}" if self.evidence else ""
        return (
            f"<GPU {self.index} {self.level}, "
            f"{full_title(self.title, self.busy_not_working)}{evidence}>"
        )


class VerdictChange(Struct, frozen=True):
    """A GPU's verdict, title and level from some Unix time on."""

    t: float
    gpu: int
    verdict: str
    flag: Flag | None
    level: Level
    title: str


class Finding(Struct, frozen=True):
    """A change of a verdict or badge, with evidence and remedy."""

    t: float
    gpu: int
    kind: Literal["verdict", "badge"]
    id: str
    level: Level
    text: str
    evidence: str = ""
    remedy: str = ""
    busy_not_working: Flag | None = None
    ended: float | None = None
    sticky: bool = False
    role: Role = "unknown"
    """Role of the verdict at this time; it gives the colour."""


class Waste(Struct, frozen=True):
    """GPU time wasted in at most the last ten minutes.

    Of ``recent_gpus`` GPUs' time ``recent_lost_gpus`` was wasted, and in ``recent_idle_gpus`` nobody held them.

    Time that was not judged is in none of them.
    """

    recent_s: float = 0.0
    recent_gpus: float = 0.0
    recent_lost_gpus: float = 0.0
    recent_idle_gpus: float = 0.0
