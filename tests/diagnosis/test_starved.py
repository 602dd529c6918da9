"""A GPU that waits: what starves it, why it idles, and what helps; scenes on both sides of each threshold."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import pytest
from msgspec.structs import replace

from gputop.diagnosis.types import GpuDiagnosis
from gputop.diagnosis.window.host_activity import program_of
from gputop.model.feeders import OTHER_RANKS, SERVED_BY_PARENT, Outsider, WaitEnd, main_looks
from gputop.model.redaction import Redactor
from gputop.model.serving import ServerRow
from gputop.model.snapshot import CgroupName, FeedTime, MainTime, ProcessSample, ProcessStatic
from tests.support.scenes import HOST, Watch, assert_told, gpu, snap, steady, told, train, workers

STATES = ("run", "queued", "disk", "network", "lock", "sleep", "poll")


def job(waits: str = "lock 3", main: float = 2.0, **changes: Any) -> ProcessSample:
    """A training process whose feeders were measured, with what its main thread was seen at."""
    looks = main_looks(
        (state, int(count)) for state, count in (part.split() for part in waits.split(", "))
    )
    return train(main=main, main_looks=looks, feeder_threads=2, **changes)


def shares(unread: float | None = None, **percent: float) -> FeedTime:
    return FeedTime(*(percent.get(name, 0.0) for name in STATES), unread=unread)


def feeders(*each: dict[str, float], **changes: Any) -> list[ProcessSample]:
    """One worker for each set of shares."""
    rows = workers(len(each), 0.0)
    return [
        replace(
            row,
            run_pct=s.get("run", 0.0),
            wait_pct=s.get("queued", 0.0),
            feed=shares(**s),
            **changes,
        )
        for row, s in zip(rows, each, strict=True)
    ]


MAIN_STATES = ("disk", "network", "lock", "sleep", "poll", "pipe", "write", "other", "unread")


def main_of(util: float = 20.0, run: float = 0.0, **percent: float) -> ProcessSample:
    """A training process whose main thread was seen in these waits; the rest of its time is another one."""
    given = {name: percent.get(name, 0.0) for name in MAIN_STATES}
    given["other"] += 100.0 - run - sum(given.values())
    return replace(
        train(main=run, feeder_threads=0, main_looks=main_looks([("other", 4)])),
        main=MainTime(**given),
    )


def said(util: float, *processes: ProcessSample, **host: Any) -> GpuDiagnosis:
    return steady(45, gpu(util=util, sm=min(util, 60.0)), processes, replace(HOST, **host))


def kind(rows: list[ProcessSample], loader: str, why: str) -> list[ProcessSample]:
    """Loaders of another kind than the DataLoader's."""
    return [
        replace(w, static=replace(w.static, loader=loader, why=why, rule=why[:2])) for w in rows
    ]


def idle_main(state: str = "S", **changes: Any) -> ProcessSample:
    """A process whose main thread is in one state."""
    main = {key: changes.pop(key) for key in MAIN_STATES if key in changes}
    return replace(main_of(**main), state=state, **changes)


def command(line: str, name: str | None = None) -> ProcessSample:
    return train(static=ProcessStatic(command=line, name=name))


IDLE: dict[str, float] = {"poll": 100.0}
NO_SOCKET = feeders(IDLE, IDLE, feed_by="no socket")
QUEUED = feeders(*[{"run": 25.0, "queued": 74.0}] * 4)
PRESSED = {"psi_cpu_pct": 60.0, "cpu_pct": 48.0}
EVE, STRESS = Outsider("eve", "ffmpeg", 812.0), Outsider("ann", "stress", 3000.0)
MANY = Outsider("ann", "cc1, ld and 11 others", 3000.0)
SMALL = (Outsider("eve", "cc1", 30.0), Outsider("bob", "ld", 20.0))
ON_DISK: dict[str, Any] = {"state": "D", "waiting_on": "disk"}
HIDDEN = train(
    starttime=None, main_run_pct=None, main_wait_pct=None, state=None, run_pct=None, cpu_pct=None
)
NO_SIGNALS = {"verdict": "starved_unattributed", "confidence": "low", "says": "no host signals"}
COMPILES = "python -m torch/_inductor/compile_worker/__main__.py --workers=8"
NEVER_OF_A_DATALOADER = ("num_workers", "prefetch_factor", "in_order", "persistent")
ELSEWHERE = (WaitEnd("network", 80.0, detail="10.0.0.7:443"),)
FETCH = feeders(*[{"network": 100.0}] * 2, waits_for=ELSEWHERE)
FETCH_PIDS = tuple(row.pid for row in FETCH)
UNEVEN = feeders({"run": 98.0}, IDLE, IDLE, IDLE)
STOPPED = [replace(row, state="T") for row in feeders(IDLE, IDLE)[1:]]


def because(verdict: str, cause: str | None, *says: str, **more: Any) -> dict[str, Any]:
    return {"verdict": verdict, "cause": cause, "says": says, **more}


FFMPEG = replace(
    workers(1, 98.0)[0],
    pid=4010,
    ppid=4001,
    role="helper",
    feed=FeedTime(),
    static=ProcessStatic(name="ffmpeg", command="ffmpeg -i x"),
)
STORE = "127.0.0.1:29500, where its ranks meet: 1 of 2 ranks seen here"
UNKNOWN = because("starved_unattributed", "unknown")
ASKS = feeders(*[{}] * 2, waits_for=(WaitEnd("socket", 97.0, (4009,)),), feed_by="peer")
SERVES = kind([replace(feeders({"run": 98.0})[0], pid=4009)], "python", "R3 same command line")[0]
BELOW = kind(
    [replace(feeders({"run": 98.0})[0], pid=4010, ppid=4001)], "ffmpeg", "R5 busy descendant"
)[0]
RANKS = WaitEnd("lock", 95.0, detail=f"{OTHER_RANKS}: 1 of 2 ranks seen here")
FRONT = told(replace(
    kind([replace(feeders({"run": 95.0})[0], pid=4001)], "python3", "R6 same session")[0],
    static=ProcessStatic(command="python3 -m vllm.entrypoints.openai.api_server --model x", name="python3",
                         loader="python3", why="R6 same session", rule="R6"),
))  # fmt: skip
NETWORK_JOB = {"feed_by": "socket", "net_rx_bytes_per_s": 3e5}
Scene = tuple[float, list[ProcessSample], Mapping[str, Any] | str]

TABLE: dict[str, list[tuple[float, list[ProcessSample], dict[str, Any], Mapping[str, Any] | str]]] = {
    # --- loaders and other feeders ---
    "starvation begins at twenty percent idle": [
        (80.0, [train(main=2.0), *workers(4, 95.0, 5.0)], {}, "dataloader_cpu"),
        (80.1, [train(main=2.0), *workers(4, 95.0, 5.0)], {}, "healthy"),
    ],
    "loaders must be runnable in half of the idle time": [
        # L(w) = (w − u) / (1 − u) ≥ .5 at util 40: w ≥ .7
        (40.0, [train(main=2.0), *workers(4, 70.0)], {}, "dataloader_cpu"),
        (40.0, [train(main=2.0), *workers(4, 69.9)], {}, "starved_unattributed"),
        (23.0, [train(main=8.0), *workers(2, 24.0, 72.0)], {},
         {"verdict": "dataloader_cpu", "level": "yellow", "says": ("queued 72 %", "not more workers")}),
        (10.0, [train(main=2.0), *workers(4, 100.0)], {}, {"level": "yellow"}),
    ],
    "loaders wait for a disk, the network or a pipe": [
        (40.0, [train(main=1.0), *workers(3, 1.0, **ON_DISK), *workers(4, 1.0)[3:]], {}, "dataloader_io"),
        (40.0, [train(main=1.0), *workers(1, 1.0, **ON_DISK), *workers(4, 1.0)[1:]], {}, "dataloader_io"),
        (44.0, [train(main=1.0), *workers(4, 1.0, waiting_on="network")], {}, "dataloader_io"),
        (44.0, [train(main=50.0), *workers(4, 1.0, waiting_on="network")], {}, "dataloader_io"),
        (44.0, [train(main=1.0), *workers(4, 1.0, waiting_on="network")], {}, "dataloader_io"),
        (40.0, [train(main=1.0), *workers(4, 1.0, **ON_DISK)], {"swap_used_bytes": 9e9, "psi_mem_pct": 40.0},
         {"verdict": "starved_unattributed", "has": "swap"}),
        (44.0, [train(main=1.0), *workers(4, 1.0, waiting_on=None, unavailable={"waiting_on": "denied"})], {},
         {"verdict": "starved_unattributed", "says": "no proof by the loaders' waits: denied"}),
    ],
    "who is a loader": [
        (40.0, [train(main=2.0), *workers(4, 95.0, gpu=None)], {}, "dataloader_cpu"),
        (40.0, [train(main=2.0), *workers(2, 95.0, role="helper")], {}, "starved_unattributed"),
        (40.0, [train(main=2.0), *[told(replace(w, role="helper", static=ProcessStatic(command=COMPILES)))
                                   for w in workers(4, 99.0)]], {}, "starved_unattributed"),
    ],
    "a wait is followed through whoever waits for another one": [
        # Main waits for two workers, and these for the process of a multiprocessing.Manager, which computes.
        (20.0, [job(waits_for=(WaitEnd("pipe", 95.0, (4001, 4002)),)), *ASKS, SERVES], {},
         because("dataloader_cpu", "cpu", "process that the workers ask (pid 4009, this host) is busy",
                 never=("balance", "num_workers"))),
        # What it waits for itself is no lock of the workers.
        (20.0, [job(waits_for=(WaitEnd("pipe", 95.0, (4001, 4002)),)), *ASKS, replace(SERVES, run_pct=0.0,
                feed=shares(lock=98.0))], {},
         because("starved_unattributed", "unknown", "py-spy dump --pid 4009", never="file locks")),
        # A child computes for a worker in whose place nobody has counted that.
        (20.0, [job(waits_for=(WaitEnd("pipe", 95.0, (4001,)),)), *feeders({"lock": 95.0}), BELOW], {},
         because("dataloader_cpu", "cpu")),
        # Nobody waits for a child of one that is not waited for.
        (20.0, [job(waits_for=(WaitEnd("pipe", 95.0, (4001,)),)), *feeders({"lock": 95.0}), replace(BELOW, ppid=9)],
         {}, because("starved_unattributed", "lock")),
    ],
    "a rank waits for others": [
        (0.0, [idle_main(lock=100.0, waits_for=(RANKS,))], {}, because("idle", "ranks", "1 of 2 ranks seen here")),
        (0.0, [idle_main(lock=100.0)], {}, because("idle", None, "waits for a lock")),
        (30.0, [replace(main_of(30.0, lock=88.0), waits_for=(RANKS,))], {},
         because("starved_unattributed", "ranks", "the slowest one", "1 of 2 ranks")),
    ],
    "the process that takes a server's requests is no dataloader": [
        (30.0, [command("VLLM::EngineCore", "VLLM::EngineCore"), FRONT], {},
         because("starved_unattributed", "front", "vllm.entrypoints.openai.api_server (pid 4001)", "--api-server-count",
                 never=("nothing to fix", "num_workers"))),
        (30.0, [command("VLLM::EngineCore", "VLLM::EngineCore"), replace(FRONT, feed=shares(poll=100.0))], {},
         "low_demand"),
    ],
    "compilers that run are named": [
        (30.0, [main_of(30.0, lock=80.0), told(replace(BELOW, role="helper", static=ProcessStatic(command=COMPILES)))],
         {}, because("starved_unattributed", "compiling", "TORCH_LOGS=recompiles")),
        (30.0, [train(main=95.0), told(replace(BELOW, role="helper", static=ProcessStatic(command=COMPILES)))],
         {}, because("main_process", "compiling", "TORCH_LOGS=recompiles")),
        (30.0, [main_of(30.0, lock=80.0), told(replace(BELOW, role="helper", feed=shares(), run_pct=0.0,
                                                       static=ProcessStatic(command=COMPILES)))],
         {}, "starved_unattributed"),
    ],
    "workers that are pinned to few cores need no more workers": [
        (20.0, [job(), *[replace(row, allowed_cores=1.0) for row in QUEUED]], {},
         because("dataloader_cpu", "queued", "the workers may use 1 of 32 cores", never="raise num_workers")),
        (20.0, [job(), *[replace(row, allowed_cores=32.0) for row in QUEUED]], {}, {"never": "the workers may use"}),
    ],
    "of workers of which one is slow the others are counted": [
        (20.0, [job(waits_for=(WaitEnd("socket", 90.0, (4001,)), WaitEnd("socket", 4.0, (4002, 4003, 4004)))),
                *kind(UNEVEN, "python", "R3 same command line")], {},
         {"uneven": True, "says": ("1 of 4 workers (pid 4001)", "balance"), "never": ("decode", "DALI")}),
        # Who was never waited for has no part of it.
        (20.0, [job(waits_for=(WaitEnd("socket", 94.0, (4001,)),)), *kind(UNEVEN, "python", "R3 same command line")],
         {}, {"uneven": False, "says": "py-spy dump --pid 4001", "never": ("decode", "DALI")}),
    ],
    "polls on a socket of its own are waits for the network": [
        (35.0, [replace(main_of(35.0, poll=60.0, sleep=40.0), feed_by="main socket")], {},
         because("main_process", "network")),
        (35.0, [replace(main_of(35.0, poll=60.0, sleep=40.0), feed_by="main socket", listens=True)], {},
         {"cause": None, "verdict": "low_demand"}),
    ],
    "whom main was seen waiting for is said, and where the network is": [
        (20.0, [job(waits_for=ends), *FETCH], {}, because("dataloader_io", "network", *words)) for ends, words in (
            ((WaitEnd("pipe", 90.0, FETCH_PIDS), WaitEnd("timer", 10.0)),
             ("main thread waits for 2 workers (a pipe): lock", "wait for the network at 10.0.0.7:443 (100 %)")),
            ((WaitEnd("pipe", 20.0, FETCH_PIDS), WaitEnd("unknown", 80.0)), ("main thread waits: lock",)),
            ((WaitEnd("name", 90.0, FETCH_PIDS),), ("main thread waits: lock", "by name")),
        )
    ] + [
        (20.0, [replace(main_of(network=80.0, sleep=20.0), waits_for=ELSEWHERE)], {},
         because("main_process", "network", "waits for the network itself at 10.0.0.7:443 80 % of the time")),
        (20.0, [job(waits_for=(WaitEnd("thread", 90.0, (4711,), "pt_data_pin"),), feed=shares(run=98.0))],
         {}, because("dataloader_cpu", "cpu", "1 pin_memory thread is busy", "pin_memory=False")),
    ],
    "what starves a GPU is named with its evidence": [
        (20.0, processes, {}, because(verdict, cause, words)) for processes, verdict, cause, words in (
            ([job(), *feeders({"run": 98.0}, IDLE, IDLE, IDLE)], "dataloader_cpu", "cpu",
             "1 of 4 workers (pid 4001) is busy"),
            ([job(), *feeders({"run": 44.0, "network": 56.0})], "dataloader_io", "network", "busy 44 %"),
            ([job(), *feeders({"run": 60.0, "network": 38.0})], "dataloader_cpu", "cpu", "network 38 %"),
            ([job(), *feeders(IDLE, IDLE)], "dataloader_io", "fetch", "something outside"),
            ([job(), *feeders(IDLE, IDLE, feed_by="no socket")],
             "starved_unattributed", "unknown", "workers: poll 100 %"),
            ([job(), *feeders({}, {"lock": 100.0}, feed_by="task queue")],
             "starved_unattributed", "unknown", "main thread waits: lock"),
            ([job("pipe 3"), *feeders({"network": 100.0}, feed_by="pipe")],
             "dataloader_io", "pipe", "a pipe from outside"),
            ([job(), *feeders({"run": 97.0}, feed_by="child")], "dataloader_cpu", "cpu", "its own child process"),
            ([job(), *feeders({"lock": 99.0}, {"lock": 99.0})], "starved_unattributed", "lock", "workers: lock 99 %"),
            ([job(), *feeders(*[{"lock": 60.0, "sleep": 39.0}] * 4)],
             "starved_unattributed", "lock", "workers: lock 60 %, sleep 39 %"),
            ([job(), *feeders(*[{"lock": 48.0, "sleep": 51.0}] * 2)],
             "starved_unattributed", "lock", "workers: sleep 51 %, lock 48 %"),
            ([job(), *feeders({"lock": 40.0, "sleep": 25.0, "poll": 35.0})],
             "starved_unattributed", "unknown", "worker: lock 40 %, poll 35 %"),
            ([job(), *feeders({"sleep": 58.0, "lock": 25.0, "poll": 17.0})],
             "starved_unattributed", "sleep", "worker: sleep 58 %, lock 25 %"),
            ([job(), *feeders({"sleep": 99.0})], "starved_unattributed", "sleep", "worker: sleep 99 %"),
            ([job("network 3"), *feeders(IDLE)], "main_process", "network", "waits for the network itself"),
            ([job("disk 3")], "main_process", "disk", "waits for a disk itself"),
            ([job("sleep 3"), *feeders({"run": 60.0, "lock": 39.0})], "main_process", "sleep", "sleeps"),
            ([job("queue 3", net_rx_bytes_per_s=2e6)], "main_process", "network", "receiving 2.0 MB/s"),
            ([job(feed=shares(run=98.0))], "dataloader_cpu", "cpu", "2 host threads are busy"),
            ([job(feed=shares(network=97.0), feed_by="socket", net_rx_bytes_per_s=3e5)],
             "dataloader_io", "network", "2 host threads wait for the network (97 %), receiving 300 kB/s"),
            ([job("queue 3", listens=True)], "low_demand", None, "listens on a socket of its own"),
            ([job(), *feeders({"disk": 96.0}, {"disk": 95.0})],
             "dataloader_io", "disk", "2 of 2 workers wait for the disk"),
        )
    ],
    "what was not looked at rules nothing out": [
        (20.0, [main_of(poll=95.0), *feeders({"unread": 100.0})], {}, UNKNOWN),
        (20.0, [main_of(poll=95.0), *feeders(IDLE, {"poll": 40.0, "unread": 60.0})], {}, UNKNOWN),
        (20.0, [main_of(poll=95.0), *feeders(IDLE)], {}, because("dataloader_io", "fetch")),
    ],
    "a thread that waits at a lock or sleeps proves nothing": [
        (20.0, [replace(main_of(20.0, lock=78.0), feeder_threads=3, feed=shares(lock=100.0))], {}, UNKNOWN),
        (20.0, [replace(main_of(20.0, lock=78.0), feeder_threads=3, feed=shares(sleep=100.0))], {}, UNKNOWN),
    ],
    "a busy GPU accuses nobody": [
        (97.0, [job(waits, main=100.0 if waits == "run 3" else 2.0),
                *feeders({"run": 100.0}, {"queued": 100.0}, {"disk": 100.0}, {"lock": 100.0})], {}, {"level": "green"})
        for waits in ("lock 3", "queue 3", "sleep 3", "pipe 3", "run 3")
    ],
    # --- the main thread ---
    "a main thread that must have run while the GPU idled is the cause": [
        # L(m) at util 40: m ≥ .7
        (40.0, [train(main=70.0)], {}, "main_process"),
        (40.0, [train(main=69.9)], {}, "starved_unattributed"),
        (40.0, [train(main=100.0), *workers(4, 100.0)], {}, "main_process"),
        (60.0, [train(main=62.0)], {}, {"verdict": "starved_unattributed", "says": "cannot tell"}),
        (60.0, [train(main=62.0), *workers(4, 98.0)], {}, "dataloader_cpu"),
        (40.0, [train(main=1.0, state="D", read_bytes_per_s=12e6)], {}, "main_process"),
        (40.0, [train(main=1.0, state="D", read_bytes_per_s=12e6), *workers(2, 5.0)], {},
         "main_process"),
    ],
    "a wait that can never be for the GPU needs no bound": [
        row for wait, util, cause in (
            ("network", 63.0, "network"), ("disk", 63.0, "disk"), ("write", 70.0, "pipe"), ("network", 37.0, "network"),
        ) for row in (
            (util, [main_of(util, **{wait: 0.95 * (100.0 - util)}), *NO_SOCKET], {}, because("main_process", cause)),
            # A worker that works is the one who is waited for, and a lock may be the GPU.
            (util, [main_of(util, **{wait: 0.3 * (100.0 - util)}), *feeders({"run": 97.0})], {}, "dataloader_cpu"),
            (util, [main_of(util, lock=0.95 * (100.0 - util))], {}, "starved_unattributed"),
        )
    ],
    "a main thread that waits for nobody while workers idle is the cause": [
        # It may run, or sleep, until the GPU is done: which of them fills the idle time is said where that shows.
        row for util, run, sleep, cause in (
            (70.0, 33.0, 67.0, "cpu"), (70.0, 69.0, 31.0, "sleep"), (47.0, 60.0, 40.0, "unknown"),
        ) for row in (
            (util, [main_of(run=run, sleep=sleep), *NO_SOCKET], {},
             because("main_process", cause, "waits for nobody", confidence="medium")),
            (util, [main_of(run=2.0, sleep=sleep, pipe=98.0 - sleep), *feeders({"run": 99.0})], {}, "dataloader_cpu"),
            (util, [main_of(run=util, lock=100.0 - util), *NO_SOCKET[:1]], {}, "starved_unattributed"),
        )
    ],
    "a main thread that writes to a slow reader, polls its own socket or sleeps in between": [
        (20.0, [main_of(write=90.0), *feeders(IDLE, IDLE)], {}, because("main_process", "pipe")),
        (20.0, [replace(main_of(poll=90.0), feed_by="main socket", net_rx_bytes_per_s=5e4), *feeders(IDLE, IDLE)], {},
         because("main_process", "network")),
        # Its own waits fill half of the idle time: the rest may be near to what it runs, or sleeps.
        *[(37.0, [main_of(run=run, network=45.0, sleep=sleep), *NO_SOCKET], {},
           because("main_process", "network", "itself 45 %", "fetch", never=("waits for nobody", "torch.compile")))
          for run, sleep in ((10.0, 25.0), (17.0, 33.0))],
        (37.0, [main_of(run=17.0, write=45.0, sleep=33.0), *NO_SOCKET], {},
         because("main_process", "pipe", "a pipe that is full 45 %")),
        # Its polls of a socket with a timeout are told with the waits.
        (26.0, [replace(main_of(26.0, network=18.0, poll=42.0), feed_by="main socket", net_rx_bytes_per_s=5e4)], {},
         because("main_process", "network", "itself 60 %")),
        # Where ranks meet there are no data to fetch.
        (20.0, [replace(main_of(network=95.0), waits_for=(WaitEnd("network", 95.0, detail=STORE),))], {},
         because("main_process", "ranks", f"other ranks of its job at {STORE}, 95 %", "slowest", never="fetch")),
        (60.0, [job("sleep 6, lock 4", feed=shares(network=98.0), **NETWORK_JOB)], {}, "dataloader_io"),
        # Polls that are proven to be waits count for each worker as they do in the sentence.
        (20.0, [main_of(2.0, pipe=95.0), *feeders(*[{"poll": 97.0}] * 2, feed_by="socket", net_rx_bytes_per_s=3e5)],
         {}, because("dataloader_io", "network", "2 of 2 workers wait for the network (97 %)")),
        (11.0, [main_of(run=20.0, sleep=80.0), *feeders({"run": 60.0, "queued": 30.0}, {"run": 85.0})], {},
         because("dataloader_cpu", "cpu")),
        # A worker with less to do than the main thread sleeps is ahead for the rest of its time.
        (5.0, [main_of(run=1.0, sleep=97.0), *feeders({"run": 62.0, "lock": 37.0})], {},
         because("main_process", "sleep")),
        # An evaluation in a child of its own is not seen, but the workers wait for no lock either.
        (50.0, [main_of(sleep=49.0, other=51.0), *feeders({"lock": 100.0}, {"lock": 100.0})], {}, UNKNOWN),
    ],
    # --- copies, demand, no signals ---
    "copies over PCIe": [
        # gen 4 × 16 lanes × 80 %: 25.2 GB/s
        (util, [train(main=10.0)], {"pcie_rx_bytes_per_s": rx, "pcie_tx_bytes_per_s": tx}, verdict)
        for util, rx, tx, verdict in (
            (45.0, 7.6e9, 0.0, "pcie_transfer"), (45.0, 7.5e9, 0.0, "starved_unattributed"),
            (30.0, 8.9e9, 0.0, "pcie_transfer"), (30.0, 8.7e9, 0.0, "starved_unattributed"),
            (95.0, 17.7e9, 0.0, "pcie_transfer"), (95.0, 17.5e9, 0.0, "working"), (95.0, 18e9, 18e9, "working"),
        )
    ],
    "a server waits for demand": [
        *[row for line in (
            "tritonserver --model-store /models", "python -m vllm.entrypoints.openai.api_server --model llama",
            "/opt/venv/bin/python3 /opt/venv/bin/vllm serve llama", "/usr/bin/ollama runner --port 1",
            "VLLM::EngineCore", "uv run vllm serve x", "text-generation-launcher --model-id x",
        ) for row in (
            (30.0, [command(line, "python")], {}, "low_demand"),
            (30.0, [command(line, "python"), *workers(2, 100.0)], {}, "dataloader_cpu"),
        )],
        *[(30.0, [command(line)], {}, "starved_unattributed") for line in (
            "python train.py --data /home/vllm", "python serve_vllm_logs.py", "torchrun vllm", "bash start.sh vllm")],
        (95.0, [command("vllm serve llama")], {"pcie_rx_bytes_per_s": 20e9}, "working"),
        (30.0, [replace(main_of(30.0, pipe=68.0), feed_by=SERVED_BY_PARENT)], {},
         because("low_demand", None, "takes requests")),
        (30.0, [main_of(30.0, pipe=68.0)], {}, "starved_unattributed"),
        # Who takes the requests beside it may compute a little.
        (30.0, [replace(main_of(30.0, pipe=68.0), feed_by=SERVED_BY_PARENT),
                *kind(feeders({"run": 30.0}), "python", "R6 same session")], {}, "low_demand"),
        (30.0, [replace(main_of(30.0, pipe=68.0), feed_by=SERVED_BY_PARENT), *feeders({"run": 97.0})], {},
         "dataloader_cpu"),
    ],
    "without host signals starvation is still seen and the reason is said": [
        (40.0, [HIDDEN], {}, NO_SIGNALS), (40.0, [], {}, NO_SIGNALS),
    ],
    # --- remedies ---
    "the remedy follows what was measured": [
        (40.0, [train(main=2.0), *workers(8, 95.0)], {}, {"says": "raise num_workers (now 8; `gputop loader` finds"}),
        (40.0, [train(main=2.0), *workers(8, 95.0)], {"cpu_pct": 97.0}, {"says": "no core is free"}),
        (40.0, [train(main=2.0), *workers(8, 40.0, 55.0, throttled_pct=40.0)], {}, {"says": "CPU limit"}),
        (20.0, [job("run 3", main=99.0)], {"cpu_count": 2.0, "psi_cpu_pct": 5.0}, {"says": "num_workers=1"}),
        (20.0, [job("run 3", main=99.0)], {"cpu_count": 64.0, "psi_cpu_pct": 97.0}, {"says": "no core is free"}),
        (20.0, [job("run 3", main=99.0)], {"cpu_count": 64.0, "psi_cpu_pct": 2.0}, {"says": "num_workers=4–8"}),
        (20.0, [job(), *feeders({"run": 98.0})], {"cpu_count": 2.0, "psi_cpu_pct": 5.0}, {"never": "raise num_"}),
        (20.0, [job(), *feeders({"run": 98.0})], {"cpu_count": 64.0, "psi_cpu_pct": 2.0}, {"says": "raise num_"}),
        # Who waits for the network needs no core, and prefetching gains nothing.
        (20.0, [job(), *feeders(*[{"network": 99.0}] * 2)], {"psi_cpu_pct": 95.0},
         {"says": ("more num_workers (now 2)", "__getitems__"), "never": "prefetch_factor"}),
        (20.0, [replace(job(), allowed_cores=1.0), *QUEUED], {"outsiders": (STRESS,)},
         {"says": "may use 1 of 32 cores"}),
        (20.0, [main_of(disk=90.0)], {}, {"says": "read in a loader"}),
        (20.0, [replace(main_of(disk=90.0), main=replace(main_of(disk=90.0).main, saves=88.0))], {},
         {"says": "it writes"}),
        (20.0, [job(), *feeders(*[{"lock": 60.0, "sleep": 39.0}] * 4)], {}, {"says": "while it holds a lock"}),
        (20.0, [job(), *feeders({"lock": 71.0, "sleep": 28.0})], {}, {"never": "while it holds a lock"}),
        (20.0, [job(), *UNEVEN], {}, {"uneven": True, "says": ("in_order=False", "2.6")}),
        *((20.0, [job(), *feeders({"run": run, "poll": 100.0 - run}, IDLE, IDLE, IDLE)], {}, {"uneven": uneven})
          for run, uneven in ((50.0, True), (49.0, False))),
        (20.0, [job(), *kind(UNEVEN, "python", "R3 same command line")], {},
         {"says": "balance", "never": ("DataLoader", "in_order")}),
        # Who did nothing is no Ray task that could take more of the work.
        (20.0, [job(), *kind(feeders({"run": 98.0}, {"run": 97.0}, {}, {}), "ray", "R4 ray task")], {},
         {"uneven": False, "never": "balance"}),
        # A child that saves beside two workers that compute is not the third that does.
        (20.0, [job(), *feeders({"run": 99.0}, {"run": 98.0}, {"disk": 80.0, "run": 3.0})], {},
         {"says": "2 of 3 workers are busy"}),
    ],
    "whoever works for a feeder, or beside it, is named with its pid": [
        (20.0, [job(), *feeders({"lock": 4.0, "run": 95.0}, feed_by="child"), FFMPEG], {},
         {"says": "waits for its own child process ffmpeg (pid 4010), which works"}),
        (20.0, [job(), *kind([replace(w, static=replace(w.static, command=f"python {name}.py")) for w, name in zip(
            feeders({"run": 98.0}, {"run": 90.0}), ("tokenizer", "features"), strict=True)], "python", "R6 socket")],
         {}, {"says": "tokenizer.py (pid 4001), features.py (pid 4002), are busy"}),
        (20.0, [job(), *feeders(*[{"run": 79.0, "queued": 20.0}] * 4)], {"outsiders": (EVE,)},
         {"says": "taken by ffmpeg (eve) 8.1 cores"}),
    ],
    "one worker is one in every sentence": [
        (20.0, [main_of(run=95.0), *feeders({"run": 30.0})], {},
         because("main_process", "cpu", "1 worker is busy 30 %", never="1 workers")),
        (20.0, [main_of(run=95.0), *feeders(*[{"run": 30.0}] * 2)], {}, {"says": "2 workers are busy 30 %"}),
        (20.0, [main_of(run=30.0, other=70.0), *feeders({"run": 20.0})], {},
         because("starved_unattributed", "unknown", "1 worker is busy 20 %")),
    ],
    "a worker whose waits nobody measured is believed the less the less it is seen": [
        (19.0, [train(main=main, **more), *[replace(w, feed=FeedTime()) for w in workers(1, run)]], {},
         {"verdict": "dataloader_cpu", "confidence": confidence, "says": says, "never": "nothing that can be seen"})
        for run in (65.0, 100.0) for main, more, confidence, says in (
            (2.0, {}, "high", "main thread: run 2 %, waits not measured"),
            (30.0, {}, "low", ("main thread: run 30 %, waits not measured", "waits for was not read")),
            (0.0, {"main_run_pct": None, "main_wait_pct": None}, "low", "main thread: not measured"),
        )
    ],
    "no option of the DataLoader is advised for what is no DataLoader": [
        (20.0, [job(), *kind(feeders({state: 98.0}), "python", why)] if why else [job(feed=shares(**{state: 98.0}))],
         {}, {"verdict": "dataloader_cpu" if state == "run" else "dataloader_io", "never": NEVER_OF_A_DATALOADER})
        for state in ("run", "network", "disk") for why in ("R3 same command line", "R5 busy descendant", "")
    ],
    "who takes the cores is named": [
        (20.0, [job(), *QUEUED], {"outsiders": (STRESS,)}, {"says": "stress takes,"}),
        (20.0, [job(), *QUEUED], {"outsiders": (MANY,)}, {"says": "11 others take,"}),
        (20.0, [job(), *QUEUED], {"outsiders": (EVE, Outsider("bob", "ng", 90.0))},
         because("dataloader_cpu", "queued", "ffmpeg (eve) 8.1 cores", never="num_workers")),
        # One program on many cores, and many small ones beside it: the sum is told, too.
        (20.0, [job(), *QUEUED], {"outsiders": (EVE,), "cpu_outsiders_pct": 2000.0},
         {"says": "ffmpeg (eve) 8.1 cores, all programs outside the GPU jobs 20.0 cores"}),
        (20.0, [job(), *QUEUED], {"outsiders": SMALL, "cpu_outsiders_pct": 2000.0},
         {"says": ("taken by all programs outside the GPU jobs 20.0 cores", "free cores")}),
        (20.0, [job(cpu_pct=2900.0), *QUEUED], {"cpu_count": 32.0}, {"says": "the job's own threads: 29 of 32"}),
        (20.0, [job(cpu_pct=14.0), *[replace(w, cpu_pct=0.0) for w in QUEUED]], {"cpu_count": 0.15},
         {"says": "the job's own threads: 0.14 of 0.15"}),
        (20.0, [job(), *QUEUED], PRESSED, {"has": "core_shortage"}),
        (20.0, [job(), *[replace(w, throttled_pct=40.0) for w in QUEUED]], PRESSED,
         {"has": "cpu_limit", "lacks": "core_shortage"}),
    ],
    # --- idle ---
    "an idle GPU says what its job is in": [
        *[row for state, waits, cause, words in (
            ("T", {"unread": 100.0}, "stopped", ("the main thread is stopped by a signal (SIGSTOP) for", "kill -CONT")),
            ("t", {"unread": 100.0}, "stopped", ("the main thread is held by a debugger for",)),
            ("S", {"sleep": 100.0}, "sleep", ("the main thread sleeps by a timer for",)),
            ("S", {"network": 100.0}, "ranks", ("since the start for other ranks of its job",)),
            ("D", {"disk": 100.0}, "disk", ("the main thread waits for the disk for",)),
        ) for row in (
            (0.0, [idle_main(state, nccl=True, **waits)], {}, because("idle", cause, *words)),
            (97.0, [idle_main(state, nccl=True, **waits)], {}, {"cause": None}),
        )],
        # Nobody is called a rank of whom that is not known.
        *[(0.0, [idle_main(poll=100.0, waits_for=(WaitEnd("network", 95.0, detail=address),) if address else (),
                           static=ProcessStatic(command=line))], {}, because("idle", cause, words))
          for line, address, cause, words in (
            ("python3 -m ipykernel_launcher -f kernel.json", "", None, "notebook's kernel waits for its next cell"),
            ("python train.py", "10.0.0.7:29500", "ranks", "for other ranks of its job, at 10.0.0.7:29500"),
            ("python train.py", "10.0.0.7:29400", "ranks", "for other ranks of its job, at 10.0.0.7:29400"),
            ("python train.py", "10.0.0.7:4711, where its ranks meet: 3 of 4 ranks seen, rank 2 holds no GPU here",
             "ranks", "3 of 4 ranks seen, rank 2 holds no GPU here"),
            ("python consume.py", "10.0.0.7:5672", "network", "waits for 10.0.0.7:5672 since the start"),
            ("python consume.py", "", None, "the main thread polls for"),
        )],
        (0.0, [main_of(pipe=100.0), *feeders(*[{"network": 100.0}] * 2, mount="/data/bucket")], {},
         because("idle", "mount", "on /data/bucket", "server")),
        (0.0, [main_of(pipe=100.0), *feeders(*[{"lock": 100.0}] * 2)], {}, because("idle", "lock", "for a lock")),
        # A read on it is a wait for the network or for a disk, as it is made; only one of them tells the mount.
        (0.0, [main_of(poll=100.0), *feeders({"network": 100.0}, mount="/data/bucket"),
               replace(feeders(IDLE, {"disk": 100.0})[1])], {},
         because("idle", "mount", "on /data/bucket", "server")),
        (0.0, [main_of(poll=100.0), *feeders(IDLE), *STOPPED], {},
         because("idle", "stopped", "1 of 2 stopped by a signal (SIGSTOP), pid 4002", "let it go on: kill -CONT 4002")),
        # Whoever of a job is stopped is let go on; another job on the GPU is left alone.
        (0.0, [idle_main("T", unread=100.0), *feeders(IDLE), *STOPPED,
               replace(idle_main("T"), pid=9, gpu_mem_bytes=1.0)], {},
         because("idle", "stopped", "let them go on: kill -CONT 4000 4002", never=" 9")),
        # Where main does not wait for them, they are ahead.
        (0.0, [main_of(sleep=100.0), *feeders(*[{"lock": 100.0}] * 2)], {}, because("idle", "sleep")),
        # Short steps that workers hold back are starved; where nobody works, or nothing runs, that is idle.
        (3.0, [main_of(3.0, poll=97.0), *feeders({"run": 98.0})], {}, because("dataloader_cpu", "cpu")),
        (3.0, [main_of(3.0, poll=97.0), *NO_SOCKET[:1]], {}, "idle"),
        (0.0, [main_of(0.0, poll=97.0), *feeders({"run": 30.0})], {}, "idle"),
    ],
}  # fmt: skip


@pytest.mark.parametrize("title", TABLE)
def test_a_gpu_that_waits_is_told_why(title: str) -> None:
    for util, processes, changes, wanted in TABLE[title]:
        of_gpu = {key: value for key, value in changes.items() if key.startswith("pcie")}
        host = replace(HOST, **{key: value for key, value in changes.items() if key not in of_gpu})
        sample = gpu(
            util=util,
            sm=min(util, 60.0),
            **({**of_gpu, "tensor_active_pct": 20.0} if of_gpu else {}),
        )
        d = steady(32, sample, processes, host)
        assert_told(d, wanted)
        assert (
            d.remedy
            or d.level in ("green", "grey")
            or d.verdict in ("low_demand", "idle")
            or not d.cause
        )


def test_a_program_is_named_by_its_script_or_module() -> None:
    scripts = {
        "python3 -u serve.py --port 1": "serve.py",
        "python3 -m a.b": "a.b",
        "python3 -c import x": "python3",
    }
    for line, name in scripts.items():
        assert program_of(command(line, "python3")) == name
    assert program_of(command("/opt/featsvc --x", "featsvc")) == "featsvc"


def test_nobody_is_accused_by_a_name_alone_while_workers_start() -> None:
    named = (WaitEnd("name", 95.0, (4001, 4002)),)
    watch, old = Watch(), feeders({"run": 96.0}, {"run": 96.0})
    before = watch.feed(
        snap(tick, gpu(util=20.0, sm=20.0), (job(waits_for=named), *old)) for tick in range(32)
    )
    assert (before.verdict, before.confidence) == ("dataloader_cpu", "medium")
    again = [replace(row, starttime=99000, age_s=1.0) for row in old]
    after = watch.feed(
        snap(tick, gpu(util=20.0, sm=20.0), (job(waits_for=named), *again))
        for tick in range(32, 52)
    )
    assert after.verdict == "starved_unattributed"


def test_the_numbers_of_the_host_panel() -> None:
    d = said(38.0, train(main=2.0, pin_memory=False), *workers(8, 88.0, 12.0))
    a = d.attribution
    assert a is not None and (a.idle_pct, a.loaders) == (62.0, 8)
    assert (a.running_pct, a.queued_pct, a.disk_pct, a.main_pct) == pytest.approx(
        (88.0, 12.0, 0.0, 2.0)
    )
    spins = said(60.0, train(main=62.0)).attribution
    assert spins is not None and spins.main_pct is None
    helps = said(40.0, train(main=2.0), *workers(2, 20.0, role="helper")).attribution
    assert helps is not None and helps.loaders == 0
    uneven = said(20.0, job(), *UNEVEN).feeders
    assert uneven is not None and (
        uneven.count,
        uneven.active,
        round(uneven.busiest.useful, 2),
    ) == (4, 1, 0.98)
    ray = said(
        20.0, job(), *kind(feeders({"run": 98.0}, {"run": 97.0}, {}, {}), "ray", "R4 ray task")
    ).feeders
    assert ray is not None and ray.count == 2
    taken = said(20.0, job(), *QUEUED, outsiders=SMALL, cpu_outsiders_pct=2000.0)
    assert "the cores are taken by all programs outside the GPU jobs 20.0 cores" in taken.notes
    hidden = Redactor().snapshot(snap(0, gpu(), (), replace(HOST, outsiders=(EVE, STRESS)))).host
    assert hidden.cpu_outsiders == "user1 ffmpeg 812; user2 stress 3000"


def test_waits_are_means_over_all_samples_also_those_in_which_main_runs() -> None:
    ran, slept = job("run 4", main=95.0), job("sleep 4", main=2.0)
    found = Watch().feed(
        snap(t, gpu(util=20.0, sm=15.0), [ran if t % 2 else slept]) for t in range(45)
    )
    assert "sleep 49 %" in found.evidence[1]


def test_loaders_count_for_each_gpu_of_their_parent() -> None:
    both = [train(0, main=2.0), replace(train(1, main=2.0), pid=4000)]
    watch = Watch()
    for tick in range(45):
        samples = [gpu(0, util=40.0), gpu(1, util=40.0)]
        last = watch.diagnoser.diagnose(snap(tick, samples, [*both, *workers(4, 95.0)]))
    assert [found.verdict for found in last] == ["dataloader_cpu", "dataloader_cpu"]


# --- over time ------------------------------------------------------------------------------------------------------

TickContext = tuple[float, list[ProcessSample]]


def over(*spans: tuple[int, Callable[[int], TickContext]]) -> Watch:
    """Each span with its seconds, and what is seen of the GPU at each: util and processes."""
    watch = Watch()
    for t, at in enumerate(at for seconds, at in spans for _ in range(seconds)):
        util, processes = at(t)
        watch.feed([snap(t, gpu(util=util, sm=0.9 * util), processes)])
    return watch


def verdicts(watch: Watch, since: float = 0.0) -> set[tuple[str, str | None]]:
    return {(d.verdict, d.cause) for t, d in watch.said if t >= since}


def names(watch: Watch, since: float = 0.0) -> set[str]:
    return {verdict for verdict, _ in verdicts(watch, since)}


def first(watch: Watch, verdict: str, after: float = 0.0) -> float:
    """When a verdict was first said; never is never."""
    found = watch.first(lambda d: d.verdict == verdict, after)
    return float("inf") if found is None else found


def aged(t: float, *processes: ProcessSample) -> list[ProcessSample]:
    return [replace(p, age_s=float(t)) for p in processes]


def born(epoch: int, age_s: float, rows: list[ProcessSample]) -> list[ProcessSample]:
    """The workers of one epoch."""
    return [replace(w, pid=6000 + 10 * epoch + i, age_s=float(age_s)) for i, w in enumerate(rows)]


CALM = {"collecting", "startup", "idle", "working", "healthy"}


# --- pauses, births, changes ---


def checkpoints(writes: float, pause: int, every: int = 30) -> Callable[[int], TickContext]:
    def at(t: int) -> TickContext:
        paused = t % every >= every - pause
        return 0.0 if paused else 97.0, [
            train(main=30.0, write_bytes_per_s=writes if paused else 0.0)
        ]

    return at


def test_a_pause_of_less_than_a_minute_with_writes_is_a_checkpoint() -> None:
    wanted = {"verdict": "checkpoint_pause", "level": "info", "says": "240 MB/s"}
    assert_told(over((110, checkpoints(240e6, 3))).said[-1][1], wanted)
    assert over((110, checkpoints(49e6, 3))).said[-1][1].verdict == "healthy", "a log"
    long = over((140, checkpoints(240e6, 70, every=140)), (25, lambda t: (98.0, [train()])))
    assert long.said[-1][1].verdict == "healthy" and first(
        long, "checkpoint_pause", after=130
    ) == float("inf")
    for disk, found in ((95.0, True), (0.0, False)):
        # To a slow disk it is one at any rate.
        def slow(t: int, disk: float = disk) -> TickContext:
            pauses = 40 <= t < 46
            p = main_of(disk=disk) if pauses else main_of(lock=5.0)
            return 0.0 if pauses else 97.0, [replace(p, write_bytes_per_s=1e6)]

        assert ("checkpoint_pause" in names(over((70, slow)))) == found


def restarts(
    every: int = 10, gap: int = 3, count: int = 4, util: float = 0.0
) -> Callable[[int], TickContext]:
    def at(t: int) -> TickContext:
        epoch, second = divmod(t, every)
        return util if second < gap else 96.0, [
            train(main=5.0),
            *born(epoch, second, workers(count, 60.0)),
        ]

    return at


def test_workers_that_are_started_again_and_again() -> None:
    wanted = {
        "verdict": "worker_restart",
        "level": "yellow",
        "says": ("12 new workers in 30 s", "persistent_workers"),
    }
    assert_told(over((110, restarts())).said[-1][1], wanted)
    assert "worker_restart" not in names(over((105, restarts(every=40, gap=10, count=1)))), (
        "too few"
    )
    assert (
        over((110, lambda t: (70.0, restarts()(t)[1]))).said[-1][1].verdict
        == "starved_unattributed"
    ), "no gap"

    def between(t: int) -> TickContext:
        util, (p, *alive) = restarts()(t)
        return util, [replace(p, feeder_threads=2), *([] if t % 10 >= 8 else alive)]

    remedies = [d.remedy for _, d in over((110, between)).said if d.verdict == "worker_restart"]
    assert len(remedies) > 30 and all("persistent_workers" in remedy for remedy in remedies)


def test_one_batch_of_births_is_an_evaluation_not_a_restart() -> None:
    def at(t: int) -> TickContext:
        evaluating = born(0, t - 60.0, workers(8, 30.0)) if t >= 60 else []
        return 0.0 if 60 <= t < 67 else 96.0, [train(main=5.0), *workers(4, 30.0), *evaluating]

    assert "worker_restart" not in names(over((90, at)))


@pytest.mark.parametrize(("older", "found"), [(0, "worker_restart"), (2, "dataloader_cpu")])
def test_workers_that_import_for_their_whole_start_are_restarts_unless_older_ones_run_on(
    older: int, found: str
) -> None:
    def at(t: int) -> TickContext:
        epoch, second = divmod(t, 12)
        old = born(-10, 900.0, feeders(*[{"run": 98.0}] * older))
        return 0.0 if second < 4 else 96.0, [
            job(),
            *born(epoch, second, feeders(*[{"run": 98.0}] * 2)),
            *old,
        ]

    watch = over((100, at))
    assert found in names(watch) and (older > 0 or "dataloader_cpu" not in names(watch))


def test_workers_that_replace_the_first_ones_of_a_young_job_are_births() -> None:
    def at(t: int) -> TickContext:
        epoch, second = divmod(t, 14)
        pauses = epoch > 0 and second < 9
        rows = feeders(*[{"run": 98.0} if pauses else {"run": 2.0, "poll": 97.0}] * 2)
        seen = [job(age_s=float(t)), *born(epoch, second, rows)] if t >= 8 else []
        return 0.0 if t < 8 or pauses else 97.0, seen

    watch = over((60, at))
    assert "dataloader_cpu" not in names(watch) and watch.said[-1][1].cause == "startup"


def test_a_line_of_children_of_one_worker_is_one_worker_and_no_restart() -> None:
    def at(t: int) -> TickContext:
        shard, second = divmod(t, 6)
        (worker,) = feeders({"run": 20.0, "lock": 80.0}, feed_by="child")
        (child,) = kind(feeders({"run": 21.0, "lock": 79.0}), "python", "R3 same command line")
        decoder = replace(child, pid=7000 + shard, ppid=worker.pid, age_s=float(second))
        return 0.0 if second < 2 else 60.0, [job(), worker, decoder]

    assert names(over((90, at))) <= {"collecting", "starved_unattributed"}


def test_an_idle_gpu_says_that_its_workers_start_anew_where_that_is_where_the_time_goes() -> None:
    def at(t: int) -> TickContext:
        epoch, second = divmod(t, 10)
        return 3.0 if second == 9 else 0.0, [
            main_of(poll=98.0), *born(epoch, second, feeders({"run": 98.0}, {"run": 98.0})),
        ]  # fmt: skip

    assert_told(
        over((60, at)).said[-1][1], because("idle", "startup", "start anew", "keep them alive")
    )


def test_a_cause_that_changes_is_told_within_twenty_seconds_and_once() -> None:
    before, after = [job(), *feeders({"run": 98.0})], [job(), *feeders({"network": 98.0})]
    watch = over((60, lambda t: (30.0, before)), (60, lambda t: (30.0, after)))
    doubted = watch.first(lambda d: any("what is said here was before" in note for note in d.notes))
    assert doubted is not None and 60 < doubted < first(watch, "dataloader_io") <= 60 + 20
    assert sum(a.verdict != b.verdict for (_, a), (_, b) in pairwise(watch.said)) == 2


def test_a_cause_near_a_threshold_stays_and_a_clear_one_replaces_it() -> None:
    def mixed(main: float, cpu: float = 97.0) -> TickContext:
        return 20.0, [job("run 3", main=main), *feeders({"run": cpu, "network": 99.0 - cpu})]

    # The main thread runs about as much as makes it the cause: to and fro, for 40 s each.
    near = over(
        (90, lambda t: mixed(50.0)), (160, lambda t: mixed(57.0 if t // 40 % 2 else 66.0)),
        (70, lambda t: mixed(10.0, cpu=5.0)),
    )  # fmt: skip
    assert {d.verdict for t, d in near.said if 60 < t < 250} == {"dataloader_cpu"}
    assert near.said[-1][1].verdict == "dataloader_io"


@pytest.mark.parametrize(("util", "found"), [(0.0, "idle"), (97.0, "healthy")])
def test_an_end_and_a_recovery_wait_for_no_margin(util: float, found: str) -> None:
    slow = [job(), *feeders({"run": 95.0})]
    assert (
        over((90, lambda t: (30.0, slow)), (45, lambda t: (util, [job()]))).said[-1][1].verdict
        == found
    )


def test_an_evaluation_every_few_steps_is_the_main_threads_and_no_lock_of_workers_that_are_ahead() -> (
    None
):
    full = feeders({"lock": 100.0}, {"lock": 100.0})

    def long(t: int) -> TickContext:
        return (
            (0.0, [main_of(run=100.0), *full])
            if t % 9 >= 4
            else (97.0, [main_of(sleep=98.0), *full])
        )

    def short(t: int) -> TickContext:
        """Pauses that are too short to fill half of the idle time still tell running from sleeping."""
        phase = t % 8
        util, run = (97.0, 1.0) if phase < 2 else (0.0, 100.0) if phase in (4, 5) else (50.0, 50.0)
        return util, [main_of(run=run, sleep=100.0 - run), *full]

    for evaluates in (long, short):
        assert verdicts(over((70, evaluates)), 20) == {("main_process", "cpu")}


# --- young jobs ---


def test_a_young_job_is_judged_once_its_kernels_run_and_not_by_what_it_did_before() -> None:
    slow = feeders({"run": 98.0}, {"run": 97.0})
    watch = over(
        (20, lambda t: (0.0, [job("run 3", main=99.0, age_s=t)])), (35, lambda t: (30.0, [job(age_s=t), *slow])),
    )  # fmt: skip
    assert 15 <= first(watch, "dataloader_cpu") - 20 <= 20
    assert names(watch) <= {"collecting", "startup", "dataloader_cpu"}


@pytest.mark.parametrize("late_s", [1, 4])
@pytest.mark.parametrize(
    "at_first", [[], [replace(job("run 3", main=99.0), age_s=None, feeder_threads=None)]]
)
def test_a_spinning_job_that_is_known_some_samples_after_its_first_kernels_is_not_accused(
    at_first: list[ProcessSample], late_s: int
) -> None:
    def works(t: int) -> TickContext:
        return 100.0, [job("run 3", main=99.0, age_s=t)] if t >= 8 + late_s else at_first

    watch = over((8, lambda t: (0.0, [])), (52, works))
    assert names(watch) <= CALM and watch.said[-1][1].verdict == "healthy"


def test_a_job_that_pauses_goes_on_being_judged() -> None:
    def at(t: int) -> TickContext:
        return 0.0 if t < 5 or 26 <= t < 50 else 80.0, [
            job(age_s=float(t)),
            *feeders({"run": 97.0}),
        ]

    assert not names(over((90, at)), 30) & {"collecting", "startup"}


def test_a_pause_between_the_first_kernels_and_training_is_part_of_starting_up() -> None:
    def at(t: int) -> TickContext:
        return 0.0 if t < 2 or 4 <= t < 40 else 6.0 if t < 4 else 97.0, aged(t, main_of())

    watch = over((100, at))
    assert names(watch) <= CALM and watch.said[-1][1].verdict == "healthy"
    for warms_up_s in (1, 3, 5):
        # Nor is a warm-up before a model is loaded.
        def loads(t: int, end: int = 5 + warms_up_s) -> TickContext:
            p = main_of(90.0) if 5 <= t < end else main_of(5.0, disk=94.0)
            return 60.0 if 5 <= t < end else 0.0, aged(
                t, replace(p, main_looks=main_looks([("run", 6)]))
            )

        assert names(over((40, loads))) <= {"collecting", "startup", "idle"}, warms_up_s


def slow_steps(*processes: ProcessSample, every: int = 3) -> Callable[[int], TickContext]:
    """A job whose first step comes after five seconds, and then one every few seconds."""
    return lambda t: (5.0 if t >= 5 and t % every == 0 else 0.0, aged(t, *processes))


def test_slow_steps_are_judged_before_a_minute_has_passed() -> None:
    fed = over((60, slow_steps(main_of(poll=97.0), *feeders({"run": 98.0}, {"run": 97.0}))))
    assert first(fed, "dataloader_cpu") <= 5 + 20
    assert first(over((60, slow_steps(main_of(run=97.0)))), "main_process") <= 5 + 32
    # Kernels now and then while a model is loaded are no steps.
    assert names(over((58, slow_steps(main_of(disk=97.0), every=9)))) <= {
        "collecting",
        "startup",
        "idle",
    }


@pytest.mark.parametrize(
    ("waits", "fed", "verdict", "cause"),
    [
        ({"network": 80.0}, [], "main_process", "network"),
        ({"disk": 80.0}, [], "main_process", "disk"),
        ({"pipe": 80.0}, feeders({"network": 97.0}, {"network": 97.0}), "dataloader_io", "network"),
        ({"pipe": 80.0}, feeders({"lock": 99.0}, {"lock": 99.0}), "starved_unattributed", "lock"),
    ],
)
def test_what_a_job_waits_for_is_said_within_eight_seconds_of_its_first_kernel_and_stays(
    waits: dict[str, float], fed: list[ProcessSample], verdict: str, cause: str
) -> None:
    p = replace(main_of(5.0, **waits), main_looks=main_looks([("other", 6)]))
    watch = over((40, lambda t: (20.0 if t >= 5 else 0.0, [*aged(t, p), *fed])))
    assert first(watch, verdict) <= 5 + 8
    assert verdicts(watch, first(watch, verdict)) == {(verdict, cause)}


def test_the_polls_of_a_feeder_whose_sockets_are_seen_late_were_waits_for_the_network() -> None:
    p = replace(main_of(5.0, pipe=80.0), main_looks=main_looks([("pipe", 6)]))

    def at(t: int) -> TickContext:
        return 20.0, [
            p,
            *feeders({"poll": 97.0}, feed_by="socket" if t >= 10 else None, net_rx_bytes_per_s=3e5),
        ]

    assert first(over((20, at)), "dataloader_io") <= 10 + 4


def test_a_young_job_that_was_judged_is_not_said_to_start_again() -> None:
    def at(t: int) -> TickContext:
        # Steps become rare: first every second sample has a kernel, then one of eleven.
        steps = t in (*range(8, 22, 2), 29, 40, 51)
        return 5.0 if steps else 0.0, aged(t, main_of(poll=97.0), *feeders({"run": 98.0}))

    watch = over((58, at))
    assert names(watch, first(watch, "dataloader_cpu")) == {"dataloader_cpu"}


# --- several jobs, and servers ---


def test_another_gpus_job_that_takes_the_cores_is_named_and_the_ranks_of_the_same_job_are_not() -> (
    None
):
    gpus = [gpu(0, util=20.0, sm=15.0), gpu(1), gpu(2)]
    queued = feeders({"run": 30.0, "queued": 68.0})
    bob = told(
        replace(train(1), static=ProcessStatic(user="bob", command="python hog.py", name="python"))
    )
    theirs = [bob, *workers(6, 99.0, parent=4100)]

    def notes(*processes: ProcessSample) -> str:
        return " ".join(Watch().feed(snap(t, gpus, processes) for t in range(45)).notes)

    assert "taken by python on GPU 1 (bob, pid 4100) 6.0 cores" in notes(job(), *queued, *theirs)
    # On two GPUs the same process has the same tree, which counts once.
    assert "(bob, pid 4100) 6.0 cores" in notes(job(), *queued, *theirs, replace(bob, gpu=2))
    ranks = [
        replace(p, static=replace(p.static, batch_job=CgroupName("slurm:7"))) for p in (job(), bob)
    ]
    assert "taken by python" not in notes(ranks[0], *queued, ranks[1], *theirs[1:])
    assert "taken by" not in notes(job(), *queued, bob, *workers(6, 5.0, parent=4100))


@pytest.mark.parametrize(
    ("cache", "queue", "full_for_s", "wanted"),
    [
        (98.0, 7.0, 90, because("kv_cache_full", None, "queue 7, KV cache 98 %", "--gpu-memory-utilization",
                                state="starved", level="yellow")),
        (98.0, 7.0, 30, "low_demand"), (94.0, 7.0, 90, "low_demand"), (98.0, 0.0, 90, "low_demand"),
        (None, 7.0, 90, "low_demand"),
    ],
)  # fmt: skip
def test_a_server_whose_cache_is_full_while_requests_wait_lacks_memory_and_not_demand(
    cache: float | None, queue: float, full_for_s: int, wanted: dict[str, Any] | str
) -> None:
    row = ServerRow(
        "localhost:8000", "vllm", 30.0, 2.0, 400.0, queue=queue, running=9.0, kv_cache_pct=cache
    )
    server = [train(static=ProcessStatic(command="vllm serve llama", server="vllm"))]
    moments = (snap(t, gpu(util=60.0), server) for t in range(90))
    last = Watch().feed(
        replace(s, servers=(row,) if t < full_for_s else ()) for t, s in enumerate(moments)
    )
    assert_told(last, wanted)


def test_a_job_that_has_just_ended_is_not_hidden_and_needs_no_remedy() -> None:
    """In its last seconds' window the GPU still starved: nobody need look for its processes elsewhere."""
    unseen = replace(
        train(), main_run_pct=None, main_wait_pct=None, unavailable={"main_run_pct": "hidden"}
    )
    ended = Watch().feed(
        snap(t, gpu(util=10.0, sm=4.0), [unseen] if t < 40 else []) for t in range(42)
    )
    assert (ended.evidence, ended.state, ended.remedy or "") == (
        ("its process has ended",),
        "idle",
        "",
    )
