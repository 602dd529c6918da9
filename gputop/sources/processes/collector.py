"""Collector of GPU processes, their loader workers and helpers: the story of this package.

A GPU waits. Why? Its process's main thread reads an empty pipe, a worker fills that pipe, and the worker waits for a
server. Two waits in a row, and what finds each::

    main thread                     worker                         server
    pid 100, GPU 0                  pid 110                        10.0.0.7:443

    read(3 -> pipe:[7])  ------->   holds pipe:[7] for writing
                                    recv(5 -> socket:[50])  --->   peer of socket:[50]

    look/     /proc/100/wchan       /proc/110/wchan
              "pipe_read"           "sk_wait_data" on TCP
              = waits in "pipe"     = waits in "network"

    resolve/  /proc/100/syscall names descriptor 3, /proc/100/fd/3 names pipe:[7];
              of the job's processes, 110 holds its other end and has written lately.
              /proc/110/syscall, fd/5 and the kernel's socket table give the address.

    count/    how much of the time: counters of the kernel for time on a core,
              samples at random moments for the waits between.

``tree/`` says before all that which processes belong to the GPU, and which of them is called a worker.
``on_demand/`` holds what is done to one process when somebody asks for it.

A worked example. In the last second the kernel counted 200 ms on a core for the worker, and 50 ms for the main thread.
Eight looks at random moments found the worker six times in the network and twice at a lock, and the main thread always
at the pipe of pid 110:

>>> from gputop.model.snapshot import FeedTime, MainTime
>>> from gputop.sources.processes.count.time_shares import (
...     Counters, Observations, activity_shares, own_shares, time_shares)
>>> from gputop.sources.processes.count.wait_counts import count_waits
>>> from gputop.sources.processes.look.wait_state import WaitObservation, WaitState, WaitTarget
>>> def shares_in(counters, looks):
...     counts = count_waits(looks, moves=False, holds_gpu=counters.is_main)
...     own = own_shares(counters, counts)
...     by_activity = activity_shares(counters, counts, own)
...     observed = Observations(counts, own, by_activity, fresh=looks, watched_s=60.0)
...     return time_shares(counters, observed, sockets=None)

(``moves`` would say that it moves bytes to or from a disk, ``watched_s`` that the first seconds are over, after which
missing evidence counts, and ``sockets`` what its connections received, where nothing else explains the waiting.)

The counters are exact and the looks divide what is left. Of the worker's 0.8 s without a core, six of eight parts are
network (0.6) and two are lock (0.2). Whom it waits for leads out of the job, so it is told:

>>> server = WaitTarget("network", detail="10.0.0.7:443")
>>> looks = [WaitObservation(n / 8, 110, 110, WaitState("network"), server) for n in range(6)]
>>> looks += [WaitObservation(n / 8, 110, 110, WaitState("lock")) for n in (6, 7)]
>>> worker = shares_in(Counters(run=0.2), looks)
>>> FeedTime.of_shares(worker.shares)  # doctest: +NORMALIZE_WHITESPACE
FeedTime(run=20.0, queued=0.0, disk=0.0, network=60.0, lock=20.0, sleep=0.0, poll=0.0,
         other=0.0, unread=0.0)
>>> worker.waits_for
(WaitEnd(via='network', pct=75.0, pids=(), detail='10.0.0.7:443'),)

The main thread waits for 0.95 s, all of it in the pipe, and the pipe leads to the worker:

>>> fills = WaitTarget("pipe", pids=(110,), written=True)
>>> looks = [WaitObservation(n / 8, 100, 100, WaitState("pipe"), fills) for n in range(8)]
>>> main = shares_in(Counters(is_main=True, run=0.05, main_waits=0.95), looks)
>>> MainTime.of_shares(main.main, main.saves).pipe
95.0
>>> main.waits_for
(WaitEnd(via='pipe', pct=100.0, pids=(110,), detail=''),)

So the snapshot says: GPU 0's main thread waits 95 % for pid 110, which waits 60 % for the network and is useful for
80 % of its time. The diagnosis makes the sentence of it.

Between two readings the sampler's thread (``count/wait_sampler.py``) looks at random moments. A reading then goes
through these steps, ``ProcessCollector.read``::

    discover        tree/     which processes there are; every second or two, or when the driver's list, a name or a
                              parent has changed
    read counters   tree/     what the kernel counted of each since the last reading
    set shares      count/    counters and looks become shares; which processes are looked at next
    find outsiders  tree/     who else takes the cores, if a process queues for one
    samples                   what the snapshot carries, in percent

What is remembered of a process is in its ``TrackedProcess`` (``resolve/tracked_process.py``), by pid and start time.
A reading never raises for errors of /proc: a process that cannot be seen is a sample with a reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from msgspec import Struct

from gputop.model.feeders import Outsider
from gputop.model.snapshot import ProcessSample
from gputop.sources.gpu_process import GpuProcess, largest_owners, unseen
from gputop.sources.processes.count.core_limits import CoreLimits
from gputop.sources.processes.count.job_process import JobProcess
from gputop.sources.processes.count.share_collector import ShareCollector
from gputop.sources.processes.look.process_threads import HostThreads
from gputop.sources.processes.tree.command_lines import CommandLines
from gputop.sources.processes.tree.outsiders import QUEUED_PCT, Outsiders
from gputop.sources.processes.tree.process_facts import FactsReader
from gputop.sources.processes.tree.process_table import (
    EXITED,
    ProcessTable,
    VisibilityCheck,
    notices_of,
)
from gputop.sources.processes.tree.process_tree import (
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
# /proc counts start times in ticks of 10 ms, and rounds down.
_START_SLACK_S = 0.05


class _Holder(Struct, frozen=True, order=True):
    """A GPU on which a process holds memory; of several, the one with most memory comes first, then the lowest."""

    negative_bytes: float
    gpu: int


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
        self._commands = CommandLines(self._facts)
        self._descriptors = Descriptors()
        self._outsiders = Outsiders(proc, self._facts.user)
        self._limits = CoreLimits(proc)
        self._absence = VisibilityCheck(proc)
        self.shares = ShareCollector(proc)
        self._members: dict[int, JobProcess] = {}
        self._exited: dict[int, JobProcess] = {}
        """Processes that have ended and that the driver still lists."""
        self._changed: set[int] = set()
        """Processes whose name or parent has changed since the last discovery."""
        self._listed: dict[int, float | None] = {}
        """Uptime at which the driver first listed each pid."""
        self._discovered_at: float | None = None
        self._lively_until = float("-inf")
        self._queued_at: float | None = None
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
        self._note_listed(gpu_processes, uptime)
        if self._is_discovery_due(now):
            self._discover(now, uptime, gpu_processes)
        self._limits.read_throttling(now)
        self._read_counters(now)
        self.shares.set_shares(now, self._members, util, largest_owners(gpu_processes))
        self._find_outsiders(self._date(now))
        samples = self._gpu_samples(gpu_processes, uptime) + self._other_samples(uptime)
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

    def close(self) -> None:
        """Close all open files and end the sampling thread."""
        self.shares.close()
        for member in self._members.values():
            member.watched.close()
        self._members.clear()
        self._facts.close()

    def _date(self, now: float) -> float:
        """Return the moment of a read: a reading may take longer than the interval between two."""
        return now if self._clock is None else self._clock()

    # Which processes there are.

    def _note_listed(self, gpu_processes: Sequence[GpuProcess], uptime: float | None) -> None:
        """Note since when the driver lists each pid; another list needs a discovery at once."""
        pids = {process.pid for process in gpu_processes}
        if pids != self._listed.keys():
            self._listed = {pid: self._listed.get(pid, uptime) for pid in pids}
            self._discovered_at = None

    def _is_discovery_due(self, now: float) -> bool:
        """Return whether trees are searched again.

        At once if the driver's list, a name or a parent has changed; else every second or two.
        """
        if self._discovered_at is None or self._changed:
            return True
        pause_s = self._table.pause_s
        if now >= self._lively_until:
            pause_s += _CALM_S
        return not 0.0 <= now - self._discovered_at < pause_s

    def _discover(
        self, now: float, uptime: float | None, gpu_processes: Sequence[GpuProcess]
    ) -> None:
        """Find the trees of the GPU processes, and what is related to them."""
        is_first_of_list = self._discovered_at is None
        self._discovered_at = now
        appeared = self._table.refresh(now)
        if is_first_of_list or self._changed or any(map(self._is_of_a_tree, appeared)):
            self._lively_until = now + _LIVELY_S
        for pid in self._changed:
            self._table.read_again(pid)
        self._changed.clear()
        self._facts.clear_shared()
        self._commands.begin_round(uptime)
        command_of = self._commands.command_of
        places = find_trees(self._table, self._roots(gpu_processes), command_of)
        places.update(find_ray_tasks(self._table, places, command_of))
        places.update(self._related(now, places))
        self._adopt(places)
        self._commands.drop_gone(self._table)

    def _related(
        self, now: float, places: Mapping[int, ProcessPlace]
    ) -> Mapping[int, ProcessPlace]:
        """Return parents and services for which processes of a waiting GPU may wait."""
        waiting: list[int] = []
        for pid, place in places.items():
            if place.role == "gpu" and self.shares.waits(place.gpu):
                waiting.append(pid)
        if not waiting:
            return {}
        with self.shares.lookups(now) as (holds, other_end):
            parents = find_parents(self._table, places, waiting, holds, other_end)
        return parents | self.shares.services(now, self._table, {**places, **parents})

    def _is_of_a_tree(self, pid: int) -> bool:
        """Return whether a process, or its parent, belongs to a known tree."""
        if pid in self._members:
            return True
        stat = self._table.get(pid)
        return stat is not None and stat.ppid in self._members

    def _roots(self, gpu_processes: Sequence[GpuProcess]) -> dict[int, int]:
        """Return the visible GPU processes, each with its main GPU.

        The main GPU is the one on which the process holds most memory, or the lowest index.
        """
        best: dict[int, _Holder] = {}
        was_here = self._members.keys() | self._exited.keys()
        has_strangers = any(self._table.get(pid) is None for pid in self._listed.keys() - was_here)
        for process in gpu_processes:
            stat = self._table.get(process.pid)
            if stat is None or self._is_younger(process.pid, stat):
                continue
            if has_strangers and self._absence.is_another(process.pid):
                continue
            holder = _Holder(-(process.gpu_mem_bytes or 0.0), process.gpu)
            best[process.pid] = min(best.get(process.pid, holder), holder)
        return {pid: holder.gpu for pid, holder in best.items()}

    def _is_younger(self, pid: int, stat: Stat) -> bool:
        """Return whether a process began after the driver listed its pid.

        The driver then means another process.
        """
        listed = self._listed[pid]
        return listed is not None and stat.starttime / TICKS_PER_S > listed + _START_SLACK_S

    def _adopt(self, places: Mapping[int, ProcessPlace]) -> None:
        """Replace the members by ``places``; known processes keep what is remembered of them."""
        former, self._members = self._members, {}
        for pid, place in places.items():
            member = former.get(pid)
            if member is not None and member.is_still(place):
                del former[pid]
                self._settle(member, place)
            else:
                member = self._new_member(pid, place)
            self._members[pid] = member
        self._limits.set_members(self._members.values())
        self.shares.set_members(self._members)
        for member in former.values():
            member.watched.close()
        self._note_exited(former)

    def _note_exited(self, former: Mapping[int, JobProcess]) -> None:
        """Note which former members have ended while the driver still lists them."""
        for pid, member in former.items():
            now_there = self._table.get(pid)
            if now_there is None or now_there.starttime != member.starttime:
                self._exited[pid] = member
        self._exited = {pid: member for pid, member in self._exited.items() if pid in self._listed}

    def _new_member(self, pid: int, place: ProcessPlace) -> JobProcess:
        command = self._commands.command_of(pid, place.stat)
        facts = self._facts.facts_of(pid, place.stat.comm, command)
        watched = WatchedProcess(self._proc, pid, place.stat.starttime, self._descriptors)
        member = JobProcess(self._proc, pid, place, command, facts, watched)
        self._limits.note_new_process()
        if member.is_gpu:
            member.threads = HostThreads(f"{self._proc}/{pid}", pid)
            member.rank = self._facts.rank(pid)
            member.announced = self._facts.announced(pid)
        return member

    def _settle(self, member: JobProcess, place: ProcessPlace) -> None:
        """Give a known process its new place, and its facts if it has another command line."""
        command = self._commands.command_of(member.pid, place.stat)
        if command and command != member.command:
            member.command = command
            member.watched.read_again()
            member.settle(place, self._facts.facts_of(member.pid, place.stat.comm, command))
        elif place != member.place:
            member.watched.read_again()
            member.settle(place, member.facts)

    # What they did since the last reading.

    def _read_counters(self, now: float) -> None:
        """Read all members and note changes of the trees.

        Changed processes are read again by the next discovery.
        """
        for pid, member in self._members.items():
            now = self._date(now)
            reading = member.watched.read_counters(now)
            member.note_counters(reading)
            if reading is None:
                self._changed.add(pid)
                self.shares.forget(pid)
                continue
            if member.has_changed(reading.stat):
                self._changed.add(pid)
            if member.threads is not None and member.is_scan_due(now):
                member.scanned_at = now
                member.seen_threads = member.threads.scan(now, reading.stat, reading.main_run_ns)
                member.watched.continue_in(member.threads.backward_tids)
        self._limits.read_masks(now, self._members.values())

    def _find_outsiders(self, now: float) -> None:
        """Scan for programs that take the cores, if a process of a tree queues for one."""
        for member in self._members.values():
            reading = member.reading
            queued_pct = 0.0 if reading is None else reading.wait_pct or 0.0
            if queued_pct >= QUEUED_PCT and member.role in ("gpu", "loader"):
                self._queued_at = now
                # Who takes the cores may live for seconds only.
                self._lively_until = now + _LIVELY_S
        is_needed = self._queued_at is not None and now - self._queued_at <= WANTED_FOR_S
        pids = (pid for pid, _ in self._table.items())
        self._outsiders.scan_if_due(now, pids, self._members.keys(), is_needed=is_needed)

    # What the snapshot carries of them.

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

    def _other_samples(self, uptime: float | None) -> list[ProcessSample]:
        samples: list[ProcessSample] = []
        for member in self._members.values():
            reading = member.reading
            if reading is None or member.is_gpu or reading.stat.state == "Z":
                continue
            samples.append(member.sample(reading, uptime))
        return samples

    def _unseen(self, process: GpuProcess, member: JobProcess | None) -> ProcessSample:
        """Return the sample of a listed process that /proc lacks.

        The sample has the driver's values and the reason.
        """
        if member is not None:
            return unseen(process, EXITED, member.starttime, member.static())
        stat = self._table.get(process.pid)
        is_younger = stat is not None and self._is_younger(process.pid, stat)
        return unseen(process, self._absence.reason(is_younger=is_younger))
