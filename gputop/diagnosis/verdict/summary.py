"""The summary of a GPU that all outputs show.

Title, cause, number, role, evidence, remedy, owner and time.

Screen, reports, pages, alerts and the exporter lay a ``GpuSummary`` out; none of them words or rounds a verdict itself.
Pure: time enters with the snapshots.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from msgspec import Struct

from gputop.diagnosis.thresholds import HALF_RATIO, HELD_BYTES, IDLE_PCT, MUCH_DRAM_RATIO
from gputop.diagnosis.types import (
    DEVICE_BADGES,
    HALF_WORKING,
    HARDWARE_ERROR,
    HOLDING_MEMORY,
    LOW_CLOCK,
    NOT_WORKING,
    NOT_WORKING_ALARM,
    STATE_WORDS,
    Badge,
    BadgeId,
    GpuDiagnosis,
    GpuOwner,
    Level,
    Role,
    State,
    VerdictId,
    full_title,
)
from gputop.diagnosis.verdict.worth import NOTHING, Worth, worth_of
from gputop.diagnosis.window.conditions import flag_now, has_low_clock
from gputop.diagnosis.window.hardware_health import HARDWARE_XIDS
from gputop.diagnosis.window.sample_facts import sm_now
from gputop.model.durations import duration, duration_of
from gputop.model.quantity import HOUR_S
from gputop.model.snapshot import GpuSample, HostSample, ProcessSample


class Number(Struct, frozen=True):
    """The one number beside a verdict.

    ``value`` is None where it would belong to the verdict and is not measured.
    """

    measure: str
    value: float | None
    unit: str = "%"


class GpuSummary(Struct, frozen=True):
    """One GPU in words and figures.

    ``title`` is what the GPU does and ``cause`` why ("" if there is nothing to add); ``words`` are both.
    ``other_badges`` are the badges that the title does not say. ``since`` is the Unix time at which the state
    began, ``lasted_s`` its length and ``charged_s`` the wasted part of it, both in seconds; None if nothing was judged.
    ``named_since`` and ``named_s`` are the same of what the title names first, which may be younger than the state.
    """

    gpu: int
    uuid: str
    title: str
    cause: str
    words: str
    number: Number | None
    level: Level
    role: Role
    evidence: tuple[str, ...]
    remedy: str
    remedy_short: str
    other_badges: tuple[Badge, ...]
    notes: tuple[str, ...]
    owner: GpuOwner | None
    since: float | None
    lasted_s: float
    charged_s: float | None
    named_since: float | None
    named_s: float
    worth: Worth


LOST_TITLE = "LOST"
WORKING_POORLY = "working poorly"
"""The word under which GPUs are counted that work, and yet have a warning that is not half of the chip unused."""
GROUPS = (
    STATE_WORDS["working"], HALF_WORKING, WORKING_POORLY, NOT_WORKING_ALARM, STATE_WORDS["starved"], HOLDING_MEMORY,
    STATE_WORDS["idle"], STATE_WORDS["unmeasured"], LOST_TITLE,
)  # fmt: skip
"""The groups in the order in which counts stand."""
ROLE_OF_LEVEL: Mapping[Level, Role] = MappingProxyType({
    "green": "work", "info": "information", "yellow": "waiting", "red": "not_working", "grey": "unknown",
})  # fmt: skip
"""What a badge means."""
ROLE_OF_STATE: Mapping[State, Role] = MappingProxyType({
    "working": "work", "busy_not_working": "not_working", "starved": "waiting", "idle_allocated": "waiting",
    "idle": "information", "unmeasured": "unknown",
})  # fmt: skip
"""What time in a state means. A verdict may say otherwise: a pause to save is no waste."""
LEVEL_OF_ROLE: Mapping[Role, Level] = MappingProxyType({
    "work": "green", "waiting": "yellow", "not_working": "red", "information": "info", "unknown": "grey",
})  # fmt: skip
"""The level of a role: glyph and colour of every output, exit statuses and data."""


LEADING: tuple[BadgeId, ...] = ("lost", *DEVICE_BADGES, "straggler")
"""Badges that come before the verdict, the first one first, unless they only inform."""


def is_lost(d: GpuDiagnosis) -> bool:
    """Whether a GPU can no longer be read."""
    return any(badge.id == "lost" for badge in d.badges)


def role_of(d: GpuDiagnosis) -> Role:
    """Role of a verdict; badges come on top of it."""
    return verdict_role(d.role, d.state)


def verdict_role(role: Role | None, state: State) -> Role:
    """Role of a verdict: its own, or what its state means."""
    return ROLE_OF_STATE[state] if role is None else role


def level_of(role: Role | None, state: State, badges: Sequence[Badge]) -> Level:
    """Level of a GPU with this verdict and these badges."""
    return LEVEL_OF_ROLE[_role_with(_leading(badges), verdict_role(role, state))]


def _role_with(leading: Badge | None, role: Role) -> Role:
    """Role of the words that come first: the leading badge's, or the verdict's."""
    if leading is None:
        return role
    if leading.id == "straggler":
        return "waiting"
    # A warning of the device takes nothing from a verdict that is worse.
    return "not_working" if role == "not_working" else ROLE_OF_LEVEL[leading.level]


def group_of(d: GpuDiagnosis) -> str:
    """The word under which counts have a GPU.

    The title of a red badge is a group of its own: a broken GPU is not counted as one that works.
    """
    if is_lost(d):
        return LOST_TITLE
    if d.state == "busy_not_working":
        return NOT_WORKING_ALARM
    broken = _red_badge(d)
    if broken is not None:
        return broken.title
    if d.state == "idle_allocated":
        return HOLDING_MEMORY
    if d.verdict == "half_working":
        return HALF_WORKING
    if d.state != "working":
        return STATE_WORDS[d.state]
    has_warning = d.level in ("yellow", "red") or _leading(d.badges) is not None
    if has_warning:
        return WORKING_POORLY
    return STATE_WORDS[d.state]


_TROUBLED = ("not_working", "waiting")
"""The roles of a GPU in trouble, the worse first."""


class HeadWords(Struct, frozen=True):
    """First words on a GPU: title, cause, both, and role."""

    title: str
    cause: str
    words: str
    role: Role


def alarmed(words: str) -> str:
    """The words with an alarm in capitals, as a screen and a terminal show them."""
    return words.replace(NOT_WORKING, NOT_WORKING_ALARM, 1)


def head_of(d: GpuDiagnosis) -> HeadWords:
    """The first words of a diagnosis: the verdict's, unless a badge comes before it."""
    words = full_title(d.plain_title or d.title, d.busy_not_working)
    leading = _leading(d.badges)
    role = _role_with(leading, role_of(d))
    if leading is None:
        title, _, cause = words.partition(": ")
        return HeadWords(title, cause, words, role)
    if leading.id == "lost":
        return HeadWords(LOST_TITLE, "", LOST_TITLE, role)
    if leading.about is not None:
        return HeadWords(leading.title, "", leading.title, role)
    return HeadWords(leading.title, words, f"{leading.title}, {words}", role)


def summarize(d: GpuDiagnosis) -> GpuSummary:
    """Return the summary of a diagnosis."""
    head, leading = head_of(d), _leading(d.badges)
    evidence, remedy, remedy_short, notes = d.evidence, d.remedy, d.remedy_short, d.notes
    if leading is not None and (leading.about is not None or leading.id == "lost"):
        # Who waits says for whom, and nothing else: what helps is told there.
        remedy = "" if leading.about is not None else leading.remedy
        evidence, remedy_short, notes = (leading.evidence,), "", ()
    elif leading is not None:
        evidence, remedy, remedy_short = (leading.evidence, *d.evidence), leading.remedy, ""
    is_counted = d.state != "unmeasured" and d.lost is not None
    named_since, named_s = d.began, d.lasted_s
    if leading is not None and role_of(d) not in _TROUBLED:
        named_since, named_s = leading.since, leading.lasted_s
    return GpuSummary(
        gpu=d.index,
        uuid=d.uuid,
        title=head.title,
        cause=head.cause,
        words=head.words,
        number=None if d.figure is None else Number(*d.figure),
        level=LEVEL_OF_ROLE[head.role],
        role=head.role,
        evidence=evidence,
        remedy=remedy,
        remedy_short=remedy_short,
        other_badges=tuple(
            badge for badge in d.badges if badge is not leading and badge.id != d.verdict
        ),
        notes=notes,
        owner=d.owner,
        since=d.began,
        lasted_s=d.lasted_s,
        charged_s=d.charged_s if is_counted else None,
        named_since=named_since,
        named_s=named_s,
        worth=worth_of(d) if remedy else NOTHING,
    )


def _red_badge(d: GpuDiagnosis) -> Badge | None:
    """Return the red badge that counts most, or None."""
    leading = _leading(d.badges)
    if leading is not None and leading.level == "red":
        return leading
    return next((badge for badge in d.badges if badge.level == "red"), None)


def _may_lead(badge: Badge) -> bool:
    """Whether a badge is more than a remark on the device."""
    if badge.id == "fabric_errors":
        # Drops slow a job down, and belong beside its verdict; a link that is down is broken.
        return badge.level == "red"
    return badge.level != "info" or badge.id not in DEVICE_BADGES


def _leading(badges: Sequence[Badge]) -> Badge | None:
    """The badge that comes before the verdict, or None."""
    by_id = {badge.id: badge for badge in badges if _may_lead(badge)}
    return next((by_id[name] for name in LEADING if name in by_id), None)


def number_words(number: Number | None) -> str:
    """The number with its name: ``idle 62 %``.

    Empty before there is a verdict.
    """
    if number is None:
        return ""
    return (
        f"{number.measure} n/a"
        if number.value is None
        else f"{number.measure} {number.value:.0f} {number.unit}"
    )


def span_words(charged_s: float | None, lasted_s: float, *, whole: bool = False) -> str:
    """Wasted time of a verdict's duration: ``8 of 13 min``.

    The duration alone where nothing was wasted.
    """
    return (
        duration(lasted_s, whole=whole)
        if charged_s is None
        else duration_of(charged_s, lasted_s, whole=whole)
    )


def since_words(told: GpuSummary, utc_offset_s: float | None = None, *, whole: bool = False) -> str:
    """Begin, wasted time and duration: ``since 23:25, 8 of 13 min wasted``.

    UTC without an offset.

    A ``whole`` one has no decimals, so that a screen stays calm.
    """
    return (
        ""
        if told.named_since is None
        else time_words(told.named_since, told.charged_s, told.named_s, utc_offset_s, whole=whole)
    )


def time_words(
    since: float,
    charged_s: float | None,
    lasted_s: float,
    utc_offset_s: float | None = None,
    *,
    whole: bool = False,
) -> str:
    """The one form of a verdict's time, with the date from half a day on."""
    form = "%H:%M" if lasted_s < 12 * HOUR_S else "%b %d %H:%M"
    clock = time.strftime(form, time.gmtime(since + (utc_offset_s or 0.0)))
    zone = " UTC" if utc_offset_s is None else ""
    span = span_words(charged_s, lasted_s, whole=whole)
    # Of a GPU that works nothing was wasted: the duration stands alone.
    wasted = " wasted" if " of " in span else ""
    return f"since {clock}{zone}, {span}{wasted}"


IN_SAMPLE = "in this sample"
QUIET_PCT = 5.0
"""Less util in a sample is none: the bound that idle has over a window."""


FABRIC_LINK, RECOVERY_NEEDED = "fabric link", "recovery needed"
"""The titles of the badges that say so over a window."""
_NO_HOST = HostSample()


def in_sample(
    gpu: GpuSample, processes: Sequence[ProcessSample] = (), host: HostSample = _NO_HOST
) -> tuple[str, Role]:
    """Words and role of one sample; never a verdict, which takes several samples.

    ``processes`` are all that are known, ``host`` is the machine of the sample.
    """
    util, sm = gpu.util_pct, sm_now(gpu)
    if gpu.lost_reason is not None:
        return LOST_TITLE, "not_working"
    if gpu.remap_failed or gpu.remap_pending or gpu.xid in HARDWARE_XIDS:
        return HARDWARE_ERROR, "not_working"
    if gpu.recovery_action:
        return RECOVERY_NEEDED, "not_working"
    if host.fabric_ports_down or host.fabric_ports_degraded:
        # Only a job that talks over the fabric suffers from it.
        owners = [p for p in processes if p.gpu == gpu.static.index and p.role == "gpu"]
        if any(owner.nccl for owner in owners):
            return FABRIC_LINK, "not_working"
    if gpu.asleep:
        return "asleep", "information"
    if flag_now(gpu, processes) is not None:
        return NOT_WORKING, "not_working"
    if util is None:
        return STATE_WORDS["unmeasured"], "unknown"
    if util < QUIET_PCT:
        held_bytes = sum(
            p.gpu_mem_bytes or 0.0
            for p in processes
            if p.gpu == gpu.static.index and p.role == "gpu"
        )
        state: State = "idle_allocated" if held_bytes >= HELD_BYTES else "idle"
        return STATE_WORDS[state], ROLE_OF_STATE[state]
    if util < 100.0 - IDLE_PCT:
        return f"no kernel ran for {100.0 - util:.0f} % of the time", "waiting"
    if has_low_clock(gpu) and not any(
        p.gpu == gpu.static.index and p.type == "G" for p in processes
    ):
        return LOW_CLOCK, "waiting"
    if sm is None:
        return f"busy, {STATE_WORDS['unmeasured']}: SM activity is not measured", "unknown"
    is_half = sm < HALF_RATIO * util and (gpu.dram_active_pct or 0.0) < MUCH_DRAM_RATIO * util
    return (HALF_WORKING, "waiting") if is_half else (STATE_WORDS["working"], "work")


MORE_LOST, FOR_S = 1.5, 30.0
"""Another GPU of the same rank is worse once it has wasted so many times as much, and takes over after this time."""
LEAST_MORE_S = 10.0
"""Seconds that it must have wasted more, too: what nothing was wasted for has no order [judged]."""


NO_TROUBLE = 2 + len(_TROUBLED)
"""The rank of a GPU without trouble, behind all that have one."""


class Trouble(Struct, frozen=True):
    """The first trouble of a GPU, and its seconds."""

    title: str
    lasted_s: float


def named_trouble(d: GpuDiagnosis) -> Trouble:
    """Return the first trouble of a GPU that has one.

    A red badge comes before a verdict that only waits: it is what ranks the GPU.
    """
    broken = _red_badge(d)
    if is_lost(d) and broken is not None:
        return Trouble(LOST_TITLE, broken.lasted_s)
    if d.state == "busy_not_working":
        return Trouble(NOT_WORKING, d.lasted_s)
    if broken is not None:
        return Trouble(broken.title, broken.lasted_s)
    if d.state == "idle_allocated":
        return Trouble(STATE_WORDS["idle"], d.lasted_s)
    told = summarize(d)
    return Trouble(told.title, told.named_s)


def trouble(d: GpuDiagnosis) -> int | None:
    """Rank a GPU's trouble, 0 the worst; None without.

    Lost, not working or with a red badge, waiting, waiting for another GPU.
    """
    if is_lost(d):
        return 0
    if _red_badge(d) is not None:
        return 1
    if d.about is not None or any(
        badge.id == "straggler" and badge.about is not None for badge in d.badges
    ):
        return 1 + len(_TROUBLED)
    role = summarize(d).role
    return 1 + _TROUBLED.index(role) if role in _TROUBLED else None


class WorstGpuSelector:
    """Selects the GPU to look at first and keeps it, so that no screen jumps.

    Lost comes before not working before waiting; within a rank, the GPU that wasted most. The selection changes when
    its verdict ends, when a worse rank appears, or when one other GPU was worse for ``FOR_S`` without a break.
    """

    def __init__(self) -> None:
        self._selected: tuple[str, VerdictId] | None = None
        """UUID and verdict."""
        self._worse_since: dict[str, float] = {}
        """By UUID, since when a GPU of the same rank has wasted ``MORE_LOST`` times as much as the selected one."""

    def observe(self, t: float, diagnoses: Sequence[GpuDiagnosis]) -> str | None:
        """Return the UUID of the selected GPU at Unix time ``t``.

        None if no GPU is in trouble.
        """
        ranked = {
            (d.uuid, d.verdict): (rank, d) for d in diagnoses if (rank := trouble(d)) is not None
        }
        if not ranked:
            self._selected, self._worse_since = None, {}
            return None
        by_severity = sorted(
            ranked,
            key=lambda key: (ranked[key][0], -ranked[key][1].charged_s, ranked[key][1].index),
        )
        worst = by_severity[0]
        rank, selected = ranked.get(self._selected or worst, ranked[worst])
        if self._selected not in ranked or ranked[worst][0] < rank:
            self._selected, self._worse_since = worst, {}
            return worst[0]
        least_s = max(MORE_LOST * selected.charged_s, selected.charged_s + LEAST_MORE_S)
        worse = [
            key
            for key in by_severity
            if key[0] != selected.uuid
            and ranked[key][0] == rank
            and ranked[key][1].charged_s > least_s
        ]
        self._worse_since = {uuid: self._worse_since.get(uuid, t) for uuid, _ in worse}
        lasting = next((key for key in worse if t - self._worse_since[key[0]] >= FOR_S), None)
        if lasting is not None:
            self._selected, self._worse_since = lasting, {}
        return None if self._selected is None else self._selected[0]
