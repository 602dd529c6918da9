"""Know which hosts give no values, and why.

Takes the marks of ``screen_queries.marks`` at each refresh, their ages at every second one; returns hosts that are
down, late or removed, and the alerts that fire. Where the engine says which addresses are scraped, that alone decides:
how old values are is shown, and changes no state.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice
from statistics import median

from gputop.features.fleet.exporter_names import host_of
from gputop.features.fleet.fleet_reading import (
    LATE_DRIVER,
    NO_ANSWER,
    Down,
    FiringAlert,
    RemovedHost,
)
from gputop.features.fleet.read import screen_queries
from gputop.features.fleet.read.decode_labels import GpuIdentity, Labels, Place, SeriesKey, place_of
from gputop.features.fleet.read.engine import FleetAnswers, LabelCache, values
from gputop.features.fleet.read.fabric_ports import COUNTS, PORT, count_line, fault_line
from gputop.features.fleet.read.gpu_inventory import DAY_S, FleetInventory
from gputop.model.clean_text import clean_text
from gputop.model.durations import duration

MOST_ALERTS = 500
MOST_PORTS = 100
"""Ports of the fabric that are named."""
_NO_SUBJECT = ("__name__", "alertname", "alertstate", "severity")
"""Labels that do not say what an alert is about."""
LEAST_SILENCE_S = 60.0
"""Without any ``up`` a host is down after so long without a new value, or after four scrapes, beside others that have
new ones."""
LONGEST_GAP_S = 300.0
"""Time for which values are kept over a pause of the engine: it keeps a value for the present as long itself."""


def marked_places(
    rows: Iterable[tuple[Labels, float]], place: Sequence[str]
) -> tuple[dict[str, dict[Place, float]], tuple[FiringAlert, ...]]:
    """Values of scraped addresses by mark, and the firing alerts.

    Of several values of an address the greatest counts.
    """
    marked: dict[str, dict[Place, float]] = {
        mark: {}
        for mark in (
            screen_queries.UP,
            screen_queries.LATE,
            screen_queries.DEAD,
            screen_queries.AGE,
        )
    }
    alerts = []
    for row, value in rows:
        if (of_mark := marked.get(row.get(screen_queries.DIALECT_LABEL, ""))) is not None:
            where = place_of(row, place)
            of_mark[where] = max(value, of_mark.get(where, value))
        elif name := row.get("alertname"):
            labels = {
                clean_text(key): clean_text(value)
                for key, value in sorted(row.items())
                if key not in _NO_SUBJECT
            }
            severity = clean_text(row.get("severity", ""))
            alerts.append(FiringAlert(clean_text(name), severity, clean_text(host_of(row)), labels))
    return marked, tuple(sorted(alerts, key=lambda alert: (alert.name, alert.host))[:MOST_ALERTS])


def _fault_words(labels: Labels, value: float) -> str:
    """Words for a series of ``screen_queries.ports``; empty for noise."""
    mark = labels.get(screen_queries.DIALECT_LABEL, "")
    if mark == screen_queries.CLOCK:
        side = "ahead of" if value > 0.0 else "behind"
        return f"its clock is {duration(abs(value))} {side} the engine's"
    if mark in COUNTS:
        return count_line(mark, labels.get(PORT, "?"), value)
    return fault_line(labels)


class HostOutages:
    """State of the hosts of one fleet that are down, late or removed."""

    def __init__(self, inventory: FleetInventory) -> None:
        self._inventory = inventory
        self.labels: LabelCache[Mapping[str, str]] = LabelCache(dict)
        self.alerts: tuple[FiringAlert, ...] = ()
        self._faults: Mapping[str, Sequence[str]] = {}
        """Ports of the fabric and clocks that are at fault, by host."""
        self._marks: Mapping[str, Mapping[Place, float]] = {}
        """Values of scraped addresses by mark, of the last answer; empty until one came."""
        self._ages: Mapping[Place, float] = {}
        self._last_seen: dict[Place, float] = {}
        self._removed: dict[str, tuple[int, float | None, float]] = {}
        """Host → its GPUs, when it last had values, and since when nothing lists it."""
        self._gap_since: float | None = None

    def take(self, answers: FleetAnswers, t: float) -> None:
        """Read an answer to ``screen_queries.marks``."""
        marks = values(answers.rows_of("marks"), self.labels)
        self._marks, self.alerts = marked_places(marks, self._inventory.schema.place)
        if ages := {
            place: seen
            for place, seen in self._marks[screen_queries.AGE].items()
            if abs(t - seen) < DAY_S
        }:
            self._ages = ages
            self._last_seen.update(ages)

    def take_ports(self, answers: FleetAnswers) -> None:
        """Read an answer to ``screen_queries.ports``."""
        named = self._places()
        lines: dict[str, list[str]] = defaultdict(list)
        for labels, value in islice(values(answers.rows_of("ports"), self.labels), MOST_PORTS):
            host = named.get(place_of(labels, self._inventory.schema.place))
            words = clean_text(_fault_words(labels, value))
            if host is not None and words:
                lines[host].append(words)
        self._faults = {host: sorted(lines[host]) for host in sorted(lines)}

    def faults(self, hosts_down: Collection[str]) -> Mapping[str, Sequence[str]]:
        """Faults of hosts that answer, in words."""
        return {host: lines for host, lines in self._faults.items() if host not in hosts_down}

    def age_s(self, t: float) -> float | None:
        """The median age of values."""
        return t - median(self._ages.values()) if self._ages else None

    def gap(self, before: Collection[SeriesKey], now: Collection[SeriesKey], t: float) -> str:
        """A line on a pause of the engine, or nothing.

        In a pause most GPUs that had a value have none, though nothing says that their hosts are down.
        """
        up = self._marks.get(screen_queries.UP, {})
        explained = {
            place
            for mark in (screen_queries.LATE, screen_queries.DEAD)
            for place in self._marks.get(mark, {})
        }
        explained |= {place for place, value in up.items() if value == 0.0}
        identities = self._inventory.identities
        without = [identities[key].place for key in before if key not in now and key in identities]
        if 2 * sum(place not in explained for place in without) <= len(before) or not up:
            self._gap_since = None
            return ""
        self._gap_since = t if self._gap_since is None else self._gap_since
        if t - self._gap_since > LONGEST_GAP_S:
            return ""
        return (
            f"the engine has values of {len(now)} of {len(before)} GPUs: it may have paused; the "
            "last ones stay"
        )

    def hosts_down(self, measured: Collection[Place], t: float) -> dict[str, Down]:
        """Hosts on which no exporter answers; forgets removed hosts.

        ``measured`` are the addresses that give utilisation.
        """
        down, named = self._places_down(measured, t), self._places()
        alive = {host for place, host in named.items() if place not in down}
        found: dict[str, Down] = {}
        for place, host in named.items():
            absent = down.get(place)
            # Of two exporters on a host the one whose driver is late says more than the one that is silent.
            if (
                absent is not None
                and host not in alive
                and (host not in found or absent.kind == "late")
            ):
                found[host] = absent
        self._remove(down, t)
        return found

    def removed_hosts(self, t: float) -> dict[str, RemovedHost]:
        """Hosts that were there within the last day and that nothing lists now."""
        return {
            host: RemovedHost(gpus, None if seen is None else t - seen)
            for host, (gpus, seen, _) in self._removed.items()
        }

    def _places(self) -> dict[Place, str]:
        """Known scraped addresses and their hosts."""
        named = {identity.place: identity.host for identity in self._inventory.identities.values()}
        return {**self._inventory.host_names, **named}

    def _places_down(self, measured: Collection[Place], t: float) -> dict[Place, Down | None]:
        """Addresses without current values and the reason.

        None as reason: nothing lists the address any more.
        """
        up, late, dead = (
            self._marks.get(mark, {})
            for mark in (screen_queries.UP, screen_queries.LATE, screen_queries.DEAD)
        )
        places = self._places()
        self._last_seen = {
            place: seen for place, seen in self._last_seen.items() if place in places
        }
        newest = max(self._ages.values(), default=t)
        oldest = max(LEAST_SILENCE_S, 4 * self._inventory.schema.scrape_s)
        down: dict[Place, Down | None] = {}
        for place in places if self._marks else ():
            since = t - self._last_seen[place] if place in self._last_seen else None
            if up.get(place) == 0.0:
                down[place] = Down(since, NO_ANSWER)
            elif place in late:
                # The node counts by a clock of its own, which may be wrong by hours.
                if since is None and 0.0 < late[place] < DAY_S:
                    since = late[place]
                down[place] = Down(since, LATE_DRIVER, "late")
            elif place in dead:
                down[place] = Down(
                    dead[place], "nobody writes its file any more: the exporter has ended"
                )
            elif up:
                if place not in up and place not in measured:
                    down[place] = None
            elif place not in self._ages and place not in measured:
                is_recent = since is not None and since < screen_queries.LAST_SEEN_S
                down[place] = Down(since, "no longer scraped") if is_recent else None
            elif newest - self._ages.get(place, newest) > oldest:
                down[place] = Down(since, "no new values")
        return down

    def _remove(self, down: Mapping[Place, Down | None], t: float) -> None:
        """Count the GPUs of hosts that nothing lists any more, and forget the GPUs."""
        identities = self._inventory.identities
        listed = {
            identity.host
            for identity in identities.values()
            if down.get(identity.place, identity) is not None
        }
        removed: dict[str, dict[SeriesKey, GpuIdentity]] = defaultdict(dict)
        for key, identity in identities.items():
            if identity.host not in listed:
                removed[identity.host][key] = identity
        for host, members in removed.items():
            seen = [
                self._last_seen[of.place] for of in members.values() if of.place in self._last_seen
            ]
            self._removed[host] = (
                len({of.uuid or of.gpu for of in members.values()}),
                max(seen, default=None),
                t,
            )
            self._inventory.dismiss(members)
        self._removed = {
            host: of
            for host, of in self._removed.items()
            if host not in listed and t - of[2] <= DAY_S
        }
