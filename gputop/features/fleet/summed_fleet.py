"""A large fleet: read from what the rules record of each host, and GPU by GPU only on the hosts that are looked at.

Its questions grow with hosts, not with GPUs. Up to ``MOST_GPUS`` every GPU is asked for, as is a fleet whose engine
holds no such series.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import floor

from msgspec.structs import replace

from gputop.features.fleet import fleet_shares, plan
from gputop.features.fleet.client import Client, PromQuery
from gputop.features.fleet.decode_answers import Place, Remembered
from gputop.features.fleet.exporter_names import CLUSTER_LABELS, DIALECTS
from gputop.features.fleet.fleet_inventory import Engine, FleetAnswers, values
from gputop.features.fleet.fleet_reading import (
    HOUR_S,
    Down,
    FiringAlert,
    FleetError,
    FleetReading,
    Gone,
    GpuReading,
    HostShare,
    Lost,
)
from gputop.features.fleet.fleet_shares import HostNames, RecordedHost
from gputop.features.fleet.hours import History
from gputop.features.fleet.plan import DIALECT_LABEL
from gputop.features.fleet.prometheus import PrometheusFleet, firing_alerts
from gputop.features.fleet.promql import any_of
from gputop.model.quantity import count

MOST_GPUS = 10_000
"""From here on a fleet is read from sums: up to here a refresh GPU by GPU takes less than a second."""
INTERVAL_S, SCRAPE_S = 15.0, 30.0
"""Between two refreshes, and the longest usual time between two scrapes: twice it an address may be silent."""
SIZE_EVERY, NAMES_EVERY, MEANS_EVERY = 40, 20, 2
"""Refreshes between two looks at how large the fleet is, at the names and the past of hosts, and at their means, which
the rules record once a minute."""
LOST_EVERY_S = 60.0
"""The rules record once a minute."""
MOST_LOOKED_AT = 64
"""Hosts whose GPUs are asked for at once."""
LONGEST_MATCHER = 600
"""Characters of addresses in a selector: VictoriaMetrics takes 16 kB a query, and one has up to 18 selectors."""
MOST_ABSENT = 256
"""Addresses without GPUs of which it is asked whether they are still scraped."""
STRAGGLER_ALERTS = ("GpuStragglerSlow", "GpuStragglerStarved")


Trouble = tuple[set[str], set[str], float | None, tuple[FiringAlert, ...]]
"""Addresses that do not answer, those whose driver is late, how old the newest record is, and the alerts that fire."""


class SummedFleet:
    """One engine whose rules record hosts. Not for several threads at once. Every method blocks."""

    interval_s = INTERVAL_S

    def __init__(self, client: Client, source: str, select: str, clock: Callable[[], float]) -> None:
        self.source = source
        self._client, self._select, self._clock = client, select, clock
        self._engine = Engine(client, select)
        self._recorded: Remembered[RecordedHost] = Remembered(fleet_shares.recorded_host)
        self._labels: Remembered[dict[str, str]] = Remembered(dict)
        self._refreshes = 0
        self._past: float | None = None
        self._hostnames: Mapping[Place, str] = {}
        self._names = HostNames({}, ())
        self._by: dict[str, str] = {}
        self._addresses: dict[str, set[str]] = {}
        self._before: list[tuple[RecordedHost, float]] = []
        self._means: list[tuple[RecordedHost, float]] = []
        self._now: list[tuple[RecordedHost, float]] = []
        self._trouble: Trouble = (set(), set(), None, ())
        self._shares: list[HostShare] = []
        self._straggling: frozenset[str] = frozenset()
        self._parts: dict[tuple[str, ...], PrometheusFleet] = {}
        self._part_of: dict[str, PrometheusFleet] = {}
        self._gpus: Sequence[GpuReading] = ()
        self._lost: tuple[float, list[Lost], float] | None = None

    def size(self, at: float | None) -> int:
        """How many GPUs the rules record; 0 where they record none. Raises FleetError."""
        rows = self._engine.all_of({"size": fleet_shares.size(self._select)}, at).of("size")
        return round(next((value for _, value in values(rows, self._labels)), 0.0))

    def ask(self, at: float | None = None) -> FleetReading:
        """The fleet now, or at a Unix time. Raises FleetError where the sums cannot be read."""
        if at != self._past:
            self._past, self._refreshes, self._lost = at, 0, None
            self._parts, self._part_of, self._gpus = {}, {}, ()
        select, reads_names = self._select, self._refreshes % NAMES_EVERY == 0
        means = self._refreshes % MEANS_EVERY == 0
        answers = self._engine.asked({
            "states": fleet_shares.states(select),
            "means": fleet_shares.means(select) if means else "",
            "troubles": fleet_shares.troubles(select, SCRAPE_S),
            "addresses": fleet_shares.addresses(select),
            "before": fleet_shares.before(select) if reads_names else "",
            "names": fleet_shares.host_info(select) if reads_names else "",
        }, at)  # fmt: skip
        if "states" not in answers.rows:
            raise FleetError(answers.problems[0])
        if reads_names:
            self._recorded.turn()
            self._labels.turn()
        self._refreshes += 1
        t = self._clock() if answers.t is None else answers.t
        return self._reading(answers, t)

    def _rows(self, answers: FleetAnswers, name: str) -> list[tuple[RecordedHost, float]]:
        return list(values(answers.of(name), self._recorded))

    def _reading(self, answers: FleetAnswers, t: float) -> FleetReading:
        states = self._rows(answers, "states")
        if "addresses" in answers.rows:
            self._now = self._rows(answers, "addresses")
        if "names" in answers.rows:
            self._hostnames = {
                (_cluster(labels), labels.get("instance", "")): name
                for labels, _ in values(answers.of("names"), Remembered(dict))
                if (name := labels.get("hostname"))
            }
        if "before" in answers.rows:
            self._before = self._rows(answers, "before")
            # A host that neither is nor was within a day is forgotten.
            self._addresses = {}
        self._names = HostNames(self._hostnames, (recorded for recorded, _ in (*states, *self._now, *self._before)))
        self._by = fleet_shares.preferred(states, self._names)
        present, before = self._counted(self._now), self._counted(self._before)
        for recorded, _ in (*self._now, *self._before):
            self._addresses.setdefault(self._names.of(recorded), set()).add(recorded.instance)
        if "means" in answers.rows:
            self._means = self._rows(answers, "means")
        shares = fleet_shares.shares_of(states, self._means, self._names)
        self._shares = _without_ghosts(shares, present)
        if "troubles" in answers.rows:
            self._trouble = self._troubles(answers, t)
        silent, late, age_s, alerts = self._trouble
        # Before the first answer on which hosts there are, none is missing.
        down, gone, missing, problems = self._absent(present, before if self._now else {}, silent, late)
        self._straggling = frozenset(alert.host for alert in alerts if alert.name in STRAGGLER_ALERTS)
        lost = self._lost_at(t)
        return FleetReading(
            t, self.source, self._gpus, down, tuple(name for name in DIALECTS if name in set(self._by.values())),
            age_s, None if lost is None else lost[1], HOUR_S if lost is None else lost[2], alerts,
            (*answers.problems, *problems), gone, self._shares, missing,
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
        self, present: Mapping[str, int], before: Mapping[str, int], silent: set[str], late: set[str]
    ) -> tuple[dict[str, Down], dict[str, Gone], dict[str, int], list[str]]:
        """Hosts that are down, those that are gone, how many GPUs each host has no more, and lines for people."""
        down: dict[str, Down] = {}
        unexplained = []
        for host in (*present, *(host for host in before if host not in present)):
            addresses = self._addresses.get(host, set())
            if addresses & late:
                down[host] = Down(None, "the driver does not answer: it is late or hangs", "late")
            elif addresses and addresses <= silent:
                down[host] = Down(None, "the exporter does not answer")
            elif host not in present:
                unexplained.append(host)
        missing = {host: n - present.get(host, 0) for host, n in before.items() if n > present.get(host, 0)}
        scraped, unrecorded, problems = self._scraped(unexplained)
        gone = {host: Gone(before[host], None) for host in unexplained if not self._addresses[host] & scraped}
        alive = [host for host in unexplained if self._addresses[host] & unrecorded]
        for host in (*gone, *alive):
            missing.pop(host, None)
        unrecorded_words = (
            f"{count(len(alive), 'host')} with GPUs that no rule records now: are the rules evaluated everywhere?"
        )
        # What a host that is down had is told by its shares, as long as the rules still have them.
        shared = {share.host for share in self._shares}
        not_shared = {host: n for host, n in missing.items() if host not in down or host not in shared}
        return down, gone, not_shared, problems if problems or not alive else [unrecorded_words]

    def _scraped(self, hosts: Sequence[str]) -> tuple[set[str], set[str], list[str]]:
        """Which addresses of these hosts the engine still scrapes, and which of them give values that no rule records;
        what was not asked for, or not answered, counts as both: what was not looked for is not missing."""
        instances = sorted({address for host in hosts for address in self._addresses[host]})
        if not instances:
            return set(), set(), []
        queried = instances[:MOST_ABSENT]
        answers = self._engine.asked({
            "up": fleet_shares.answering(queried, self._select), "measured": fleet_shares.measured(queried,
            self._select),
        }, self._past)  # fmt: skip
        if len(answers.rows) < 2:
            return set(instances), set(instances), answers.problems
        up, measured = (
            {labels.get("instance", "") for labels, _ in values(answers.of(name), self._labels)}
            for name in ("up", "measured")
        )
        rest = set(instances[MOST_ABSENT:])
        return up | measured | rest, measured | rest, answers.problems

    # -- what is looked at --------------------------------------------------------------------------------------------

    def look(self, hosts: Sequence[str], at: float | None) -> Sequence[GpuReading]:
        """The GPUs of these hosts, and of those on which a job is held up. Raises FleetError."""
        wanted_hosts = dict.fromkeys((*hosts, *self._of_straggling_jobs()))
        chosen = [host for host in wanted_hosts if host in self._addresses][:MOST_LOOKED_AT]
        before, self._parts, self._part_of = self._parts, {}, {}
        gpus: list[GpuReading] = []
        for part in _parts(chosen, self._addresses):
            instances = tuple(sorted({address for host in part for address in self._addresses[host] if address}))
            fleet = before.get(instances) or self._narrowed(instances)
            self._parts[instances] = fleet
            self._part_of.update(dict.fromkeys(part, fleet))
            shown = {_plain(host): host for host in part}
            gpus += [
                replace(gpu, host=shown.get(gpu.host, gpu.host))
                for gpu in fleet.ask(at).gpus
                if gpu.host in shown or gpu.host in part
            ]
        self._gpus = gpus
        return gpus

    def _of_straggling_jobs(self) -> list[str]:
        """The hosts of jobs that an alert says are held up: all of them, so that they can be compared."""
        jobs = {share.job for share in self._shares if share.job and share.host in self._straggling}
        return [share.host for share in self._shares if share.job in jobs]

    def _narrowed(self, instances: Sequence[str]) -> PrometheusFleet:
        """These addresses as a fleet of their own, asked GPU by GPU."""
        select = ",".join(part for part in (any_of("instance", instances), self._select) if part)
        return PrometheusFleet(self._client, self.source, select, self._clock, keeps_past=False)

    def history(self, host: str, t: float, span_s: float, columns: int) -> History:
        """Utilisation and SM activity of a host's GPUs over the time before ``t``. Raises FleetError."""
        part = self._fleet_of_host(host)
        return {} if part is None else part.history(_plain(host), t, span_s, columns)

    def details(self, hosts: Sequence[str], at: float | None) -> Mapping[tuple[str, str], Mapping[str, float]]:
        """What is queried only for the hosts on screen, by host and GPU. Raises FleetError."""
        by_gpu: dict[tuple[str, str], Mapping[str, float]] = {}
        for host in hosts:
            if (part := self._fleet_of_host(host)) is not None:
                by_gpu |= {(host, gpu): values for (_, gpu), values in part.details([_plain(host)], at).items()}
        return by_gpu

    def _fleet_of_host(self, host: str) -> PrometheusFleet | None:
        """The fleet in which this host is asked for; None where nothing is known of it."""
        if host not in self._part_of and host in self._addresses:
            part = self._part_of[host] = self._narrowed(sorted(address for address in self._addresses[host] if address))
            part.ask(self._past)
        return self._part_of.get(host)

    # -- the last hour ------------------------------------------------------------------------------------------------

    def more(self, t: float) -> bool:
        """Read the last hour, where a minute has passed since; whether it was read. At most two questions."""
        if self._lost_at(t) is not None:
            return False
        end = floor(t / LOST_EVERY_S) * LOST_EVERY_S
        queries = {"lost": fleet_shares.lost(self._select), "span": fleet_shares.minutes(self._select)}
        answers = self._engine.answers({name: PromQuery(text, end) for name, text in queries.items()})
        if "lost" not in answers.rows:
            return False
        lost = fleet_shares.lost_of(self._rows(answers, "lost"), self._names, self._by)
        minutes = next((value for _, value in values(answers.of("span"), self._labels)), 0.0)
        self._lost = end, lost, min(HOUR_S, 60.0 * minutes)
        return True

    def _lost_at(self, t: float) -> tuple[float, list[Lost], float] | None:
        lost = self._lost
        return lost if lost is not None and 0.0 <= t - lost[0] < 2 * LOST_EVERY_S else None

    def hour(self, t: float) -> list[Lost] | None:
        """The GPU time lost in the hour before ``t``, None until ``more`` has read it."""
        lost = self._lost_at(t)
        return None if lost is None else lost[1]

    def hour_s(self, t: float) -> float:
        """For how much of the hour before ``t`` there is anything, in seconds."""
        lost = self._lost_at(t)
        return HOUR_S if lost is None else lost[2]

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


def _cluster(labels: Mapping[str, str]) -> str:
    return next((labels[name] for name in CLUSTER_LABELS if labels.get(name)), "")


def _plain(host: str) -> str:
    """The host without its cluster."""
    return host.rpartition("/")[2]


def _parts(hosts: Sequence[str], addresses: Mapping[str, set[str]]) -> Iterator[list[str]]:
    """The hosts in parts whose addresses fit into a selector, and of which none has two hosts of one name."""
    part: list[str] = []
    length = 0
    for host in hosts:
        added_length = sum(len(any_of("", (address,))) for address in addresses[host])
        if part and (length + added_length > LONGEST_MATCHER or _plain(host) in map(_plain, part)):
            yield part
            part, length = [], 0
        part.append(host)
        length += added_length
    if part:
        yield part


def _without_ghosts(shares: Sequence[HostShare], present: Mapping[str, int]) -> list[HostShare]:
    """Shares without GPUs that are recorded and give no values: a lost one is not counted as unmeasured, too."""
    totals: dict[str, int] = {}
    for share in shares:
        totals[share.host] = totals.get(share.host, 0) + share.gpus
    present_shares = []
    for share in shares:
        ghosts = min(
            share.states.get("unmeasured", 0), totals[share.host] - present.get(share.host, totals[share.host])
        )
        if ghosts > 0:
            totals[share.host] -= ghosts
            states = {state: n - ghosts if state == "unmeasured" else n for state, n in share.states.items()}
            share = replace(share, states={state: n for state, n in states.items() if n})
        if share.states:
            present_shares.append(share)
    return present_shares


class LargeFleet:
    """One engine, asked GPU by GPU up to ``MOST_GPUS``, and by the sums of its rules beyond."""

    def __init__(
        self, client: Client, source: str, select: str, clock: Callable[[], float], most_gpus: int = MOST_GPUS
    ) -> None:
        self.source, self._client, self._most_gpus = source, client, most_gpus
        self._summed = SummedFleet(client, source, select, clock)
        self._whole = PrometheusFleet(client, source, select, clock)
        self._refreshes = 0
        self._now: SummedFleet | PrometheusFleet = self._whole

    @property
    def interval_s(self) -> float:
        return self._now.interval_s

    def ask(self, at: float | None = None) -> FleetReading:
        """The fleet now, or at a Unix time. Raises FleetError where nothing can be shown."""
        self._client.begin()
        if self._refreshes % SIZE_EVERY == 0:
            self._now = self._summed if self._is_large(at) else self._whole
        self._refreshes += 1
        read = self._now.ask(at)
        if self._now is self._summed and not read.shares:
            # The rules are not evaluated any more.
            self._now = self._whole
            read = self._whole.ask(at)
        if not read.shares and len(read.gpus) > self._most_gpus:
            hint = f"{len(read.gpus):,} GPUs one by one: with the rules of `gputop fleet deploy` their sums are read"
            return replace(read, problems=(*read.problems, hint))
        return read

    def _is_large(self, at: float | None) -> bool:
        try:
            return self._summed.size(at) > self._most_gpus
        except FleetError:
            return self._now is self._summed

    def look(self, hosts: Sequence[str], at: float | None) -> Sequence[GpuReading] | None:
        """The GPUs of these hosts, None where all are known. Raises FleetError."""
        return self._summed.look(hosts, at) if self._now is self._summed else None

    def more(self, t: float) -> bool:
        return self._now.more(t)

    def hour(self, t: float) -> Sequence[Lost] | None:
        return self._now.hour(t)

    def hour_s(self, t: float) -> float:
        return self._now.hour_s(t)

    def history(self, host: str, t: float, span_s: float, columns: int) -> History:
        return self._now.history(host, t, span_s, columns)

    def details(self, hosts: Sequence[str], at: float | None) -> Mapping[tuple[str, str], Mapping[str, float]]:
        return self._now.details(hosts, at)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()
