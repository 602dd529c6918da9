"""Past activity of each GPU process and its loaders: bounded series for the screen of one process."""

from __future__ import annotations

from collections.abc import Sequence

from gputop.model.history import History
from gputop.model.snapshot import NOT_READ_YET, ProcessSample

MOST_PROCESSES = 64
LEAST_STEP_S = 0.95
"""A little under a second: with a full second, jitter in the clock would drop every other value."""
KEPT_AFTER_END_S = 60.0
_RANKS = {"gpu": 0, "loader": 1, "helper": 2}

ProcessKey = tuple[int, int | None, int | None]
"""Identity of a process on a GPU: pid, start time, GPU index."""


class ProcessHistory:
    """Series by process and name.

    Names are catalogue keys, and shares of states and waits in percent of samples. ``main_pct`` is the main thread's
    running and queued time; ``in_disk_pct`` and ``on_network_pct`` are 100 or 0 in a sample, so that a column's mean is
    the share of its time; ``asleep_pct`` is 0, or what running and waiting left.
    """

    def __init__(self, interval_s: float = 1.0) -> None:
        self._history = History(max(1.0, interval_s))
        self._last_seen_t: dict[ProcessKey, float] = {}
        self._t = float("-inf")

    @property
    def latest_t(self) -> float | None:
        """Unix time of the newest values."""
        return self._history.latest_t

    def observe(
        self, t: float, processes: Sequence[ProcessSample], interval_s: float = 1.0
    ) -> None:
        """Add one snapshot's processes; ``interval_s`` is the snapshot's.

        Times must not run backwards; the monitor starts afresh when they do.
        """
        if t - self._t < LEAST_STEP_S or (
            processes and processes[0].unavailable.get("state") == NOT_READ_YET
        ):
            # Processes not yet read from /proc have no start time: their series could belong to another process.
            return
        self._t = t
        if len(processes) > MOST_PROCESSES:
            processes = sorted(processes, key=self._rank)[:MOST_PROCESSES]
        for process in processes:
            key = (process.pid, process.starttime, process.gpu)
            self._last_seen_t.pop(key, None)
            self._last_seen_t[key] = t
            self._history.add(t, key, _values(process), max(1.0, interval_s))
        self._forget(t)

    def has(self, key: ProcessKey) -> bool:
        """Whether there are values of this process."""
        return key in self._last_seen_t

    def columns(self, key: ProcessKey, name: str, width_s: float, count: int) -> list[float | None]:
        """Return the newest columns of one series.

        See ``History.columns``; all are None for an unknown process.
        """
        return self._history.columns(key, name, width_s, count)

    def last_full_mean(
        self, process: ProcessSample, name: str, width_s: float, t: float
    ) -> float | None:
        """Return the mean of a series over the last column that is over at ``t``.

        None for a process that is not followed. See ``History.last_full_mean``.
        """
        key = (process.pid, process.starttime, process.gpu)
        if key not in self._last_seen_t:
            return None
        # Processes may be read more seldom than GPUs: their time ends with their last values.
        return self._history.last_full_mean(key, name, width_s, min(t, self._t))

    def _rank(self, process: ProcessSample) -> tuple[int, bool, float]:
        is_known = (process.pid, process.starttime, process.gpu) in self._last_seen_t
        return _RANKS[process.role], not is_known, -(process.gpu_mem_bytes or 0.0)

    def _forget(self, t: float) -> None:
        """Drop processes that ended long ago, or exceed the limit.

        The longest unseen go first; ``_last_seen_t`` is in the order in which processes were last seen.
        """
        while self._last_seen_t:
            key = next(iter(self._last_seen_t))
            if (
                len(self._last_seen_t) <= MOST_PROCESSES
                and t - self._last_seen_t[key] <= KEPT_AFTER_END_S
            ):
                return
            del self._last_seen_t[key]
            self._history.forget(key)


_VALUES = (
    "cpu_pct", "gpu_time_pct", "gpu_mem_bytes", "rss_bytes", "read_bytes_per_s", "write_bytes_per_s", "run_pct",
    "wait_pct", "main_pct",
)  # fmt: skip


def _values(p: ProcessSample) -> dict[str, float | None]:
    values: dict[str, float | None] = {key: getattr(p, key) for key in _VALUES}
    if p.state is not None:
        waits = p.waiting_on
        in_disk = p.state == "D" or waits == "disk"
        on_network = not in_disk and waits == "network"
        values["in_disk_pct"] = 100.0 if in_disk else 0.0
        # An unknown wait of a sleeping process may be the network: then neither share is known.
        if p.state != "S" or waits is not None:
            values["on_network_pct"] = 100.0 if on_network else 0.0
            # The state is momentary, run and wait are shares of the whole interval: the process slept for the rest.
            rest = max(0.0, 100.0 - (p.run_pct or 0.0) - (p.wait_pct or 0.0))
            values["asleep_pct"] = (
                rest if p.state == "S" and not in_disk and not on_network else 0.0
            )
    return values
