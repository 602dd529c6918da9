"""Reads the last hour in parts, beside what is shown: each part once, and none that would take an engine long."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from gputop.fleet import plan
from gputop.fleet.client import Query, Row, number
from gputop.fleet.decode import Key, gpu_of, key_of
from gputop.fleet.engine import Engine, values
from gputop.fleet.hours import BIN_S, Hours, Owned, Point, bin_ends
from gputop.fleet.inventory import Inventory
from gputop.fleet.names import DIALECTS, job_of
from gputop.fleet.plan import Known
from gputop.fleet.reading import HOUR_S, FleetError, Lost
from gputop.fleet.series import Remembered

BINNED = ("util_pct", "sm_active_pct", "mem_used_bytes")
"""What a bin's state follows from, beside the quiet GPUs."""


class LastHour:
    """The parts read so far. A part that failed is read again."""

    def __init__(self, engine: Engine, inventory: Inventory) -> None:
        self._engine, self._inventory = engine, inventory
        self._hours = Hours()
        self._seen: Known | None = None
        self._owned: Remembered[Owned | None] = Remembered(lambda labels: None)

    @property
    def _kinds(self) -> tuple[bool, bool]:
        """Whether some GPUs' hour is to be judged by bins, and some nodes count it themselves."""
        labels = {} if self._inventory.known is None else self._inventory.known.labels
        return any(name != "gputop" for name in labels), "gputop" in labels

    def lost(self, t: float) -> list[Lost] | None:
        """The GPU time lost in the hour before ``t``, None until ``more`` has read it."""
        binned, own = self._kinds
        identities = self._inventory.identities
        found = self._hours.lost(t, identities, binned=binned, own=own)
        if not own or found is None:
            return found
        named = {who.job.partition(" ")[2]: who.job for who in identities.values() if who.job[:4] != "job "}
        return [
            replace(lost, job=named.get(lost.job[4:], lost.job)) if lost.job[:4] == "job " else lost for lost in found
        ]

    def more(self, t: float) -> bool:
        """Read the next part of the hour before ``t``; whether there was one. At most five queries."""
        known = self._inventory.known
        if known is None:
            return False
        binned, own = self._kinds
        ends, wants_own = self._hours.missing(t, binned=binned, own=own)
        queries = self._bins(known, ends) if ends else {}
        if wants_own and (text := plan.lost_by_own(known, self._engine.select, HOUR_S)):
            queries["own"] = Query(text, bin_ends(t)[-1])
        if not queries:
            return False
        try:
            rows = self._engine.all_answers(queries).rows
            if "own" in rows:
                names = known.labels["gputop"]
                by_state: Remembered[tuple[Key, str]] = Remembered(
                    lambda labels: (key_of(labels, "gputop", names), labels.get("state", ""))
                )
                self._hours.take_own(t, values(rows["own"], by_state))
            if ends:
                self._hours.take(ends, {name: self._points(rows.get(name, ())) for name in (*BINNED, "quiet")})
        except FleetError:
            return False
        return True

    def _bins(self, known: Known, ends: Sequence[float]) -> dict[str, Query]:
        """The questions of a run of bins, of all GPUs whose nodes do not count for themselves, with their jobs."""
        others = {name: labels for name, labels in known.labels.items() if name != "gputop"}
        told_apart = Known(known.signals, others, known.scrape_s)
        if told_apart != self._seen:
            self._seen = told_apart
            self._owned = Remembered(lambda labels: _owned(labels, told_apart))
        self._owned.turn()
        with_jobs = {name: (*labels, *DIALECTS[name].job) for name, labels in others.items()}
        seen, select = Known(known.signals, with_jobs, known.scrape_s), self._engine.select
        texts = {key: plan.metric(seen, key, select, plan.mean) for key in BINNED}
        texts["quiet"] = plan.quiet(seen, select)
        return {name: Query(text, ends[-1], ends[0], BIN_S) for name, text in texts.items() if text}

    def _points(self, rows: Sequence[Row]) -> Iterator[Point]:
        for row in rows:
            owned = self._owned.of(row.metric)
            if owned is not None:
                for t, text in row.values:
                    if (value := number(text)) is not None:
                        yield t, owned, value


def _owned(labels: Mapping[str, str], known: Known) -> Owned | None:
    gpu = gpu_of(labels, known)
    if gpu is None:
        return None
    return Owned(gpu, *(job_of(labels) if DIALECTS[gpu.dialect].job else ("", "")))
