"""One tracked process: its tree place, facts and current values."""

from __future__ import annotations

import operator
from collections.abc import Sequence

from msgspec.structs import replace

from gputop.model.command_facts import BESIDE
from gputop.model.secrets import masked_text
from gputop.model.snapshot import FeedTime, MainTime, ProcessSample, ProcessStatic, Role
from gputop.model.wait_shares import WaitShares, percent
from gputop.sources.cgroup import Throttling
from gputop.sources.gpu_process import NOT_ON_A_GPU, GpuProcess
from gputop.sources.processes.count.process_tracker import ProcessTracker
from gputop.sources.processes.count.wait_shares import CHILD, TimeShares, thread_shares
from gputop.sources.processes.look.process_threads import HostThreads, Threads
from gputop.sources.processes.look.wait_observation import INSIDE, WaitObservation
from gputop.sources.processes.tree.loaders import BUSY_HELPER_SHARE, busy_helper
from gputop.sources.processes.tree.process_facts import Facts, RunRank
from gputop.sources.processes.tree.process_tree import ProcessPlace
from gputop.sources.processes.tree.watched import (
    DENIED_IO,
    NEEDS_TWO,
    NO_SCHEDSTAT,
    ProcessReading,
    WatchedProcess,
)
from gputop.sources.procfs import TICKS_PER_S

DENIED_WAIT = "not permitted for this process: run as root to see what it waits for"
_SCAN_S, _SECOND_SCAN_S = 3.0, 1.0
"""Interval between scans of the threads; shorter while the pool has only one reading."""
_BUSY_MEAN_S = 10.0
"""A busy helper becomes a loader by its mean over about this time, and remains one until it does half as much: a role
that changes with every sample would make the diagnosis flap."""
_MAY_BE_HIDDEN = ("network", "lock", "sleep", "poll", "other")
_NO_SHARES = TimeShares(unread=True)


class Member:
    """One process of a tree.

    Only its collector writes to it.
    """

    def __init__(
        self, pid: int, place: ProcessPlace, command: bytes, facts: Facts, watched: WatchedProcess
    ) -> None:
        self.pid = pid
        self.command = command
        self.watched = watched
        self.reading: ProcessReading | None = None
        """The latest reading; None once the process has ended."""
        self.waits = ProcessTracker()
        self.shares: TimeShares | None = None
        """Shares since the last reading; None for a process of a GPU that does not wait."""
        self._known: tuple[ProcessReading, TimeShares] | None = None
        self.threads: HostThreads | None = None
        self.seen_threads: Threads | None = None
        self.scanned_at = float("-inf")
        self.rank: RunRank | None = None
        """The rank of a GPU process, if its run has several."""
        self.allowed_cores: float | None = None
        """Number of allowed cores; of a loader together with its siblings."""
        self.throttling: Throttling | None = None
        self._weighed_at: float | None = None
        self._useful = 0.0
        self._feeds = False
        self.settle(place, facts)

    def settle(self, place: ProcessPlace, facts: Facts) -> None:
        """Set the place and facts from a discovery."""
        self.place = place
        self.facts = facts
        self._statics: dict[tuple[bool, str | None], ProcessStatic] = {}
        self._sample: ProcessSample | None = None
        self._sources: tuple[tuple[object, ...], tuple[object, ...]] = (), ()
        """Objects and other values that the latest sample was made of."""

    @property
    def role(self) -> Role:
        """The role now: a busy helper counts as a loader (R5)."""
        return "loader" if self._feeds and self.place.may_feed else self.place.role

    def is_scan_due(self, now: float) -> bool:
        """Return whether the threads are due for another scan."""
        measured = self.seen_threads is not None and self.seen_threads.pool_run_pct is not None
        return not 0.0 <= now - self.scanned_at < (_SCAN_S if measured else _SECOND_SCAN_S)

    @property
    def is_gpu(self) -> bool:
        """Whether the process holds a GPU."""
        return self.place.role == "gpu"

    @property
    def may_wait_inside(self) -> bool:
        """Whether other threads of the process may cause its main thread's wait."""
        several = self.reading is not None and self.reading.stat.threads > 1
        return several and self.waits.latest is not None and self.waits.latest.state.kind in INSIDE

    def take(self, now: float, fresh: Sequence[WaitObservation]) -> None:
        """Set the shares since the last reading, with wait targets' activity.

        For a GPU process these are the shares of its main thread. The role depends on the mean of the useful share.
        """
        reading, waits = self.reading, self.waits
        assert reading is not None
        known = self._known
        if known is not None and known[0] is reading and not fresh:
            # Nothing has happened. Without this 64 idle workers cost half as much again (measured).
            self.shares, waits.fresh = known[1], ()
            waits.sleep_on(now, known[1].shares.useful)
        else:
            moves = bool(reading.read_bytes_per_s or reading.write_bytes_per_s)
            waits.observe(now, fresh, reading.stat, moves=moves, holds_gpu=self.is_gpu)
            self._known, self.shares = None, TimeShares()
            if reading.run_pct is None:
                return
            run, queued = reading.run_pct, reading.wait_pct or 0.0
            if self.is_gpu and reading.main_run_pct is not None:
                run, queued = reading.main_run_pct, reading.main_wait_pct or 0.0
            shares, evidence = waits.shares(now, run, queued)
            threads = reading.stat.threads - 1 if evidence == "thread" else None
            self.shares = replace(self.shares, shares=shares, evidence=evidence, threads=threads)
            self._known = reading, self.shares
        elapsed = 0.0 if self._weighed_at is None else max(0.0, now - self._weighed_at)
        self._weighed_at = now
        self._useful += min(1.0, elapsed / _BUSY_MEAN_S) * (waits.own.useful - self._useful)
        self._feeds = self._useful >= (BUSY_HELPER_SHARE / 2 if self._feeds else BUSY_HELPER_SHARE)

    def thread_shares(self) -> TimeShares:
        """Return shares of a GPU process's children, or of its threads.

        Children are used if they do more than the threads.
        """
        reading, threads, shares = self.reading, self.seen_threads, self.shares
        assert reading is not None and shares is not None
        others_pct = 0.0 if threads is None else threads.other_run_pct or 0.0
        pool_pct = max(0.0, (reading.run_pct or 0.0) - (reading.main_run_pct or 0.0) - others_pct)
        by_threads = thread_shares(self.waits.counts, pool_pct)
        by_children = shares.shares.useful - self.waits.own.cpu
        return (
            shares
            if shares.evidence == CHILD and by_children > by_threads.useful
            else TimeShares(by_threads)
        )

    def static(self, thread_loader: str | None = None) -> ProcessStatic:
        """Return the facts as the snapshot carries them.

        The object stays the same as long as nothing changes.
        """
        feeds = self._feeds and self.place.may_feed
        key = feeds, thread_loader
        if key not in self._statics:
            facts, place = self.facts, self.place
            loader, why, rule = place.loader or thread_loader, place.reason, place.rule
            if feeds:
                helper = busy_helper(place.stat.comm)
                loader = helper.loader
                if rule != BESIDE:
                    why, rule = helper.reason, helper.rule
            elif thread_loader:
                why = f"{why}; {thread_loader} by their names"
            self._statics[key] = ProcessStatic(
                facts.user,
                facts.command,
                facts.name,
                facts.identity.job,
                facts.identity.container,
                loader and masked_text(loader),
                masked_text(why),
                facts.server,
                facts.job_key,
                rule,
            )
        return self._statics[key]

    def sample(
        self, reading: ProcessReading, uptime: float | None, gpu_process: GpuProcess | None = None
    ) -> ProcessSample:
        """Return the process as the snapshot carries it, on one GPU.

        ``gpu_process`` is given only for a process with a GPU context.
        """
        stat, feed = reading.stat, self.shares
        age_s = None if uptime is None else max(0.0, uptime - stat.starttime / TICKS_PER_S)
        throttled_pct = self.throttling.throttled_pct if self.throttling else None
        threads = self.seen_threads if gpu_process else None
        sources = (
            (reading, feed, gpu_process, threads),
            (self.role, throttled_pct, self.allowed_cores),
        )
        is_same = (
            all(map(operator.is_, self._sources[0], sources[0])) and self._sources[1] == sources[1]
        )
        if is_same and self._sample is not None:
            # The process still sleeps: only its age changes.
            self._sample = replace(self._sample, age_s=age_s)
            return self._sample
        self._sources = sources
        feed = feed or _NO_SHARES
        shares, main = None if feed.unread else feed.shares, feed.main
        missing = self._missing(reading, gpu_process, feed)
        # An unreadable wait does not count as no wait.
        hidden = (
            missing.get("waiting_on")
            if shares is not None and shares.useful == shares.cpu
            else None
        )
        if hidden is not None:
            missing.update({f"feed_{wait}_pct": hidden for wait in _MAY_BE_HIDDEN})
        on_gpu = gpu_process or NOT_ON_A_GPU
        self._sample = ProcessSample(
            pid=self.pid,
            starttime=stat.starttime,
            ppid=stat.ppid,
            role=self.role,
            gpu=gpu_process.gpu if gpu_process else self.place.gpu,
            gpu_mem_bytes=on_gpu.gpu_mem_bytes,
            gpu_time_pct=on_gpu.gpu_time_pct,
            gpu_mem_time_pct=on_gpu.gpu_mem_time_pct,
            gpu_encoder_pct=on_gpu.gpu_encoder_pct,
            gpu_decoder_pct=on_gpu.gpu_decoder_pct,
            type=on_gpu.type,
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
            throttled_pct=throttled_pct,
            nccl=threads.nccl if threads else None,
            age_s=age_s,
            pin_memory=threads.pin_memory if threads else None,
            pool_threads=threads.pool_threads if threads else None,
            pool_run_pct=threads.pool_run_pct if threads else None,
            framework=threads.framework if threads else None,
            # The names of a GPU process's threads decide which of them can prepare data.
            feeder_threads=feed.threads if self.threads is None else len(self.threads.feeder_tids),
            static=self.static(threads.loader if threads else None),
            unavailable=missing,
            feed=FeedTime() if shares is None else _feed_time(shares, hidden=hidden is not None),
            main=MainTime() if main is None else MainTime.of_shares(main, feed.saves),
            main_looks=None if main is None else feed.main_looks,
            waits_for=feed.waits_for,
            feed_by=feed.evidence,
            net_rx_bytes_per_s=feed.rx_bytes_per_s,
            listens=feed.listens,
            mount=feed.mount,
            allowed_cores=self.allowed_cores,
        )
        return self._sample

    def _missing(
        self, reading: ProcessReading, gpu_process: GpuProcess | None, feed: TimeShares
    ) -> dict[str, str]:
        """Return reasons for missing values, by key."""
        throttling, threads, missing = self.throttling, self.seen_threads, dict(reading.unavailable)
        if throttling is None or throttling.throttled_pct is None:
            missing["throttled_pct"] = (
                throttling and throttling.reason
            ) or "its cgroup cannot be read"
        if (why_unseen := self.waits.why_unseen()) is not None:
            missing["waiting_on"] = (
                DENIED_WAIT if missing.get("read_bytes_per_s") == DENIED_IO else why_unseen
            )
        if feed.why_blind is not None:
            missing["net_rx_bytes_per_s"] = feed.why_blind
        if gpu_process is not None:
            missing.update(gpu_process.unavailable)
            if threads is None:
                keys = ("nccl", "pin_memory", "pool_threads", "pool_run_pct", "framework")
                missing |= dict.fromkeys(keys, "its threads cannot be listed")
            elif threads.pool_run_pct is None:
                missing["pool_run_pct"] = NO_SCHEDSTAT if reading.main_run_ns is None else NEEDS_TWO
        return missing


def _feed_time(shares: WaitShares, *, hidden: bool) -> FeedTime:
    """Return a worker's shares in percent.

    ``hidden`` waits are not readable: they are part of ``unread``.
    """
    if not hidden:
        return FeedTime.of_shares(shares)
    waits = shares.network + shares.lock + shares.sleep + shares.poll + shares.other
    return FeedTime(
        run=percent(shares.run),
        queued=percent(shares.queued),
        disk=percent(shares.disk),
        unread=percent(waits + shares.unread),
    )
