"""Reads the metrics that inference servers publish."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from time import monotonic

from msgspec.structs import replace

from gputop.model.fleet_settings import is_loopback
from gputop.model.serving import MOST_SERVERS, ServerRow
from gputop.model.snapshot import Snapshot
from gputop.model.source import PassingOn, Source, UsageError
from gputop.sources.activity.http_get import checked, get, place_of, trouble
from gputop.sources.serving_page import PageError, read_page
from gputop.sources.serving_window import LEAST_S, ServerWindow
from gputop.system.worker import Worker

TIMEOUT_S = 1.0
"""How long each wait for a server may take; a whole answer has three seconds."""
LEAST_APART_S = 1.0
RATES_WAIT_S = 4.0
"""How long a single reading waits for rates: an answer may take three seconds, the next begins a second later."""
SILENT_APART_S = 10.0
"""How long a server that did not answer is left alone."""
OPTION = "--server-url"


def addresses(text: str, *, typed: bool = False) -> tuple[str, ...]:
    """Return the addresses in a setting, separated by commas.

    An address without a path means ``/metrics``. ``typed`` ones come from the command line and may name this machine
    alone. Raises UsageError.
    """
    from urllib.parse import urlsplit

    urls = []
    for address in filter(None, (part.strip() for part in text.split(","))):
        url = checked(address, OPTION, "http://localhost:8000/metrics")
        parts = urlsplit(url)
        if parts.username is not None or parts.password is not None:
            raise UsageError(
                f"{OPTION}: leave user and password out of the address: they would stand in lists of "
                "processes"
            )
        if typed and not is_loopback(parts.hostname or ""):
            raise UsageError(
                f"{OPTION} {place_of(url)}: on the command line this machine alone (localhost); another host only by "
                f'the configuration file: server_url = "http://HOST:PORT/metrics"'
            )
        urls.append(
            url if parts.path not in ("", "/") else f"{parts.scheme}://{parts.netloc}/metrics"
        )
    if len(urls) > MOST_SERVERS:
        raise UsageError(f"{OPTION}: at most {MOST_SERVERS} servers, not {len(urls)}")
    return tuple(dict.fromkeys(urls))


class ServerWatch:
    """Reads each server about once a second on a thread of its own.

    A server that is silent, endless, gone or no page costs one notice and delays no other.
    """

    def __init__(self, urls: Sequence[str], clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._heard = threading.Condition()
        self._workers = [self._worker(url) for url in urls]

    def start(self) -> None:
        """Begin to read."""
        for worker in self._workers:
            worker.ask()

    def rows(self) -> tuple[ServerRow, ...]:
        """Return the newest row of each server, without blocking."""
        return tuple([row for worker in self._workers if (row := worker.latest) is not None])

    def rates(self, wait_s: float) -> tuple[ServerRow, ...]:
        """Wait for a rate, or a reason, of each server; return the rows.

        Waits ``wait_s`` seconds at most.
        """
        end = monotonic() + wait_s
        with self._heard:
            while (remaining_s := end - monotonic()) > 0.0 and not self._is_complete():
                self._heard.wait(remaining_s)
        return self.rows()

    def close(self) -> None:
        """End the threads; one waiting for an answer ends with it."""
        for worker in self._workers:
            worker.stop()

    def _is_complete(self) -> bool:
        rows = self.rows()
        return len(rows) == len(self._workers) and all(
            row.error is not None or row.window_s is not None for row in rows
        )

    def _worker(self, url: str) -> Worker[ServerRow]:
        window = ServerWindow(place_of(url))

        def tell() -> None:
            with self._heard:
                self._heard.notify_all()

        def pause_s() -> float:
            row = worker.latest
            apart_s = LEAST_APART_S if row is None or row.error is None else SILENT_APART_S
            return max(LEAST_S, apart_s - worker.took_s)

        worker = Worker("server", lambda: self._row(url, window), tell, again=pause_s)
        return worker

    def _row(self, url: str, window: ServerWindow) -> ServerRow:
        try:
            text = get(url, TIMEOUT_S)
            # The counts are those of the answer, which may come late, and the first one latest.
            return window.add(self._clock(), read_page(text))
        except PageError as error:
            return window.fail(str(error))
        except (OSError, ValueError) as error:
            return window.fail(trouble(error))
        except Exception as error:  # noqa: BLE001 - the last frame of a thread that must outlive any answer
            return window.fail(f"its page cannot be read ({type(error).__name__})")


class Serving(PassingOn):
    """Adds the servers' rows to another source's snapshots."""

    def __init__(self, source: Source, watch: ServerWatch) -> None:
        super().__init__(source)
        self._watch = watch

    def begin(self, wait_s: float) -> Snapshot | None:
        self._watch.start()
        return super().begin(wait_s)

    def passed(self, snapshot: Snapshot) -> Snapshot:
        return with_rows(snapshot, self._watch.rows())

    def close(self) -> None:
        self._watch.close()
        super().close()


def with_rows(snapshot: Snapshot, rows: Sequence[ServerRow]) -> Snapshot:
    """Add servers' rows to a snapshot, with a notice per failure."""
    if not rows:
        return snapshot
    troubles = [f"server {row.place}: {row.error}" for row in rows if row.error is not None]
    return replace(snapshot, servers=tuple(rows), notices=(*snapshot.notices, *troubles))


def with_servers(source: Source, urls: str) -> Source:
    """Add the servers of a setting to a source; itself without any.

    Raises UsageError.
    """
    servers = addresses(urls)
    return Serving(source, ServerWatch(servers)) if servers else source
