"""GPUs of one host, from the pages of its exporter.

``take`` reads pages in the order of time, and trusts nothing on them. Utilisation and SM activity are means over five
minutes of pages; states and verdicts are the node's own, where gputop exports them. An hour of minutes is kept for lost
time and charts; of the time before the first page nothing is known. Pure: time is passed in.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from math import floor
from statistics import fmean

from msgspec import Struct
from msgspec.structs import replace

from gputop.diagnosis.host.idle_runs import QUIET_UTIL
from gputop.features.fleet.exporter_names import DIALECTS
from gputop.features.fleet.fleet_reading import (
    HOUR_S,
    MINUTES,
    WINDOW_S,
    GpuId,
    GpuReading,
    GpuState,
    JobName,
    Lost,
    merged,
)
from gputop.features.fleet.judge.gpu_state import judged, lost_hours
from gputop.features.fleet.read.decode_values import Fact, reading_of
from gputop.features.fleet.read.fabric_ports import risen
from gputop.features.fleet.read.host_page import (
    STEPS,
    HostPage,
    PageGpu,
    read_host_page,
    why_no_gpu,
)
from gputop.model.durations import duration
from gputop.model.exposition import PageLimitError

LONGEST_PAUSE_S = 15.0
"""Time between two pages above which nothing is known of it."""
MINUTE_S = 60.0
MOST_MISSING = 64
"""Remembered GPUs that are no longer on the page."""
MOST_SKEW_S = 60.0
"""Difference between two machines' clocks that is told, as between an engine's and this one's."""
MOST_TOLD_SKEW_S = 3650.0 * 86400.0
"""Ten years: a clock that was never set, or no time at all."""
CUT = "its page broke off: GPUs that are not on its first part keep their last values"
QUIET_RANK = 0.95
"""The percentile of utilisation that says whether a GPU is idle, as everywhere in a fleet."""

Owned = tuple[str, JobName, str, GpuState]
"""GPU number, job, user and state."""


class _Page(Struct, frozen=True):
    """Values, step counters by name and rank, and lost seconds of one page."""

    t: float
    values: Mapping[GpuId, Mapping[str, float]]
    steps: Mapping[tuple[str, str], float]
    lost_s: Mapping[GpuId, float]
    port_counts: Mapping[tuple[str, str], float]


class _Minute(Struct, frozen=True):
    """GPU-hours without work and samples of utilisation and SM activity in one minute."""

    begun: float
    lost: dict[Owned, float]
    drawn: dict[str, list[tuple[float | None, float | None]]]


class ScrapedHost:
    """State of one host; ``name`` is what the user called it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.own_names: Mapping[str, str] = {}
        """What the host calls itself, by dialect."""
        self.dialects: tuple[str, ...] = ()
        """The dialects of the newest page."""
        self.gpus: Sequence[GpuReading] = ()
        self.is_late = False
        """Whether the exporter said that its driver does not answer."""
        self.left_out: tuple[str, ...] = ()
        """Series of the newest page that were left out, with the reason."""
        self.port_lines: tuple[str, ...] = ()
        """Ports of the fabric that are down, drop or retransmit, in words."""
        self.values_t: float | None = None
        """When a page last gave values."""
        self._page_lines: tuple[str, ...] = ()
        """Faults of the newest page and of the host's clock."""
        self._pages: deque[_Page] = deque()
        self._minutes: deque[_Minute] = deque(maxlen=MINUTES + 1)
        self._known: dict[GpuId, GpuReading] = {}

    @property
    def own_name(self) -> str:
        """What the host calls itself, by its preferred dialect; empty if unknown."""
        names = (self.own_names.get(dialect, "") for dialect in DIALECTS)
        return next(filter(None, names), "")

    @property
    def faults(self) -> tuple[str, ...]:
        """Faults of a host that answers, in words."""
        return (*self.port_lines, *self._page_lines, *self.left_out)

    def take(self, page: str, t: float) -> str | None:
        """Read a page; return the reason where it gives no values."""
        try:
            read = read_host_page(page, self.name)
        except PageLimitError as error:
            return str(error)
        self.left_out, self.is_late = read.left_out, read.is_late
        self.own_names = {**self.own_names, **read.own_names}
        if self.is_late:
            return None
        if not read.gpus:
            return why_no_gpu(page)
        self.values_t = t
        self._page_lines = tuple(_page_faults(read, t))
        self._take_gpus(read, t)
        return None

    def move_times(self, by_s: float) -> None:
        """Move all times, as a clock was set back."""
        pages = [replace(page, t=page.t + by_s) for page in self._pages]
        self._pages = deque(pages)
        by_minutes_s = MINUTE_S * round(by_s / MINUTE_S)
        minutes = [replace(minute, begun=minute.begun + by_minutes_s) for minute in self._minutes]
        self._minutes = deque(minutes, maxlen=MINUTES + 1)
        if self.values_t is not None:
            self.values_t += by_s

    def lost(self, t: float) -> list[Lost]:
        """GPU time without work in the hour before ``t``."""
        hours: dict[Owned, float] = defaultdict(float)
        for minute in self._minutes:
            # Of the oldest minute only its end is within the hour.
            within_s = minute.begun + MINUTE_S - (t - HOUR_S)
            part = min(1.0, within_s / MINUTE_S)
            if part <= 0.0:
                continue
            for owned, gpu_h in minute.lost.items():
                hours[owned] += gpu_h * part
        return [Lost(self.name, *owned, gpu_h) for owned, gpu_h in hours.items()]

    def history(self, t: float) -> dict[str, tuple[list[float | None], list[float | None]]]:
        """Utilisation and SM activity by minute in the hour before ``t``."""
        lines: dict[str, tuple[list[float | None], list[float | None]]] = {}
        for minute in self._minutes:
            # A minute has the column that holds its middle, so each has its own.
            age_minutes = floor((t - minute.begun - MINUTE_S / 2.0) / MINUTE_S)
            if age_minutes >= MINUTES:
                continue
            column = MINUTES - 1 - max(0, age_minutes)
            for gpu, pairs in minute.drawn.items():
                line = lines.setdefault(gpu, ([None] * MINUTES, [None] * MINUTES))
                for at in (0, 1):
                    values = [value for pair in pairs if (value := pair[at]) is not None]
                    # The minute that has just begun is drawn if the one before was not seen.
                    if values and line[at][column] is None:
                        line[at][column] = fmean(values)
        return lines

    def _take_gpus(self, read: HostPage, t: float) -> None:
        values: dict[GpuId, dict[str, float]] = {}
        for gpu in read.gpus:
            # Of two dialects the preferred one comes first.
            values[gpu.identity.id] = {**gpu.values, **values.get(gpu.identity.id, {})}
        self.dialects = tuple(dict.fromkeys(gpu.key.dialect for gpu in read.gpus))
        self._pages.append(_Page(t, values, read.steps, read.lost_s, read.port_counts))
        while t - self._pages[0].t > WINDOW_S:
            self._pages.popleft()
        self._name_steps(read)
        lost_by_ports = risen(read.port_counts, self._pages[0].port_counts)
        self.port_lines = (*read.port_faults, *lost_by_ports)
        gpus = {gpu.id: gpu for gpu in merged(map(self._reading, read.gpus))}
        self._count(gpus, {gpu.identity.id: gpu.identity.share for gpu in read.gpus})
        missing = self._missing(gpus)
        if not read.is_cut:
            missing = {id: replace(gpu, is_lost=True) for id, gpu in missing.items()}
        self._known = {**gpus, **missing}
        self.gpus = list(self._known.values())

    def _missing(self, gpus: Mapping[GpuId, GpuReading]) -> dict[GpuId, GpuReading]:
        """GPUs of earlier pages that are not on this one."""
        uuids = {gpu.uuid for gpu in gpus.values()}
        numbers = {gpu.gpu.partition("/")[0] for gpu in gpus.values()}
        missing: dict[GpuId, GpuReading] = {}
        for id, gpu in self._known.items():
            is_there = id in gpus or gpu.uuid in uuids or gpu.gpu in numbers
            if not is_there and not gpu.mig:
                missing[id] = gpu
        return dict(list(missing.items())[-MOST_MISSING:])

    def _reading(self, gpu: PageGpu) -> GpuReading:
        """A GPU with means over the window of a state."""
        id = gpu.identity.id
        past = [page.values[id] for page in self._pages if id in page.values]
        means: dict[str, float] = {}
        for key in ("util_pct", "sm_active_pct"):
            if key in gpu.values:
                means[key] = fmean(values[key] for values in past if key in values)
        is_quiet: bool | None = None
        if gpu.key.dialect != "gputop":
            utils = sorted(values["util_pct"] for values in past if "util_pct" in values)
            if utils:
                is_quiet = utils[int(QUIET_RANK * (len(utils) - 1))] < QUIET_UTIL
        job, user = gpu.facts.job_and_user
        if gpu.key.dialect == "gputop" or not gpu.identity.job:
            owned = replace(gpu.identity, job=job, user=user)
        else:
            owned = gpu.identity
        return reading_of(gpu.key, owned, gpu.facts, {**gpu.values, **means}, is_quiet=is_quiet)

    def _name_steps(self, read: HostPage) -> None:
        """Add the mean steps of five minutes to the facts of their GPUs."""
        # Ranks are labelled with the number of their GPU alone.
        numbered = {gpu.identity.gpu: gpu.facts for gpu in read.gpus if gpu.key.dialect == "gputop"}
        now, before = self._pages[-1].steps, self._pages[0].steps
        for rank in read.ranks:
            facts = numbered.get(rank.gpu)
            if facts is None:
                continue
            for field, name in STEPS.items():
                seconds, times = (
                    now.get(key, 0.0) - before.get(key, 0.0)
                    for key in ((f"{name}sum", rank.labels), (f"{name}count", rank.labels))
                )
                if times > 0:
                    facts.take(Fact(field), seconds / times)

    def _minute(self, t: float) -> _Minute:
        """The minute of this moment, which is the newest one or the one before."""
        begun = t - t % MINUTE_S
        for minute in reversed(self._minutes):
            if minute.begun == begun:
                return minute
        self._minutes.append(_Minute(begun, {}, {}))
        return self._minutes[-1]

    def _count(self, gpus: Mapping[GpuId, GpuReading], shares: Mapping[GpuId, float]) -> None:
        """Add time without work since the previous page, and chart points.

        The node's own count of seconds comes before an estimate from its state.
        """
        page, before = self._pages[-1], self._pages[max(0, len(self._pages) - 2)]
        spent_s = page.t - before.t if page.t - before.t <= LONGEST_PAUSE_S else 0.0
        # What was spent since the page before belongs to the minute in which it began.
        lost = self._minute(before.t if spent_s else page.t).lost
        drawn = self._minute(page.t).drawn
        for id, gpu in gpus.items():
            util = page.values[id].get("util_pct")
            drawn.setdefault(gpu.gpu, []).append((util, page.values[id].get("sm_active_pct")))
            state, _ = judged(gpu)
            lost_s = lost_hours(state, util, spent_s)
            counted_s = page.lost_s.get(id, -1.0) - before.lost_s.get(id, 0.0)
            if counted_s >= 0.0 and id in before.lost_s:
                lost_s = min(spent_s, counted_s)
            if lost_s > 0.0:
                owned = (gpu.gpu, gpu.job, gpu.user, state)
                lost[owned] = lost.get(owned, 0.0) + lost_s * shares[id] / HOUR_S


def _page_faults(read: HostPage, t: float) -> Iterator[str]:
    """Yield faults of a page that was read at ``t``, and of its node's clock."""
    if read.is_cut:
        yield CUT
    if read.sampled_at is None:
        return
    ahead_s = read.sampled_at - t
    if abs(ahead_s) > MOST_SKEW_S:
        side = "ahead of" if ahead_s > 0.0 else "behind"
        yield f"its clock is {duration(min(abs(ahead_s), MOST_TOLD_SKEW_S))} {side} this machine's"
