"""How long a framework's loop waits for its batches, by the hooks that it calls before and after it fetches one."""

from __future__ import annotations

from time import perf_counter


class BatchWait:
    """Measures from the last hook before a fetch to the first one after it. What other callbacks and loggers do in
    between is included; what is known to take long, such as writing a checkpoint, makes the wait unknown."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._waited_s: float | None = None

    def begin(self) -> None:
        """A hook after which the next batch is fetched; the last one counts."""
        self._since = perf_counter()

    def forget(self) -> None:
        """Something else takes time before the next batch: the wait becomes unknown."""
        self._since = None

    def end(self) -> None:
        """The batch is there."""
        self._waited_s = None if self._since is None else perf_counter() - self._since
        self._since = None

    def take(self) -> float | None:
        """The wait for the newest batch, in seconds, once; None where it is not known."""
        waited_s, self._waited_s = self._waited_s, None
        return waited_s
