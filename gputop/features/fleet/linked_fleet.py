"""A fleet of a few hosts, without a server: each is reached by ssh or scraped, and remembered since the start."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median
from urllib.parse import urlsplit

from gputop.features.fleet.address import SSH_HOST
from gputop.features.fleet.exporter_names import DIALECTS
from gputop.features.fleet.fleet_reading import HOUR_S, Down, FleetError, FleetReading, GpuReading, LastHour
from gputop.features.fleet.host_history import History
from gputop.features.fleet.host_links import HostLink, SshOptions, is_address, linked, screen_words
from gputop.features.fleet.seen_host import SeenHost
from gputop.model.quantity import clean_text, count, duration
from gputop.model.source import UsageError

MOST_HOSTS = 32
REFRESH_S, EAGER_S = 5.0, 0.5
"""Between two looks, and while hosts have not answered yet."""
SETTLED_S = 25.0
"""How long data in place of a screen waits for every host."""
LONGEST_WORD = 253
"""Of a host's name (RFC 1035, as text); Python reads no number of more than some thousand digits."""
OLD_S = 20.0
"""A page that is older is no present."""
_RANGE = re.compile(r"([^\[\]]*)\[([0-9]+(?:-[0-9]+)?(?:,[0-9]+(?:-[0-9]+)?)*)\](.*)")


def expanded(words: Iterable[str]) -> tuple[str, ...]:
    """The hosts that the words name: ``gpu[01-08,12]`` are nine. Raises UsageError for more than ``MOST_HOSTS``, and
    for a word that ssh or a shell could take for something else."""
    hosts: dict[str, None] = {}
    for word in words:
        for host in _expanded(word):
            hosts[_checked(host)] = None
            if len(hosts) > MOST_HOSTS:
                raise UsageError(
                    f"more than {MOST_HOSTS} hosts: let a Prometheus scrape them, and give `gputop fleet --prom URL`"
                )
    return tuple(hosts)


def _expanded(word: str) -> Iterable[str]:
    match = None if is_address(word) or len(word) > LONGEST_WORD else _RANGE.fullmatch(word)
    if match is None:
        yield word
        return
    for part in match[2].split(","):
        first, _, last = part.partition("-")
        numbers = range(int(first), int(last or first) + 1)
        for number in numbers[: MOST_HOSTS + 1]:
            yield from _expanded(f"{match[1]}{number:0{len(first)}d}{match[3]}")


def _checked(host: str) -> str:
    if not is_address(host):
        if SSH_HOST.fullmatch(host) is None or host.endswith(":"):
            raise UsageError(f"no host's name for ssh: {clean_text(host)!r}")
        return host
    try:
        parts = urlsplit(host)
        named, _ = parts.hostname, parts.port
    except ValueError:
        named = None
    if not named or "@" in parts.netloc or re.search(r"[\s\x00-\x1f\x7f?#]", host):
        raise UsageError(f"an exporter's address is http://HOST[:PORT], not {clean_text(host)!r}")
    return host if parts.path.strip("/") else f"{host.rstrip('/')}/metrics"


class LinkedFleet:
    """Called from one thread, like an engine's; the links have threads of their own."""

    def __init__(
        self, hosts: Sequence[str], options: SshOptions, *, source: str = "", clock: Callable[[], float] = time.time,
        links: Sequence[HostLink] | None = None,
    ) -> None:  # fmt: skip
        """Raises UsageError for what is no host, and for addresses without the extra ``fleet``."""
        self._links = linked(expanded(hosts), options) if links is None else links
        names = [urlsplit(link.host).netloc if is_address(link.host) else link.host for link in self._links]
        self.source = source or count(len(names), "host")
        self._clock, self._began = clock, clock()
        self._hosts = {name: (link, SeenHost(name)) for name, link in zip(names, self._links, strict=True)}
        self._opens = {
            name: screen_words(name, options) for name, (link, _) in self._hosts.items() if not is_address(link.host)
        }
        self._taken: dict[str, int] = {}
        self._strange: set[str] = set()
        for link in self._links:
            link.worker.ask()

    @property
    def interval_s(self) -> float:
        """Often until every host has answered, or has failed to."""
        return REFRESH_S if all(link.is_settled for link in self._links) else EAGER_S

    def settle(self) -> None:
        """Wait until every host has answered or failed, within a limit."""
        end = time.monotonic() + SETTLED_S
        while time.monotonic() < end and not all(link.is_settled for link in self._links):
            time.sleep(0.05)

    def ask(self, at: float | None = None) -> FleetReading:
        """What the newest pages say. Raises FleetError for a moment of the past."""
        if at is not None:
            raise FleetError(
                "without a Prometheus there is no past before gputop was started: no other moment is known"
            )
        now, t = time.monotonic(), self._clock()
        down: dict[str, Down] = {}
        ages, problems = [], []
        for name, (link, host) in self._hosts.items():
            if link.pages != self._taken.get(name, 0) and link.page_at is not None:
                self._taken[name] = link.pages
                if host.take(link.page, t - (now - link.page_at)):
                    self._strange.discard(name)
                else:
                    self._strange.add(name)
            age_s = None if link.page_at is None else now - link.page_at
            if age_s is not None:
                ages.append(age_s)
            reason = self._reason(name, link, host, age_s)
            if reason is not None:
                down[name] = Down(age_s, reason, "late" if host.is_late and not link.reason else "down")
                if link.is_settled:
                    problems.append(f"{name}: {reason}")
        gpus = [gpu for _, host in self._hosts.values() for gpu in host.gpus]
        spoken = {dialect for _, host in self._hosts.values() for dialect in host.dialects}
        hour = self.hour(t)
        return FleetReading(
            t, self.source, gpus, down, tuple(name for name in DIALECTS if name in spoken),
            median(ages) if ages else None, hour.lost, hour.span_s, problems=tuple(problems), lost_note=hour.note,
            opens=self._opens,
        )  # fmt: skip

    def _reason(self, name: str, link: HostLink, host: SeenHost, age_s: float | None) -> str | None:
        """Why a host has no present; None where it has one."""
        if link.reason is not None:
            return link.reason
        if age_s is None:
            return "connecting …"
        if name in self._strange:
            return "what it answers speaks of no GPU"
        if age_s > OLD_S:
            return f"no page for {duration(age_s)}"
        return "the driver does not answer: it is late or hangs, or there is none" if host.is_late else None

    def hour(self, t: float) -> LastHour:
        """What was lost since gputop was started, of the last hour at most."""
        span_s = max(1.0, min(HOUR_S, t - self._began))
        note = f"hours and ages are those since gputop was started, {duration(span_s)} ago" if span_s < HOUR_S else ""
        return LastHour([lost for _, host in self._hosts.values() for lost in host.lost(t)], span_s, note)

    def look(self, hosts: Sequence[str], at: float | None) -> Sequence[GpuReading] | None:
        """Nothing more: ``ask`` gives every GPU."""
        return None

    def history(self, host: str, t: float, span_s: float, columns: int) -> History:
        """Utilisation and SM activity of a host's GPUs since gputop was started."""
        return self._hosts[host][1].history(t, span_s, columns) if host in self._hosts else {}

    def details(self, hosts: Sequence[str], at: float | None) -> Mapping[tuple[str, str], Mapping[str, float]]:
        """Nothing more: a page has every value."""
        return {}

    def close(self) -> None:
        """End every connection; none is waited for longer than a look takes."""
        for link in self._links:
            link.worker.stop()
        end = time.monotonic() + 3.0
        for link in self._links:
            link.worker.stop(max(0.0, end - time.monotonic()))
