"""Host activity for each GPU in one snapshot.

A loader belongs to the GPU of its row; where its ancestor holds several GPUs it counts for each of them. Orphans are
never attributed to a GPU.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from msgspec import Struct
from msgspec.structs import astuple, replace

from gputop.model.feeders import A_COMPILER, COMPILE_WORKER, NEVER, FeederKind, WaitEnd, rank_among_owners
from gputop.model.serving import PROGRAMS, ServerRow
from gputop.model.snapshot import FeedTime, ProcessSample, Snapshot

NOT_COMPUTE = ("nvidia-cuda-mps",)


def is_compute(p: ProcessSample) -> bool:
    """True if a process on a GPU computes and does nothing else.

    It neither draws nor brokers for others.
    """
    return "G" not in (p.type or "C") and not (p.static.name or "").startswith(NOT_COMPUTE)


def serving_on(snapshot: Snapshot, row: ServerRow) -> frozenset[int]:
    """GPUs on which a server of this kind runs, by program name.

    The only GPU if none is seen. None of them where several servers of the kind are asked: whose a GPU is cannot be
    told by name.

    None of them where several servers of the kind are asked: which GPU is whose cannot be told by name.
    """
    if row.kind is None or sum(other.kind == row.kind for other in snapshot.servers) > 1:
        return frozenset()
    program = PROGRAMS[row.kind]
    serving_gpus = frozenset(p.gpu for p in snapshot.processes if p.gpu is not None and p.static.server == program)
    if serving_gpus or len(snapshot.gpus) != 1:
        return serving_gpus
    return frozenset({snapshot.gpus[0].static.index})


STATES = 9
DISK, NETWORK, LOCK, SLEEP, POLL, UNREAD = 2, 3, 4, 5, 6, 8
"""Number of states of a worker, and the places of some of them in ``FeederRow.values``."""


class FeederRow(Struct, frozen=True):
    """One worker in one sample, ``values`` in percent.

    ``key``: a pid, or its negative for that process's threads.
    """

    key: int
    kind: str
    values: tuple[float, ...]
    by: str | None = None
    rx_bytes_per_s: float | None = None
    count: int = 1
    why_blind: str | None = None
    what: FeederKind = "workers"
    mount: str | None = None
    address: str = ""
    group: str = ""
    """Group of workers that share work.

    They have one parent, and were classified by one rule.
    """
    starttime: int | None = None
    cores: float | None = None
    """Cores that this feeder and its like may use together."""
    name: str = ""
    """Program of a process that is no worker of the job."""


INTERPRETERS = ("python", "pypy", "node", "java", "bash", "sh")


class LoaderStart(Struct, frozen=True):
    """A loader process, as starts are counted."""

    pid: int
    starttime: int | None
    age_s: float | None
    parent: int | None = None
    rule: str | None = None
    kind: str | None = None


class GpuHostActivity(Struct):
    """The host side of one GPU at one moment.

    CPU figures in percent of one core, disk and network as loader counts.
    """

    owners: list[ProcessSample] = []
    primary: ProcessSample | None = None
    serving: ServerRow | None = None
    """Measurements that the inference server on this GPU reports."""
    process_bytes: float | None = None
    tree_pct: float | None = None
    read_bytes: float | None = None
    write_bytes: float | None = None
    loader_count: int = 0
    scheduled: int = 0
    workers: float = 0.0
    running: float = 0.0
    queued: float = 0.0
    states: int = 0
    disk: int = 0
    network: float = 0.0
    wait_channels: int = 0
    throttled: float | None = None
    kinds: str | None = None
    nccl: bool = False
    pin_memory: bool | None = None
    pool_pct: float | None = None
    compiling: float = 0.0
    """Share of the sample in which a compiler ran."""
    births: list[LoaderStart] = []
    waits_of: dict[int, tuple[WaitEnd, ...]] = {}
    """Wait targets of each worker, by pid."""
    children_of: dict[int, list[int]] = {}
    """Working children by pid of their parent, not counted elsewhere."""
    halted: list[ProcessSample] = []
    """Workers that a signal or a debugger has stopped."""
    feeders: list[FeederRow] = []
    """One row for each feeder."""

    def add_owner(self, p: ProcessSample) -> None:
        """Count a process that holds a context on this GPU."""
        self.owners.append(p)
        if p.gpu_mem_bytes is not None:
            self.process_bytes = (self.process_bytes or 0.0) + p.gpu_mem_bytes
        best = self.primary
        if best is None or rank_among_owners(p) > rank_among_owners(best):
            self.primary = p
        self.nccl = self.nccl or bool(p.nccl)
        if p.pin_memory is not None:
            self.pin_memory = bool(self.pin_memory) or p.pin_memory
        if p.pool_run_pct is not None:
            self.pool_pct = (self.pool_pct or 0.0) + p.pool_run_pct
        if p.feed.run is not None and (p.feeder_threads or p.feed_by == "child"):
            is_child = p.feed_by == "child"
            kind = "child processes" if is_child else p.static.loader or "host threads"
            self.feeders.append(_row(p, -p.pid, "children" if is_child else "threads", kind, p.feeder_threads or 1))
        self.belong(p)

    @property
    def knows_feeders(self) -> bool:
        """Whether the source of this sample could measure feeders."""
        return self.primary is not None and self.primary.feeder_threads is not None

    @property
    def name(self) -> str:
        """The name of the GPU's main process."""
        return (self.primary.static.name if self.primary is not None else None) or "process"

    @property
    def pid(self) -> int | None:
        """The pid of the GPU's main process."""
        return None if self.primary is None else self.primary.pid

    @property
    def age_s(self) -> float | None:
        """How long the GPU's main process has run."""
        return None if self.primary is None else self.primary.age_s

    @property
    def server(self) -> str | None:
        """Serving program of the GPU's main process, if it is one."""
        return None if self.primary is None else self.primary.static.server

    @property
    def is_notebook(self) -> bool:
        """True if the main process runs the cells of a notebook."""
        return self.primary is not None and "ipykernel" in (self.primary.static.command or "")

    @property
    def ends(self) -> tuple[WaitEnd, ...]:
        """Wait targets of the GPU's main thread, the most frequent first.


        Empty where that is not known.
        """
        waits_for = None if self.primary is None else self.primary.waits_for
        ends = [self._with_children(end) for end in waits_for or ()]
        beyond = [further for end in ends for pid in end.pids for further in self._beyond(end, pid)]
        return tuple(sorted((*ends, *beyond), key=lambda end: -end.pct))

    def _with_children(self, end: WaitEnd) -> WaitEnd:
        if not self.children_of:
            return end
        counted = {row.key for row in self.feeders if row.by in ("child", "kinship")}
        below = [
            child
            for pid in end.pids
            if pid not in counted
            for child in self.children_of.get(pid, ())
            if child not in end.pids
        ]
        return replace(end, pids=(*end.pids, *below)) if below else end

    def _beyond(self, end: WaitEnd, pid: int) -> Iterable[WaitEnd]:
        """Yield the wait targets of one of the main thread's targets.

        Their percentages are parts of the main thread's observations.
        """
        for further in self.waits_of.get(pid, ()):
            others = tuple([other for other in further.pids if other != self.pid and other not in end.pids])
            if others:
                yield replace(further, pids=others, pct=end.pct * further.pct / 100.0 / len(end.pids))

    @property
    def draws(self) -> bool:
        """Whether the GPU's main process draws."""
        return self.primary is not None and (self.primary.type or "C") != "C"

    @property
    def computing(self) -> int:
        """Number of processes that compute, rather than drawing or brokering."""
        return sum(1 for p in self.owners if p.type != "G" and not (p.static.name or "").startswith(NOT_COMPUTE))

    @property
    def framework(self) -> str | None:
        """Framework that the main process has loaded: torch, jax, tensorflow."""
        p = self.primary
        if p is None:
            return None
        if p.framework is not None:
            return p.framework
        return "torch" if self.kinds == "torch" or self.pin_memory else None

    def renders(self) -> bool:
        """Whether a process draws on this GPU."""
        return any("G" in (p.type or "C") for p in self.owners)

    def belong(self, p: ProcessSample) -> None:
        """Add what any process of the tree uses."""
        cpu = p.cpu_pct if p.cpu_pct is not None else p.run_pct
        if cpu is not None:
            self.tree_pct = (self.tree_pct or 0.0) + cpu
        if p.read_bytes_per_s is not None:
            self.read_bytes = (self.read_bytes or 0.0) + p.read_bytes_per_s
        if p.write_bytes_per_s is not None:
            self.write_bytes = (self.write_bytes or 0.0) + p.write_bytes_per_s
        if p.static.rule == NEVER:
            self.compiling = min(1.0, self.compiling + _compiling(p))
        throttled = p.throttled_pct
        if throttled is not None and (self.throttled is None or throttled > self.throttled):
            self.throttled = throttled

    def load(self, p: ProcessSample) -> None:
        """Count a dataloader worker, or what else feeds."""
        if p.static.server is not None:
            # It takes an inference server's requests, and loads no data.
            self.feeders.append(_row(p, p.pid, "front", "server fronts", 1))
            return
        self.loader_count += 1
        run = p.run_pct if p.run_pct is not None else p.cpu_pct
        if run is not None:
            queued = p.wait_pct or 0.0
            runnable = run + queued
            if runnable > 100.0:
                # A worker with several threads may exceed 1; as a share of time, runnable is capped there.
                run, queued, runnable = run * 100.0 / runnable, queued * 100.0 / runnable, 100.0
            self.scheduled += 1
            self.workers += runnable
            self.running += run
            self.queued += queued
        if p.state is not None:
            self.states += 1
            self.disk += 1 if is_on_disk(p) else 0
        if p.feed.network is not None:
            self.wait_channels += 1
            self.network += p.feed.network / 100.0
        if self.kinds is None:
            self.kinds = p.static.loader
        rule = p.static.rule
        if rule not in ("R5", "R6"):
            self.births.append(LoaderStart(p.pid, p.starttime, p.age_s, p.ppid, rule, p.static.loader))
        if p.waits_for:
            self.waits_of[p.pid] = p.waits_for
        if rule == "R5" and p.ppid is not None:
            self.children_of.setdefault(p.ppid, []).append(p.pid)
        if p.state is not None and p.state in HALTED:
            self.halted.append(p)
        self.feeders.append(_row(p, p.pid, *_kind(rule, p.static.loader), 1))


def _compiling(p: ProcessSample) -> float:
    """How much of a sample a process compiled; a compiler lives too short for two readings."""
    if (p.static.why or "").endswith(A_COMPILER):
        return 1.0
    if (p.static.why or "").endswith(COMPILE_WORKER):
        return min(1.0, max(p.run_pct or 0.0, p.feed.run or 0.0) / 100.0)
    return 0.0


def is_on_disk(p: ProcessSample) -> bool:
    """True if a process waits for a disk, by its main wait, else state D."""
    return p.state == "D" if p.waiting_on is None else p.waiting_on == "disk"


def saves_pct(p: ProcessSample | None) -> float:
    """Percent of a sample in which the main thread waited for a write.

    If system calls may not be seen: percent of disk waits while the process wrote to a disk.
    """
    if p is None:
        return 0.0
    on_disk = p.main.disk if p.main.disk is not None else 100.0 if is_on_disk(p) else 0.0
    return max(p.main.saves or 0.0, on_disk if p.write_bytes_per_s else 0.0)


@lru_cache(maxsize=256)
def _kind(rule: str | None, loader: str | None) -> tuple[FeederKind, str]:
    """Kind of a loader, and its name in the plural."""
    if rule == "R6":
        return "beside", "processes beside it"
    if rule == "R5":
        return "helpers", "helpers"
    return ("ray", "Ray tasks") if loader == "ray" else ("workers", "workers")


def _row(p: ProcessSample, key: int, feeder_kind: FeederKind, kind: str, count: int) -> FeederRow:
    shares = astuple(p.feed if p.feed.run is not None else _seen_once(p))
    if None in shares:
        shares = tuple([percent or 0.0 for percent in shares])
    blind = p.unavailable.get("feed_poll_pct") or p.unavailable.get("net_rx_bytes_per_s")
    return FeederRow(
        key,
        kind,
        shares,
        p.feed_by,
        p.net_rx_bytes_per_s,
        count,
        blind,
        feeder_kind,
        p.mount,
        address_of(p),
        f"{p.ppid} {p.static.rule} {p.static.loader}",
        p.starttime,
        p.allowed_cores if key >= 0 else None,
        program_of(p) if feeder_kind in ("beside", "front") else "",
    )


def program_of(p: ProcessSample) -> str:
    """Name of a process's program; of an interpreter, the script or module that it runs."""
    name = p.static.name or ""
    if not name.startswith(INTERPRETERS):
        return name
    words = (p.static.command or "").split()[1:]
    if words[:1] == ["-c"]:
        return name
    script = next((word for word in words if not word.startswith("-")), name)
    return script.rsplit("/", 1)[-1]


def address_of(p: ProcessSample) -> str:
    """Address of the connection for which a process mostly waits, else empty.


    Empty where that was not seen.
    """
    ends = [end for end in p.waits_for or () if end.via == "network"]
    return max(ends, key=lambda end: end.pct).detail if ends else ""


def _seen_once(p: ProcessSample) -> FeedTime:
    """Time of a loader whose waits were not observed."""
    run = p.run_pct if p.run_pct is not None else p.cpu_pct or 0.0
    runnable = max(100.0, run + (p.wait_pct or 0.0))
    run, queued = 100.0 * run / runnable, 100.0 * (p.wait_pct or 0.0) / runnable
    rest = 100.0 - run - queued
    return FeedTime(run, queued, disk=rest) if p.state == "D" else FeedTime(run, queued, unread=rest)


NO_PROCESSES = GpuHostActivity()
"""The host side of a GPU that no visible process uses; never written to."""


def read_host(processes: Iterable[ProcessSample]) -> dict[int, GpuHostActivity]:
    """Return host activity by GPU index, for GPUs with processes."""
    ticks: dict[int, GpuHostActivity] = {}
    holders: dict[int, list[int]] = {}
    rest: list[ProcessSample] = []
    for p in processes:
        if p.role == "gpu" and p.gpu is not None:
            tick = ticks.get(p.gpu)
            if tick is None:
                tick = ticks[p.gpu] = GpuHostActivity()
            tick.add_owner(p)
            holders.setdefault(p.pid, []).append(p.gpu)
        elif p.role not in ("gpu", "orphan"):
            rest.append(p)
    several = any(len(gpus) > 1 for gpus in holders.values())
    parents = {p.pid: p.ppid for p in rest} if several else {}
    for p in rest:
        for index in _gpus_of(p, holders, parents) if several or p.gpu is None else (p.gpu,):
            tick = ticks.get(index)
            if tick is not None:
                tick.belong(p)
                if p.role == "loader":
                    tick.load(p)
    return ticks


def _gpus_of(p: ProcessSample, holders: dict[int, list[int]], parents: dict[int, int | None]) -> Iterable[int]:
    """GPUs of the nearest ancestor that holds any.

    At most a few generations up.

    At most a few generations up.
    """
    ancestor = p.ppid
    for _ in range(8):
        if ancestor is None:
            break
        gpu_indices = holders.get(ancestor)
        if gpu_indices is not None:
            return gpu_indices
        ancestor = parents.get(ancestor)
    return () if p.gpu is None else (p.gpu,)


# What a main thread and its feeders have been in without a break: why an idle GPU idles, and since when.

MOSTLY_PCT = 80.0
"""A state that fills so much of a sample is what the process is in [judged]."""
MOST_BREAK_S = 2.5
"""A break shorter than this is none: one look may miss a wait."""
HALTED = {"T": "stopped", "t": "traced"}
"""States of a process that is held: by a signal, and by a debugger (proc(5))."""
_MAIN = ("disk", "network", "lock", "sleep", "poll", "pipe", "write")


class SteadyState(Struct, frozen=True):
    """A state, its length, and the network mount that it blocks on."""

    what: str
    for_s: float
    mount: str | None = None


class SteadyStateTracker:
    """Follows one thread, or the workers of one GPU together."""

    def __init__(self) -> None:
        self.state: SteadyState | None = None
        """What has stood up to now."""
        self._since = self._seen_at = 0.0

    def observe(self, t: float, state: str | None, mount: str | None) -> None:
        """Add a sample."""
        now = self.state
        if now is not None and state in (None, now.what) and (state or t - self._seen_at <= MOST_BREAK_S):
            self.state = SteadyState(now.what, t - self._since, (state and mount) or now.mount)
            self._seen_at = t if state else self._seen_at
        else:
            self.state, self._since, self._seen_at = None if state is None else SteadyState(state, 0.0, mount), t, t


def state_of_main(p: ProcessSample | None) -> str | None:
    """State of a main thread for most of a sample, or None.

    ``stopped``, ``traced`` or a wait.
    """
    if p is None or p.state is None:
        return None
    if p.state in HALTED:
        return HALTED[p.state]
    if p.main.unread is None:
        return None
    return next((name for name in _MAIN if (getattr(p.main, name) or 0.0) >= MOSTLY_PCT), None)


def state_of_workers(tick: GpuHostActivity) -> tuple[str | None, str | None]:
    """State and mount of most workers for most of a sample."""
    rows = [row for row in tick.feeders if row.key >= 0]
    if not rows:
        return None, None
    if tick.halted:
        return HALTED[tick.halted[0].state or "T"], None
    # Reading a file that a file system does not give is a wait for a disk or for the network, as the read is made.
    on_files = [row for row in rows if row.values[DISK] + row.values[NETWORK] >= MOSTLY_PCT and not row.address]
    mount = next((row.mount for row in on_files if row.mount is not None), None)
    if mount is not None and 2 * len(on_files) > len(rows):
        return "disk", mount
    for place, name in ((2, "disk"), (3, "network"), (4, "lock")):
        there = [row for row in rows if row.values[place] >= MOSTLY_PCT]
        if 2 * len(there) > len(rows):
            return name, next((row.mount for row in there if row.mount is not None), None)
    return None, None
