"""Inference servers beside a source: their pages read on a thread of their own, their rows joined to its snapshots.

Whatever a server does (silent, endless, not a page, gone) costs a line in the notices, and nothing else waits for it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from time import monotonic

from msgspec.structs import replace

from gputop.model.fleet_settings import is_loopback
from gputop.model.serving import MOST_SERVERS, ServerRow
from gputop.model.snapshot import Snapshot
from gputop.model.source import Source, UsageError
from gputop.sources.activity.http_get import checked, get, place_of, trouble
from gputop.sources.serving_page import LEAST_S, PageError, ServerWindow, read_page

TIMEOUT_S = 1.0
"""How long each wait for a server may take; a whole answer has three seconds."""
LEAST_APART_S = 1.0
SILENT_APART_S = 10.0
"""How long a server that did not answer is left alone."""
OPTION = "--server-url"


def addresses(text: str, *, typed: bool = False) -> tuple[str, ...]:
    """The addresses in a setting, separated by commas; an address without a path means ``/metrics``.

    ``typed`` says that they come from the command line, which may name this machine alone. Raises UsageError.
    """
    from urllib.parse import urlsplit

    found = []
    for given in filter(None, (part.strip() for part in text.split(","))):
        url = checked(given, OPTION, "http://localhost:8000/metrics")
        parts = urlsplit(url)
        if parts.username is not None or parts.password is not None:
            raise UsageError(f"{OPTION}: leave user and password out of the address: they would stand in lists of "
                             "processes")  # fmt: skip
        if typed and not is_loopback(parts.hostname or ""):
            raise UsageError(
                f"{OPTION} {place_of(url)}: on the command line this machine alone (localhost); another host only by "
                f'the configuration file: server_url = "http://HOST:PORT/metrics"'
            )
        found.append(url if parts.path not in ("", "/") else f"{parts.scheme}://{parts.netloc}/metrics")
    if len(found) > MOST_SERVERS:
        raise UsageError(f"{OPTION}: at most {MOST_SERVERS} servers, not {len(found)}")
    return tuple(dict.fromkeys(found))


class ServerWatch:
    """Reads each server about once a second, one thread a server, so that a silent one delays no other."""

    def __init__(self, urls: Sequence[str], clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._ended = threading.Event()
        self._heard = threading.Condition()
        self._rows: dict[str, ServerRow] = {}
        self._urls = tuple(urls)

    def start(self) -> None:
        """Begin to read."""
        for url in self._urls:
            threading.Thread(target=self._run, args=(url,), name="gputop-server", daemon=True).start()

    def rows(self) -> tuple[ServerRow, ...]:
        """The newest row of each server that was asked already. Never blocks."""
        rows = self._rows
        return tuple(rows[url] for url in self._urls if url in rows)

    def wait_for_rates(self, wait_s: float) -> None:
        """Wait until each server has given a rate or a reason why not, at most so many seconds."""
        end = monotonic() + wait_s
        with self._heard:
            while (left := end - monotonic()) > 0.0 and not self._is_complete():
                self._heard.wait(left)

    def close(self) -> None:
        """End the threads; one that is waiting for an answer ends with it."""
        self._ended.set()

    def _is_complete(self) -> bool:
        rows = self.rows()
        return len(rows) == len(self._urls) and all(row.error is not None or row.window_s is not None for row in rows)

    def _run(self, url: str) -> None:
        window = ServerWindow(place_of(url))
        while not self._ended.is_set():
            begun = self._clock()
            row = self._row(url, window)
            with self._heard:
                self._rows = {**self._rows, url: row}
                self._heard.notify_all()
            apart = LEAST_APART_S if row.error is None else SILENT_APART_S
            self._ended.wait(max(LEAST_S, apart - (self._clock() - begun)))

    def _row(self, url: str, window: ServerWindow) -> ServerRow:
        try:
            return window.add(self._clock(), read_page(get(url, TIMEOUT_S)))
        except PageError as error:
            return window.fail(str(error))
        except (OSError, ValueError) as error:
            return window.fail(trouble(error))
        except Exception as error:  # noqa: BLE001 - the last frame of a thread that must outlive any answer
            return window.fail(f"its page cannot be read ({type(error).__name__})")


class Serving:
    """Passes on what another source measured, with what the servers say."""

    def __init__(self, source: Source, watch: ServerWatch) -> None:
        self._source, self._watch = source, watch
        self.interval_s = source.interval_s

    def start(self, notify: Callable[[], None]) -> None:
        self._watch.start()
        self._source.start(notify)

    def poll(self) -> Snapshot | None:
        snapshot = self._source.poll()
        return None if snapshot is None else with_rows(snapshot, self._watch.rows())

    def close(self) -> None:
        self._watch.close()
        self._source.close()


def with_rows(snapshot: Snapshot, rows: Sequence[ServerRow]) -> Snapshot:
    """The snapshot with the servers' rows, and a notice for each that did not answer."""
    if not rows:
        return snapshot
    troubles = [f"server {row.place}: {row.error}" for row in rows if row.error is not None]
    return replace(snapshot, servers=tuple(rows), notices=(*snapshot.notices, *troubles))


def with_servers(source: Source, urls: str) -> Source:
    """The source with the servers of a setting; itself where none is named. Raises UsageError."""
    found = addresses(urls)
    return Serving(source, ServerWatch(found)) if found else source
