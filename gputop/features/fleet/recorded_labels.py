"""Decode recorded series of hosts: names, owners, shares and lost hours. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from gputop.features.fleet import state_rules
from gputop.features.fleet.decode_labels import GpuIdentity, Labels, Place, label_text, owner_of, recorded_place
from gputop.features.fleet.exporter_names import host_of
from gputop.features.fleet.fleet_reading import NO_JOB, FleetState, GpuState, HostShare, JobName, Lost, with_schedulers
from gputop.features.fleet.gpu_state import GPU_STATES
from gputop.features.fleet.promql import NAMES_LABEL

MEANS: Mapping[str, str] = {
    state_rules.HOST_UTIL: "util_pct", state_rules.HOST_SM: "sm_active_pct", state_rules.HOST_POWER: "power_w",
}  # fmt: skip
"""Recorded series → what of ``HostShare`` it is."""
_STATES: Mapping[str, GpuState] = {str(code): state for state, code in state_rules.CODES.items()}


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


def _among(places: Collection[Place], addresses: Iterable[Place]) -> set[Place]:
    """Addresses that are among ``places``, with their cluster or without one."""
    return {place for place in addresses if place in places or ("", place[1]) in places}


def recorded_host(labels: Labels) -> RecordedHost:
    """The labels of a recorded series of a host."""
    quantity: str = labels.get("state") or _STATES.get(labels.get(state_rules.CODE, "")) or labels.get("__name__", "")
    return RecordedHost(
        labels.get(NAMES_LABEL, ""), recorded_place(labels), label_text(host_of(labels)), *owner_of(labels), quantity,
    )  # fmt: skip


class HostNames:
    """Names of recorded hosts.

    gputop's exporter names a host; a name in several clusters has its cluster before it.
    """

    def __init__(self, names_by_place: Mapping[Place, str], present: Iterable[RecordedHost]) -> None:
        self._names_by_place = names_by_place
        clusters: dict[str, set[str]] = defaultdict(set)
        for recorded in present:
            clusters[self._plain(recorded)].add(recorded.cluster)
        self._ambiguous = {host for host, of_host in clusters.items() if len(of_host) > 1}
        self.several = len({cluster for of_host in clusters.values() for cluster in of_host}) > 1

    def name_of(self, recorded: RecordedHost) -> str:
        host = self._plain(recorded)
        return f"{recorded.cluster or '-'}/{host}" if host in self._ambiguous else host

    def owners(self, rows: Iterable[Recorded]) -> list[tuple[str, JobName, str]]:
        """Host, job and user of each row.

        A job that is known by its number alone takes the name that a scheduler gives that number.
        """
        owners = [
            (
                self.name_of(recorded),
                recorded.job.within(recorded.cluster) if self.several else recorded.job,
                recorded.user,
            )
            for recorded, _ in rows
        ]
        jobs = with_schedulers([job for _, job, _ in owners])
        return [(host, job, user) for (host, _, user), job in zip(owners, jobs, strict=True)]

    def _plain(self, recorded: RecordedHost) -> str:
        return self._names_by_place.get(recorded.place, recorded.host) if recorded.place[1] else recorded.host


class NamesAmongGpus(HostNames):
    """Names of recorded hosts among GPUs that are known one by one.

    ``several`` says whether there are clusters.
    """

    def __init__(self, identities: Iterable[GpuIdentity], *, several: bool) -> None:
        self._by_place = {identity.place: identity.host for identity in identities}
        self._hosts, self.several = frozenset(self._by_place.values()), several

    def name_of(self, recorded: RecordedHost) -> str:
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
