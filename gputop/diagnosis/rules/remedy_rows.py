"""Remedies of a GPU that starves or idles, as rows.

Each has its condition, its words, and how it was tried.

A row is asked only where its cause was found; the first that holds is given, never an option of a library that is not
in use. Versions: ``in_order=False`` needs PyTorch 2.6, ``persistent_workers`` PyTorch 1.7, ``torchdata.nodes``
torchdata 0.10 (their documentation and release notes).
"""

from __future__ import annotations

from functools import partial

from msgspec import Struct

from gputop.diagnosis.host.workers import PIN_MEMORY_KIND
from gputop.diagnosis.rules.feeding import SECOND, take_turns, takers_of_cores
from gputop.diagnosis.rules.remedy_conditions import (
    MOST_WORKERS,
    SHARES_WORK,
    Condition,
    can_have_workers,
    has_free_cores,
    is_dataloader,
    is_kind,
    is_masked,
    is_on_mount,
    is_pinned,
    is_queued,
    is_throttled,
    is_uneven,
    launches_kernels,
    writes_much,
)
from gputop.diagnosis.rules.remedy_words import ALL_LEFT, NOT_TRIED, NOTHING, Words, spares
from gputop.diagnosis.signals import Signals
from gputop.model.feeders import Feeders
from gputop.model.quantity import share


class RemedyRow(Struct, frozen=True):
    """One row.

    ``causes`` are a verdict's, such as ``cpu`` of workers and ``main cpu`` of a main thread.

    ``measured`` says in words what ``matches`` asks; ``words`` may have measured values in braces. ``trial`` says what
    the change did to a real job; empty where it was not tried.
    """

    causes: tuple[str, ...]
    measured: str
    words: str
    short: str
    matches: Condition = lambda s, f: True
    trial: str = NOT_TRIED


ON_GPU = "decode and augment on the GPU (DALI, torchvision v2){host_memory:, cache decoded data}"
CHEAPER = (
    "profile it (py-spy dump --pid {pid_of_feeder} shows the line), keep what is computed again "
    "and again"
)
FASTER_STORE = "shard small files (webdataset, Parquet), cache on local NVMe"
IN_FLIGHT = (
    "each worker waits for one batch at a time: {host_memory:more num_workers (now {n}), or }a pool of "
    "threads in __getitems__"
)
IN_WORKERS = "DataLoader(num_workers=4–8)"
LIGHTER_HOST = (
    "torch.compile or CUDA graphs, no .item(), print or .cpu() in each step, fused optimizer"
)
SEE_THE_LINE = "py-spy dump --pid {pid} shows the line"
FEEDERS_WAIT = ("disk", "network", "fetch")
MAIN_RUNS = ("main cpu", "main queued")

REMEDIES: tuple[RemedyRow, ...] = (
    RemedyRow(
        ("cpu", "queued", *FEEDERS_WAIT), "workers take turns at a lock",
        "more {kind} gain nothing while all share one lock: give each a file or an index of its own (HDF5: opened in "
        "the worker, sharded data), hold the lock for less", "no shared lock", lambda s, f: take_turns(s),
    ),
    RemedyRow(
        ("cpu", "queued", *FEEDERS_WAIT), "few of many workers of a DataLoader work",
        "balance the shards over the workers; or DataLoader(in_order=False) (PyTorch 2.6): one slow worker holds up "
        "the others", "balance the samples, in_order=False", partial(is_uneven, torch=True),
        trial="in_order=False: 6.8 → 11.5 steps/s, 1.7 ×",
    ),
    RemedyRow(
        ("cpu", "queued", *FEEDERS_WAIT), "few of many feeders of one kind work",
        "balance the work over the {kind}: one slow one holds up the others", "balance the work",
        partial(is_uneven, torch=False),
    ),
    RemedyRow(
        ("cpu", "queued"), "DataLoader's pin_memory thread works, and its workers are ahead",
        "one thread copies each batch to pinned memory: fewer bytes (uint8, converted on the GPU), batches put "
        "together in the workers (collate_fn), or pin_memory=False", "fewer bytes a batch",
        lambda s, f: f is not None and f.kind == PIN_MEMORY_KIND,
    ),
    RemedyRow(
        ("cpu", "queued"), "the cgroup's CPU limit cuts periods short",
        "raise the cgroup's CPU limit ({throttled} of its periods cut short), not the number of loaders",
        "raise the CPU limit", is_throttled,
    ),
    RemedyRow(
        ("cpu", "queued"), "workers may use fewer cores than the job, and queue for them",
        "the workers may use {worker_cores} of {all_cores} cores: a library or a launcher pins them; widen their CPU "
        "mask (os.sched_setaffinity in worker_init_fn, taskset), not the number of workers", "widen the CPU mask",
        lambda s, f: is_queued(s, f) and f is not None and is_pinned(s, f),
    ),
    RemedyRow(
        ("cpu", "queued"), "the job may use fewer cores than there are, and feeders queue for them",
        "the job may use {cores} of {all_cores} cores: widen its CPU mask or limit (taskset, Slurm's --cpus-per-task, "
        "a static CPU policy)", "widen the CPU mask", lambda s, f: is_queued(s, f) and is_masked(s),
    ),
    RemedyRow(
        ("cpu", "queued"), "feeders queue for a core, and others take it",
        "not more workers: free the cores that {takers}, OMP_NUM_THREADS=1, cheaper transforms",
        "free cores, not workers", lambda s, f: is_queued(s, f) and bool(takers_of_cores(s.host)),
    ),
    RemedyRow(
        ("cpu", "queued"), "feeders queue for a core",
        "not more workers: free cores, OMP_NUM_THREADS=1, cheaper transforms", "free cores, not workers", is_queued,
    ),
    RemedyRow(
        ("cpu", "queued"), "one process beside the workers computes for all of them",
        "{name} (pid {pid_of_feeder}) computes for all that wait for it: run more of it or give it more threads, ask "
        "it for many items at once, keep its answers, or do its work in the workers", "more of that service",
        lambda s, f: is_kind("beside", s, f) and f is not None and f.count == 1,
    ),
    RemedyRow(
        ("cpu", "queued"), "a core is free, workers of a DataLoader",
        f"raise num_workers (now {{n}}; `gputop loader` finds how many), {ON_GPU}", "num_workers, DALI",
        lambda s, f: is_dataloader(s, f) and has_free_cores(s, f),
    ),
    RemedyRow(
        ("cpu", "queued"), "a core is free, threads",
        "load in processes: threads share one interpreter lock (torchdata.nodes 0.10 does either), " + ON_GPU,
        "more feeders, DALI", lambda s, f: is_kind("threads", s, f) and has_free_cores(s, f),
    ),
    RemedyRow(
        ("cpu", "queued"), "a core is free, children that live for a moment each",
        f"run several child processes at once, each a few items ahead, {ON_GPU}", "more feeders, DALI",
        lambda s, f: is_kind("children", s, f) and has_free_cores(s, f),
        trial="two at once: 7.8 → 15.5 steps/s, 2.0 ×",
    ),
    RemedyRow(
        ("cpu", "queued"), "a core is free, other processes",
        f"run more {{kind}} (now {{n}}), each a few batches ahead, or make each cheaper: {CHEAPER}", "more {kind}",
        has_free_cores,
    ),
    RemedyRow(
        ("cpu", "queued"), "no core is free, no DataLoader",
        f"{{short}}: {CHEAPER}; or free cores", "cheaper work, free cores",
        lambda s, f: f is not None and f.feeder_kind in (*SHARES_WORK, "beside") and not is_dataloader(s, f),
    ),
    RemedyRow(
        ("cpu", "queued"), "no core is free", f"{{short}}: cheaper transforms, {ON_GPU}",
        "DALI, cheaper transforms",
    ),
    RemedyRow(
        FEEDERS_WAIT, "the files lie on a mount over the network, workers of a DataLoader",
        "the data lie on {mount}, a file system over the network: cache on local NVMe, read larger files (shards); "
        + IN_FLIGHT, "cache locally, shards", lambda s, f: is_on_mount(s, f) and is_dataloader(s, f),
    ),
    RemedyRow(
        FEEDERS_WAIT, "the files lie on a mount over the network",
        "the data lie on {mount}, a file system over the network: cache on local NVMe, read larger files (shards)"
        "{host_memory:, more {kind} (now {n}), each a few batches ahead}", "cache locally, shards", is_on_mount,
    ),
    RemedyRow(
        ("pipe",), "feeders read a pipe from outside the job",
        "speed up what writes the pipe, or read the data directly; let it run ahead into a buffer", "faster pipe",
    ),
    RemedyRow(
        ("disk",), "workers of a DataLoader wait for a disk",
        FASTER_STORE + "{host_memory:, more num_workers (now {n})}",
        "shards, local NVMe", is_dataloader,
    ),
    RemedyRow(
        ("disk",), "feeders wait for a disk",
        FASTER_STORE + "{host_memory:, more {kind} (now {n}), each a few batches ahead}",
        "shards, local NVMe",
    ),
    RemedyRow(
        ("network", "fetch"), "workers of a DataLoader wait for the network",
        f"{IN_FLIGHT}; larger objects (shards), a local cache", "{host_memory:num_workers, }threads", is_dataloader,
        trial="num_workers 1 → 4: 2.5 → 9.9 steps/s, 4.0 ×; threads: 0.55 → 5.0, 9.1 ×; prefetch_factor 2 → 8: "
        "5.0 → 4.9, none",
    ),
    RemedyRow(
        ("network", "fetch"), "feeders wait for the network",
        "more requests in flight: {host_memory:more {kind} (now {n}), }each a few batches ahead; larger objects "
        "(shards), a local cache", "more in flight, cache",
    ),
    RemedyRow(
        MAIN_RUNS, "the main thread runs, with workers beside it", f"{LIGHTER_HOST}; {SEE_THE_LINE}",
        "torch.compile, no .item()", lambda s, f: s.host.loaders > 0,
    ),
    RemedyRow(
        MAIN_RUNS, "the main thread runs, no workers, and kernels that come all the time use less than half of the SMs",
        'it launches small kernels one by one: CUDA graphs or torch.compile(mode="reduce-overhead"), {gpu_memory:a '
        "larger batch, }a fused optimizer; {host:DataLoader({workers}) only if it also loads data; }" + SEE_THE_LINE,
        "CUDA graphs{gpu_memory:, larger batch}", launches_kernels,
    ),
    RemedyRow(
        MAIN_RUNS, "the main thread runs, no workers, and a core is free",
        "DataLoader({workers}) if it loads data (HF Trainer: dataloader_{workers}); else torch.compile, CUDA graphs, "
        "no .item() in each step; "
        + SEE_THE_LINE, "{workers}, compile", can_have_workers,
        trial="num_workers 0 → 1: 16 → 29 steps/s, 1.8 ×",
    ),
    RemedyRow(
        MAIN_RUNS, "the main thread runs, no workers, and no core is free",
        "{short} for loaders: cheaper transforms, decode on the GPU, or free cores; "
        f"{LIGHTER_HOST}; {SEE_THE_LINE}", "free cores, lighter host",
    ),
    RemedyRow(
        ("main disk",), "the main thread waits for files that it writes",
        "it writes: save in a thread or a child, less often, without fsync in each step; to local NVMe",
        "write asynchronously", writes_much,
        trial="fsync in a thread: 12 → 33 steps/s, 2.7 ×",
    ),
    RemedyRow(
        ("main disk",), "the main thread waits for a disk", "read in a loader, ahead of the step; cache on local NVMe",
        "read in a loader",
    ),
    RemedyRow(
        ("main network",), "the main thread waits for the network",
        "fetch in a loader or asynchronously, ahead of the step: not in the training loop", "fetch in a loader",
        trial="two workers: 2.5 → 5.0 steps/s, 2.0 ×",
    ),
    RemedyRow(
        ("main pipe",), "the main thread waits for the reader of a pipe that is full",
        "who reads its output is slow: write less, to a file, or through a thread with a buffer",
        "faster reader of its output",
    ),
    RemedyRow(
        ("main sleep",), "the main thread sleeps by a timer",
        "take the sleep, the polling or the back-off out of the training loop", "no sleep in the loop",
    ),
    RemedyRow(
        ("main unknown",), "the main thread runs or sleeps, and waits for nobody",
        "see what the training loop does between two steps (py-spy dump): it computes, or sleeps", "look at the loop",
    ),
    RemedyRow(
        ("unseen lock",), "workers wait for a lock and sleep",
        "workers wait for a lock and sleep: look for code that sleeps, retries or is rate-limited while it holds a "
        "lock that all share (py-spy dump shows where)", "find what sleeps under the lock",
        lambda s, f: f is not None and f.busiest.sleep >= SECOND,
    ),
    RemedyRow(
        ("unseen lock",), "workers wait for a lock",
        "workers wait for a lock: look for file locks, a multiprocessing lock or a single index that all share (py-spy "
        "dump shows where)", "find the shared lock",
        trial="without the lock: 20 → 39 steps/s, 2.0 ×",
    ),
    RemedyRow(
        ("unseen sleep",), "workers sleep",
        "workers sleep: look for back-off, rate limits and polling loops in the loading code", "find the back-off",
    ),
    RemedyRow(
        ("unseen stopped", "idle stopped"), "a debugger holds the process",
        "let the debugger or tracer that holds the process go on, or detach it", "detach the debugger",
        lambda s, f: "traced" in [x.state for x in (s.host.main_state, s.host.worker_state) if x is not None],
    ),
    RemedyRow(
        ("unseen stopped", "idle stopped"), "several processes are stopped by a signal",
        "let them go on: kill -CONT {stopped}", "kill -CONT", lambda s, f: len(s.tick.stopped) > 1,
    ),
    RemedyRow(
        ("unseen stopped", "idle stopped"), "a process is stopped by a signal", "let it go on: kill -CONT {stopped}",
        "kill -CONT",
    ),
    RemedyRow(
        ("unseen startup", "idle startup"), "workers are starting",
        "workers are starting: keep them alive between epochs", "keep the workers alive",
        trial="persistent_workers=True: 19 → 35 steps/s, 1.9 ×",
    ),
    RemedyRow(
        ("unseen front",), "the process that takes the server's requests computes",
        "it prepares and answers all requests in one process: start more of them (vLLM: --api-server-count), run "
        "replicas behind a load balancer, or give it a core of its own", "more server fronts",
    ),
    RemedyRow(
        ("unseen compiling",), "compilers run while the job trains",
        "programs are compiled while it trains: see why with TORCH_LOGS=recompiles, torch.compile(dynamic=True) for "
        "shapes that change, pad them to a few, keep the compile cache (TORCHINDUCTOR_CACHE_DIR, TRITON_CACHE_DIR)",
        "fewer recompiles",
    ),
    RemedyRow(
        ("unseen ranks",), "a rank waits for others of its job",
        "every rank waits for the slowest one: look at the GPU, the workers and the CPU of the others", "slowest rank",
    ),
    RemedyRow(
        ("unseen unknown",), "another process of this host is waited for, and rests",
        "all wait for {name} (pid {pid_of_feeder}): see what it waits for (py-spy dump --pid {pid_of_feeder})",
        "see what it waits for", lambda s, f: is_kind("beside", s, f) and f is not None and f.count == 1,
    ),
    RemedyRow(
        ("unseen unknown",), "what is waited for is not seen",
        "dump the stacks (py-spy dump); look for locks, RPC and remote storage", "dump stacks",
    ),
    RemedyRow(
        ("holding",), "memory is held, and the GPU idles",
        "end the process (a notebook: shut its kernel down), or free its cache: torch.cuda.empty_cache()",
        "stop it, empty_cache()",
    ),
    RemedyRow(
        ("idle mount",), "a wait for a mounted file system that does not end",
        "the file system does not answer: look at its server and the network to it", "check the mount",
    ),
    RemedyRow(
        ("idle lock",), "workers wait for a lock that nobody gives back",
        "look where they hang (py-spy dump of a worker): a lock that was held when they were forked stays so",
        "dump the workers' stacks",
    ),
    RemedyRow(
        ("idle ranks",), "a rank waits for others of its job",
        "look whether all ranks have started and reach each other (MASTER_ADDR, MASTER_PORT)", "check the ranks",
    ),
)  # fmt: skip


class _Names(dict[str, object]):
    """Resources that are all left; other names stay in braces."""

    def __missing__(self, name: str) -> str:
        return f"{{{name}}}"


def plain_words(row: RemedyRow) -> str:
    """A row's remedy as docs print it, where nothing is used up."""
    return row.words.format_map(_Names(ALL_LEFT))


def remedy(cause: str, s: Signals, f: Feeders | None = None) -> Words:
    """The remedy of a cause; empty if there is none."""
    row = next((row for row in REMEDIES if cause in row.causes and row.matches(s, f)), None)
    if row is None:
        return NOTHING
    workers = (
        f"{max(1, int(s.host.cores) - 1)}"
        if s.host.cores and s.host.cores <= MOST_WORKERS
        else "4–8"
    )
    values = {
        "n": 0 if f is None else f.count,
        "kind": "" if f is None else _more_of(f),
        "mount": None if f is None else f.mount,
        "worker_cores": "" if f is None else f"{f.cores or 0.0:.3g}",
        "throttled": share(s.host.mean.throttled),
        "takers": _takers(s),
        "cores": f"{s.host.cores or 0.0:.3g}",
        "all_cores": f"{s.machine.cpu_count or 0.0:.3g}",
        "workers": f"num_workers={workers}",
        "pid": s.tick.pid or "PID",
        "name": "" if f is None else f.name or "one process",
        "pid_of_feeder": "PID" if f is None else f.pid,
        "stopped": " ".join(str(p.pid) for p in s.tick.stopped) or s.tick.pid or "PID",
        **spares(s),
    }
    return row.words.format(**values), row.short.format(**values)


def _more_of(f: Feeders) -> str:
    """Workers of this kind, as the remedy names them."""
    plurals = {
        "workers": "worker processes",
        "beside": "of them",
        "children": "child processes",
        "threads": "threads",
    }
    return plurals.get(f.feeder_kind, f.kind)


def _takers(s: Signals) -> str:
    """Users of the cores: ``stress takes``, ``cc1plus, rustc and 11 others take``."""
    named = takers_of_cores(s.host)
    if not named:
        return ""
    several = " and " in named[0].name or named[0].name.endswith(" programs")
    return f"{named[0].name} take{'' if several else 's'}"
