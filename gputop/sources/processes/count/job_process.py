"""One process of a GPU's tree: its place, facts, counters and shares, and the sample made of them."""

from __future__ import annotations

import operator
from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from gputop.model.command_facts import BESIDE
from gputop.model.secrets import masked_text
from gputop.model.snapshot import FeedTime, MainTime, ProcessSample, ProcessStatic, Role
from gputop.model.wait_shares import WaitShares, percent
from gputop.sources.cgroup import Throttling
from gputop.sources.gpu_process import NOT_ON_A_GPU, GpuProcess
from gputop.sources.processes.count.time_shares import (
    Counters,
    Observations,
    TimeShares,
    activity_shares,
    own_shares,
)
from gputop.sources.processes.count.wait_counts import WaitHistory
from gputop.sources.processes.look.process_threads import HostThreads, Threads
from gputop.sources.processes.look.wait_state import INSIDE
from gputop.sources.processes.resolve.tracked_process import TrackedProcess
from gputop.sources.processes.tree.announced_run import NOTHING_ANNOUNCED
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
from gputop.sources.procfs import TICKS_PER_S, Stat

DENIED_WAIT = "not permitted for this process: run as root to see what it waits for"
UNREADABLE_CGROUP = "its cgroup cannot be read"
UNLISTED_THREADS = "its threads cannot be listed"
_SCAN_S, _SECOND_SCAN_S = 3.0, 1.0
"""Interval between scans of the threads; shorter while the pool has only one reading."""
MEAN_S = 10.0
"""Time of the means by which a process explains a wait. A busy helper becomes a loader by such a mean, and remains one
until it does half as much: a role that changes with every sample would make the diagnosis flap."""
FETCHED_S = 30.0
"""For this long after data arrived, a wait in an unidentified socket counts as network."""
_OF_THREADS = ("nccl", "pin_memory", "pool_threads", "pool_run_pct", "framework")
_MAY_BE_HIDDEN = ("network", "lock", "sleep", "poll", "other")
_NO_SHARES = TimeShares(unread=True)


class _Means(Struct):
    """Ten-second means of a process's useful share of the time.

    ``own`` is the mean without its wait targets' activity.
    """

    useful: float = 0.0
    own: float = 0.0
    weighed_at: float | None = None

    def add_shares(self, now: float, useful: float, own: float) -> None:
        """Add the time since the last reading."""
        weight = 1.0
        if self.weighed_at is not None:
            weight = min(1.0, max(0.0, (now - self.weighed_at) / MEAN_S))
        self.weighed_at = now
        self.useful += weight * (useful - self.useful)
        self.own += weight * (own - self.own)


class JobProcess(TrackedProcess):
    """One process of a GPU's tree. Only its collector writes to it.

    A reading sets ``reading`` first, then ``note_reading`` counts its waits, and at last its ``shares`` are set, once.
    """

    def __init__(
        self,
        proc: str,
        pid: int,
        place: ProcessPlace,
        command: bytes,
        facts: Facts,
        watched: WatchedProcess,
    ) -> None:
        super().__init__(proc, pid, place.stat.starttime)
        self.command = command
        self.watched = watched
        self.reading: ProcessReading | None = None
        """The latest reading; None once the process has ended."""
        self._has_ended = False
        self.waits = WaitHistory()
        self.means = _Means()
        self.counters_now = Counters()
        """What the kernel counted until the latest reading."""
        self.observations_now = Observations()
        """What was observed of its waits until the latest reading."""
        self.shares: TimeShares | None = None
        """Shares since the last reading; None for a process of a GPU that does not wait."""
        self.threads: HostThreads | None = None
        self.seen_threads: Threads | None = None
        self.scanned_at = float("-inf")
        self.rank: RunRank | None = None
        self.announced = NOTHING_ANNOUNCED
        """The rank of a GPU process, if its run has several."""
        self.allowed_cores: float | None = None
        """Number of allowed cores; of a loader together with its siblings."""
        self.throttling: Throttling | None = None
        self._counted: ProcessReading | None = None
        """The reading of which ``observations_now`` was made."""
        self._close_at: float | None = None
        self._fetched_at = float("-inf")
        self._role_useful = 0.0
        self._role_weighed_at: float | None = None
        self._feeds = False
        self.settle(place, facts)

    def settle(self, place: ProcessPlace, facts: Facts) -> None:
        """Set the place and facts from a discovery."""
        self.place = place
        self.is_gpu = place.role == "gpu"
        """Whether the process holds a GPU."""
        self.facts = facts
        self._statics: dict[tuple[bool, str | None], ProcessStatic] = {}
        self._sample: ProcessSample | None = None
        self._sample_objects: tuple[object, ...] = ()
        self._sample_values: tuple[object, ...] = ()
        """Objects and other values that the latest sample was made of."""

    def is_still(self, place: ProcessPlace) -> bool:
        """Return whether a place is that of this process, which has not ended."""
        return self.starttime == place.stat.starttime and not self._has_ended

    def note_counters(self, reading: ProcessReading | None) -> None:
        """Set the latest reading; None once the process has ended."""
        self.reading = reading
        self._has_ended = reading is None

    def has_changed(self, stat: Stat) -> bool:
        """Return whether the process has another name or parent than at the discovery.

        Children of a zombie get another parent, and need not run for this to happen.
        """
        placed = self.place.stat
        if stat.comm != placed.comm or stat.ppid != placed.ppid:
            return True
        return (stat.state == "Z") != (placed.state == "Z")

    @property
    def role(self) -> Role:
        """The role now: a busy helper counts as a loader (R5)."""
        return "loader" if self._feeds and self.place.may_feed else self.place.role

    def is_scan_due(self, now: float) -> bool:
        """Return whether the threads are due for another scan."""
        measured = self.seen_threads is not None and self.seen_threads.pool_run_pct is not None
        return not 0.0 <= now - self.scanned_at < (_SCAN_S if measured else _SECOND_SCAN_S)

    @property
    def may_wait_inside(self) -> bool:
        """Whether other threads of the process may cause its main thread's wait."""
        several = self.reading is not None and self.reading.stat.threads > 1
        return several and self.waits.latest is not None and self.waits.latest.state.kind in INSIDE

    def note_reading(self, now: float) -> None:
        """Count the waits observed until the latest reading; the role depends on them.

        For a GPU process these are the waits of its main thread.
        """
        reading = self.reading
        assert reading is not None
        fresh = self.pop_observations()
        if self._counted is reading and not fresh and not self.is_gpu:
            # Nothing has happened. Without this 64 idle workers cost half as much again (measured).
            self.waits.sleep_on()
            if self.observations_now.fresh:
                self.observations_now = replace(self.observations_now, fresh=())
        else:
            moves = bool(reading.read_bytes_per_s or reading.write_bytes_per_s)
            self.waits.add_observations(
                now, fresh, reading.stat, moves=moves, holds_gpu=self.is_gpu
            )
            counters = self.counters_now = self._counters(reading)
            counts = self.waits.counts
            is_counted = counters.run is not None
            own = own_shares(counters, counts) if is_counted else self.observations_now.own
            latest = self.waits.latest
            self.observations_now = Observations(
                counts=counts,
                own=own,
                by_activity=activity_shares(counters, counts, own),
                fresh=self.waits.fresh,
                latest=None if latest is None else latest.state,
            )
            self._counted = reading if is_counted else None
            if not is_counted:
                return
        observed = self.observations_now
        self.means.add_shares(now, observed.by_activity.shares.useful, observed.own.useful)
        self._note_role(now, observed.own.useful)

    def _note_role(self, now: float, useful: float) -> None:
        """Note how useful a process was by itself: a busy helper feeds."""
        elapsed = 0.0
        if self._role_weighed_at is not None:
            elapsed = max(0.0, now - self._role_weighed_at)
        self._role_weighed_at = now
        self._role_useful += min(1.0, elapsed / MEAN_S) * (useful - self._role_useful)
        least = BUSY_HELPER_SHARE / 2 if self._feeds else BUSY_HELPER_SHARE
        self._feeds = self._role_useful >= least

    def _counters(self, reading: ProcessReading) -> Counters:
        """Return what the kernel counted since the last reading."""
        if reading.run_pct is None:
            return Counters(is_main=self.is_gpu)
        run_pct, queued_pct = reading.run_pct, reading.wait_pct or 0.0
        other_threads = reading.stat.threads - 1
        if not self.is_gpu:
            return Counters(
                run=run_pct / 100.0, queued=queued_pct / 100.0, other_threads=other_threads
            )
        main_run_pct, main_queued_pct = reading.main_run_pct, reading.main_wait_pct or 0.0
        main_waits = None
        if main_run_pct is not None:
            run_pct, queued_pct = main_run_pct, main_queued_pct
            main_waits = max(0.0, 1.0 - (main_run_pct + main_queued_pct) / 100.0)
        others_pct = 0.0 if self.seen_threads is None else self.seen_threads.other_run_pct or 0.0
        pool_pct = max(0.0, reading.run_pct - (main_run_pct or 0.0) - others_pct)
        return Counters(
            is_main=True,
            run=run_pct / 100.0,
            queued=queued_pct / 100.0,
            main_waits=main_waits,
            pool=pool_pct / 100.0,
            other_threads=other_threads,
        )

    def close_observations(self, now: float) -> Observations:
        """Return what was observed of a process that is sampled closely."""
        if self._close_at is None:
            self._close_at = now
        observed = self.observations_now
        return Observations(
            counts=observed.counts,
            own=observed.own,
            by_activity=observed.by_activity,
            fresh=observed.fresh,
            latest=observed.latest,
            in_line=bool(observed.fresh) and self.waits.has_line(now),
            has_fetched=now - self._fetched_at <= FETCHED_S,
            watched_s=now - self._close_at,
        )

    def note_fetch(self, now: float) -> None:
        """Note that data arrived over the process's own sockets."""
        self._fetched_at = now

    def static(self, thread_loader: str | None = None) -> ProcessStatic:
        """Return the facts as the snapshot carries them.

        The object stays the same as long as nothing changes.
        """
        key = self._feeds and self.place.may_feed, thread_loader
        if key not in self._statics:
            self._statics[key] = self._static(thread_loader)
        return self._statics[key]

    def _static(self, thread_loader: str | None) -> ProcessStatic:
        facts, place = self.facts, self.place
        loader, why, rule = place.loader or thread_loader, place.reason, place.rule
        if self._feeds and place.may_feed:
            helper = busy_helper(place.stat.comm)
            loader = helper.loader
            if rule != BESIDE:
                why, rule = helper.reason, helper.rule
        elif thread_loader:
            why = f"{why}; {thread_loader} by their names"
        return ProcessStatic(
            user=facts.user,
            command=facts.command,
            name=facts.name,
            batch_job=facts.identity.job,
            contained_in=facts.identity.container,
            loader=loader and masked_text(loader),
            why=masked_text(why),
            server=facts.server,
            job_key=facts.job_key,
            rank=self.announced.rank,
            run=self.announced.run,
            rule=rule,
        )

    def sample(
        self, reading: ProcessReading, uptime: float | None, gpu_process: GpuProcess | None = None
    ) -> ProcessSample:
        """Return the process as the snapshot carries it, on one GPU.

        ``gpu_process`` is given only for a process with a GPU context.
        """
        age_s = None
        if uptime is not None:
            age_s = max(0.0, uptime - reading.stat.starttime / TICKS_PER_S)
        throttled_pct = None if self.throttling is None else self.throttling.throttled_pct
        threads = None if gpu_process is None else self.seen_threads
        objects = (reading, self.shares, gpu_process, threads)
        values = (self.role, throttled_pct, self.allowed_cores)
        are_same = all(map(operator.is_, self._sample_objects, objects))
        if self._sample is not None and are_same and self._sample_values == values:
            # The process still sleeps: only its age changes.
            self._sample = replace(self._sample, age_s=age_s)
        else:
            self._sample_objects, self._sample_values = objects, values
            self._sample = self._new_sample(reading, age_s, gpu_process)
        return self._sample

    def _new_sample(
        self, reading: ProcessReading, age_s: float | None, gpu_process: GpuProcess | None
    ) -> ProcessSample:
        stat, feed = reading.stat, self.shares or _NO_SHARES
        shares, main = None if feed.unread else feed.shares, feed.main
        missing = self._missing(reading, gpu_process, feed)
        hidden = self._why_hidden(shares, missing)
        if hidden is not None:
            missing.update({f"feed_{wait}_pct": hidden for wait in _MAY_BE_HIDDEN})
        gpu = self.place.gpu if gpu_process is None else gpu_process.gpu
        on_gpu = gpu_process or NOT_ON_A_GPU
        threads = None if gpu_process is None else self.seen_threads
        feeder_threads = feed.threads
        if self.threads is not None:
            # The names of a GPU process's threads decide which of them can prepare data.
            feeder_threads = len(self.threads.feeder_tids)
        sample = ProcessSample(
            pid=self.pid,
            starttime=stat.starttime,
            ppid=stat.ppid,
            role=self.role,
            gpu=gpu,
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
            throttled_pct=None if self.throttling is None else self.throttling.throttled_pct,
            age_s=age_s,
            feeder_threads=feeder_threads,
            static=self.static(None if threads is None else threads.loader),
            unavailable=missing,
            feed=_feed_time(shares, is_hidden=hidden is not None),
            main=MainTime() if main is None else MainTime.of_shares(main, feed.saves),
            main_looks=None if main is None else feed.main_looks,
            waits_for=feed.waits_for,
            feed_by=feed.evidence,
            net_rx_bytes_per_s=feed.rx_bytes_per_s,
            listens=feed.listens,
            mount=feed.mount,
            allowed_cores=self.allowed_cores,
        )
        if threads is None:
            return sample
        return replace(
            sample,
            nccl=threads.nccl,
            pin_memory=threads.pin_memory,
            pool_threads=threads.pool_threads,
            pool_run_pct=threads.pool_run_pct,
            framework=threads.framework,
        )

    def _why_hidden(self, shares: WaitShares | None, missing: Mapping[str, str]) -> str | None:
        """Return why a process's waits cannot be read, or None: an unreadable wait does not count as no wait."""
        if shares is None or shares.useful != shares.cpu:
            return None
        return missing.get("waiting_on")

    def _missing(
        self, reading: ProcessReading, gpu_process: GpuProcess | None, feed: TimeShares
    ) -> dict[str, str]:
        """Return reasons for missing values, by key."""
        missing = dict(reading.unavailable)
        if self.throttling is None:
            missing["throttled_pct"] = UNREADABLE_CGROUP
        elif self.throttling.throttled_pct is None:
            missing["throttled_pct"] = self.throttling.reason or UNREADABLE_CGROUP
        why_unseen = self.waits.why_unseen()
        if why_unseen is not None:
            is_denied = missing.get("read_bytes_per_s") == DENIED_IO
            missing["waiting_on"] = DENIED_WAIT if is_denied else why_unseen
        if feed.why_blind is not None:
            missing["net_rx_bytes_per_s"] = feed.why_blind
        if gpu_process is None:
            return missing
        missing.update(gpu_process.unavailable)
        if self.seen_threads is None:
            missing.update(dict.fromkeys(_OF_THREADS, UNLISTED_THREADS))
        elif self.seen_threads.pool_run_pct is None:
            has_no_times = reading.main_run_ns is None
            missing["pool_run_pct"] = NO_SCHEDSTAT if has_no_times else NEEDS_TWO
        return missing


def _feed_time(shares: WaitShares | None, *, is_hidden: bool) -> FeedTime:
    """Return a worker's shares in percent.

    Hidden waits are not readable: they are part of ``unread``.
    """
    if shares is None:
        return FeedTime()
    if not is_hidden:
        return FeedTime.of_shares(shares)
    waits = shares.network + shares.lock + shares.sleep + shares.poll + shares.other
    return FeedTime(
        run=percent(shares.run),
        queued=percent(shares.queued),
        disk=percent(shares.disk),
        unread=percent(waits + shares.unread),
    )
