"""Read hosts and jobs of a large fleet from what its rules record.

Takes the sums by host and owner that rules record once a minute; returns a reading without GPUs, with ``shares``. Its
questions grow with hosts, not with GPUs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gputop.features.fleet import promql, state_rules
from gputop.features.fleet.decode_labels import Labels, Place, recorded_place
from gputop.features.fleet.engine import Engine, FleetAnswers, values
from gputop.features.fleet.exporter_names import CLUSTER_LABELS, DIALECTS
from gputop.features.fleet.fleet_reading import Down, FiringAlert, FleetReading, HostShare, RemovedHost
from gputop.features.fleet.host_marks import marked_places
from gputop.features.fleet.label_cache import LabelCache
from gputop.features.fleet.promql import ALL_NAMES, named, over, selector, window
from gputop.features.fleet.queries import AGE, DIALECT_LABEL, HOST, LATE, LOOKBACKS_S, UP, marked
from gputop.features.fleet.recorded_labels import (
    MEANS,
    HostNames,
    Recorded,
    RecordedHost,
    _among,
    recorded_host,
    shares_of,
)
from gputop.model.quantity import count

SCRAPE_S = 30.0
"""The longest usual time between two scrapes: twice it an address may be silent."""
NAMES_EVERY = 20
"""Refreshes between two looks at the names and the past of hosts."""
PLACE = (*CLUSTER_LABELS, "instance")
"""The labels of a scraped address: two clusters may have the same one."""
"""The rules record once a minute."""
MOST_ABSENT = 256
"""Addresses without GPUs of which it is asked whether they are still scraped."""
STRAGGLER_ALERTS = ("GpuStragglerSlow", "GpuStragglerStarved")


def _past_addresses(select: str) -> str:
    """The most GPUs of each address at some moments of the last day."""
    series = selector(state_rules.HOST_ADDRESS, select)
    past = [promql.marked(f"{series} offset {window(back_s)}", "back", f"{back_s:.0f}") for back_s in LOOKBACKS_S]
    return f"max without (back) ({promql.union(past)})"


def _troubles(select: str) -> str:
    """Write the query for silent addresses, late drivers, alerts and ages.

    An address is silent that did not answer twice in a row; the age is the time of the rules' last evaluation, Unix
    seconds.
    """
    by = f"max by ({', '.join(PLACE)})"
    twice = over("max_over_time", selector("up", select), 2 * SCRAPE_S)
    return promql.union([
        marked(f"{by} ({twice}) == 0", UP),
        marked(f"{by} ({selector('gputop_up', select)}) == 0", LATE),
        marked(f"max(timestamp({selector(state_rules.HOST_ADDRESS, select)}))", AGE),
        selector("ALERTS", 'alertstate="firing"', select),
    ])  # fmt: skip


def _answering(instances: Sequence[str], select: str) -> str:
    """Write the query for addresses that are scraped, and that give utilisation (``HOST``)."""
    matchers = (promql.any_of("instance", instances), select)
    names = [DIALECTS[name].signals["util_pct"].name for name in ALL_NAMES]
    measured = f"count by ({', '.join(PLACE)}) ({named(names, *matchers)})"
    return promql.union([marked(selector("up", *matchers), UP), marked(measured, HOST)])


class RecordedHosts:
    """Reads recorded hosts at the present or at one past moment."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._recorded: LabelCache[RecordedHost] = LabelCache(recorded_host)
        self._labels: LabelCache[Labels] = LabelCache(dict)
        self._refreshes = 0
        self._rows: dict[str, list[Recorded]] = {"states": [], "means": [], "addresses": [], "before": []}
        """The newest answer to each of these; the rules record once a minute, so most are as before."""
        self._hostnames: Mapping[Place, str] = {}
        self.names = HostNames({}, ())
        self._present: Mapping[str, int] = {}
        self._past: Mapping[str, int] = {}
        """GPUs by host, now and within the last day."""
        self._silent: frozenset[Place] = frozenset()
        self._late: frozenset[Place] = frozenset()
        """Addresses that do not answer, and those whose driver is late."""
        self._age_s: float | None = None
        self._alerts: tuple[FiringAlert, ...] = ()
        self.addresses: dict[str, set[Place]] = {}
        """Host → its scraped addresses."""
        self.shares: Sequence[HostShare] = ()

    def size(self, at: float | None) -> int:
        """Number of GPUs that the rules record; 0 without rules.

        Raises FleetError.
        """
        text = f"sum({selector(state_rules.HOST_ADDRESS, self._engine.select)})"
        rows = self._engine.asked({"size": text}, at, needs=("size",)).rows_of("size")
        return round(next((value for _, value in values(rows, self._labels)), 0.0))

    def ask(self, at: float | None, source: str, now: float) -> FleetReading:
        """Return the fleet without GPUs and last hour.

        Raises FleetError if the states were not answered.
        """
        select, reads_names = self._engine.select, self._refreshes % NAMES_EVERY == 0
        turn = self._refreshes % 2 if self._refreshes else None
        names = promql.max_by((*CLUSTER_LABELS, "instance", "hostname"), selector("gputop_host_info", select))
        answers = self._engine.asked({
            "states": selector(state_rules.HOST_STATES, select),
            "means": "" if turn == 1 else named(MEANS, select),
            "addresses": "" if turn == 0 else selector(state_rules.HOST_ADDRESS, select),
            "troubles": _troubles(select),
            "before": _past_addresses(select) if reads_names else "",
            "names": names if reads_names else "",
        }, at, needs=("states",))  # fmt: skip
        if reads_names:
            self._recorded.turn()
            self._labels.turn()
        self._refreshes += 1
        t = now if answers.t is None else answers.t
        self._take(answers, t)
        down, gone, missing, problems = self._absent(at)
        spoken = {recorded.names for recorded, _ in self._rows["states"]}
        return FleetReading(
            t, source, (), down, tuple(name for name in DIALECTS if name in spoken), self._age_s,
            alerts=self._alerts, problems=(*answers.problems, *problems), gone=gone, shares=self.shares,
            missing=missing,
        )  # fmt: skip

    def _take(self, answers: FleetAnswers, t: float) -> None:
        if "troubles" in answers.rows:
            places, self._alerts = marked_places(values(answers.rows_of("troubles"), self._labels), PLACE)
            self._silent, self._late = (
                frozenset(recorded_place(dict(zip(PLACE, place, strict=True))) for place in places[mark])
                for mark in (UP, LATE)
            )
            newest = max(places[AGE].values(), default=None)
            self._age_s = None if newest is None else max(0.0, t - newest)
        # Nobody is missing by the word of an engine that may not have looked everywhere.
        taken = answers.rows.keys() - ({"addresses"} & answers.warned)
        rows = {name: list(values(answers.rows_of(name), self._recorded)) for name in self._rows if name in taken}
        if "names" in answers.rows:
            self._hostnames = {
                recorded_place(labels): name
                for labels, _ in values(answers.rows_of("names"), LabelCache(dict))
                if (name := labels.get("hostname"))
            }
        elif all(of == self._rows[name] for name, of in rows.items()):
            return
        self._rows |= rows
        states, now, before = (self._rows[name] for name in ("states", "addresses", "before"))
        if "before" in rows:
            # A host that neither is nor was within a day is forgotten.
            self.addresses = {}
        self.names = HostNames(self._hostnames, (recorded for recorded, _ in (*states, *now, *before)))
        for recorded, _ in (*now, *before):
            self.addresses.setdefault(self.names.name_of(recorded), set()).add(recorded.place)
        self._present, self._past = self._counted(now), self._counted(before)
        self.shares = shares_of([*states, *self._rows["means"]], self.names)

    def _counted(self, rows: Sequence[Recorded]) -> dict[str, int]:
        """GPUs by host; of a host with two addresses the most."""
        gpus_of_host: dict[str, int] = {}
        for recorded, value in rows:
            host = self.names.name_of(recorded)
            gpus_of_host[host] = max(gpus_of_host.get(host, 0), round(value))
        return gpus_of_host

    def _absent(self, at: float | None) -> tuple[dict[str, Down], dict[str, RemovedHost], dict[str, int], list[str]]:
        """Find hosts that are down or removed, and lost GPUs by host."""
        # Before the first answer on which hosts there are, none is missing.
        present, before = self._present, self._past if self._rows["addresses"] else {}
        down: dict[str, Down] = {}
        unexplained = []
        for host in (*present, *(host for host in before if host not in present)):
            addresses = self.addresses.get(host, set())
            if _among(self._late, addresses):
                down[host] = Down(None, "the driver does not answer: it is late or hangs", "late")
            elif addresses and _among(self._silent, addresses) == addresses:
                down[host] = Down(None, "the exporter does not answer")
            elif host not in present:
                unexplained.append(host)
        scraped, unrecorded, problems = self._scraped(unexplained, at)
        gone = {
            host: RemovedHost(before[host], None) for host in unexplained if not _among(scraped, self.addresses[host])
        }
        alive = {host for host in unexplained if _among(unrecorded, self.addresses[host])}
        # What a host that is down had is told by its shares, as long as the rules still have them.
        shared = {share.host for share in self.shares} & down.keys()
        missing = {
            host: n - present.get(host, 0)
            for host, n in before.items()
            if n > present.get(host, 0) and host not in gone and host not in alive and host not in shared
        }
        if alive and not problems:
            told = f"{count(len(alive), 'host')} with GPUs that no rule records now"
            problems = [f"{told}: are the rules evaluated everywhere?"]
        return down, gone, missing, problems

    def _scraped(self, hosts: Sequence[str], at: float | None) -> tuple[set[Place], set[Place], list[str]]:
        """Ask whether the engine still scrapes these hosts.

        Returns the addresses that are scraped, those that give values that no rule records, and lines for people. An
        address that was not asked for or not answered is in both sets: it is not missing.
        """
        places = sorted({place for host in hosts for place in self.addresses[host]}, key=lambda place: place[1])
        if not places:
            return set(), set(), []
        instances = sorted({address for _, address in places[:MOST_ABSENT]})
        answers = self._engine.asked({"up": _answering(instances, self._engine.select)}, at)
        if "up" not in answers.rows or answers.warned:
            return set(places), set(places), answers.problems
        marked_labels = [labels for labels, _ in values(answers.rows_of("up"), self._labels)]
        rest = set(places[MOST_ABSENT:])
        up = rest | {recorded_place(labels) for labels in marked_labels}
        measured = {recorded_place(labels) for labels in marked_labels if labels.get(DIALECT_LABEL) == HOST}
        return up, rest | measured, answers.problems

    def of_straggling_jobs(self) -> list[str]:
        """All hosts of the jobs in which an alert names a straggler."""
        straggling = {alert.host for alert in self._alerts if alert.name in STRAGGLER_ALERTS}
        jobs = {share.job for share in self.shares if share.job and share.host in straggling} if straggling else ()
        return [share.host for share in self.shares if share.job in jobs] if jobs else []
