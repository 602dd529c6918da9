"""Collector of GPU processes, their loader workers and helpers.

Known trees are read every tick from files that stay open. Discovery runs every second or two, or at once when the
driver's process list, a name or a parent has changed. The collector never raises for errors of /proc: a
process that cannot be seen is a sample with a reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from gputop.model.feeders import Outsider
from gputop.model.snapshot import ProcessSample
from gputop.sources.cgroup import CgroupFolders, Throttling, cpu_quota
from gputop.sources.gpu_process import GpuProcess, largest_owners, unseen
from gputop.sources.processes.count.job_process import JobProcess
from gputop.sources.processes.count.share_collector import ShareCollector
from gputop.sources.processes.look.process_threads import HostThreads
from gputop.sources.processes.tree.outsiders import QUEUED_PCT, Outsiders
from gputop.sources.processes.tree.process_facts import FactsReader, allowed_cores, allowed_cpus
from gputop.sources.processes.tree.process_table import (
    EXITED,
    ProcessTable,
    VisibilityCheck,
    notices_of,
)
from gputop.sources.processes.tree.process_tree import (
    CommandOf,
    ProcessPlace,
    find_parents,
    find_ray_tasks,
    find_trees,
)
from gputop.sources.processes.tree.watched import WatchedProcess
from gputop.sources.procfs import TICKS_PER_S, Descriptors, Stat, parse_uptime, text_of

NO_UTIL: Mapping[int, float | None] = MappingProxyType({})
_LIVELY_S, _CALM_S = 30.0, 2.0
"""So long after a change of a tree, or a wait for a core, the process table is refreshed each second; then with this
additional pause."""
WANTED_FOR_S = 10.0
"""The scan for outsiders continues this long after a process last queued for a core."""
_THROTTLE_S = 2.0
_MASKS_AGAIN_S = 10.0
# A younger process may still be between fork and exec, or about to name itself.
_SETTLED_AGE_S = 10.0
# /proc counts start times in ticks of 10 ms, and rounds down.
_START_SLACK_S = 0.05


class ProcessCollector:
    """Reads GPU processes and their trees.

    One thread calls ``read``; ``close`` frees the open files.
    """

    def __init__(
        self, proc: str = "/proc", sys: str = "/sys", *, clock: Callable[[], float] | None = None
    ) -> None:
        """Set up readers.

        ``clock`` returns monotonic seconds and dates each process's counters; the default is the ``now`` that is passed
        to ``read``.
        """
        self._proc = proc
        self._clock = clock
        self._table = ProcessTable(proc)
        self._facts = FactsReader(proc, sys)
        self._descriptors = Descriptors()
        self._outsiders = Outsiders(proc, self._facts.user)
        self._queued_at: float | None = None
        self.shares = ShareCollector(proc)
        self._members: dict[int, JobProcess] = {}
        self._exited: dict[int, JobProcess] = {}
        self._changed: set[int] = set()
        self._listed: dict[int, float | None] = {}
        self._commands: dict[int, tuple[Stat, bytes, bool]] = {}
        self._throttling: dict[str, Throttling] = {}
        self._discovered_at: float | None = None
        self._lively_until = float("-inf")
        self._throttled_at: float | None = None
        self._masked_at: float | None = None
        self._absence = VisibilityCheck(proc)
        self.notices: tuple[str, ...] = ()

    def read(
        self,
        now: float,
        gpu_processes: Sequence[GpuProcess],
        util: Mapping[int, float | None] = NO_UTIL,
    ) -> tuple[ProcessSample, ...]:
        """Return samples of GPU processes, then of their descendants.

        A GPU process has one sample per GPU, every other process has one. ``now`` is in monotonic seconds. ``util`` is
        the utilisation of each GPU by index, in percent: workers are sampled closely while a GPU waits.
        """
        uptime = parse_uptime(text_of(f"{self._proc}/uptime").encode())
        pids = {process.pid for process in gpu_processes}
        if pids != self._listed.keys():
            self._listed = {pid: self._listed.get(pid, uptime) for pid in pids}
            self._discovered_at = None
        at = self._discovered_at
        pause_s = self._table.pause_s + (0.0 if now < self._lively_until else _CALM_S)
        if at is None or self._changed or not 0.0 <= now - at < pause_s:
            self._discover(now, uptime, gpu_processes)
        if self._throttled_at is None or not 0.0 <= now - self._throttled_at < _THROTTLE_S:
            self._throttled_at = now
            for throttling in self._throttling.values():
                throttling.read()
        self._measure(now)
        self.shares.set_shares(now, self._members, util, largest_owners(gpu_processes))
        self._find_outsiders(now if self._clock is None else self._clock())
        samples = self._gpu_samples(gpu_processes, uptime)
        for member in self._members.values():
            reading = member.reading
            if reading is not None and not member.is_gpu and reading.stat.state != "Z":
                samples.append(member.sample(reading, uptime))
        self.notices = notices_of(samples, self._facts.set_aside(), self.shares.sampler.error)
        return tuple(samples)

    @property
    def outsiders(self) -> tuple[Outsider, ...] | None:
        """The largest CPU users outside the trees.

        None unless a process queues for a core.
        """
        return self._outsiders.largest

    @property
    def cpu_outsiders_pct(self) -> float | None:
        """CPU use of all outsiders together, percent of one core.

        None under the same condition as ``outsiders``.
        """
        return self._outsiders.sum_pct

    def _find_outsiders(self, now: float) -> None:
        for member in self._members.values():
            queued_pct = 0.0 if member.reading is None else member.reading.wait_pct or 0.0
            if queued_pct >= QUEUED_PCT and member.role in ("gpu", "loader"):
                self._queued_at = now
                # Who takes the cores may live for seconds only.
                self._lively_until = now + _LIVELY_S
        is_needed = self._queued_at is not None and now - self._queued_at <= WANTED_FOR_S
        self._outsiders.read(
            now, (pid for pid, _ in self._table.items()), self._members.keys(), is_needed=is_needed
        )

    def close(self) -> None:
        """Close all open files and end the sampling thread."""
        self.shares.close()
        for member in self._members.values():
            member.watched.close()
        self._members.clear()
        self._facts.close()

    def _discover(
        self, now: float, uptime: float | None, gpu_processes: Sequence[GpuProcess]
    ) -> None:
        listed_anew, self._discovered_at = self._discovered_at is None, now
        changed = self._table.refresh(now)
        if listed_anew or self._changed or any(map(self._is_of_a_tree, changed)):
            self._lively_until = now + _LIVELY_S
        for pid in self._changed:
            self._table.read_again(pid)
        self._changed.clear()
        self._facts.forget()

        read_pids: set[int] = set()

        def command_of(pid: int, stat: Stat) -> bytes:
            cached = self._commands.get(pid)
            if cached and pid in read_pids:
                return cached[1]
            read_pids.add(pid)
            settled = uptime is None or uptime - stat.starttime / TICKS_PER_S >= _SETTLED_AGE_S
            if (
                cached
                and cached[2]
                and cached[0].starttime == stat.starttime
                and cached[0].comm == stat.comm
            ):
                return cached[1]
            read = self._facts.command(pid)
            command = cached[1] if read is None and cached else read or b""
            self._commands[pid] = stat, command, settled and read is not None
            return command

        places = find_trees(self._table, self._roots(gpu_processes), command_of)
        places.update(find_ray_tasks(self._table, places, command_of))
        waiting = [
            pid
            for pid, place in places.items()
            if place.role == "gpu" and self.shares.waits(place.gpu)
        ]
        if waiting:
            with self.shares.lookups(now) as (holds, other_end):
                places.update(find_parents(self._table, places, waiting, holds, other_end))
            places.update(self.shares.services(now, self._table, places))
        self._adopt(places, command_of)
        self._commands = {
            pid: command for pid, command in self._commands.items() if self._table.get(pid)
        }

    def _is_of_a_tree(self, pid: int) -> bool:
        """Return whether a process, or its parent, belongs to a known tree."""
        stat = self._table.get(pid)
        return pid in self._members or (stat is not None and stat.ppid in self._members)

    def _roots(self, gpu_processes: Sequence[GpuProcess]) -> dict[int, int]:
        """Return the visible GPU processes, each with its main GPU.

        The main GPU is the one on which the process holds most memory, or the lowest index.
        """
        best: dict[int, tuple[float, int]] = {}
        was_here = self._members.keys() | self._exited.keys()
        strangers = any(self._table.get(pid) is None for pid in self._listed.keys() - was_here)
        for process in gpu_processes:
            stat = self._table.get(process.pid)
            if stat is None or self._is_younger(process.pid, stat):
                continue
            if strangers and self._absence.is_another(process.pid):
                continue
            rank = -(process.gpu_mem_bytes or 0.0), process.gpu
            best[process.pid] = min(best.get(process.pid, rank), rank)
        return {pid: gpu for pid, (_, gpu) in best.items()}

    def _is_younger(self, pid: int, stat: Stat) -> bool:
        """Return whether a process began after the driver listed its pid.

        The driver then means another process.
        """
        listed = self._listed[pid]
        return listed is not None and stat.starttime / TICKS_PER_S > listed + _START_SLACK_S

    def _adopt(self, places: Mapping[int, ProcessPlace], command_of: CommandOf) -> None:
        """Replace the members by ``places``; keep counters of known processes."""
        former, self._members = self._members, {}
        throttling, self._throttling = self._throttling, {}
        for pid, place in places.items():
            member = former.pop(pid, None)
            if member is not None and not member.is_still(place):
                former[pid], member = member, None
            member = self._settled(pid, place, command_of(pid, place.stat), member)
            group = member.facts.folders.cpu[:1]
            if group:
                shared = self._throttling.get(group[0]) or throttling.get(group[0])
                if shared is None:
                    shared = Throttling(member.facts.folders)
                    shared.read()
                self._throttling[group[0]] = member.throttling = shared
            self._members[pid] = member
        self.shares.set_members(self._members)
        for pid, member in former.items():
            member.watched.close()
            now_there = self._table.get(pid)
            if pid in self._listed and (
                now_there is None or now_there.starttime != member.place.stat.starttime
            ):
                self._exited[pid] = member
        self._exited = {pid: member for pid, member in self._exited.items() if pid in self._listed}

    def _settled(
        self, pid: int, place: ProcessPlace, command: bytes, member: JobProcess | None
    ) -> JobProcess:
        """Return the member for a place, and create a new one if needed."""
        if member is None:
            watched = WatchedProcess(self._proc, pid, place.stat.starttime, self._descriptors)
            member = JobProcess(
                self._proc,
                pid,
                place,
                command,
                self._facts.read(pid, place.stat.comm, command),
                watched,
            )
            self._masked_at = None
            if place.role == "gpu":
                member.threads = HostThreads(f"{self._proc}/{pid}", pid)
                member.rank = self._facts.rank(pid)
        elif command and command != member.command:
            member.command = command
            member.watched.read_again()
            member.settle(place, self._facts.read(pid, place.stat.comm, command))
        elif place != member.place:
            member.watched.read_again()
            member.settle(place, member.facts)
        return member

    def _measure(self, now: float) -> None:
        """Read all members and note changes of the trees.

        Changed processes are read again by the next discovery.
        """
        for pid, member in self._members.items():
            # Discovery, or a lack of cores, may take longer than the interval between two readings.
            now = now if self._clock is None else self._clock()
            reading = member.reading = member.watched.read(now)
            member.was_read = True
            if reading is None:
                self._changed.add(pid)
                self.shares.forget(pid)
                continue
            stat, place_stat = reading.stat, member.place.stat
            # Children of a zombie get another parent, and need not run for this to happen.
            known = place_stat.comm, place_stat.ppid, place_stat.state == "Z"
            if (stat.comm, stat.ppid, stat.state == "Z") != known:
                self._changed.add(pid)
            if member.threads is not None and member.is_scan_due(now):
                member.scanned_at = now
                member.seen_threads = member.threads.scan(now, stat, reading.main_run_ns)
                member.watched.continue_in(member.threads.backward_tids)
        self._read_masks(now)

    def _read_masks(self, now: float) -> None:
        """Read how many cores GPU processes, and their loaders together, may use.

        They are read every ``_MASKS_AGAIN_S`` seconds, and for new processes.
        """
        if self._masked_at is not None and 0.0 <= now - self._masked_at < _MASKS_AGAIN_S:
            return
        self._masked_at = now
        quotas: dict[CgroupFolders, float | None] = {}
        for member in self._members.values():
            if member.is_gpu:
                folders = member.facts.folders
                if folders not in quotas:
                    quotas[folders] = cpu_quota(folders)
                member.allowed_cores = allowed_cores(self._proc, member.pid, quotas[folders])
        loaders = [member for member in self._members.values() if member.role == "loader"]
        cpus_of: dict[int | None, set[int]] = {}
        for member in loaders:
            cpus_of.setdefault(member.place.root, set()).update(
                allowed_cpus(self._proc, member.pid) or ()
            )
        for member in loaders:
            member.allowed_cores = float(len(cpus_of[member.place.root])) or None

    def _gpu_samples(
        self, gpu_processes: Sequence[GpuProcess], uptime: float | None
    ) -> list[ProcessSample]:
        samples: list[ProcessSample] = []
        for process in gpu_processes:
            member = self._members.get(process.pid)
            if member is not None and member.reading is not None:
                samples.append(member.sample(member.reading, uptime, process))
            else:
                samples.append(self._unseen(process, member or self._exited.get(process.pid)))
        return samples

    def _unseen(self, process: GpuProcess, member: JobProcess | None) -> ProcessSample:
        """Return the sample of a listed process that /proc lacks.

        The sample has the driver's values and the reason.
        """
        if member is not None:
            return unseen(process, EXITED, member.place.stat.starttime, member.static())
        stat = self._table.get(process.pid)
        is_younger = stat is not None and self._is_younger(process.pid, stat)
        return unseen(process, self._absence.reason(is_younger=is_younger))
