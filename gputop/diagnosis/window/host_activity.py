"""Processes of each GPU in one snapshot.

A loader belongs to the GPU of its row; where its ancestor holds several GPUs it counts for each of them. Orphans are
never attributed to a GPU.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from msgspec import Struct
from msgspec.structs import replace

from gputop.diagnosis.window.job_of_gpu import JobOfGpu
from gputop.model.feeders import FeederKind, WaitEnd, rank_among_owners
from gputop.model.serving import PROGRAMS, ServerRow
from gputop.model.snapshot import FeedTime, ProcessSample, Snapshot
from gputop.model.wait_shares import WaitShares

NOT_COMPUTE = ("nvidia-cuda-mps",)
INTERPRETERS = ("python", "pypy", "node", "java", "bash", "sh")
HALTED = {"T": "stopped", "t": "traced"}
"""States of a process that is held: by a signal, and by a debugger (proc(5))."""
MOST = 1e18
"""Far beyond any value of the catalogue; what exceeds it, or is not a number, counts as not measured."""


def is_compute(p: ProcessSample) -> bool:
    """True if a process on a GPU computes and does nothing else.

    It neither draws nor brokers for others.
    """
    return "G" not in (p.type or "C") and not (p.static.name or "").startswith(NOT_COMPUTE)


def serving_on(snapshot: Snapshot, row: ServerRow) -> frozenset[int]:
    """GPUs on which a server of this kind runs, by program name.

    The only GPU if none is seen. None of them where several servers of the kind are asked: whose a GPU is cannot be
    told by name.
    """
    if row.kind is None or sum(other.kind == row.kind for other in snapshot.servers) > 1:
        return frozenset()
    program = PROGRAMS[row.kind]
    serving_gpus = frozenset(
        p.gpu for p in snapshot.processes if p.gpu is not None and p.static.server == program
    )
    if serving_gpus or len(snapshot.gpus) != 1:
        return serving_gpus
    return frozenset({snapshot.gpus[0].static.index})


class FeederRow(Struct, frozen=True, gc=False):
    """One worker in one sample, with the shares of its time.

    ``key``: a pid, or its negative for that process's threads. ``kind`` names such workers in the plural.
    """

    key: int
    process: ProcessSample
    shares: WaitShares
    kind: str = "workers"
    feeder_kind: FeederKind = "workers"
    count: int = 1

    @property
    def resolved_by(self) -> str | None:
        """Evidence that resolved its waits, None if nothing did."""
        return self.process.feed_by

    @property
    def group(self) -> tuple[object, ...]:
        """Workers that share work have one parent, and were classified by one rule."""
        return self.process.ppid, self.process.static.rule, self.process.static.loader


class GpuHostActivity(Struct):
    """The processes of one GPU at one moment."""

    owners: list[ProcessSample] = []
    """Processes that hold a context on this GPU."""
    primary: ProcessSample | None = None
    """The owner that computes with most memory."""
    loaders: list[ProcessSample] = []
    """Dataloader workers and whatever else feeds."""
    tree: list[ProcessSample] = []
    """All processes of the job."""
    rows: list[FeederRow] = []
    """One row for each feeder; threads and children of an owner are one."""
    loading: tuple[float | None, ...] | None = None
    """Mean shares of the loaders, once they are asked for."""
    serving: ServerRow | None = None
    """Measurements that the inference server on this GPU reports."""
    job: JobOfGpu | None = None
    """Job of the GPU's main process; None without one."""

    def add_owner(self, p: ProcessSample) -> None:
        """Count a process that holds a context on this GPU."""
        self.owners.append(p)
        # Of equal ones the first stays. All owners ranked anew for each would take the square of their number.
        if self.primary is None or rank_among_owners(p) > rank_among_owners(self.primary):
            self.primary = p
        if p.feed.run is not None and p.feed_by == "child":
            self.rows.append(
                FeederRow(
                    -p.pid, p, _shares(p), "child processes", "children", p.feeder_threads or 1
                )
            )
        elif p.feed.run is not None and p.feeder_threads:
            kind = p.static.loader or "host threads"
            self.rows.append(FeederRow(-p.pid, p, _shares(p), kind, "threads", p.feeder_threads))

    def add_loader(self, p: ProcessSample) -> None:
        """Count a dataloader worker, or what else feeds."""
        if p.static.server is not None:
            # It takes an inference server's requests, and loads no data.
            self.rows.append(FeederRow(p.pid, p, _shares(p), "server fronts", "front"))
            return
        self.loaders.append(p)
        what, kind = _kind(p.static.rule, p.static.loader)
        self.rows.append(FeederRow(p.pid, p, _shares(p), kind, what))

    @property
    def kinds(self) -> str | None:
        """Kind of its loaders, by their names."""
        return next((p.static.loader for p in self.loaders if p.static.loader is not None), None)

    @property
    def births(self) -> list[ProcessSample]:
        """Loaders proper: those whose starts are counted."""
        return [p for p in self.loaders if p.static.rule not in ("R5", "R6")]

    @property
    def halted(self) -> list[ProcessSample]:
        """Workers that a signal or a debugger has stopped."""
        return [p for p in self.loaders if p.state in HALTED]

    @property
    def stopped(self) -> list[ProcessSample]:
        """Processes of the job that a signal has stopped, the main process first.

        Other owners of the GPU may be other jobs.
        """
        main = [self.primary] if self.primary is not None else []
        others = [p for p in self.tree if p.role != "gpu"]
        return [p for p in (*main, *others) if p.state == "T"]

    @property
    def process_bytes(self) -> float | None:
        """Device memory of the owners."""
        return total([p.gpu_mem_bytes for p in self.owners])

    @property
    def read_bytes(self) -> float | None:
        """Bytes a second that the job reads."""
        return total([p.read_bytes_per_s for p in self.tree])

    @property
    def write_bytes(self) -> float | None:
        """Bytes a second that the job writes."""
        return total([p.write_bytes_per_s for p in self.tree])

    @property
    def nccl(self) -> bool:
        """Whether an owner has threads of NCCL."""
        return any(p.nccl for p in self.owners)

    @property
    def pin_memory(self) -> bool | None:
        """Whether an owner pins memory in a thread; None if that was not seen."""
        known = [p.pin_memory for p in self.owners if p.pin_memory is not None]
        return any(known) if known else None

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

        With the children of those targets and their own wait targets, as parts of the main thread's observations.
        """
        if self.primary is None or not self.primary.waits_for:
            return ()
        waits_of = {p.pid: p.waits_for for p in self.loaders if p.waits_for}
        counted = {row.key for row in self.rows if row.resolved_by == "child"}
        children = [p for p in self.loaders if p.static.rule == "R5"]
        ends = []
        for end in self.primary.waits_for:
            below = [
                p.pid
                for p in children
                if p.ppid in end.pids and p.ppid not in counted and p.pid not in end.pids
            ]
            end = replace(end, pids=(*end.pids, *below)) if below else end
            ends.append(end)
            for further in [further for pid in end.pids for further in waits_of.get(pid, ())]:
                others = tuple(
                    [other for other in further.pids if other != self.pid and other not in end.pids]
                )
                if others:
                    ends.append(
                        replace(
                            further, pids=others, pct=end.pct * further.pct / 100.0 / len(end.pids)
                        )
                    )
        return tuple(sorted(ends, key=lambda end: -end.pct))

    @property
    def draws(self) -> bool:
        """Whether the GPU's main process draws."""
        return self.primary is not None and (self.primary.type or "C") != "C"

    @property
    def renders(self) -> bool:
        """Whether any process draws on this GPU."""
        return any("G" in (p.type or "C") for p in self.owners)

    @property
    def computing(self) -> int:
        """Number of processes that compute, rather than drawing or brokering."""
        return sum(
            1
            for p in self.owners
            if p.type != "G" and not (p.static.name or "").startswith(NOT_COMPUTE)
        )

    @property
    def framework(self) -> str | None:
        """Framework that the main process has loaded: torch, jax, tensorflow."""
        if self.primary is None:
            return None
        return self.primary.framework or (
            "torch" if self.kinds == "torch" or self.pin_memory else None
        )


UNRECORDED = "not measured"
"""Reason where the recording, or another program's, gives none."""


def why_no_waits(loaders: Iterable[ProcessSample]) -> str | None:
    """Why no loader's waits are known, or None."""
    reasons = []
    for loader in loaders:
        if loader.feed.network is not None:
            return None
        reasons.append(loader.unavailable.get("waiting_on", UNRECORDED))
    return reasons[0] if reasons else None


def why_no_reads(tick: GpuHostActivity) -> str | None:
    """Why it is not known how much the job reads, or None."""
    if not tick.loaders or tick.read_bytes is not None:
        return None
    reasons = [
        p.unavailable["read_bytes_per_s"] for p in tick.tree if "read_bytes_per_s" in p.unavailable
    ]
    return reasons[0] if reasons else UNRECORDED


NO_PROCESSES = GpuHostActivity()
"""The host side of a GPU that no visible process uses; never written to."""


def read_host(processes: Iterable[ProcessSample]) -> dict[int, GpuHostActivity]:
    """Return host activity by GPU index, for GPUs with processes."""
    ticks: dict[int, GpuHostActivity] = {}
    holders: dict[int, list[int]] = {}
    rest: list[ProcessSample] = []
    for p in processes:
        if p.role == "gpu" and p.gpu is not None:
            tick = ticks.setdefault(p.gpu, GpuHostActivity())
            tick.add_owner(p)
            tick.tree.append(p)
            holders.setdefault(p.pid, []).append(p.gpu)
        elif p.role != "gpu":
            rest.append(p)
    several = any(len(gpus) > 1 for gpus in holders.values())
    parents = {p.pid: p.ppid for p in rest} if several else {}
    for p in rest:
        for index in _gpus_of(p, holders, parents) if several or p.gpu is None else (p.gpu,):
            if index in ticks:
                ticks[index].tree.append(p)
                if p.role == "loader":
                    ticks[index].add_loader(p)
    return ticks


def _gpus_of(
    p: ProcessSample, holders: dict[int, list[int]], parents: dict[int, int | None]
) -> Iterable[int]:
    """GPUs of the nearest ancestor that holds any, at most a few generations up."""
    ancestor = p.ppid
    for _ in range(8):
        if ancestor is None:
            break
        if ancestor in holders:
            return holders[ancestor]
        ancestor = parents.get(ancestor)
    return () if p.gpu is None else (p.gpu,)


@lru_cache(maxsize=256)
def _kind(rule: str | None, loader: str | None) -> tuple[FeederKind, str]:
    """Kind of a loader, and its name in the plural."""
    if rule == "R6":
        return "beside", "processes beside it"
    if rule == "R5":
        return "helpers", "helpers"
    return ("ray", "Ray tasks") if loader == "ray" else ("workers", "workers")


def run_and_queued(p: ProcessSample) -> tuple[float, float]:
    """Percent of time that a loader ran, and was queued for a core.

    A worker with several threads may exceed 1; as a share of time, runnable is capped there.
    """
    run, queued = p.run_pct if p.run_pct is not None else p.cpu_pct or 0.0, p.wait_pct or 0.0
    share = 100.0 / max(100.0, run + queued)
    return run * share, queued * share


def known(value: float | None) -> float | None:
    """The value, or None if it is not a number or absurdly large."""
    return value if value is not None and value < MOST else None


def total(values: list[float | None]) -> float | None:
    there = [value for value in values if value is not None]
    return sum(there) if there else None


def _shares(p: ProcessSample) -> WaitShares:
    """Shares of a feeder's time by state.

    Recordings of foreign programs may hold its state alone: what waits are known then is a disk's.
    """
    time = p.feed
    if time.run is None:
        run, queued = run_and_queued(p)
        rest = 100.0 - run - queued
        time = (
            FeedTime(run, queued, disk=rest)
            if p.state == "D"
            else FeedTime(run, queued, unread=rest)
        )
    return time.shares


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


def name_and_pid(p: ProcessSample) -> str:
    """``ffmpeg (pid 4711)``."""
    return f"{program_of(p)} (pid {p.pid})"


def working_child(tree: Iterable[ProcessSample], parent: int | None) -> str:
    """The child of a process that runs most, with its pid; empty where none was seen to run."""
    running = [p for p in tree if p.ppid == parent and (p.run_pct or 0.0) >= LEAST_RUN_PCT]
    busiest = max(running, key=lambda p: p.run_pct or 0.0, default=None)
    return "" if busiest is None else name_and_pid(busiest)


LEAST_RUN_PCT = 20.0
"""A child that runs less is not named as the one that works [judged]."""


def address_of(p: ProcessSample) -> str:
    """Address of the connection for which a process mostly waits, else empty."""
    ends = [end for end in p.waits_for or () if end.via == "network"]
    return max(ends, key=lambda end: end.pct).detail if ends else ""
