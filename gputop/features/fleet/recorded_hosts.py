"""A fleet as its rules record it: hosts and jobs of a large one by their sums, and the last hour of any.

Its questions grow with hosts, not with GPUs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import floor

from gputop.features.fleet import host_records, plan
from gputop.features.fleet.client import PromQuery
from gputop.features.fleet.decode_answers import GpuIdentity, Place, Remembered, firing_alerts
from gputop.features.fleet.exporter_names import CLUSTER_LABELS, DIALECTS, first_of
from gputop.features.fleet.fleet_inventory import Engine, FleetAnswers, values
from gputop.features.fleet.fleet_reading import (
    HOUR_S,
    Down,
    FiringAlert,
    FleetError,
    FleetReading,
    Gone,
    HostShare,
    LastHour,
)
from gputop.features.fleet.host_records import HostNames, RecordedHost
from gputop.features.fleet.plan import DIALECT_LABEL
from gputop.features.fleet.promql import named, selector
from gputop.features.fleet.state_rules import HOST_ADDRESS, HOST_STATES
from gputop.model.quantity import count

SCRAPE_S = 30.0
"""The longest usual time between two scrapes: twice it an address may be silent."""
NAMES_EVERY, MEANS_EVERY = 20, 2
"""Refreshes between two looks at the names and the past of hosts, and at their means, which the rules record once a
minute."""
LOST_EVERY_S = 60.0
"""The rules record once a minute."""
MOST_ABSENT = 256
"""Addresses without GPUs of which it is asked whether they are still scraped."""
STRAGGLER_ALERTS = ("GpuStragglerSlow", "GpuStragglerStarved")
NO_RULES = "the last hour is not known: no rules of `gputop fleet deploy` record it here"


Trouble = tuple[set[str], set[str], float | None, tuple[FiringAlert, ...]]
"""Addresses that do not answer, those whose driver is late, how old the newest record is, and the alerts that fire."""


class RecordedHosts:
    """The hosts that the rules of one engine record, at the present or at one moment of the past."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._recorded: Remembered[RecordedHost] = Remembered(host_records.recorded_host)
        self._labels: Remembered[dict[str, str]] = Remembered(dict)
        self._refreshes = 0
        self._hostnames: Mapping[Place, str] = {}
        self._names = HostNames({}, ())
        self._before: list[tuple[RecordedHost, float]] = []
        self._means: list[tuple[RecordedHost, float]] = []
        self._now: list[tuple[RecordedHost, float]] = []
        self._trouble: Trouble = (set(), set(), None, ())
        self._straggling: frozenset[str] = frozenset()
        self.addresses: dict[str, set[str]] = {}
        """Host → its scraped addresses."""
        self.shares: list[HostShare] = []

    def size(self, at: float | None) -> int:
        """How many GPUs the rules record; 0 where they record none. Raises FleetError."""
        rows = self._engine.all_of({"size": host_records.size(self._engine.select)}, at).of("size")
        return round(next((value for _, value in values(rows, self._labels)), 0.0))

    def ask(self, at: float | None, source: str, now: float) -> FleetReading:
        """The fleet without its GPUs and its last hour. Raises FleetError where the sums cannot be read."""
        select, reads_names = self._engine.select, self._refreshes % NAMES_EVERY == 0
        answers = self._engine.asked({
            "states": selector(HOST_STATES, select),
            "means": named(host_records.MEANS, select) if self._refreshes % MEANS_EVERY == 0 else "",
            "troubles": host_records.troubles(select, SCRAPE_S),
            "addresses": selector(HOST_ADDRESS, select),
            "before": host_records.before(select) if reads_names else "",
            "names": host_records.host_info(select) if reads_names else "",
        }, at)  # fmt: skip
        if "states" not in answers.rows:
            raise FleetError(answers.problems[0])
        if reads_names:
            self._recorded.turn()
            self._labels.turn()
        self._refreshes += 1
        return self._reading(answers, now if answers.t is None else answers.t, at, source)

    def _rows(self, answers: FleetAnswers, name: str) -> list[tuple[RecordedHost, float]]:
        return list(values(answers.of(name), self._recorded))

    def _reading(self, answers: FleetAnswers, t: float, at: float | None, source: str) -> FleetReading:
        states = self._rows(answers, "states")
        if "addresses" in answers.rows:
            self._now = self._rows(answers, "addresses")
        if "names" in answers.rows:
            self._hostnames = {
                (first_of(labels, CLUSTER_LABELS), labels.get("instance", "")): name
                for labels, _ in values(answers.of("names"), Remembered(dict))
                if (name := labels.get("hostname"))
            }
        if "before" in answers.rows:
            self._before = self._rows(answers, "before")
            # A host that neither is nor was within a day is forgotten.
            self.addresses = {}
        self._names = HostNames(self._hostnames, (recorded for recorded, _ in (*states, *self._now, *self._before)))
        present, before = self._counted(self._now), self._counted(self._before)
        for recorded, _ in (*self._now, *self._before):
            self.addresses.setdefault(self._names.of(recorded), set()).add(recorded.instance)
        if "means" in answers.rows:
            self._means = self._rows(answers, "means")
        self.shares = host_records.shares_of(states, self._means, self._names)
        if "troubles" in answers.rows:
            self._trouble = self._troubles(answers, t)
        silent, late, age_s, alerts = self._trouble
        # Before the first answer on which hosts there are, none is missing.
        down, gone, missing, problems = self._absent(present, before if self._now else {}, silent, late, at)
        self._straggling = frozenset(alert.host for alert in alerts if alert.name in STRAGGLER_ALERTS)
        names = {recorded.names for recorded, _ in states}
        return FleetReading(
            t, source, (), down, tuple(name for name in DIALECTS if name in names), age_s,
            alerts=alerts, problems=(*answers.problems, *problems), gone=gone, shares=self.shares, missing=missing,
        )  # fmt: skip

    def _counted(self, rows: Sequence[tuple[RecordedHost, float]]) -> dict[str, int]:
        """GPUs by host: of one that is scraped at two addresses the most."""
        gpus_of_host: dict[str, int] = {}
        for recorded, value in rows:
            host = self._names.of(recorded)
            gpus_of_host[host] = max(gpus_of_host.get(host, 0), round(value))
        return gpus_of_host

    def _troubles(self, answers: FleetAnswers, t: float) -> Trouble:
        marked: dict[str, set[str]] = {plan.UP: set(), plan.LATE: set()}
        age_s, alerts = None, []
        for labels, value in values(answers.of("troubles"), self._labels):
            mark = labels.get(DIALECT_LABEL, "")
            if mark in marked:
                marked[mark].add(labels.get("instance", ""))
            elif mark == plan.AGE:
                age_s = max(0.0, t - value)
            else:
                alerts.append(labels)
        return marked[plan.UP], marked[plan.LATE], age_s, firing_alerts(alerts)

    def _absent(
        self,
        present: Mapping[str, int],
        before: Mapping[str, int],
        silent: set[str],
        late: set[str],
        at: float | None,
    ) -> tuple[dict[str, Down], dict[str, Gone], dict[str, int], list[str]]:
        """Hosts that are down, those that are gone, how many GPUs each host has no more, and lines for people."""
        down: dict[str, Down] = {}
        unexplained = []
        for host in (*present, *(host for host in before if host not in present)):
            addresses = self.addresses.get(host, set())
            if addresses & late:
                down[host] = Down(None, "the driver does not answer: it is late or hangs", "late")
            elif addresses and addresses <= silent:
                down[host] = Down(None, "the exporter does not answer")
            elif host not in present:
                unexplained.append(host)
        missing = {host: n - present.get(host, 0) for host, n in before.items() if n > present.get(host, 0)}
        scraped, unrecorded, problems = self._scraped(unexplained, at)
        gone = {host: Gone(before[host], None) for host in unexplained if not self.addresses[host] & scraped}
        alive = [host for host in unexplained if self.addresses[host] & unrecorded]
        for host in (*gone, *alive):
            missing.pop(host, None)
        unrecorded_words = (
            f"{count(len(alive), 'host')} with GPUs that no rule records now: are the rules evaluated everywhere?"
        )
        # What a host that is down had is told by its shares, as long as the rules still have them.
        shared = {share.host for share in self.shares}
        not_shared = {host: n for host, n in missing.items() if host not in down or host not in shared}
        return down, gone, not_shared, problems if problems or not alive else [unrecorded_words]

    def _scraped(self, hosts: Sequence[str], at: float | None) -> tuple[set[str], set[str], list[str]]:
        """Which addresses of these hosts the engine still scrapes, and which of them give values that no rule records;
        what was not asked for, or not answered, counts as both: what was not looked for is not missing."""
        instances = sorted({address for host in hosts for address in self.addresses[host]})
        if not instances:
            return set(), set(), []
        text = host_records.answering(instances[:MOST_ABSENT], self._engine.select)
        answers = self._engine.asked({"up": text}, at)
        if "up" not in answers.rows:
            return set(instances), set(instances), answers.problems
        marked = [labels for labels, _ in values(answers.of("up"), self._labels)]
        rest = set(instances[MOST_ABSENT:])
        up = rest | {labels.get("instance", "") for labels in marked}
        measured = {labels.get("instance", "") for labels in marked if labels.get(DIALECT_LABEL) == plan.HOST}
        return up, rest | measured, answers.problems

    def of_straggling_jobs(self) -> list[str]:
        """The hosts of jobs that an alert says are held up: all of them, so that they can be compared."""
        jobs = {share.job for share in self.shares if share.job and share.host in self._straggling}
        return [share.host for share in self.shares if share.job in jobs]

    def name(self, recorded: RecordedHost) -> str:
        """What the host of a recorded series is called."""
        return self._names.of(recorded)

    @property
    def several(self) -> bool:
        """Whether there are several clusters."""
        return self._names.several


class RecordedHour:
    """The last hour as the rules recorded it, read once a minute."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._recorded: Remembered[RecordedHost] = Remembered(host_records.recorded_host)
        self._read: tuple[float, LastHour] | None = None

    def at(self, t: float) -> LastHour | None:
        """The hour before ``t``, where it was read."""
        return self._read[1] if self._read is not None and 0.0 <= t - self._read[0] < 2 * LOST_EVERY_S else None

    def read(self, t: float, name: Callable[[RecordedHost], str], *, several: bool) -> LastHour | None:
        """The same, asked for where it is not there; None where it was not answered. ``name`` gives a host's name,
        ``several`` says whether jobs are those of several clusters."""
        if (known := self.at(t)) is not None:
            return known
        end = floor(t / LOST_EVERY_S) * LOST_EVERY_S
        select = self._engine.select
        texts = {"lost": host_records.lost(select), "minutes": host_records.minutes(select)}
        answers = self._engine.answers({key: PromQuery(text, end) for key, text in texts.items()})
        if len(answers.rows) < len(texts):
            return None
        self._recorded.turn()
        minutes = max((value for _, value in values(answers.of("minutes"), self._recorded)), default=0.0)
        lost = host_records.lost_of(list(values(answers.of("lost"), self._recorded)), name, several=several)
        hour = LastHour(lost, min(HOUR_S, 60.0 * minutes)) if minutes > 0.0 else LastHour(None, HOUR_S, NO_RULES)
        self._read = end, hour
        return hour


def name_among(identities: Iterable[GpuIdentity]) -> Callable[[RecordedHost], str]:
    """Gives the name that the host of a recorded series has among these GPUs."""
    by_place = {identity.place: identity.host for identity in identities}
    hosts = frozenset(by_place.values())

    def name(recorded: RecordedHost) -> str:
        for place in ((recorded.cluster, recorded.instance), (recorded.instance,)):
            if place in by_place:
                return by_place[place]
        apart = f"{recorded.cluster or '-'}/{recorded.host}"
        return apart if apart in hosts else recorded.host

    return name
