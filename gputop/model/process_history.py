"""What each GPU process and its loaders did before: bounded series for the screen of one process.

Written only by the monitor. At most 64 processes at no more than one value a second: GPU processes come first, then
their loaders, then the rest. A process that has ended is kept for a minute, so that its last moments can be read.
"""

from __future__ import annotations

from collections.abc import Sequence

from gputop.model.history import History
from gputop.model.snapshot import NOT_READ_YET, ProcessSample

MOST_PROCESSES = 64
LEAST_STEP_S = 0.95
"""A little under a second: with a full second, jitter in the clock would drop every other value."""
KEPT_AFTER_END_S = 60.0
_RANKS = {"gpu": 0, "loader": 1, "orphan": 2, "helper": 3}

ProcessKey = tuple[int, int | None, int | None]
"""Identity of a process on a GPU: pid, start time, GPU index."""


class ProcessHistory:
    """Series by process and name: catalogue keys, and shares of states and waits in percent of samples.

    ``main_pct`` is the main thread's running and queued time; ``in_disk_pct``, ``on_network_pct`` and ``asleep_pct``
    are 100 or 0 in a sample, so that a column's mean is the share of its time.
    """

    def __init__(self, interval_s: float = 1.0) -> None:
        self._history = History(max(1.0, interval_s))
        self._seen: dict[ProcessKey, float] = {}
        self._t = float("-inf")

    @property
    def latest_t(self) -> float | None:
        """Unix time of the newest values."""
        return self._history.latest_t

    def observe(self, t: float, processes: Sequence[ProcessSample], interval_s: float = 1.0) -> None:
        """Add one snapshot's processes; ``interval_s`` is the snapshot's.

        Times must not run backwards; the monitor starts afresh when they do.
        """
        if t - self._t < LEAST_STEP_S or (processes and processes[0].unavailable.get("state") == NOT_READ_YET):
            # Processes that /proc has not told of yet have no start time: their series would be somebody else's.
            return
        self._t = t
        if len(processes) > MOST_PROCESSES:
            processes = sorted(processes, key=self._rank)[:MOST_PROCESSES]
        for process in processes:
            key = (process.pid, process.starttime, process.gpu)
            self._seen.pop(key, None)
            self._seen[key] = t
            self._history.add(t, _name(key), _values(process), max(1.0, interval_s))
        self._forget(t)

    def holds(self, key: ProcessKey) -> bool:
        """Whether there are values of this process."""
        return key in self._seen

    def columns(self, key: ProcessKey, name: str, width_s: float, count: int) -> list[float | None]:
        """The newest columns of one series, as ``History.columns`` gives them; all None for an unknown process."""
        if key not in self._seen:
            return [None] * count
        return self._history.columns(_name(key), name, width_s, count)

    def _rank(self, process: ProcessSample) -> tuple[int, bool, float]:
        known = (process.pid, process.starttime, process.gpu) in self._seen
        return _RANKS[process.role], not known, -(process.gpu_mem_bytes or 0.0)

    def _forget(self, t: float) -> None:
        """Those that ended long ago, and the longest unseen of too many. ``_seen`` is in order of last sight."""
        while self._seen:
            key = next(iter(self._seen))
            if len(self._seen) <= MOST_PROCESSES and t - self._seen[key] <= KEPT_AFTER_END_S:
                return
            del self._seen[key]
            self._history.forget(_name(key))


def _name(key: ProcessKey) -> str:
    return f"{key[0]} {key[1]} {key[2]}"


def _values(p: ProcessSample) -> dict[str, float | None]:
    main = None if p.main_run_pct is None else min(100.0, p.main_run_pct + (p.main_wait_pct or 0.0))
    values: dict[str, float | None] = {
        "cpu_pct": p.cpu_pct,
        "gpu_time_pct": p.gpu_time_pct,
        "gpu_mem_bytes": p.gpu_mem_bytes,
        "rss_bytes": p.rss_bytes,
        "read_bytes_per_s": p.read_bytes_per_s,
        "write_bytes_per_s": p.write_bytes_per_s,
        "run_pct": p.run_pct,
        "wait_pct": p.wait_pct,
        "main_pct": main,
    }
    if p.state is not None:
        in_disk = p.state == "D" or p.waiting_on == "disk"
        on_network = not in_disk and p.waiting_on == "network"
        values["in_disk_pct"] = 100.0 if in_disk else 0.0
        # Asleep without a wait channel may be the network: then neither share is known.
        if p.state != "S" or p.waiting_on is not None:
            values["on_network_pct"] = 100.0 if on_network else 0.0
            values["asleep_pct"] = 100.0 if p.state == "S" and not in_disk and not on_network else 0.0
    return values
