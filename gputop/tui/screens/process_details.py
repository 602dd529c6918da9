"""One process in full; its threads are read while it is shown."""

from __future__ import annotations

from collections.abc import Callable

from gputop.model.inspection import Identity
from gputop.model.snapshot import ProcessSample
from gputop.model.threads import ThreadList, WatchedThreads
from gputop.monitor import Frame
from gputop.paint.details import DetailsPainted
from gputop.paint.process_details import find, process_details
from gputop.paint.theme import Theme
from gputop.paint.view import ProcessKey, View
from gputop.tui.screens.details import DetailsScreen

READING = ThreadList(0.0, reason="reading them")


class ProcessDetailsScreen(DetailsScreen):
    """``watch`` opens a reader of the process's threads; None where they cannot be read, as in a replay."""

    def __init__(
        self,
        theme: Theme,
        frame: Callable[[], Frame | None],
        view: Callable[[], View],
        see: Callable[[View], None],
        key: ProcessKey,
        watch: Callable[[Identity], WatchedThreads] | None = None,
    ) -> None:
        super().__init__(theme, frame, view, see)
        self._key = key
        self._last: ProcessSample | None = None
        self._threads = None if watch is None else watch(Identity(key[0], key[1]))
        self._listed: ThreadList | None = None

    def on_unmount(self) -> None:
        if self._threads is not None:
            self._threads.close()

    def _look(self) -> None:
        super()._look()
        if self._threads is not None and self._threads.latest is not self._listed:
            self.paint()

    def details(self, frame: Frame, width: int, height: int) -> DetailsPainted:
        self._last = find(frame, self._key) or self._last
        if self._threads is not None:
            self._threads.ask()
            self._listed = self._threads.latest
        threads = None if self._threads is None else self._listed or READING
        return process_details(frame, self.state, self._key, self._last, threads, width, height)
