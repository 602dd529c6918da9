"""Read a fleet of a few hosts without a server.

A host is reached by ssh or scraped, and known by the whole address that the user gave; a GPU is known by its UUID: two
addresses of one GPU are one. States are the nodes' own; hours and ages begin when gputop was started.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median
from urllib.parse import urlsplit

from msgspec.structs import replace

from gputop.features.fleet.exporter_names import DIALECTS, split_host
from gputop.features.fleet.fleet_reading import (
    HOUR_S,
    Down,
    FleetError,
    FleetReading,
    FleetSource,
    History,
    LastHour,
)
from gputop.features.fleet.read.address import expanded, is_address
from gputop.features.fleet.read.host_link import (
    AT_ONCE,
    HostLink,
    SshOptions,
    over_ssh,
    own_screen,
    scraped,
)
from gputop.features.fleet.read.repeated_gpus import CountedGpus, HostGpus, counted
from gputop.features.fleet.read.scraped_host import ScrapedHost
from gputop.model.durations import duration
from gputop.model.quantity import count

REFRESH_S, EAGER_S = 5.0, 0.5
"""Time between two refreshes, and while hosts have not answered yet."""
SETTLED_S = 25.0
"""Longest wait of data outputs for every host."""
OLD_S = 20.0
"""Age above which a page does not describe the present."""


class _Host(ScrapedHost):
    """A host with its link, and the fault of its newest page."""

    def __init__(self, name: str, link: HostLink) -> None:
        super().__init__(name)
        self.link = link
        self.fault: str | None = None


class DirectFleet(FleetSource):
    """Reads the newest page of each host. Not for several threads."""

    def __init__(
        self,
        hosts: Sequence[str],
        options: SshOptions,
        *,
        source: str = "",
        clock: Callable[[], float] = time.time,
        links: Sequence[HostLink] | None = None,
    ) -> None:
        """Raises UsageError for words that name no host."""
        if links is None:
            ssh = over_ssh(options, threading.Semaphore(AT_ONCE))
            links = [
                HostLink(host, scraped(host) if is_address(host) else ssh)
                for host in expanded(hosts)
            ]
        self._links = links
        self.source = source or count(len(links), "host")
        self._clock = clock
        self._began = self._newest_t = clock()
        names = display_names([link.host for link in links])
        self._hosts = {name: _Host(name, link) for name, link in zip(names, links, strict=True)}
        self._repeated: frozenset[tuple[str, str]] = frozenset()
        """Host and number of GPUs that count under another host."""
        self._opens = {
            link.host: own_screen(link.host, options) for link in links if not is_address(link.host)
        }
        for link in links:
            link.worker.ask()

    @property
    def interval_s(self) -> float:  # type: ignore[override]
        """Short until every host has answered or failed."""
        return REFRESH_S if all(link.is_settled for link in self._links) else EAGER_S

    def settle(self) -> None:
        """Wait until every host has answered or failed, within a limit."""
        end = time.monotonic() + SETTLED_S
        while time.monotonic() < end and not all(link.is_settled for link in self._links):
            time.sleep(0.05)

    def ask(self, at: float | None = None) -> FleetReading:
        """Return the fleet's present. Raises FleetError for a moment of the past."""
        if at is not None:
            raise FleetError(
                "without a Prometheus there is no past before gputop was started: no other moment is known"
            )
        now, t = time.monotonic(), self._clock()
        self._follow_clock(t)
        self._take_pages(now, t)
        ages: list[float] = []
        down: dict[str, Down] = {}
        faults: dict[str, Sequence[str]] = {}
        own_names: dict[str, str] = {}
        for name, host in self._hosts.items():
            age_s = host.link.age_s(now)
            if age_s is not None:
                ages.append(age_s)
            absent = _absent(host, age_s, t)
            if absent is not None:
                down[name] = absent
            elif host.faults:
                faults[name] = host.faults
            if host.own_name and _first_label(host.own_name) != _first_label(name):
                own_names[name] = host.own_name
        found = self._counted(down)
        spoken = {gpu.names for gpu in found.gpus}
        return FleetReading(
            t,
            self.source,
            found.gpus,
            down,
            names=tuple(name for name in DIALECTS if name in spoken),
            age_s=median(ages) if ages else None,
            hour=self.hour(t),
            problems=(*_reasons(down), *found.problems),
            faults=faults,
            repeated=found.repeated,
            opens=self._opens,
            own_names=own_names,
        )

    def _take_pages(self, now: float, t: float) -> None:
        """Read the new pages of all hosts; ``now`` is monotonic, ``t`` Unix time."""
        for host in self._hosts.values():
            new = host.link.take_page()
            if new is not None:
                page, page_at = new
                host.fault = host.take(page, t - (now - page_at))

    def _follow_clock(self, t: float) -> None:
        """Move all times after this machine's clock was set back."""
        if t < self._newest_t:
            by_s = t - self._newest_t
            self._began += by_s
            for host in self._hosts.values():
                host.move_times(by_s)
        self._newest_t = t

    def _counted(self, down: Mapping[str, Down]) -> CountedGpus:
        """Each GPU once, in the order of the hosts.

        A GPU belongs to a host that answers, if there is one.
        """
        rank = {dialect: place for place, dialect in enumerate(DIALECTS)}

        def preferred(host: _Host) -> tuple[bool, int]:
            # The exporter that says most of a GPU has it.
            return host.name in down, rank.get(next(iter(host.dialects), ""), len(rank))

        hosts = sorted(self._hosts.values(), key=preferred)
        found = counted([HostGpus(host.name, host.own_names, host.gpus) for host in hosts])
        self._repeated = found.elsewhere
        place = {name: at for at, name in enumerate(self._hosts)}
        return replace(found, gpus=sorted(found.gpus, key=lambda gpu: place[gpu.host]))

    def hour(self, t: float) -> LastHour:
        """Time without work since gputop was started, of the last hour at most."""
        span_s = max(1.0, min(HOUR_S, t - self._began))
        note = (
            f"hours and ages are those since gputop was started, {duration(span_s)} ago"
            if span_s < HOUR_S
            else ""
        )
        rows = [lost for host in self._hosts.values() for lost in host.lost(t)]
        return LastHour(
            [lost for lost in rows if (lost.host, lost.gpu) not in self._repeated], span_s, note
        )

    def history(self, host: str, t: float) -> History:
        """Utilisation and SM activity of a host's GPUs since gputop was started."""
        return self._hosts[host].history(t) if host in self._hosts else {}

    def close(self) -> None:
        """End every connection, within three seconds."""
        for link in self._links:
            link.worker.stop()
        end = time.monotonic() + 3.0
        for link in self._links:
            link.worker.stop(max(0.0, end - time.monotonic()))


def _absent(host: _Host, age_s: float | None, t: float) -> Down | None:
    """The reason why a host has no current values; None if it has some."""
    if host.link.reason is not None:
        return Down(age_s, host.link.reason)
    if age_s is None:
        return Down(None, "connecting …" if host.link.is_asked else "not asked yet", "pending")
    if host.is_late:
        return Down(
            age_s, "the driver does not answer: it is late or hangs, or there is none", "late"
        )
    if age_s > OLD_S:
        return Down(age_s, f"no page for {duration(age_s)}")
    if host.fault is None:
        return None
    # Pages come, and give no values any more.
    return Down(age_s if host.values_t is None else t - host.values_t, host.fault)


def _reasons(down: Mapping[str, Down]) -> Iterator[str]:
    """Yield why hosts that were asked have no values."""
    for name, absent in down.items():
        if absent.kind != "pending":
            yield f"{name}: {absent.reason}"


def _first_label(name: str) -> str:
    """``box-17`` of ``me@box-17.lab:22``."""
    return split_host(name.rpartition("@")[2])[0].partition(".")[0]


def display_names(hosts: Sequence[str]) -> list[str]:
    """The shortest names that tell hosts apart.

    ``host:port``, with its path, or the whole address.
    """
    parts = {host: urlsplit(host) for host in hosts if is_address(host)}
    short = [parts[host].netloc if host in parts else host for host in hosts]
    long = [
        name + parts[host].path.removesuffix("/metrics") if host in parts else host
        for host, name in zip(hosts, short, strict=True)
    ]
    forms = zip(hosts, short, long, strict=True)
    return [a if short.count(a) == 1 else b if long.count(b) == 1 else host for host, a, b in forms]
