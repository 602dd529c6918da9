"""A fleet as its rules record it: hosts and jobs of a large one by their sums, and the last hour of any.

Its questions grow with hosts, not with GPUs.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from math import floor
from typing import NamedTuple

from gputop.features.fleet import promql, state_rules
from gputop.features.fleet.client import PromQuery
from gputop.features.fleet.decode_answers import (
    GpuIdentity,
    Labels,
    Place,
    Remembered,
    label_text,
    marked_places,
    owner_of,
    recorded_place,
)
from gputop.features.fleet.exporter_names import CLUSTER_LABELS, DIALECTS, host_of
from gputop.features.fleet.fleet_inventory import Engine, FleetAnswers, values
from gputop.features.fleet.fleet_reading import (
    HOUR_S,
    NO_JOB,
    Down,
    FiringAlert,
    FleetReading,
    FleetState,
    Gone,
    GpuState,
    HostShare,
    JobName,
    LastHour,
    Lost,
    with_schedulers,
)
from gputop.features.fleet.judge import GPU_STATES
from gputop.features.fleet.plan import AGE, DIALECT_LABEL, HOST, LATE, LOOKBACKS_S, UP, marked
from gputop.features.fleet.promql import ALL_NAMES, NAMES_LABEL, each_once, named, over, selector, window
from gputop.model.quantity import count

SCRAPE_S = 30.0
"""The longest usual time between two scrapes: twice it an address may be silent."""
NAMES_EVERY = 20
"""Refreshes between two looks at the names and the past of hosts."""
LOST_EVERY_S = 60.0
PLACE = (*CLUSTER_LABELS, "instance")
"""The labels of a scraped address: two clusters may have the same one."""
"""The rules record once a minute."""
MOST_ABSENT = 256
"""Addresses without GPUs of which it is asked whether they are still scraped."""
STRAGGLER_ALERTS = ("GpuStragglerSlow", "GpuStragglerStarved")
NO_RULES = "the last hour is not known: no rules of `gputop fleet deploy` record it here"
MEANS: Mapping[str, str] = {
    state_rules.HOST_UTIL: "util_pct", state_rules.HOST_SM: "sm_active_pct", state_rules.HOST_POWER: "power_w",
}  # fmt: skip
"""Recorded series → what of ``HostShare`` it is."""
_STATES: Mapping[str, GpuState] = {str(code): state for state, code in state_rules.CODES.items()}


# The questions.


def lost_hours_of(select: str) -> str:
    """GPU-hours of the last hour that were no work, by host, owner and state."""
    return f"{each_once('sum_over_time', selector(state_rules.HOST_LOST, select))} / 60"


def _before(select: str) -> str:
    """The most GPUs that each address had at some moments of the last day."""
    series = selector(state_rules.HOST_ADDRESS, select)
    past = [promql.marked(f"{series} offset {window(back_s)}", "back", f"{back_s:.0f}") for back_s in LOOKBACKS_S]
    return f"max without (back) ({promql.union(past)})"


def _troubles(select: str) -> str:
    """Addresses that did not answer twice in a row, drivers that are late, alerts that fire, and when the rules were
    last evaluated, Unix seconds."""
    by = f"max by ({', '.join(PLACE)})"
    twice = over("max_over_time", selector("up", select), 2 * SCRAPE_S)
    return promql.union([
        marked(f"{by} ({twice}) == 0", UP),
        marked(f"{by} ({selector('gputop_up', select)}) == 0", LATE),
        marked(f"max(timestamp({selector(state_rules.HOST_ADDRESS, select)}))", AGE),
        selector("ALERTS", 'alertstate="firing"', select),
    ])  # fmt: skip


def _answering(instances: Sequence[str], select: str) -> str:
    """Of these addresses those that are still scraped and answer, and under ``HOST`` those that give utilisation,
    recorded or not."""
    matchers = (promql.any_of("instance", instances), select)
    names = [DIALECTS[name].signals["util_pct"].name for name in ALL_NAMES]
    measured = f"count by ({', '.join(PLACE)}) ({named(names, *matchers)})"
    return promql.union([marked(selector("up", *matchers), UP), marked(measured, HOST)])


# What the answers say.


class RecordedHost(NamedTuple):
    """Which host a recorded series is of, under whose names, and whose GPUs they are. ``what`` is a state or a name."""

    names: str
    place: Place
    host: str
    job: JobName = NO_JOB
    user: str = ""
    what: str = ""

    @property
    def cluster(self) -> str:
        return self.place[0]


Recorded = tuple[RecordedHost, float]


def _among(places: Collection[Place], addresses: Iterable[Place]) -> set[Place]:
    """Those of these addresses that are among ``places``, of their cluster or where no cluster is named."""
    return {place for place in addresses if place in places or ("", place[1]) in places}


def recorded_host(labels: Labels) -> RecordedHost:
    """The labels of a recorded series of a host."""
    quantity: str = labels.get("state") or _STATES.get(labels.get(state_rules.CODE, "")) or labels.get("__name__", "")
    return RecordedHost(
        labels.get(NAMES_LABEL, ""), recorded_place(labels), label_text(host_of(labels)), *owner_of(labels), quantity,
    )  # fmt: skip


class HostNames:
    """What hosts are called: by gputop's exporter where it says so, with the cluster where several have one name."""

    def __init__(self, names_by_place: Mapping[Place, str], present: Iterable[RecordedHost]) -> None:
        self._names_by_place = names_by_place
        clusters: dict[str, set[str]] = defaultdict(set)
        for recorded in present:
            clusters[self._plain(recorded)].add(recorded.cluster)
        self._ambiguous = {host for host, of_host in clusters.items() if len(of_host) > 1}
        self.several = len({cluster for of_host in clusters.values() for cluster in of_host}) > 1

    def of(self, recorded: RecordedHost) -> str:
        host = self._plain(recorded)
        return f"{recorded.cluster or '-'}/{host}" if host in self._ambiguous else host

    def owners(self, rows: Iterable[Recorded]) -> list[tuple[str, JobName, str]]:
        """On which host each of these is, and whose job and user it is of; a job whose number alone is known is the one
        that a scheduler gives that number."""
        owners = [
            (self.of(recorded), recorded.job.within(recorded.cluster) if self.several else recorded.job, recorded.user)
            for recorded, _ in rows
        ]
        jobs = with_schedulers([job for _, job, _ in owners])
        return [(host, job, user) for (host, _, user), job in zip(owners, jobs, strict=True)]

    def _plain(self, recorded: RecordedHost) -> str:
        return self._names_by_place.get(recorded.place, recorded.host) if recorded.place[1] else recorded.host


class NamesAmongGpus(HostNames):
    """What hosts are called among GPUs that are known one by one; ``several`` says whether there are clusters."""

    def __init__(self, identities: Iterable[GpuIdentity], *, several: bool) -> None:
        self._by_place = {identity.place: identity.host for identity in identities}
        self._hosts, self.several = frozenset(self._by_place.values()), several

    def of(self, recorded: RecordedHost) -> str:
        for place in (recorded.place, recorded.place[1:]):
            if place in self._by_place:
                return self._by_place[place]
        apart = f"{recorded.cluster or '-'}/{recorded.host}"
        return apart if apart in self._hosts else recorded.host


def shares_of(rows: Sequence[Recorded], names: HostNames) -> list[HostShare]:
    """The shares that jobs have of hosts, of recorded states and means."""
    counts: dict[tuple[str, JobName, str], Counter[FleetState]] = defaultdict(Counter)
    measured: dict[tuple[str, JobName, str], dict[str, float]] = defaultdict(dict)
    for (recorded, value), owner in zip(rows, names.owners(rows), strict=True):
        if recorded.what in GPU_STATES and 0 < value < 1e6:
            counts[owner][recorded.what] += round(value)
        elif (word := MEANS.get(recorded.what)) is not None and 0.0 <= value < 1e7:
            measured[owner][word] = value if word == "power_w" else min(100.0, 100.0 * value)
    return [
        HostShare(host, job, user, states, **measured.get((host, job, user), {}))
        for (host, job, user), states in counts.items()
    ]


def lost_of(rows: Sequence[Recorded], names: HostNames) -> list[Lost]:
    """The last hour by host, owner and state."""
    return [
        Lost(host, "", job, user, recorded.what, value)
        for (recorded, value), (host, job, user) in zip(rows, names.owners(rows), strict=True)
        if recorded.what in GPU_STATES and 0.0 < value < 1e6
    ]


# The readers.


class RecordedHosts:
    """The hosts that the rules of one engine record, at the present or at one moment of the past."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._recorded: Remembered[RecordedHost] = Remembered(recorded_host)
        self._labels: Remembered[Labels] = Remembered(dict)
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
        """How many GPUs the rules record; 0 where there are no rules, or older ones. Raises FleetError."""
        text = f"sum({selector(state_rules.HOST_ADDRESS, self._engine.select)})"
        rows = self._engine.asked({"size": text}, at, needs=("size",)).of("size")
        return round(next((value for _, value in values(rows, self._labels)), 0.0))

    def ask(self, at: float | None, source: str, now: float) -> FleetReading:
        """The fleet without its GPUs and its last hour. Raises FleetError where the sums cannot be read."""
        select, reads_names = self._engine.select, self._refreshes % NAMES_EVERY == 0
        turn = self._refreshes % 2 if self._refreshes else None
        names = promql.max_by((*CLUSTER_LABELS, "instance", "hostname"), selector("gputop_host_info", select))
        answers = self._engine.asked({
            "states": selector(state_rules.HOST_STATES, select),
            "means": "" if turn == 1 else named(MEANS, select),
            "addresses": "" if turn == 0 else selector(state_rules.HOST_ADDRESS, select),
            "troubles": _troubles(select),
            "before": _before(select) if reads_names else "",
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
            places, self._alerts = marked_places(values(answers.of("troubles"), self._labels), PLACE)
            self._silent, self._late = (
                frozenset(recorded_place(dict(zip(PLACE, place, strict=True))) for place in places[mark])
                for mark in (UP, LATE)
            )
            newest = max(places[AGE].values(), default=None)
            self._age_s = None if newest is None else max(0.0, t - newest)
        # Nobody is missing by the word of an engine that may not have looked everywhere.
        taken = answers.rows.keys() - ({"addresses"} & answers.warned)
        rows = {name: list(values(answers.of(name), self._recorded)) for name in self._rows if name in taken}
        if "names" in answers.rows:
            self._hostnames = {
                recorded_place(labels): name
                for labels, _ in values(answers.of("names"), Remembered(dict))
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
            self.addresses.setdefault(self.names.of(recorded), set()).add(recorded.place)
        self._present, self._past = self._counted(now), self._counted(before)
        self.shares = shares_of([*states, *self._rows["means"]], self.names)

    def _counted(self, rows: Sequence[Recorded]) -> dict[str, int]:
        """GPUs by host: of one that is scraped at two addresses the most."""
        gpus_of_host: dict[str, int] = {}
        for recorded, value in rows:
            host = self.names.of(recorded)
            gpus_of_host[host] = max(gpus_of_host.get(host, 0), round(value))
        return gpus_of_host

    def _absent(self, at: float | None) -> tuple[dict[str, Down], dict[str, Gone], dict[str, int], list[str]]:
        """Hosts that are down, those that are gone, how many GPUs each host has no more, and lines for people."""
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
        gone = {host: Gone(before[host], None) for host in unexplained if not _among(scraped, self.addresses[host])}
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
        """Which addresses of these hosts the engine still scrapes, and which of them give values that no rule records;
        what was not asked for, or not answered, counts as both: what was not looked for is not missing."""
        places = sorted({place for host in hosts for place in self.addresses[host]}, key=lambda place: place[1])
        if not places:
            return set(), set(), []
        instances = sorted({address for _, address in places[:MOST_ABSENT]})
        answers = self._engine.asked({"up": _answering(instances, self._engine.select)}, at)
        if "up" not in answers.rows or answers.warned:
            return set(places), set(places), answers.problems
        marked_labels = [labels for labels, _ in values(answers.of("up"), self._labels)]
        rest = set(places[MOST_ABSENT:])
        up = rest | {recorded_place(labels) for labels in marked_labels}
        measured = {recorded_place(labels) for labels in marked_labels if labels.get(DIALECT_LABEL) == HOST}
        return up, rest | measured, answers.problems

    def of_straggling_jobs(self) -> list[str]:
        """The hosts of jobs that an alert says are held up: all of them, so that they can be compared."""
        straggling = {alert.host for alert in self._alerts if alert.name in STRAGGLER_ALERTS}
        jobs = {share.job for share in self.shares if share.job and share.host in straggling} if straggling else ()
        return [share.host for share in self.shares if share.job in jobs] if jobs else []


class RecordedHour:
    """The last hour as the rules recorded it, read once a minute."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._recorded: Remembered[RecordedHost] = Remembered(recorded_host)
        self._read: tuple[float, LastHour] | None = None

    def at(self, t: float) -> LastHour | None:
        """The hour before ``t``, where it was read."""
        return self._read[1] if self._read is not None and 0.0 <= t - self._read[0] < 2 * LOST_EVERY_S else None

    def read(self, t: float, names: HostNames) -> LastHour | None:
        """The same, asked for where it is not there; None where it was not answered."""
        if (known := self.at(t)) is not None:
            return known
        end, select = floor(t / LOST_EVERY_S) * LOST_EVERY_S, self._engine.select
        # For how many minutes the rules recorded GPUs, whether or not these lost any time.
        recorded = f"max({each_once('count_over_time', selector(state_rules.HOST_ADDRESS, select))})"
        queries = {"lost": PromQuery(lost_hours_of(select), end), "minutes": PromQuery(recorded, end)}
        answers = self._engine.asked(queries)
        if len(answers.rows) < len(queries):
            return None
        self._recorded.turn()
        minutes = max((value for _, value in values(answers.of("minutes"), self._recorded)), default=0.0)
        lost = lost_of(list(values(answers.of("lost"), self._recorded)), names)
        hour = LastHour(lost, min(HOUR_S, 60.0 * minutes)) if minutes > 0.0 else LastHour(None, HOUR_S, NO_RULES)
        self._read = end, hour
        return hour
