"""The ways to a host without a server: the system's ssh, which reads pages of ``gputop export --stdout``, and HTTP.

A link is a thread that holds one connection, keeps the newest page and says why there is none. It connects again after
5, 10 … 60 s, but not where the key was refused. With ssh, what is typed there is a byte every few seconds: the far end
ends without them, whatever has become of this one.
"""

from __future__ import annotations

import os
import re
import select
import shlex
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from msgspec import Struct

from gputop.features.fleet.client import Wire, WireError, cut
from gputop.model.extras import install_there
from gputop.model.source import UsageError
from gputop.system.children import PIPE, Child, end, ours, start, until_we_end
from gputop.system.worker import Worker

CONNECT_S, FIRST_S, SILENT_S = 5, 20.0, 20.0
"""How long a connection, a first page and a next page may take."""
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


def screen_words(host: str, options: SshOptions) -> list[str]:
    """The command that opens a host's own screen on this terminal."""
    return ["ssh", "-t", *(("-F", options.config) if options.config else ()), "--", host, _far(options, "")]


class HostLink:
    """One host. ``page`` and ``reason`` may be read from any thread; ``turn`` counts pages."""

    def __init__(self, host: str, connect: Callable[[HostLink], None], slots: threading.Semaphore) -> None:
        self.host = host
        self.page = ""
        self.pages = 0
        self.page_at: float | None = None
        """When the newest page came, in monotonic seconds."""
        self.reason: str | None = None
        """Why there is no connection; None while there is one, or the first is being made."""
        self.is_refused = False
        """Whether the key was refused: such a host is not asked again."""
        self.slots = slots
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
        if self.reason is not None:
            self._failures += 1

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
            child = start(until_we_end(*command), ours(), stdin=PIPE, stderr=PIPE)
            talk = _Talk(child, link)
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
                if link.stopping.is_set():
                    self._is_over = True
                elif time.monotonic() - self._heard_at > (FIRST_S if until_first else SILENT_S):
                    self._end(f"no page within {FIRST_S if until_first else SILENT_S:.0f} s")
                else:
                    self._look()
        finally:
            if self._is_over:
                end(self._child)

    def _look(self) -> None:
        readable, _, _ = select.select([self._out, self._err], [], [], KEEPS_S / 3.0)
        if self._err in readable:
            self._errors = (self._errors + os.read(self._err, MOST_WORDS))[-MOST_WORDS:]
        with suppress(OSError):
            os.write(self._in, b"\n")
        if self._out not in readable:
            if self._child.poll() is not None and not readable:
                self._end(self._last_words())
            return
        piece = os.read(self._out, 1 << 16)
        if not piece:
            self._end(self._last_words())
            return
        # What was read before holds no end, but perhaps the beginning of one.
        begin = max(0, len(self._text) - len(b"\n# EOF\n"))
        self._text += piece
        if len(self._text) > MOST_PAGE:
            self._end(f"a page of more than {MOST_PAGE >> 20} MiB")
        while (match := END.search(self._text, begin)) is not None:
            page = bytes(self._text[: match.start()])
            del self._text[: match.end()]
            begin = 0
            self._heard_at = time.monotonic()
            self._link.take(page.decode(errors="replace"))

    def _end(self, reason: str) -> None:
        self._is_over, self._link.reason = True, reason

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


def linked(hosts: Sequence[str], options: SshOptions) -> list[HostLink]:
    """A link for each of these hosts and addresses. Raises UsageError."""
    slots = threading.Semaphore(AT_ONCE)
    ssh = over_ssh(options)
    return [HostLink(host, scraped(host) if is_address(host) else ssh, slots) for host in hosts]


def is_address(host: str) -> bool:
    """Whether it is scraped, and not reached by ssh."""
    return host.startswith(("http://", "https://"))
