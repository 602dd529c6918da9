"""How long a framework's loop waits for its batches, by the hooks that it calls before and after it fetches one."""

from __future__ import annotations

from time import perf_counter


class BatchWait:
    """Runs from the last hook before a fetch to the first one after it. What other callbacks and loggers do in between
    is in it; what is known to take time of its own, such as writing a checkpoint, makes the wait unknown."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._waited_s: float | None = None

    def begin(self) -> None:
        """A hook after which the next batch is fetched; the last one counts."""
        self._since = perf_counter()

    def forget(self) -> None:
        """Something else takes its time before the next batch."""
        self._since = None

    def end(self) -> None:
        """The batch is there."""
        self._waited_s = None if self._since is None else perf_counter() - self._since
        self._since = None

    def take(self) -> float | None:
        """The wait for the newest batch, in seconds, once; None where it is not known."""
        waited_s, self._waited_s = self._waited_s, None
        return waited_s
