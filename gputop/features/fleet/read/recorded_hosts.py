"""Read hosts and jobs of a large fleet from what its rules record.

Takes the sums by host and owner that rules record once a minute; returns a reading without GPUs, with ``shares``. Its
questions grow with hosts, not with GPUs. States and silent addresses are asked for at each refresh, means and addresses
at every second one, names and the past of hosts at every 20th; all are as old as the last evaluation of the rules.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from gputop.features.fleet import promql
from gputop.features.fleet.exporter_names import CLUSTER_LABELS, DIALECTS, group_of, host_of
from gputop.features.fleet.fleet_reading import (
    LATE_DRIVER,
    NO_ANSWER,
    NO_JOB,
    Down,
    FiringAlert,
    FleetReading,
    FleetState,
    GpuState,
    HostShare,
    JobName,
    Lost,
    RemovedHost,
    with_schedulers,
)
from gputop.features.fleet.judge import state_rules
from gputop.features.fleet.judge.gpu_state import GPU_STATES
from gputop.features.fleet.promql import ALL_NAMES, NAMES_LABEL, named, over, selector, window
from gputop.features.fleet.read.decode_labels import (
    GpuIdentity,
    Labels,
    Place,
    label_text,
    owner_of,
    recorded_place,
)
from gputop.features.fleet.read.engine import Engine, FleetAnswers, LabelCache, values
from gputop.features.fleet.read.outages import marked_places
from gputop.features.fleet.read.screen_queries import (
    AGE,
    DIALECT_LABEL,
    HOST,
    LATE,
    LOOKBACKS_S,
    UP,
    marked,
)
from gputop.model.quantity import count

MEANS: Mapping[str, str] = {
    state_rules.HOST_UTIL: "util_pct", state_rules.HOST_SM: "sm_active_pct", state_rules.HOST_POWER: "power_w",
}  # fmt: skip
"""Recorded series → what of ``HostShare`` it is."""
_STATES: Mapping[str, GpuState] = {str(code): state for state, code in state_rules.CODES.items()}
SCRAPE_S = 30.0
"""The longest usual time between two scrapes: twice it an address may be silent."""
NAMES_EVERY = 20
"""Refreshes between two looks at the names and the past of hosts."""
PLACE = (*CLUSTER_LABELS, "instance")
"""The labels of a scraped address: two clusters may have the same one."""
MOST_ABSENT = 256
"""Addresses without GPUs of which it is asked whether they are still scraped."""
STRAGGLER_ALERTS = ("GpuStragglerSlow", "GpuStragglerStarved")


class RecordedHost(NamedTuple):
    """Host, owner and quantity of a recorded series.

    ``quantity`` is a state or the series' name.
    """

    names: str
    place: Place
    host: str
    job: JobName = NO_JOB
    user: str = ""
    quantity: str = ""

    @property
    def cluster(self) -> str:
        return self.place[0]


Recorded = tuple[RecordedHost, float]


def recorded_host(labels: Labels) -> RecordedHost:
    """The labels of a recorded series of a host."""
    quantity: str = (
        labels.get("state")
        or _STATES.get(labels.get(state_rules.CODE, ""))
        or labels.get("__name__", "")
    )
    place, host = recorded_place(labels), label_text(host_of(labels))
    return RecordedHost(labels.get(NAMES_LABEL, ""), place, host, *owner_of(labels), quantity)


class HostNames:
    """Names of recorded hosts.

    gputop's exporter names a host; a name in several clusters has its cluster before it.
    """

    def __init__(
        self, names_by_place: Mapping[Place, str], present: Iterable[RecordedHost]
    ) -> None:
        self._names_by_place = names_by_place
        clusters: dict[str, set[str]] = defaultdict(set)
        for recorded in present:
            clusters[self._plain(recorded)].add(recorded.cluster)
        self._ambiguous = {host for host, of_host in clusters.items() if len(of_host) > 1}
        self.several = len({cluster for of_host in clusters.values() for cluster in of_host}) > 1

    def name_of(self, recorded: RecordedHost) -> str:
        host = self._plain(recorded)
        return f"{recorded.cluster or '-'}/{host}" if host in self._ambiguous else host

    def owners(self, rows: Sequence[Recorded]) -> list[tuple[str, JobName, str]]:
        """Host, job and user of each row.

        A job that is known by its number alone takes the name that a scheduler gives that number.
        """
        jobs = with_schedulers(
            [row.job.within(row.cluster) if self.several else row.job for row, _ in rows]
        )
        return [
            (self.name_of(row), job, row.user) for (row, _), job in zip(rows, jobs, strict=True)
        ]

    def _plain(self, recorded: RecordedHost) -> str:
        return (
            self._names_by_place.get(recorded.place, recorded.host)
            if recorded.place[1]
            else recorded.host
        )


class NamesAmongGpus(HostNames):
    """Names of recorded hosts among GPUs that are known one by one.

    ``several`` says whether there are clusters.
    """

    def __init__(self, identities: Iterable[GpuIdentity], *, several: bool) -> None:
        self._by_place = {identity.place: identity.host for identity in identities}
        self._hosts, self.several = frozenset(self._by_place.values()), several

    def name_of(self, recorded: RecordedHost) -> str:
        apart = f"{recorded.cluster or '-'}/{recorded.host}"
        plain = apart if apart in self._hosts else recorded.host
        return self._by_place.get(recorded.place) or self._by_place.get(recorded.place[1:]) or plain


def shares_of(rows: Sequence[Recorded], names: HostNames) -> list[HostShare]:
    """The shares that jobs have of hosts, of recorded states and means."""
    counts: dict[tuple[str, JobName, str], Counter[FleetState]] = defaultdict(Counter)
    measured: dict[tuple[str, JobName, str], dict[str, float]] = defaultdict(dict)
    for (recorded, value), owner in zip(rows, names.owners(rows), strict=True):
        if recorded.quantity in GPU_STATES and 0 < value < 1e6:
            counts[owner][recorded.quantity] += round(value)
        elif (word := MEANS.get(recorded.quantity)) is not None and 0.0 <= value < 1e7:
            measured[owner][word] = value if word == "power_w" else min(100.0, 100.0 * value)
    return [
        HostShare(host, job, user, states, **measured.get((host, job, user), {}))
        for (host, job, user), states in counts.items()
    ]


def lost_of(rows: Sequence[Recorded], names: HostNames) -> list[Lost]:
    """The last hour by host, owner and state."""
    return [
        Lost(host, "", job, user, recorded.quantity, value)
        for (recorded, value), (host, job, user) in zip(rows, names.owners(rows), strict=True)
        if recorded.quantity in GPU_STATES and 0.0 < value < 1e6
    ]


def _among(places: Collection[Place], addresses: Iterable[Place]) -> set[Place]:
    """Addresses that are among ``places``, with their cluster or without one."""
    return {place for place in addresses if place in places or ("", place[1]) in places}


def _past_addresses(select: str) -> str:
    """The most GPUs of each address at some moments of the last day."""
    series = selector(state_rules.HOST_ADDRESS, select)
    past = (
        promql.marked(f"{series} offset {window(back_s)}", "back", f"{back_s:.0f}")
        for back_s in LOOKBACKS_S
    )
    return f"max without (back) ({promql.union(past)})"


def _troubles(select: str) -> str:
    """Write the query for silent addresses, late drivers, alerts and ages.

    An address is silent that did not answer twice in a row; the age is the time of the rules' last evaluation, Unix
    seconds.
    """
    by = f"max by ({', '.join(PLACE)})"
    twice = over("max_over_time", selector("up", select), 2 * SCRAPE_S)
    return promql.union(
        [
            marked(f"{by} ({twice}) == 0", UP),
            marked(f"{by} ({selector('gputop_up', select)}) == 0", LATE),
            marked(f"max(timestamp({selector(state_rules.HOST_ADDRESS, select)}))", AGE),
            selector("ALERTS", 'alertstate="firing"', select),
        ]
    )


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
        self._rows: dict[str, list[Recorded]] = {
            "states": [],
            "means": [],
            "addresses": [],
            "before": [],
        }
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
        names = promql.max_by(
            (*CLUSTER_LABELS, "instance", "hostname"), selector("gputop_host_info", select)
        )
        answers = self._engine.asked(
            {
                "states": selector(state_rules.HOST_STATES, select),
                "means": "" if turn == 1 else named(MEANS, select),
                "addresses": "" if turn == 0 else selector(state_rules.HOST_ADDRESS, select),
                "troubles": _troubles(select),
                "before": _past_addresses(select) if reads_names else "",
                "names": names if reads_names else "",
            },
            at,
            needs=("states",),
        )
        if reads_names:
            self._recorded.turn()
            self._labels.turn()
        self._refreshes += 1
        t = now if answers.t is None else answers.t
        self._take(answers, t)
        down, gone, missing, problems = self._absent(at)
        spoken = {recorded.names for recorded, _ in self._rows["states"]}
        return FleetReading(
            t,
            source,
            (),
            down,
            tuple(name for name in DIALECTS if name in spoken),
            self._age_s,
            alerts=self._alerts,
            problems=(*answers.problems, *problems),
            gone=gone,
            shares=self.shares,
            missing=missing,
        )

    def _take(self, answers: FleetAnswers, t: float) -> None:
        if "troubles" in answers.rows:
            places, self._alerts = marked_places(
                values(answers.rows["troubles"], self._labels), PLACE
            )
            self._silent, self._late = (
                frozenset(
                    recorded_place(dict(zip(PLACE, place, strict=True))) for place in places[mark]
                )
                for mark in (UP, LATE)
            )
            newest = max(places[AGE].values(), default=None)
            self._age_s = None if newest is None else max(0.0, t - newest)
        # Nobody is missing by the word of an engine that may not have looked everywhere.
        taken = answers.rows.keys() - ({"addresses"} & answers.warned)
        rows = {
            name: list(values(answers.rows[name], self._recorded))
            for name in self._rows
            if name in taken
        }
        if "names" in answers.rows:
            told = values(answers.rows["names"], LabelCache(dict))
            self._hostnames = {
                recorded_place(of): of["hostname"] for of, _ in told if of.get("hostname")
            }
        elif all(found == self._rows[name] for name, found in rows.items()):
            return
        self._rows |= rows
        states, now, before = (self._rows[name] for name in ("states", "addresses", "before"))
        if "before" in rows:
            # A host that neither is nor was within a day is forgotten.
            self.addresses = {}
        self.names = HostNames(
            self._hostnames, (recorded for recorded, _ in (*states, *now, *before))
        )
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

    def _absent(
        self, at: float | None
    ) -> tuple[dict[str, Down], dict[str, RemovedHost], dict[str, int], list[str]]:
        """Find hosts that are down or removed, and lost GPUs by host."""
        # Before the first answer on which hosts there are, none is missing.
        present, before = self._present, self._past if self._rows["addresses"] else {}
        down: dict[str, Down] = {}
        unexplained = []
        for host in dict.fromkeys((*present, *before)):
            addresses = self.addresses.get(host, set())
            if _among(self._late, addresses):
                down[host] = Down(None, LATE_DRIVER, "late")
            elif addresses and _among(self._silent, addresses) == addresses:
                down[host] = Down(None, NO_ANSWER)
            elif host not in present:
                unexplained.append(host)
        scraped, unrecorded, problems = self._scraped(unexplained, at)
        alive = {host for host in unexplained if _among(unrecorded, self.addresses[host])}
        gone = {
            host: RemovedHost(before[host], None)
            for host in unexplained
            if not _among(scraped, self.addresses[host])
        }
        # What a host that is down had is told by its shares, as long as the rules still have them.
        shared = {share.host for share in self.shares} & down.keys()
        known = gone.keys() | alive | shared
        lost = {host: n - present.get(host, 0) for host, n in before.items() if host not in known}
        if alive and not problems:
            told = f"{count(len(alive), 'host')} with GPUs that no rule records now"
            problems = [f"{told}: are the rules evaluated everywhere?"]
        return down, gone, {host: n for host, n in lost.items() if n > 0}, problems

    def _scraped(
        self, hosts: Sequence[str], at: float | None
    ) -> tuple[set[Place], set[Place], list[str]]:
        """Ask whether the engine still scrapes these hosts.

        Returns the addresses that are scraped, those that give values that no rule records, and lines for people. An
        address that was not asked for or not answered is in both sets: it is not missing.
        """
        places = sorted(
            {place for host in hosts for place in self.addresses[host]}, key=lambda place: place[1]
        )
        if not places:
            return set(), set(), []
        instances = sorted({address for _, address in places[:MOST_ABSENT]})
        answers = self._engine.asked({"up": _answering(instances, self._engine.select)}, at)
        if "up" not in answers.rows or answers.warned:
            return set(places), set(places), answers.problems
        found = [labels for labels, _ in values(answers.rows["up"], self._labels)]
        rest = set(places[MOST_ABSENT:])
        up = rest | {recorded_place(labels) for labels in found}
        measured = {recorded_place(labels) for labels in found if labels.get(DIALECT_LABEL) == HOST}
        return up, rest | measured, answers.problems

    def of_straggling_jobs(self) -> list[str]:
        """All hosts of the jobs in which an alert names a straggler."""
        straggling = {alert.host for alert in self._alerts if alert.name in STRAGGLER_ALERTS}
        jobs = {
            group_of(share.job) for share in self.shares if share.job and share.host in straggling
        }
        return [share.host for share in self.shares if group_of(share.job) in jobs] if jobs else []
