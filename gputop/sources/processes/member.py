"""One tracked process: its tree place, facts and current values."""

from __future__ import annotations

import math
from functools import lru_cache

from msgspec.structs import astuple, replace

from gputop.model.feeders import BESIDE, FeederShares, MainWaits
from gputop.model.secrets import masked_text
from gputop.model.snapshot import FeedTime, MainTime, ProcessSample, ProcessStatic, Role
from gputop.sources.cgroup import Throttling
from gputop.sources.gpu_process import GpuProcess
from gputop.sources.processes.feed import FeedReading
from gputop.sources.processes.loaders import BUSY_HELPER_SHARE, busy_helper
from gputop.sources.processes.process_facts import Facts, RunRank
from gputop.sources.processes.process_threads import HostThreads, Threads
from gputop.sources.processes.process_tree import ProcessPlace
from gputop.sources.processes.watched import NEEDS_TWO, NO_SCHEDSTAT, ProcessReading, WatchedProcess
from gputop.sources.procfs import TICKS_PER_S

# Interval between scans of the threads; shorter while the pool has only one reading.
_SCAN_S = 3.0
_SECOND_SCAN_S = 1.0

# A busy helper becomes a loader by its mean over about this time, and remains one until it does half as much: a role
# that changes with every sample would make the diagnosis flap.
_BUSY_MEAN_S = 10.0

_MAY_BE_HIDDEN = ("network", "lock", "sleep", "poll", "other")

_NO_FEED = FeedReading(unread=True)
"""Feed of a process that was not sampled as a worker."""


class Member:
    """One process of a tree.

    Only its collector writes to it.
    """

    def __init__(self, pid: int, place: ProcessPlace, command: bytes, facts: Facts, watched: WatchedProcess) -> None:
        self.pid = pid
        self.command = command
        self.watched = watched
        self.threads: HostThreads | None = None
        self.seen_threads: Threads | None = None
        self.scanned_at: float | None = None
        self.rank: RunRank | None = None
        """The rank of a GPU process, if its run has several."""
        self.allowed_cores: float | None = None
        """Number of allowed cores: of a GPU process at its last thread scan; of a loader together with its siblings."""
        self.throttling: Throttling | None = None
        self.family: bytes | None = None
        """The list of children at the last reading: a changed text means that the tree has changed."""
        self._at: float | None = None
        self._busy = 0.0
        self._disk = 0.0
        self._network = 0.0
        self._feeds = False
        self.settle(place, facts)

    def settle(self, place: ProcessPlace, facts: Facts) -> None:
        """Set the place and facts from a discovery."""
        self.place = place
        self.facts = facts
        self._statics: dict[tuple[bool, str | None], ProcessStatic] = {}
        self._sample: ProcessSample | None = None
        """The newest sample, created from ``_reading`` and ``_context``."""
        self._reading: ProcessReading | None = None
        self._context: tuple[object, ...] = ()

    @property
    def role(self) -> Role:
        """The role now: a busy helper counts as a loader (R5)."""
        return "loader" if self._feeds and self.place.may_feed else self.place.role

    def read(self, now: float) -> ProcessReading | None:
        """Return a reading; None when the process is gone.

        ``now`` is in monotonic seconds.
        """
        reading = self.watched.read(now)
        if reading is not None and self.place.may_feed:
            self._weigh(now, reading)
        return reading

    def is_scan_due(self, now: float) -> bool:
        """Return whether the threads are due for another scan."""
        if self.scanned_at is None:
            return True
        measured = self.seen_threads is not None and self.seen_threads.pool_run_pct is not None
        return not 0.0 <= now - self.scanned_at < (_SCAN_S if measured else _SECOND_SCAN_S)

    def _weigh(self, now: float, reading: ProcessReading) -> None:
        last, self._at = self._at, now
        if last is None or now <= last or reading.run_pct is None:
            return
        weight = 1.0 - math.exp((last - now) / _BUSY_MEAN_S)
        runnable = min(100.0, reading.run_pct + (reading.wait_pct or 0.0))
        self._busy += weight * (runnable / 100.0 - self._busy)
        self._network += weight * ((1.0 if reading.waiting_on == "network" else 0.0) - self._network)
        self._disk += weight * ((1.0 if reading.waiting_on == "disk" else 0.0) - self._disk)
        share = max(self._busy, self._disk, self._network)
        self._feeds = share >= (BUSY_HELPER_SHARE / 2 if self._feeds else BUSY_HELPER_SHARE)

    def static(self, thread_loader: str | None = None) -> ProcessStatic:
        """Return the facts as the snapshot carries them.

        The object stays the same as long as nothing changes.
        """
        feeds = self._feeds and self.place.may_feed
        key = (feeds, thread_loader)
        if key not in self._statics:
            loader, why, rule = self.place.loader or thread_loader, self.place.why, self.place.rule
            if feeds:
                helper = busy_helper(self.place.stat.comm)
                loader = helper.loader
                if rule != BESIDE:
                    why, rule = helper.why, helper.rule
            elif thread_loader:
                why = f"{why}; {thread_loader} by their names"
            facts = self.facts
            identity = facts.identity
            self._statics[key] = ProcessStatic(
                facts.user,
                facts.command,
                facts.name,
                identity.job,
                identity.container,
                loader and _masked(loader),
                _masked(why),
                facts.server,
                facts.job_key,
                rule,
            )
        return self._statics[key]

    def _feeder_threads(self, feed: FeedReading | None) -> int | None:
        """Return the number of threads that can prepare data.

        For a GPU process the names alone decide.
        """
        if self.threads is not None:
            return len(self.threads.feeder_tids)
        return None if feed is None else feed.threads

    def sample(
        self,
        reading: ProcessReading,
        uptime: float | None,
        gpu_process: GpuProcess | None,
        feed: FeedReading | None = None,
    ) -> ProcessSample:
        """Return the process as the snapshot carries it, on one GPU.

        ``gpu_process`` is given only for a process with a GPU context. ``feed`` contains the shares of the process as a
        worker, or of its threads, if they were read.
        """
        stat = reading.stat
        threads = self.seen_threads if gpu_process else None
        throttling = self.throttling
        throttled = throttling.throttled_pct if throttling else None
        feeder_threads = self._feeder_threads(feed)
        age_s = None if uptime is None else max(0.0, uptime - stat.starttime / TICKS_PER_S)
        context = (
            self.role,
            threads,
            throttled,
            throttling and throttling.reason,
            feeder_threads,
            feed,
            gpu_process,
            self.allowed_cores,
        )
        if reading is self._reading and context == self._context and self._sample is not None:
            # The process still sleeps: only its age changes.
            self._sample = replace(self._sample, age_s=age_s)
            return self._sample
        self._reading, self._context = reading, context
        feed = feed or _NO_FEED
        shares, main = None if feed.unread else feed.shares, feed.main
        hidden = reading.unavailable.get("waiting_on") if shares is not None and shares.useful == shares.cpu else None
        self._sample = ProcessSample(
            pid=self.pid,
            starttime=stat.starttime,
            ppid=stat.ppid,
            role=self.role,
            gpu=gpu_process.gpu if gpu_process else self.place.gpu,
            gpu_mem_bytes=gpu_process.gpu_mem_bytes if gpu_process else None,
            gpu_time_pct=gpu_process.gpu_time_pct if gpu_process else None,
            type=gpu_process.type if gpu_process else None,
            cpu_pct=reading.cpu_pct,
            run_pct=reading.run_pct,
            wait_pct=reading.wait_pct,
            main_run_pct=reading.main_run_pct,
            main_wait_pct=reading.main_wait_pct,
            state=stat.state,
            rss_bytes=reading.rss_bytes,
            read_bytes_per_s=reading.read_bytes_per_s,
            write_bytes_per_s=reading.write_bytes_per_s,
            threads=stat.threads,
            throttled_pct=throttled,
            nccl=threads.nccl if threads else None,
            age_s=age_s,
            pin_memory=threads.pin_memory if threads else None,
            pool_threads=threads.pool_threads if threads else None,
            pool_run_pct=threads.pool_run_pct if threads else None,
            framework=threads.framework if threads else None,
            feeder_threads=feeder_threads,
            static=self.static(threads.loader if threads else None),
            unavailable=self._missing(reading, gpu_process, feed, hidden),
            feed=FeedTime() if shares is None else _feed_time(shares, hidden=hidden is not None),
            main=MainTime() if main is None else MainTime(*[*_percent(main), round(100.0 * feed.saves, 1)]),
            main_looks=None if main is None else feed.main_looks,
            waits_for=feed.waits_for,
            feed_by=feed.by,
            net_rx_bytes_per_s=feed.rx_bytes_per_s,
            listens=feed.listens,
            mount=feed.mount,
            allowed_cores=self.allowed_cores,
        )
        return self._sample

    def _missing(
        self, reading: ProcessReading, gpu_process: GpuProcess | None, feed: FeedReading, hidden: str | None
    ) -> dict[str, str]:
        """Return reasons for missing values, by key.

        ``hidden`` is the reason why a worker's waits are not readable: an unreadable wait does not count as no wait.
        """
        missing = dict(reading.unavailable)
        throttling, threads = self.throttling, self.seen_threads
        if throttling is None or throttling.throttled_pct is None:
            missing["throttled_pct"] = (throttling and throttling.reason) or "its cgroup cannot be read"
        if hidden is not None:
            missing.update({f"feed_{wait}_pct": hidden for wait in _MAY_BE_HIDDEN})
        if feed.why_blind is not None:
            missing["net_rx_bytes_per_s"] = feed.why_blind
        if gpu_process is not None:
            missing.update(gpu_process.unavailable)
            if threads is None:
                for key in ("nccl", "pin_memory", "pool_threads", "pool_run_pct", "framework"):
                    missing[key] = "its threads cannot be listed"
            elif threads.pool_run_pct is None:
                missing["pool_run_pct"] = NO_SCHEDSTAT if reading.main_run_ns is None else NEEDS_TWO
        return missing


@lru_cache(maxsize=64)
def _masked(text: str) -> str:
    """Return a text with secrets masked, cached for repeated values."""
    return masked_text(text)


def _feed_time(shares: FeederShares, *, hidden: bool) -> FeedTime:
    """Return a worker's shares in percent.

    ``hidden`` waits are not readable: they are part of ``unread``.
    """
    time = FeedTime(*_percent(shares))
    if not hidden:
        return time
    waits = [getattr(time, name) for name in _MAY_BE_HIDDEN]
    return replace(time, **dict.fromkeys(_MAY_BE_HIDDEN), unread=round(sum(waits, time.unread or 0.0), 1))


def _percent(shares: FeederShares | MainWaits) -> list[float]:
    # Most shares are 0, and rounding takes longer than everything else here.
    return [share and round(100.0 * share, 1) for share in astuple(shares)]
