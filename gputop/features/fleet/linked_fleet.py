"""A fleet of a few hosts, without a server: each is reached by ssh or scraped, and remembered since the start."""

from __future__ import annotations

import os
import re
import select
import shlex
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from statistics import median
from urllib.parse import urlsplit

from msgspec import Struct

from gputop.features.fleet.address import SSH_HOST
from gputop.features.fleet.client import Wire, WireError, cut
from gputop.features.fleet.exporter_names import DIALECTS, split_host
from gputop.features.fleet.fleet_reading import HOUR_S, AskedFleet, Down, FleetError, FleetReading, History, LastHour
from gputop.features.fleet.seen_host import SeenHost
from gputop.model.extras import install_there
from gputop.model.quantity import clean_text, count, duration
from gputop.model.source import UsageError
from gputop.system.children import PIPE, Child, end, ours, start, until_we_end
from gputop.system.worker import Worker

# A link is a thread that holds one connection, keeps the newest page and says why there is none. It connects again
# after 5, 10 … 60 s, but not where the key was refused. With ssh, what is typed there is a byte every few seconds: the
# far end ends without them, whatever has become of this one.

CONNECT_S, SILENT_S = 5, 20.0
"""How long a connection and each page may take."""
PAGE_S, KEEPS_S = 5.0, 3.0
"""Between two scrapes of an address, and between two bytes to a far end."""
MOST_PAUSE_S = 60.0
MOST_PAGE = 8 * 2**20
AT_ONCE = 8
"""Hosts that are connected at once."""
END = re.compile(rb"(?:^|\n)# EOF\n")
MOST_WORDS = 4096
_FAR = 'for g in {}; do command -v "$g" >/dev/null 2>&1 && exec "$g" {}; done; exit 127'
_PAGES = "export --stdout --until-silent 10"


class SshOptions(Struct, frozen=True):
    """``config`` is a file for ssh's -F, ``gputop`` where the program is on the hosts if not in PATH."""

    config: str = ""
    gputop: str = ""


def ssh_words(host: str, options: SshOptions, *more: str) -> list[str]:
    """The command that reaches a host: the user's own configuration, agent and host keys, and no question asked."""
    words = ["ssh", "-T", "-o", "BatchMode=yes", "-o", f"ConnectTimeout={CONNECT_S}", "-o", "ControlMaster=no",
             "-o", "ServerAliveInterval=5"]  # fmt: skip
    return [*words, *(("-F", options.config) if options.config else ()), "--", host, *more]


def _far(options: SshOptions, words: str) -> str:
    """What the far shell, whichever that is, does: run gputop with these words, from the first of its usual places."""
    places = ["gputop", '"$HOME/.local/bin/gputop"', *([shlex.quote(options.gputop)] if options.gputop else ())]
    return f"sh -c {shlex.quote(_FAR.format(' '.join(places), words))}"


class HostLink:
    """One host. ``page`` and ``reason`` may be read from any thread; ``pages`` counts those that came."""

    def __init__(self, host: str, connect: Callable[[HostLink], None], slots: threading.Semaphore) -> None:
        self.host, self.slots = host, slots
        self.page, self.pages = "", 0
        self.page_at: float | None = None
        """When the newest page came, in monotonic seconds."""
        self.reason: str | None = None
        """Why there is no connection; None while there is one, or the first is being made."""
        self.is_refused = False
        """Whether the key was refused: such a host is not asked again."""
        self._connect, self._failures = connect, 0
        self.worker = Worker("host", self._turn, again=self._pause_s)
        self.stopping = self.worker.stopping

    @property
    def is_settled(self) -> bool:
        """Whether it has answered, or will not soon."""
        return self.page_at is not None or self.reason is not None

    def take(self, page: str) -> None:
        """A page came."""
        self.page, self.page_at, self.reason, self._failures = page, time.monotonic(), None, 0
        self.pages += 1

    def _turn(self) -> None:
        try:
            self._connect(self)
        except (WireError, OSError, UsageError) as error:
            self.reason = cut(str(error))
        self._failures += self.reason is not None

    def _pause_s(self) -> float | None:
        if self.is_refused:
            return None
        return min(MOST_PAUSE_S, 5.0 * self._failures) if self._failures else PAGE_S


def scraped(url: str) -> Callable[[HostLink], None]:
    """Fetches one page of an exporter's address. Raises UsageError without the extra ``fleet``."""
    wire = Wire(url, connections=1, most_bytes=MOST_PAGE)

    def connect(link: HostLink) -> None:
        with link.slots:
            reply = wire.fetch("GET", url, {"Accept-Encoding": "gzip"}, b"", 10.0)
        if reply.status != 200:
            raise WireError(f"answers with status {reply.status}")
        link.take(reply.body.decode(errors="replace"))

    return connect


def over_ssh(options: SshOptions) -> Callable[[HostLink], None]:
    """Holds one ssh until it ends, or until the link is told to stop."""

    def connect(link: HostLink) -> None:
        command = ssh_words(link.host, options, _far(options, _PAGES))
        with link.slots:
            if link.stopping.is_set():
                return
            talk = _Talk(start(until_we_end(*command), ours(), stdin=PIPE, stderr=PIPE), link)
            # Others wait until this one has answered, or has failed to.
            talk.hear(until_first=True)
        talk.hear(until_first=False)

    return connect


class _Talk:
    """One ssh that runs: its pages go to the link, its last words become the reason."""

    def __init__(self, child: Child, link: HostLink) -> None:
        self._child, self._link = child, link
        assert child.stdin is not None and child.stdout is not None and child.stderr is not None
        self._in, self._out, self._err = (pipe.fileno() for pipe in (child.stdin, child.stdout, child.stderr))
        os.set_blocking(self._in, False)
        self._text = bytearray()
        self._errors = b""
        self._heard_at = time.monotonic()
        self._is_over = False

    def hear(self, *, until_first: bool) -> None:
        """Read pages until the first one, or until the connection is over."""
        link, first = self._link, self._link.pages
        try:
            while not self._is_over and not (until_first and link.pages > first):
                if time.monotonic() - self._heard_at > SILENT_S:
                    self._end(f"no page within {SILENT_S:.0f} s")
                else:
                    self._is_over = link.stopping.is_set() or self._look()
        finally:
            if self._is_over:
                end(self._child)

    def _look(self) -> bool:
        """Read what came, and say that somebody still reads; whether it is over."""
        readable, _, _ = select.select([self._out, self._err], [], [], KEEPS_S / 3.0)
        if self._err in readable:
            self._errors = (self._errors + os.read(self._err, MOST_WORDS))[-MOST_WORDS:]
        with suppress(OSError):
            os.write(self._in, b"\n")
        if self._out not in readable:
            return not readable and self._child.poll() is not None and self._end(self._last_words())
        piece = os.read(self._out, 1 << 16)
        if not piece:
            return self._end(self._last_words())
        # What was read before holds no end, but perhaps the beginning of one.
        begin = max(0, len(self._text) - len(b"\n# EOF\n"))
        self._text += piece
        if len(self._text) > MOST_PAGE:
            return self._end(f"a page of more than {MOST_PAGE >> 20} MiB")
        while (match := END.search(self._text, begin)) is not None:
            page, begin = bytes(self._text[: match.start()]), 0
            del self._text[: match.end()]
            self._heard_at = time.monotonic()
            self._link.take(page.decode(errors="replace"))
        return False

    def _end(self, reason: str) -> bool:
        self._is_over, self._link.reason = True, reason
        return True

    def _last_words(self) -> str:
        """Why it ended, and what helps."""
        with suppress(Exception):
            self._child.wait(1.0)
        while select.select([self._err], [], [], 0.0)[0] and (piece := os.read(self._err, MOST_WORDS)):
            self._errors = (self._errors + piece)[-MOST_WORDS:]
        text, status = self._errors.decode(errors="replace"), self._child.returncode
        host = self._link.host
        if "Permission denied" in text:
            self._link.is_refused = True
            return f"the key was refused, and no password is asked for: make `ssh {host}` work without one"
        if "Host key verification failed" in text:
            return f"its host key is not known: `ssh {host}` once, and look at it"
        if status == 127:
            return f"no gputop there: {install_there()} there, or name its path: gputop = … in [fleet.NAME]"
        if "--stdout" in text or "--until-silent" in text:
            return f"the gputop there has no `export --stdout`, it is too old: {install_there()} there"
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return cut(lines[-1]) if lines else f"the connection ended (status {status})"


def is_address(host: str) -> bool:
    """Whether it is scraped, and not reached by ssh."""
    return host.startswith(("http://", "https://"))


# The hosts, and the fleet that they are.

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


class LinkedFleet(AskedFleet):
    """Called from one thread, like an engine's; the links have threads of their own."""

    def __init__(
        self, hosts: Sequence[str], options: SshOptions, *, source: str = "", clock: Callable[[], float] = time.time,
        links: Sequence[HostLink] | None = None,
    ) -> None:  # fmt: skip
        """Raises UsageError for what is no host, and for addresses without the extra ``fleet``."""
        if links is None:
            slots, ssh = threading.Semaphore(AT_ONCE), over_ssh(options)
            links = [HostLink(of, scraped(of) if is_address(of) else ssh, slots) for of in expanded(hosts)]
        self._links = links
        names = [urlsplit(link.host).netloc if is_address(link.host) else link.host for link in self._links]
        self.source = source or count(len(names), "host")
        self._clock, self._began = clock, clock()
        self._hosts = {name: (link, SeenHost(name)) for name, link in zip(names, self._links, strict=True)}
        # A host's own screen, on this terminal.
        config = ("-F", options.config) if options.config else ()
        self._opens = {
            link.host: ["ssh", "-t", *config, "--", link.host, _far(options, "")]
            for link in links
            if not is_address(link.host)
        }
        self._taken = dict.fromkeys(names, (0, True))
        """How many pages of a host were read, and whether the last one spoke of GPUs."""
        for link in self._links:
            link.worker.ask()

    @property
    def interval_s(self) -> float:  # type: ignore[override]
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
            if (pages := link.pages) != self._taken[name][0] and link.page_at is not None:
                self._taken[name] = pages, host.take(link.page, t - (now - link.page_at))
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
        return FleetReading(
            t, self.source, gpus, down, tuple(name for name in DIALECTS if name in spoken),
            median(ages) if ages else None, self.hour(t), problems=tuple(problems),
            opens=self._opens, own_names=self._own_names(),
        )  # fmt: skip

    def _own_names(self) -> dict[str, str]:
        """What hosts call themselves, where that is not the name that was typed."""
        own = {name: host.own_name for name, (_, host) in self._hosts.items() if host.own_name}
        return {
            name: called
            for name, called in own.items()
            if called.partition(".")[0] != split_host(name.rpartition("@")[2])[0].partition(".")[0]
        }

    def _reason(self, name: str, link: HostLink, host: SeenHost, age_s: float | None) -> str | None:
        """Why a host has no present; None where it has one."""
        if link.reason is not None:
            return link.reason
        if age_s is None:
            return "connecting …"
        if not self._taken[name][1]:
            return "what it answers speaks of no GPU"
        if age_s > OLD_S:
            return f"no page for {duration(age_s)}"
        return "the driver does not answer: it is late or hangs, or there is none" if host.is_late else None

    def hour(self, t: float) -> LastHour:
        """What was lost since gputop was started, of the last hour at most."""
        span_s = max(1.0, min(HOUR_S, t - self._began))
        note = f"hours and ages are those since gputop was started, {duration(span_s)} ago" if span_s < HOUR_S else ""
        return LastHour([lost for _, host in self._hosts.values() for lost in host.lost(t)], span_s, note)

    def history(self, host: str, t: float) -> History:
        """Utilisation and SM activity of a host's GPUs since gputop was started."""
        return self._hosts[host][1].history(t) if host in self._hosts else {}

    def close(self) -> None:
        """End every connection; none is waited for longer than a look takes."""
        for link in self._links:
            link.worker.stop()
        end = time.monotonic() + 3.0
        for link in self._links:
            link.worker.stop(max(0.0, end - time.monotonic()))
