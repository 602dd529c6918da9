"""What holds with memory: the conditions of a busy GPU, and what the threads of an idle one are in, and since when."""

from __future__ import annotations

from msgspec import Struct

from gputop.diagnosis import thresholds as at
from gputop.diagnosis.host_side import HostTick, is_on_disk
from gputop.diagnosis.types import Flag
from gputop.model.snapshot import ProcessSample

# A busy GPU: each condition enters at one threshold and leaves at another.
#
# A mean of a real load wanders by some percent. With one threshold a load that happens to lie on it would change its
# verdict every minute, although nothing has changed. Ratios are over busy time, of samples that have both values: a
# window that mixes idle and busy time moves SM activity, not its ratio to util.


class WindowMeans(Struct, frozen=True):
    """Means over the window that the conditions are made of: percent, and shares 0–1 for ``power`` and links.

    ``util_of_sm`` and ``util_of_dram`` are the mean util of the samples in which SM and DRAM were measured.
    ``may_be_hollow``: nothing but the ratio speaks against flag C. ``slow_idle``: idle percent as a
    slow mean, where nothing but demand can be seen to cause it.
    """

    util: float
    util_known: bool
    util_of_sm: float | None
    util_of_dram: float | None
    sm: float | None
    tensor: float | None
    dram: float | None
    fp64: float | None
    fp32: float | None
    fp16: float | None
    integer: float | None
    power: float | None
    may_be_hollow: bool
    slow_idle: float | None
    nvlink: float | None
    pcie_both_ways: float | None
    """The less busy direction, where both are known."""
    links: tuple[float | None, ...]
    """The busier direction of PCIe and of NVLink as shares of their peaks; without a link that the board has not."""

    @property
    def r(self) -> float | None:
        """SM / util: how much of the chip kernels use while they run."""
        return ratio(self.sm, self.util_of_sm) if self.util_known else None

    @property
    def d(self) -> float | None:
        """DRAM / util."""
        return ratio(self.dram, self.util_of_dram) if self.util_known else None

    @property
    def x(self) -> float | None:
        """Tensor / SM."""
        return ratio(self.tensor, self.sm)

    @property
    def pipes(self) -> tuple[float | None, ...]:
        """The pipes beside the tensor cores, percent."""
        return self.fp64, self.fp32, self.fp16, self.integer


class Holds(Struct, frozen=True):
    """Which conditions hold now. All False before anything was judged."""

    flag: Flag | None = None
    moves_data: bool = False
    """Links are busy, and the tensor cores are not."""
    rests: bool = False
    """Tensor cores, memory and board have little to do."""
    memory: bool = False
    much_dram: bool = False
    little_tensor: bool = False
    half: bool = False
    stalled: bool = False
    broad: bool = False
    """Util and SM (or tensor) as high as those of a GPU that is used well."""
    witness: bool = False
    """Something beside SM activity shows work: the tensor cores, the memory, or another pipe."""
    seen: bool = False
    """A pipe, the memory or the power shows work."""
    unexplained: bool = False
    """A busy SM, and all that could explain it was measured to rest: then power shows no work."""
    at_power_limit: bool = False
    draws_little: bool = False
    waits: bool = False
    """Idle for long enough to be waiting for something."""


def ratio(part: float | None, whole: float | None) -> float | None:
    """A part of a whole; None where either is not known or there is nothing to be a part of."""
    return None if part is None or not whole else part / whole


def next_holds(before: Holds, means: WindowMeans) -> Holds:
    """Which conditions hold after another sample."""
    d, x, util = means.d, means.x, means.util
    idle = round(100.0 - util, 6)
    dram = d if means.util_known else ratio(means.dram, 100.0)
    much = _above(before.much_dram, dram, at.MUCH_DRAM_RATIO, at.MUCH_DRAM_RATIO_LEAVE)
    witness = (
        much
        or _above(before.witness, x, at.WITNESS_TENSOR_RATIO, at.WITNESS_TENSOR_RATIO_LEAVE)
        or any(_above(before.witness, pipe, at.WITNESS_PIPE, at.WITNESS_PIPE_LEAVE) for pipe in means.pipes)
    )
    unexplained = _unexplained(before.unexplained, means)
    return Holds(
        flag=next_flag(before.flag, means),
        moves_data=_below(before.moves_data, means.tensor, at.COMM_TENSOR, at.COMM_TENSOR_LEAVE)
        and (
            _above(before.moves_data, means.nvlink, at.COMM_NVLINK, at.COMM_NVLINK_LEAVE)
            or _above(before.moves_data, means.pcie_both_ways, at.COMM_PCIE, at.COMM_PCIE_LEAVE)
        ),
        rests=(means.tensor is None or _below(before.rests, means.tensor, at.COMM_TENSOR, at.COMM_TENSOR_LEAVE))
        and _below(before.rests, means.dram, at.COMM_DRAM, at.COMM_DRAM_LEAVE)
        and _below(before.rests, means.power, at.COMM_POWER, at.COMM_POWER_LEAVE),
        memory=_memory(before.memory, means),
        much_dram=much,
        little_tensor=(
            not much
            and _above(before.little_tensor, means.sm, at.TENSOR_SM, at.TENSOR_SM_LEAVE)
            and _below(before.little_tensor, means.tensor, at.LITTLE_TENSOR, at.LITTLE_TENSOR_LEAVE)
            and _below(before.little_tensor, x, at.LITTLE_TENSOR_RATIO, at.LITTLE_TENSOR_RATIO_LEAVE)
            and (means.fp64 or 0.0) < at.SOME_FP64
        ),
        half=(
            not much
            and means.util_known
            and _above(before.half, util, at.HALF_UTIL, at.HALF_UTIL_LEAVE)
            and _below(before.half, means.r, at.HALF_RATIO, at.HALF_RATIO_LEAVE)
        ),
        stalled=_stalled(before.stalled, means),
        broad=_above(before.broad, util, at.HEALTHY_UTIL, at.HEALTHY_UTIL_LEAVE)
        and means.sm is not None
        and (
            _above(before.broad, means.sm, at.HEALTHY_SM, at.HEALTHY_SM_LEAVE)
            or _above(before.broad, means.tensor, at.HEALTHY_TENSOR, at.HEALTHY_TENSOR_LEAVE)
        ),
        witness=witness,
        seen=_seen(before.seen, means, unexplained),
        unexplained=unexplained,
        at_power_limit=_above(before.at_power_limit, util, at.HEALTHY_UTIL, at.HEALTHY_UTIL_LEAVE)
        and _above(before.at_power_limit, means.power, at.FULL_POWER, at.FULL_POWER_LEAVE),
        draws_little=_above(before.draws_little, util, at.LOW_POWER_UTIL, at.LOW_POWER_UTIL_LEAVE)
        and _below(before.draws_little, means.power, at.LOW_POWER, at.LOW_POWER_LEAVE),
        waits=_waits(before.waits, idle, means.slow_idle),
    )


def next_flag(before: Flag | None, means: WindowMeans) -> Flag | None:
    """A, B or C of a GPU that is busy and does not work; strict where the definition is: 80/30 and 50/15 are none."""
    if not means.util_known or means.sm is None or means.util_of_sm is None or means.r is None:
        return None
    util = min(means.util, means.util_of_sm)
    if _above(before == "A", util, at.FLAG_A_UTIL, at.FLAG_A_UTIL_LEAVE) and _below(
        before == "A", means.sm, at.FLAG_A_SM, at.FLAG_A_SM_LEAVE
    ):
        return "A"
    is_set = before in ("A", "B")
    if _above(is_set, util, at.FLAG_B_UTIL, at.FLAG_B_UTIL_LEAVE) and _below(
        is_set, means.r, at.FLAG_B_RATIO, at.FLAG_B_RATIO_LEAVE
    ):
        return "B"
    if not means.may_be_hollow or means.r <= 0.0 or (means.d is not None and means.d >= at.MUCH_DRAM_RATIO):
        return None
    is_set = before == "C"
    if _above(is_set, util, at.FLAG_C_UTIL, at.FLAG_C_UTIL_LEAVE) and _below(
        is_set, means.r, at.FLAG_C_RATIO, at.FLAG_C_RATIO_LEAVE
    ):
        return "C"
    return None


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


def _waits(before: bool, idle: float, slow: float | None) -> bool:
    """Whether a GPU is idle for long enough to be waiting for something."""
    if slow is None:
        return _above(before, idle, at.IDLE, at.IDLE_LEAVE)
    if before:
        return idle >= at.IDLE_LEAVE or (idle >= at.DEMAND_IDLE_LEAVE and slow >= at.DEMAND_SLOW_LEAVE)
    return min(idle, slow) >= at.IDLE


def _memory(before: bool, a: WindowMeans) -> bool:
    if not a.util_known:
        return _above(before, a.dram, at.MEMORY_DRAM, at.MEMORY_DRAM_LEAVE)
    return _above(before, a.util, at.MEMORY_UTIL, at.MEMORY_UTIL_LEAVE) and _above(
        before, a.d, at.MEMORY_RATIO, at.MEMORY_RATIO_LEAVE
    )


def _unexplained(before: bool, a: WindowMeans) -> bool:
    counted = [value for value in (a.tensor, *a.pipes, a.dram) if value is not None]
    return (
        bool(counted)
        and _above(before, a.sm, at.UNEXPLAINED_SM, at.UNEXPLAINED_SM_LEAVE)
        and all(_below(before, value, at.UNEXPLAINED_PIPE, at.UNEXPLAINED_PIPE_LEAVE) for value in counted)
    )


def _seen(before: bool, a: WindowMeans, unexplained: bool) -> bool:
    return (
        any(_above(before, pipe, at.SEEN_PIPE, at.SEEN_PIPE_LEAVE) for pipe in (a.tensor, *a.pipes))
        or _above(before, a.dram, at.SEEN_DRAM, at.SEEN_DRAM_LEAVE)
        or (not unexplained and _above(before, a.power, at.SEEN_POWER, at.SEEN_POWER_LEAVE))
    )


def _stalled(before: bool, a: WindowMeans) -> bool:
    """Warps are resident, and every other counter says that they do nothing. One that is missing says nothing."""
    links = (None if link is None else 100.0 * link for link in a.links)
    return _above(before, a.sm, at.STALLED_SM, at.STALLED_SM_LEAVE) and all(
        _below(before, value, at.STALLED_PIPE, at.STALLED_PIPE_LEAVE) for value in (a.tensor, *a.pipes, a.dram, *links)
    )


def _above(before: bool, value: float | None, enter: float, leave: float) -> bool:
    return value is not None and value >= (leave if before else enter)


def _below(before: bool, value: float | None, enter: float, leave: float) -> bool:
    return value is not None and value < (leave if before else enter)


# What a main thread and its feeders have been in without a break: why an idle GPU idles, and since when.

MOSTLY_PCT = 80.0
"""A state that fills so much of a sample is what the process is in [judged]."""
MOST_BREAK_S = 2.5
"""A break shorter than this is none: one look may miss a wait."""
HALTED = {"T": "stopped", "t": "traced"}
"""States of a process that is held: by a signal, and by a debugger (proc(5))."""
_MAIN = ("disk", "network", "lock", "sleep", "poll", "pipe", "write")


class Stands(Struct, frozen=True):
    """A state, for how many seconds it has been so, and the networked file system on which it is a wait, if any."""

    what: str
    for_s: float
    mount: str | None = None


class Standing:
    """Follows one thread, or the feeders of one GPU as a whole."""

    __slots__ = ("_mount", "_seen_at", "_since", "_state")

    def __init__(self) -> None:
        self._state: str | None = None
        self._mount: str | None = None
        self._since = self._seen_at = 0.0

    def observe(self, t: float, state: str | None, mount: str | None) -> Stands | None:
        """Add a sample; gives what has stood up to now. None where nothing does."""
        if state is not None and state == self._state:
            self._seen_at = t
            self._mount = mount or self._mount
        elif state is not None or t - self._seen_at > MOST_BREAK_S:
            self._state, self._mount, self._since, self._seen_at = state, mount, t, t
        return None if self._state is None else Stands(self._state, t - self._since, self._mount)

    def clear(self) -> None:
        """Forget it, for another job."""
        self._state = self._mount = None


def main_state(p: ProcessSample | None) -> str | None:
    """What the main thread of a process is in for most of a sample: ``stopped``, ``traced``, a wait, or None."""
    if p is None or p.main_state is None:
        return None
    if p.main_state in HALTED:
        return HALTED[p.main_state]
    if p.main.unread is None:
        return None
    return next((name for name in _MAIN if (getattr(p.main, name) or 0.0) >= MOSTLY_PCT), None)


def feeders_state(tick: HostTick) -> tuple[str | None, str | None]:
    """What most of a GPU's feeders are in for most of a sample, and the file system on which they are."""
    rows = [row for row in tick.feeders if row.key >= 0]
    if not rows:
        return None, None
    hung = [row for row in rows if row.mount is not None and row.values[2] + row.values[3] >= MOSTLY_PCT]
    if 2 * len(hung) > len(rows):
        return "disk", hung[0].mount
    for place, name in ((2, "disk"), (3, "network"), (4, "lock")):
        there = [row for row in rows if row.values[place] >= MOSTLY_PCT]
        if 2 * len(there) > len(rows):
            return name, next((row.mount for row in there if row.mount is not None), None)
    return None, None


def saves_pct(p: ProcessSample | None) -> float:
    """How much of a sample the main thread of a process waited for a file to be written, percent.

    Where its system calls may not be seen, how much it waited for a disk while the process wrote to one.
    """
    if p is None:
        return 0.0
    on_disk = p.main.disk if p.main.disk is not None else 100.0 if is_on_disk(p) else 0.0
    return max(p.main.saves or 0.0, on_disk if p.write_bytes_per_s else 0.0)
