"""Keep one connection to a host, by ssh or HTTP, and its newest page.

A link is a thread. It connects again after 5, 10 … 60 s, but not where the key was refused. With ssh a byte is typed
every few seconds: the far end ends without them, whatever has become of this one.
"""

from __future__ import annotations

import os
import re
import select
import shlex
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from msgspec import Struct

from gputop.features.fleet.read.http_wire import Wire, WireError, cut
from gputop.model.extras import install_there
from gputop.model.source import UsageError
from gputop.system.children import PIPE, Child, end, ours, start, until_we_end
from gputop.system.worker import Worker

CONNECT_S, SILENT_S = 5, 20.0
"""How long a connection and each page may take."""
PAGE_S, KEEPS_S = 5.0, 3.0
"""Between two scrapes of an address, and between two bytes to a far end."""
MOST_PAUSE_S = 60.0
MOST_PAGE = 16 * 2**20
"""A page of 2,500 GPUs with all families has some 14 MB."""
AT_ONCE = 8
"""Hosts that ssh connects to at once."""
END = re.compile(rb"(?:^|\n)# EOF\n")
MOST_WORDS = 4096
_FAR = 'for g in {}; do command -v "$g" >/dev/null 2>&1 && exec "$g" {}; done; exit 127'
_PAGES = "export --stdout --until-silent 10"


class SshOptions(Struct, frozen=True):
    """``config`` is ssh's -F, ``gputop`` the program's path on the hosts."""

    config: str = ""
    gputop: str = ""

    def words(self, *words: str, host: str, far: str) -> list[str]:
        """An ssh command that runs gputop from its usual places on a host."""
        places = [
            "gputop",
            '"$HOME/.local/bin/gputop"',
            *([shlex.quote(self.gputop)] if self.gputop else ()),
        ]
        config = ("-F", self.config) if self.config else ()
        return [
            "ssh",
            *words,
            *config,
            "--",
            host,
            f"sh -c {shlex.quote(_FAR.format(' '.join(places), far))}",
        ]


def ssh_words(host: str, options: SshOptions) -> list[str]:
    """The ssh command that gives a host's pages: the user's configuration, no questions."""
    settings = (
        "BatchMode=yes",
        f"ConnectTimeout={CONNECT_S}",
        "ControlMaster=no",
        "ServerAliveInterval=5",
    )
    return options.words(
        "-T", *(word for one in settings for word in ("-o", one)), host=host, far=_PAGES
    )


def own_screen(host: str, options: SshOptions) -> list[str]:
    """The command that opens a host's own screen on this terminal."""
    return options.words("-t", host=host, far="")


class HostLink:
    """One host and its newest page.

    ``reason`` says why there is no connection. May be read from any thread.
    """

    def __init__(self, host: str, connect: Callable[[HostLink], None]) -> None:
        self.host = host
        self.pages = 0
        """How many pages came."""
        self.page_at: float | None = None
        """Monotonic time of the newest page."""
        self.reason: str | None = None
        self.is_asked = False
        """Whether a connection was begun: with many hosts some wait for a slot."""
        self.is_refused = False
        """Whether the key was refused: such a host is not asked again."""
        self._page: tuple[str, float] | None = None
        self._connect, self._failures = connect, 0
        self.worker = Worker("host", self._turn, again=self._pause_s)
        self.stopping = self.worker.stopping

    @property
    def is_settled(self) -> bool:
        """Whether the host has answered, or will not soon."""
        return self.page_at is not None or self.reason is not None

    def age_s(self, now: float) -> float | None:
        """The age of the newest page at a monotonic time; None before the first."""
        return None if self.page_at is None else now - self.page_at

    def put_page(self, page: str) -> None:
        """Keep a page that came."""
        self.page_at, self.reason, self._failures = time.monotonic(), None, 0
        self._page = page, self.page_at
        self.pages += 1

    def take_page(self) -> tuple[str, float] | None:
        """Return the newest page and its monotonic time, once."""
        page, self._page = self._page, None
        return page

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
    """Connect by HTTP: fetch one page. Raises UsageError without the extra ``fleet``."""
    wire = Wire(url, connections=1, most_bytes=MOST_PAGE)

    def connect(link: HostLink) -> None:
        link.is_asked = True
        reply = wire.fetch("GET", url, {"Accept-Encoding": "gzip"}, b"", 10.0)
        if reply.status != 200:
            raise WireError(f"answers with status {reply.status}")
        link.put_page(reply.body.decode(errors="replace"))

    return connect


def over_ssh(options: SshOptions, slots: threading.Semaphore) -> Callable[[HostLink], None]:
    """Connect by ssh and read pages until it ends.

    A slot is held until the first page, or for ``CONNECT_S``: a login that hangs keeps no other host waiting.
    """

    def connect(link: HostLink) -> None:
        command = ssh_words(link.host, options)
        with slots:
            if link.stopping.is_set():
                return
            link.is_asked = True
            talk = _Talk(start(until_we_end(*command), ours(), stdin=PIPE, stderr=PIPE), link)
            talk.hear(at_most_s=CONNECT_S)
        talk.hear()

    return connect


class _Talk:
    """A running ssh: hands pages to the link; its last words become the reason."""

    def __init__(self, child: Child, link: HostLink) -> None:
        self._child, self._link = child, link
        assert child.stdin is not None and child.stdout is not None and child.stderr is not None
        self._in, self._out, self._err = (
            pipe.fileno() for pipe in (child.stdin, child.stdout, child.stderr)
        )
        os.set_blocking(self._in, False)
        self._text = bytearray()
        self._errors = b""
        self._heard_at = time.monotonic()
        self._is_over = False

    def hear(self, at_most_s: float | None = None) -> None:
        """Read pages until the connection ends.

        With a limit only until the first page or the limit.
        """
        link, first = self._link, self._link.pages
        until = None if at_most_s is None else time.monotonic() + at_most_s
        try:
            while not self._is_over:
                if until is not None and (link.pages > first or time.monotonic() >= until):
                    return
                if time.monotonic() - self._heard_at > SILENT_S:
                    self._end(f"no page within {SILENT_S:.0f} s")
                else:
                    self._is_over = link.stopping.is_set() or self._look()
        finally:
            if self._is_over:
                end(self._child)

    def _look(self) -> bool:
        """Read from ssh and write a byte; return whether it is over."""
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
            page, begin = bytes(self._text[: match.start()]) + b"\n", 0
            del self._text[: match.end()]
            self._heard_at = time.monotonic()
            self._link.put_page(page.decode(errors="replace"))
        return False

    def _end(self, reason: str) -> bool:
        self._is_over, self._link.reason = True, reason
        return True

    def _last_words(self) -> str:
        """Why it ended, and what helps."""
        with suppress(Exception):
            self._child.wait(1.0)
        while select.select([self._err], [], [], 0.0)[0] and (
            piece := os.read(self._err, MOST_WORDS)
        ):
            self._errors = (self._errors + piece)[-MOST_WORDS:]
        text, status, host = (
            self._errors.decode(errors="replace"),
            self._child.returncode,
            self._link.host,
        )
        self._link.is_refused = "Permission denied" in text
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        reasons = (
            (self._link.is_refused,
             f"the key was refused, and no password is asked for: make `ssh {host}` work without one"),
            ("Host key verification failed" in text, f"its host key is not known: `ssh {host}` once, and look at it"),
            (status == 127,
             f"no gputop there: {install_there()} there, or name its path: gputop = … in [fleet.NAME]"),
            ("--stdout" in text or "--until-silent" in text,
             f"the gputop there has no `export --stdout`, it is too old: {install_there()} there"),
            (True, cut(lines[-1]) if lines else f"the connection ended (status {status})"),
        )  # fmt: skip
        return next(reason for holds, reason in reasons if holds)
