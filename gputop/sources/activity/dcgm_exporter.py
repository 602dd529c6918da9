"""Source 2: a running dcgm-exporter, scraped passively.

For data-centre GPUs without GPM. Fetched on a thread of its own. Joined by UUID, never by index: an exporter has its
container's indices. A MIG instance is joined by its GPU's UUID and NVML's id of the GPU instance (GPU_I_ID); its
values cover that instance alone, as GPM's do.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from time import monotonic

from gputop.model.snapshot import GpuStatic
from gputop.sources.activity.exporter_page import NAMES, Entity, Exported, parse
from gputop.sources.activity.fallback_chain import MeasuredActivity, SmReadFailed, Waiting, believed
from gputop.sources.activity.http_get import checked, get, place_of, trouble
from gputop.system.worker import Worker

DEFAULT_URL = "http://localhost:9400/metrics"
PROBE_TIMEOUT_S = 0.3
TIMEOUT_S = 1.0
CLOSEST_S, FARTHEST_S = 1.0, 10.0
"""Limits of the distance of two scrapes. A scrape reads what the exporter has cached and makes it measure nothing."""
LONGEST_BACK_OFF_S = 60.0
USUAL_PERIOD_S = 30.0
"""How often an exporter measures unless it is told otherwise (its --collect-interval)."""
LEARNING_S = 4 * USUAL_PERIOD_S
"""How long it is scraped often while its period is unknown."""
MISSED_PERIODS = 1.5
"""How long after its last new values an exporter that no longer answers is trusted [judged]."""
REPEATED_PERIODS = 3.0
"""How long one that answers with unchanged values is trusted [judged]."""
LEAST_PATIENCE_S = 5.0
IDLE_PATIENCE_S = 300.0
"""The same where only ratios are exported, which on an idle machine stay the same for long [judged]."""
FIX = "uncomment DCGM_FI_PROF_SM_ACTIVE in the counters file of dcgm-exporter and restart it"
NOT_SEEN_FIX = "give dcgm-exporter all GPUs"
WELL_FIX = "see in its log what dcgm-exporter lacks, or restart it"
LOST_FIX = "end what else profiles (ncu, nsys), or restart dcgm-exporter"
PARTIAL_FIX = (
    "it gives those of other instances of this GPU: restart dcgm-exporter, or update DCGM "
    "(dcgm-exporter#507)"
)
INSTANCE_FIX = "let dcgm-exporter export MIG instances (its option -d f)"
KEYS = tuple(dict.fromkeys(NAMES.values()))

Fetch = Callable[[str, float], str]
_KEPT_INTERVALS = 5
"""Intervals remembered: their median survives an idle spell without a change, and soon follows a new setting."""


class UpdateInterval:
    """Learns how often a source renews its values.

    Times are monotonic seconds.
    """

    def __init__(self) -> None:
        self._mark: int | None = None
        self._intervals_s: deque[float] = deque(maxlen=_KEPT_INTERVALS)
        self.changed_at: float | None = None
        """When the newest change was seen; None before one was."""

    def see(self, mark: int, now: float) -> None:
        """Note the state as a number."""
        before, self._mark = self._mark, mark
        if before is None or mark == before:
            return
        if self.changed_at is not None:
            self._intervals_s.append(now - self.changed_at)
        self.changed_at = now

    @property
    def period_s(self) -> float | None:
        """Return the median time between changes, None before two."""
        return (
            sorted(self._intervals_s)[(len(self._intervals_s) - 1) // 2]
            if self._intervals_s
            else None
        )


class Exporter:
    """One exporter, shared by all GPUs.

    Nothing happens before the first ``activity``.
    """

    def __init__(self, url: str | None = None, fetch: Fetch = get) -> None:
        """``url`` is the user's; None probes the usual place once.

        Raises UsageError for an invalid address.
        """
        self._url = DEFAULT_URL if url is None else checked(url)
        self._url_is_given = url is not None
        self._called = (
            f"dcgm-exporter at {place_of(self._url)}" if self._url_is_given else "dcgm-exporter"
        )
        self._fetch = fetch
        self._worker = Worker("dcgm-exporter", self._look, again=lambda: self.wait_s(monotonic()))
        self._exported: Exported | None = None
        self._trouble: str | None = None
        self._failures = 0
        self._absent = self._has_answered = False
        self._percent = False
        self._updates = UpdateInterval()
        self._first_at = self._answered_at = 0.0
        self._served: set[Entity] = set()
        self.kept_waiting = False
        """Whether a caller was told to wait for the first answer since this was last reset."""

    def activity(self, entity: Entity, now: float) -> MeasuredActivity | Waiting:
        """Return the newest values and keep fetching from now on."""
        if not self._worker.alive:
            self._worker.ask()
        return self.newest(entity, now)

    def newest(self, entity: Entity, now: float) -> MeasuredActivity | Waiting:
        """Return the newest values of a GPU or MIG instance.

        Their time is None until a change was seen. Without SM activity, but with other counters, ``missing`` and
        ``fix`` say why. Raises SmReadFailed.
        """
        exported = self._exported
        if self._absent:
            raise SmReadFailed(f"no dcgm-exporter at {self._url}", forever=True)
        if exported is None:
            if self._trouble is not None:
                raise SmReadFailed(f"{self._called}: {self._trouble}")
            self.kept_waiting = True
            return Waiting(f"asking {self._called}", looking=True)
        self._doubt(exported, now)
        row = exported.rows.get(entity)
        if row is None:
            raise self._no_row(entity, exported)
        ratios = {key: value for key in KEYS if (value := row.get(key)) is not None}
        values, missing = believed(ratios, 1.0 if self._percent else 100.0, "dcgm-exporter")
        for key in KEYS:
            if key not in ratios:
                missing[key] = (
                    "dcgm-exporter gives no number"
                    if key in row
                    else "not exported by dcgm-exporter"
                )
        fix = ""
        if "sm_active_pct" not in row:
            missing["sm_active_pct"], fix = f"{self._called} exports no SM activity", FIX
        else:
            self._served.add(entity)
        if not values:
            raise SmReadFailed(missing["sm_active_pct"], fix=fix)
        return MeasuredActivity(
            values, missing, self._updates.period_s, self._updates.changed_at, fix
        )

    def stop(self) -> None:
        """End the thread after the current fetch; returns at once."""
        self._worker.stop()

    def scrape(self, now: float) -> None:
        """Fetch once on the calling thread."""
        guessed = not self._url_is_given and not self._has_answered
        try:
            body = self._fetch(self._url, PROBE_TIMEOUT_S if guessed else TIMEOUT_S)
        except (OSError, ValueError) as error:
            self._absent = guessed
            self._failures += 1
            self._trouble = trouble(error)
            return
        exported = parse(body)
        if self._exported is None:
            self._first_at = now
        self._answered_at, self._failures = now, 0
        self._updates.see(exported.mark, now)
        self._percent = self._percent or exported.prints_percent()
        self._exported, self._trouble, self._has_answered = exported, None, True

    def wait_s(self, now: float) -> float:
        """Return the seconds until the next scrape.

        Until new values are due; short while the period is unknown.
        """
        if self._failures:
            return float(min(LONGEST_BACK_OFF_S, CLOSEST_S * 2 ** min(self._failures - 1, 6)))
        updates = self._updates
        if updates.changed_at is None or updates.period_s is None:
            return CLOSEST_S if now - self._first_at < LEARNING_S else FARTHEST_S
        overdue = now - updates.changed_at - updates.period_s
        return (
            FARTHEST_S if overdue > updates.period_s else min(FARTHEST_S, max(CLOSEST_S, -overdue))
        )

    def _doubt(self, exported: Exported, now: float) -> None:
        """Raise SmReadFailed for values too old to be shown."""
        updates = self._updates
        seen_at = self._first_at if updates.changed_at is None else updates.changed_at
        age, period_s = now - seen_at, updates.period_s or USUAL_PERIOD_S
        why = self._trouble
        # Until the update interval is known, so is not how long the last values hold.
        if why is not None and (
            updates.period_s is None or age > max(LEAST_PATIENCE_S, MISSED_PERIODS * period_s)
        ):
            raise SmReadFailed(f"{self._called}: {why}", fix=WELL_FIX)
        patience = max(LEAST_PATIENCE_S, REPEATED_PERIODS * period_s)
        if age > (max(patience, IDLE_PATIENCE_S) if exported.only_ratios else patience):
            silent = now - self._answered_at
            if silent > FARTHEST_S + TIMEOUT_S:
                raise SmReadFailed(
                    f"{self._called} has not answered for {silent:.0f} s", fix=WELL_FIX
                )
            raise SmReadFailed(f"{self._called} has repeated itself for {age:.0f} s", fix=WELL_FIX)

    def _no_row(self, entity: Entity, exported: Exported) -> SmReadFailed:
        uuid, instance = entity
        if exported.faults:
            return SmReadFailed(f"{self._called}: {exported.faults[0]}")
        if uuid not in exported.uuids:
            return SmReadFailed(f"{self._called} does not know this GPU", fix=NOT_SEEN_FIX)
        if instance is not None and any(row_entity[0] == uuid for row_entity in exported.rows):
            has_others = any(
                row_entity[0] == uuid and row_entity[1] is not None for row_entity in exported.rows
            )
            fix = PARTIAL_FIX if has_others else INSTANCE_FIX
            return SmReadFailed(f"{self._called} has no counters of this MIG instance", fix=fix)
        if entity in self._served:
            # Its counters are switched on, but DCGM gives none: something else profiles, or the watch was lost.
            return SmReadFailed(f"{self._called} no longer gives counters", fix=LOST_FIX)
        return SmReadFailed(f"{self._called} exports no SM activity", fix=FIX)

    def _look(self) -> None:
        if self._absent:
            self._worker.stop()
        else:
            self.scrape(monotonic())


def entity_of(gpu: GpuStatic) -> Entity | None:
    """Return the exporter's key of a GPU.

    None for a MIG device whose GPU instance is unknown.
    """
    if gpu.mig_parent is None:
        return gpu.uuid, None
    instance = (gpu.mig_instance or "").partition("/")[0]
    return (gpu.mig_parent, int(instance)) if instance.isdigit() else None
