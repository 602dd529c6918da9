"""The rules about feeders: the busiest decides, shares add up, the main thread's own waits count, all is told."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from msgspec.structs import replace

from gputop.diagnosis.types import GpuDiagnosis
from gputop.model.feeders import SERVED_BY_PARENT, Outsider, WaitEnd, main_looks
from gputop.model.redaction import Redactor
from gputop.model.snapshot import CgroupName, FeedTime, MainTime, ProcessSample, ProcessStatic, Snapshot
from gputop.paint.host_rows import feeder_fields
from tests.support.scenes import HOST, Watch, gpu, snap, steady, told, train, workers

STATES = ("run", "queued", "disk", "network", "lock", "sleep", "poll")


def job(waits: str = "lock 3", main: float = 2.0, **changes: Any) -> ProcessSample:
    """A training process whose feeders were measured, with what its main thread was seen at."""
    looks = main_looks((state, int(count)) for state, count in (part.split() for part in waits.split(", ")))
    return train(main=main, main_looks=looks, waiting_on=waits.split()[0], feeder_threads=2, **changes)


def shares(**percent: float) -> FeedTime:
    return FeedTime(*(percent.get(name, 0.0) for name in STATES))


def feeders(*each: dict[str, float], **changes: Any) -> list[ProcessSample]:
    """One worker for each set of shares."""
    rows = workers(len(each), 0.0)
    return [
        replace(row, run_pct=s.get("run", 0.0), wait_pct=s.get("queued", 0.0), feed=shares(**s), **changes)
        for row, s in zip(rows, each, strict=True)
    ]


def said(util: float, *processes: ProcessSample, **host: Any) -> GpuDiagnosis:
    return steady(45, gpu(util=util, sm=min(util, 60.0)), processes, replace(HOST, **host))


IDLE: dict[str, float] = {"poll": 100.0}

CASES: dict[str, tuple[list[ProcessSample], str, str | None, str]] = {
    "one slow worker of four": (
        [job(), *feeders({"run": 98.0}, IDLE, IDLE, IDLE)], "dataloader_cpu", "cpu", "1 of 4 workers runnable",
    ),
    "half CPU and half network": (
        [job(), *feeders({"run": 44.0, "network": 56.0})], "dataloader_io", "network", "runnable 44 %",
    ),
    "mostly CPU, some network": (
        [job(), *feeders({"run": 60.0, "network": 38.0})], "dataloader_cpu", "cpu", "network 38 %",
    ),
    "a fetch that cannot be seen": ([job(), *feeders(IDLE, IDLE)], "dataloader_io", "fetch", "something outside"),
    "polling without any socket": (
        [job(), *feeders(IDLE, IDLE, feed_by="no socket")], "starved_unattributed", "unknown", "workers: poll 100 %",
    ),
    "an idle pool": (
        [job(), *feeders({}, {"lock": 100.0}, feed_by="task queue")], "starved_unattributed", "unknown",
        "main waits: lock",
    ),
    "a pipe from outside": (
        [job("pipe 3"), *feeders({"network": 100.0}, feed_by="pipe")], "dataloader_io", "pipe", "a pipe from outside",
    ),
    "a decoding child": (
        [job(), *feeders({"run": 97.0}, feed_by="child")], "dataloader_cpu", "cpu", "its own child process",
    ),
    "a shared lock": (
        [job(), *feeders({"lock": 99.0}, {"lock": 99.0})], "starved_unattributed", "lock", "workers: lock 99 %",
    ),
    "a lock whose holder sleeps": (
        [job(), *feeders(*[{"lock": 60.0, "sleep": 39.0}] * 4)], "starved_unattributed", "lock",
        "workers: lock 60 %, sleep 39 %",
    ),
    "a lock that two take in turn": (
        [job(), *feeders(*[{"lock": 48.0, "sleep": 51.0}] * 2)], "starved_unattributed", "lock",
        "workers: sleep 51 %, lock 48 %",
    ),
    "a lock and sleep that fill too little of the idle time": (
        [job(), *feeders({"lock": 40.0, "sleep": 25.0, "poll": 35.0})], "starved_unattributed", "unknown",
        "worker: lock 40 %, poll 35 %",
    ),
    "back-off between short locks": (
        [job(), *feeders({"sleep": 58.0, "lock": 25.0, "poll": 17.0})], "starved_unattributed", "sleep",
        "worker: sleep 58 %, lock 25 %",
    ),
    "back-off": ([job(), *feeders({"sleep": 99.0})], "starved_unattributed", "sleep", "worker: sleep 99 %"),
    "the main thread's own network": (
        [job("network 3"), *feeders(IDLE)], "main_process", "network", "waits for the network itself",
    ),
    "the main thread's own disk": ([job("disk 3")], "main_process", "disk", "waits for a disk itself"),
    "the main thread sleeps": (
        [job("sleep 3"), *feeders({"run": 60.0, "lock": 39.0})], "main_process", "sleep", "sleeps",
    ),
    "the main thread polls data in": (
        [job("queue 3", net_rx_bytes_per_s=2e6)], "main_process", "network", "receiving 2.0 MB/s",
    ),
    "a thread that computes": (
        [job(feed=shares(run=98.0))], "dataloader_cpu", "cpu", "2 host threads runnable",
    ),
    "threads that poll data in": (
        [job(feed=shares(network=97.0), feed_by="socket", net_rx_bytes_per_s=3e5)], "dataloader_io", "network",
        "2 host threads waiting for the network 97 %, receiving 300 kB/s",
    ),
    "a server by its socket": ([job("queue 3", listens=True)], "low_demand", None, "listens on a socket of its own"),
    "a disk": (
        [job(), *feeders({"disk": 96.0}, {"disk": 95.0})], "dataloader_io", "disk", "2/2 workers in disk wait",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_what_starves_a_gpu_is_named_with_its_evidence(case: str) -> None:
    processes, verdict, cause, words = CASES[case]
    found = said(20.0, *processes)
    assert (found.verdict, found.cause) == (verdict, cause), found.evidence
    assert words in " ".join(found.evidence), found.evidence
    assert found.remedy or verdict == "low_demand"


def test_sleep_beside_a_lock_is_looked_for_under_the_lock() -> None:
    both = said(20.0, job(), *feeders(*[{"lock": 60.0, "sleep": 39.0}] * 4))
    assert "while it holds a lock" in both.remedy
    assert "sleep" not in said(20.0, job(), *feeders({"lock": 71.0, "sleep": 28.0})).remedy


def test_uneven_workers_are_told_with_an_option_of_the_dataloader_and_only_of_that() -> None:
    uneven = feeders({"run": 98.0}, IDLE, IDLE, IDLE)
    found = said(20.0, job(), *uneven)
    assert found.uneven and found.feeders is not None
    assert (found.feeders.n, found.feeders.active, round(found.feeders.busiest.useful, 2)) == (4, 1, 0.98)
    assert "in_order=False" in found.remedy and "2.6" in found.remedy
    pool = [
        replace(w, static=replace(w.static, loader="python", why="R3 same command line", rule="R3")) for w in uneven
    ]
    told = said(20.0, job(), *pool).remedy
    assert "balance" in told and "DataLoader" not in told and "in_order" not in told


def test_those_are_counted_that_are_in_the_state_that_is_named() -> None:
    """A child that saves beside two workers that compute is not the third that does."""
    found = said(20.0, job(), *feeders({"run": 99.0}, {"run": 98.0}, {"disk": 80.0, "run": 3.0}))
    assert "2/3 workers runnable" in found.evidence[0], found.evidence


def test_workers_that_wait_for_the_network_are_never_told_to_prefetch_and_need_no_core() -> None:
    found = said(20.0, job(), *feeders(*[{"network": 99.0}] * 2), psi_cpu_pct=95.0)
    assert "more num_workers (now 2)" in found.remedy and "__getitems__" in found.remedy
    assert "prefetch_factor" not in found.remedy


@pytest.mark.parametrize(("name", "words"), [("stress", "stress takes,"), ("cc1, ld and 11 others", "11 others take,")])
def test_who_takes_the_cores_is_named_in_the_right_number(name: str, words: str) -> None:
    queues = feeders(*[{"run": 20.0, "queued": 79.0}] * 2)
    assert words in said(20.0, job(), *queues, outsiders=(Outsider("ann", name, 3000.0),)).remedy


def test_a_job_that_may_use_one_core_is_told_of_its_mask() -> None:
    queues = feeders(*[{"run": 25.0, "queued": 74.0}] * 4)
    found = said(20.0, replace(job(), allowed_cores=1.0), *queues, outsiders=(Outsider("ann", "stress", 3000.0),))
    assert "may use 1 of 32 cores" in found.remedy and "stress" not in found.remedy


def test_a_main_thread_that_writes_is_not_told_to_read_elsewhere() -> None:
    reads = main_of(disk=90.0)
    assert "read in a loader" in said(20.0, reads).remedy
    assert "it writes" in said(20.0, replace(reads, main=replace(reads.main, saves=88.0))).remedy


@pytest.mark.parametrize("kind", ["python", "helper", "threads"])
@pytest.mark.parametrize("state", ["run", "network", "disk"])
def test_no_dataloader_option_is_advised_for_what_is_no_dataloader(kind: str, state: str) -> None:
    if kind == "threads":
        found = said(20.0, job(feed=shares(**{state: 98.0})))
    else:
        why = {"python": "R3 same command line", "helper": "R5 busy descendant"}[kind]
        rows = feeders({state: 98.0})
        found = said(
            20.0, job(), *[replace(w, static=replace(w.static, loader="python", why=why, rule=why[:2])) for w in rows]
        )
    assert found.verdict in ("dataloader_cpu", "dataloader_io")
    assert not {"num_workers", "prefetch_factor", "in_order", "persistent"} & set(
        found.remedy.replace("=", " ").split()
    )


def test_a_main_thread_that_sleeps_only_while_the_gpu_computes_is_not_blamed_for_it() -> None:
    # Waiting for the GPU asleep: 60 % of the time at 60 % utilisation; in the idle rest it waits for the batch.
    waiting = job("sleep 6, lock 4", feed=shares(network=98.0), feed_by="socket", net_rx_bytes_per_s=1e6)
    assert said(60.0, waiting).verdict == "dataloader_io"


@pytest.mark.parametrize("waits", ["lock 3", "queue 3", "sleep 3", "pipe 3", "run 3"])
def test_a_busy_gpu_accuses_nobody(waits: str) -> None:
    crowd = feeders({"run": 100.0}, {"queued": 100.0}, {"disk": 100.0}, {"lock": 100.0})
    assert said(97.0, job(waits, main=100.0 if waits == "run 3" else 2.0), *crowd).level == "green"


def test_who_takes_the_cores_is_named() -> None:
    others = (Outsider("eve", "ffmpeg", 812.0), Outsider("bob", "stress ng", 90.0))
    queued = feeders({"run": 30.0, "queued": 68.0})
    found = said(20.0, job(), *queued, outsiders=others)
    assert found.cause == "queued" and "ffmpeg (eve) 8.1 cores" in found.notes[0]
    assert "num_workers" not in found.remedy and "ffmpeg" in found.remedy
    # One program on many cores, and many small ones beside it: the sum is told, too.
    crowd = said(20.0, job(), *queued, outsiders=others, cpu_outsiders_pct=2000.0)
    assert "ffmpeg (eve) 8.1 cores, all programs outside the GPU jobs 20.0 cores" in crowd.notes[0]
    small = (Outsider("eve", "cc1", 30.0), Outsider("bob", "ld", 20.0))
    unnamed = said(20.0, job(), *queued, outsiders=small, cpu_outsiders_pct=2000.0)
    assert "taken by all programs outside the GPU jobs 20.0 cores" in unnamed.notes[0]
    assert unnamed.attribution is not None and "free cores" in unnamed.remedy
    pane = " ".join(text for text, _ in feeder_fields(unnamed.attribution))
    assert "taken by others: all programs outside the GPU jobs 20.0 cores" in pane
    own = said(20.0, job(cpu_pct=2900.0), *queued, cpu_count=32.0)
    assert "the job's own threads" in own.notes[0]
    hidden = Redactor().snapshot(snap(0, gpu(), (), replace(HOST, outsiders=others))).host
    assert hidden.outsiders == (Outsider("user1", "ffmpeg", 812.0), Outsider("user2", "stress ng", 90.0))
    assert hidden.cpu_outsiders == "user1 ffmpeg 812; user2 stress ng 90"


def test_another_gpus_job_that_takes_the_cores_is_named_and_the_ranks_of_the_same_job_are_not() -> None:
    gpus = [gpu(0, util=20.0, sm=15.0), gpu(1), gpu(2)]
    queued = feeders({"run": 30.0, "queued": 68.0})
    bob = told(replace(train(1), static=ProcessStatic(user="bob", command="python hog.py", name="python")))
    theirs = [bob, *workers(6, 99.0, parent=4100)]

    def notes(*processes: ProcessSample) -> str:
        return " ".join(Watch().feed(snap(t, gpus, processes) for t in range(45)).notes)

    assert "taken by python on GPU 1 (bob, pid 4100) 6.0 cores" in notes(job(), *queued, *theirs)
    # On two GPUs the same process has the same tree, which counts once.
    both = replace(bob, gpu=2)
    assert "(bob, pid 4100) 6.0 cores" in notes(job(), *queued, *theirs, both)
    ranks = [replace(p, static=replace(p.static, batch_job=CgroupName("slurm:7"))) for p in (job(), bob)]
    assert "taken by python" not in notes(ranks[0], *queued, ranks[1], *theirs[1:])
    assert "taken by" not in notes(job(), *queued, bob, *workers(6, 5.0, parent=4100))


def test_a_young_job_is_judged_once_its_kernels_run_and_not_by_what_it_did_before() -> None:
    watch = Watch()
    slow = feeders({"run": 98.0}, {"run": 97.0})
    importing = [snap(t, gpu(util=0.0, sm=0.0), [job("run 3", main=99.0, age_s=t)]) for t in range(20)]
    training = [
        snap(t, gpu(util=30.0, sm=25.0), [job(age_s=t), *slow]) for t in range(20, 55)
    ]  # fmt: skip
    watch.feed([*importing, *training])
    first = watch.first(lambda d: d.verdict == "dataloader_cpu")
    assert first is not None and 15 <= first - 20 <= 30
    assert {d.verdict for _, d in watch.said} <= {"collecting", "startup", "dataloader_cpu"}


@pytest.mark.parametrize("late_s", [1, 4])
@pytest.mark.parametrize("at_first", [[], [replace(job("run 3", main=99.0), age_s=None, feeder_threads=None)]])
def test_a_spinning_job_that_is_known_some_samples_after_its_first_kernels_is_not_accused(
    at_first: list[ProcessSample], late_s: int
) -> None:
    watch = Watch()
    quiet = [snap(t, gpu(util=0.0, sm=0.0), []) for t in range(8)]
    working = [
        snap(t, gpu(util=100.0, sm=60.0), [job("run 3", main=99.0, age_s=t)] if t >= 8 + late_s else at_first)
        for t in range(8, 60)
    ]
    watch.feed([*quiet, *working])
    assert {d.verdict for _, d in watch.said} <= {"collecting", "startup", "idle", "working", "healthy"}
    assert watch.said[-1][1].verdict == "healthy"


def test_a_cause_that_changes_is_told_within_twenty_seconds_and_once() -> None:
    watch = Watch()
    before = [snap(t, gpu(util=30.0, sm=25.0), [job(), *feeders({"run": 98.0})]) for t in range(60)]
    net = {"network": 98.0}
    after = [snap(t, gpu(util=30.0, sm=25.0), [job(), *feeders(net)]) for t in range(60, 120)]
    watch.feed([*before, *after])
    doubted = watch.first(lambda d: any("what is said here was before" in note for note in d.notes))
    changed = watch.first(lambda d: d.verdict == "dataloader_io")
    assert doubted is not None and changed is not None and 60 < doubted < changed
    assert changed is not None and changed - 60 <= 20
    verdicts = [d.verdict for _, d in watch.said]
    assert sum(a != b for a, b in pairwise(verdicts)) == 2


MAIN_STATES = ("disk", "network", "lock", "sleep", "poll", "pipe", "write", "other", "unread")


def main_of(util: float = 20.0, run: float = 0.0, **percent: float) -> ProcessSample:
    """A training process whose main thread was seen in these waits; the rest of its time is another one."""
    given = {name: percent.get(name, 0.0) for name in MAIN_STATES}
    given["other"] += 100.0 - run - sum(given.values())
    return replace(train(main=run, feeder_threads=0, main_looks=main_looks([("other", 4)])), main=MainTime(**given))


@pytest.mark.parametrize(
    ("wait", "util", "cause"),
    [("network", 63.0, "network"), ("disk", 63.0, "disk"), ("write", 70.0, "pipe"), ("network", 37.0, "network")],
)
def test_a_wait_that_can_never_be_for_the_gpu_needs_no_bound(wait: str, util: float, cause: str) -> None:
    idle = 100.0 - util
    found = said(util, main_of(util, **{wait: 0.95 * idle}), *feeders(IDLE, IDLE, feed_by="no socket"))
    assert (found.verdict, found.cause) == ("main_process", cause)
    # A worker that works is the one who is waited for, and a lock may be the GPU.
    working = feeders({"run": 97.0})
    assert said(util, main_of(util, **{wait: 0.3 * idle}), *working).verdict == "dataloader_cpu"
    assert said(util, main_of(util, lock=0.95 * idle)).verdict != "main_process"


def test_nothing_is_concluded_from_sockets_that_were_not_looked_at() -> None:
    unread: dict[str, float] = {"unread": 100.0}
    found = said(20.0, main_of(poll=95.0), *[replace(w, feed=replace(w.feed, unread=100.0)) for w in feeders(unread)])
    assert (found.verdict, found.cause) == ("starved_unattributed", "unknown")
    # Half of them polls, and what the rest waits for was not seen: nothing is ruled out.
    rows = feeders({"poll": 100.0}, {"poll": 40.0})
    half = said(20.0, main_of(poll=95.0), rows[0], replace(rows[1], feed=replace(rows[1].feed, unread=60.0)))
    assert (half.verdict, half.cause) == ("starved_unattributed", "unknown")
    seen = said(20.0, main_of(poll=95.0), *[replace(w, feed=replace(w.feed, unread=0.0)) for w in feeders(IDLE)])
    assert (seen.verdict, seen.cause) == ("dataloader_io", "fetch")


def test_a_main_thread_that_writes_to_a_slow_reader_or_polls_its_own_socket_waits_for_no_batch() -> None:
    written = said(20.0, main_of(write=90.0), *feeders(IDLE, IDLE))
    assert (written.verdict, written.cause) == ("main_process", "pipe")
    own = replace(main_of(poll=90.0), feed_by="main socket", net_rx_bytes_per_s=5e4)
    polled = said(20.0, own, *feeders(IDLE, IDLE))
    assert (polled.verdict, polled.cause) == ("main_process", "network")


def test_waits_are_means_over_all_samples_also_those_in_which_main_runs() -> None:
    watch = Watch()
    ran = job("run 4", main=95.0)
    slept = job("sleep 4", main=2.0)
    found = watch.feed(snap(t, gpu(util=20.0, sm=15.0), [ran if t % 2 else slept]) for t in range(45))
    waits = found.attribution.main_waits if found.attribution else None
    assert waits is not None and waits.sleep == pytest.approx(0.49, abs=0.02)


def test_too_few_cores_are_not_said_where_the_limit_of_the_group_is_what_holds_back() -> None:
    queued = feeders({"run": 30.0, "queued": 68.0})
    pressed = {"psi_cpu_pct": 60.0, "cpu_pct": 48.0}
    assert "core_shortage" in {badge.id for badge in said(20.0, job(), *queued, **pressed).badges}
    limited = [replace(w, throttled_pct=40.0) for w in queued]
    found = {badge.id for badge in said(20.0, job(), *limited, **pressed).badges}
    assert "cpu_limit" in found and "core_shortage" not in found


def test_who_did_nothing_is_no_ray_task_that_could_take_more_of_the_work() -> None:
    tasks = feeders({"run": 98.0}, {"run": 97.0}, {}, {})
    ray = [replace(w, static=replace(w.static, loader="ray", why="R4 ray task", rule="R4")) for w in tasks]
    found = said(20.0, job(), *ray)
    assert found.feeders is not None and (found.feeders.n, found.uneven) == (2, False)
    assert "balance" not in found.remedy


def restarting(run: float, count: int = 2, older: int = 0) -> list[Snapshot]:
    """An epoch of twelve seconds, the first four of which no kernel runs in, because its workers start."""
    frames = []
    for t in range(100):
        epoch, second = divmod(t, 12)
        born = feeders(*[{"run": run}] * count)
        born = [replace(w, pid=6000 + 10 * epoch + i, age_s=float(second)) for i, w in enumerate(born)]
        old = [replace(w, pid=5900 + i, age_s=900.0) for i, w in enumerate(feeders(*[{"run": run}] * older))]
        util = 0.0 if second < 4 else 96.0
        frames.append(snap(t, gpu(util=util, sm=util * 0.9), [job(), *born, *old]))
    return frames


def test_workers_that_import_for_their_whole_start_are_restarts_and_no_work() -> None:
    watch = Watch()
    watch.feed(restarting(98.0))
    said_of = {d.verdict for _, d in watch.said}
    assert "worker_restart" in said_of and "dataloader_cpu" not in said_of
    last = Watch().feed(restarting(98.0, older=2))
    assert last.verdict == "dataloader_cpu", "older ones run on in the pause"


def test_workers_that_replace_the_first_ones_of_a_young_job_are_births() -> None:
    watch = Watch()
    for t in range(60):
        epoch, second = divmod(t, 14)
        pauses = epoch > 0 and second < 9
        rows = feeders(*[{"run": 98.0} if pauses else {"run": 2.0, "poll": 97.0}] * 2)
        born = [replace(w, pid=6000 + 10 * epoch + i, age_s=float(second)) for i, w in enumerate(rows)]
        util = 0.0 if t < 8 or pauses else 97.0
        watch.feed([snap(t, gpu(util=util, sm=0.9 * util), [job(age_s=float(t)), *born] if t >= 8 else [])])
    assert "dataloader_cpu" not in {d.verdict for _, d in watch.said}
    assert watch.said[-1][1].cause == "startup"


def test_a_line_of_children_of_one_worker_is_one_worker_and_no_restart() -> None:
    watch = Watch()
    for t in range(90):
        shard, second = divmod(t, 6)
        (worker,) = feeders({"run": 20.0, "lock": 80.0}, feed_by="child")
        (child,) = feeders({"run": 21.0, "lock": 79.0})
        rule = replace(child.static, loader="python", why="R3 same command line", rule="R3")
        decoder = replace(child, pid=7000 + shard, ppid=worker.pid, age_s=float(second), static=rule)
        watch.feed([snap(t, gpu(util=0.0 if second < 2 else 60.0, sm=20.0), [job(), worker, decoder])])
    assert {d.verdict for _, d in watch.said} <= {"collecting", "starved_unattributed"}


def test_a_checkpoint_to_a_slow_disk_is_one_at_any_rate() -> None:
    def frames(disk: float) -> list[Snapshot]:
        pause = [main_of(disk=disk) if 40 <= t < 46 else main_of(lock=5.0) for t in range(70)]
        return [
            snap(t, gpu(util=0.0 if 40 <= t < 46 else 97.0), [replace(p, write_bytes_per_s=1e6)])
            for t, p in enumerate(pause)
        ]

    slow = Watch()
    slow.feed(frames(95.0))
    assert slow.first(lambda d: d.verdict == "checkpoint_pause") is not None
    other = Watch()
    other.feed(frames(0.0))
    assert other.first(lambda d: d.verdict == "checkpoint_pause") is None


@pytest.mark.parametrize(
    ("state", "waits", "cause", "words"),
    [
        ("T", {"unread": 100.0}, "stopped", "main: stopped by a signal (SIGSTOP) for"),
        ("t", {"unread": 100.0}, "stopped", "main: held by a debugger for"),
        ("S", {"sleep": 100.0}, "sleep", "main: sleeps by a timer for"),
        ("S", {"network": 100.0}, "ranks", "since the start for other ranks of its job"),
        ("D", {"disk": 100.0}, "disk", "main: in disk wait for"),
    ],
)
def test_an_idle_gpu_says_what_its_job_is_in(state: str, waits: dict[str, float], cause: str, words: str) -> None:
    p = replace(main_of(**waits), state=state, main_state=state, nccl=True)
    found = said(0.0, p)
    assert (found.verdict, found.cause) == ("idle", cause)
    assert words in " ".join(found.evidence)
    assert ("kill -CONT" in found.remedy) is (state == "T")
    # A GPU at work says nothing of it.
    assert said(97.0, p).cause is None


@pytest.mark.parametrize(
    ("command", "address", "cause", "words"),
    [
        ("python3 -m ipykernel_launcher -f kernel.json", "", None, "the kernel of a notebook waits for its next cell"),
        ("python train.py", "10.0.0.7:29500", "ranks", "for other ranks of its job, at 10.0.0.7:29500"),
        ("python consume.py", "10.0.0.7:5672", "network", "main: waits for 10.0.0.7:5672 since the start"),
        ("python consume.py", "", None, "main: polls for"),
    ],
)
def test_an_idle_gpu_calls_nobody_a_rank_of_whom_that_is_not_known(
    command: str, address: str, cause: str | None, words: str
) -> None:
    p = main_of(poll=100.0)
    ends = (WaitEnd("timer", 5.0), WaitEnd("network", 95.0, detail=address)) if address else ()
    p = replace(p, state="S", main_state="S", waits_for=ends, static=replace(p.static, command=command))
    found = said(0.0, p)
    assert (found.verdict, found.cause) == ("idle", cause) and words in " ".join(found.evidence)


def test_an_idle_gpu_says_that_its_workers_start_anew_where_that_is_where_the_time_goes() -> None:
    watch = Watch()
    for t in range(60):
        epoch, second = divmod(t, 10)
        born = [replace(w, pid=6000 + 10 * epoch + i) for i, w in enumerate(feeders({"run": 98.0}, {"run": 98.0}))]
        born = [replace(w, age_s=float(second)) for w in born]
        watch.feed([snap(t, gpu(util=3.0 if second == 9 else 0.0, sm=0.0), [main_of(poll=98.0), *born])])
    found = watch.said[-1][1]
    assert (found.verdict, found.cause) == ("idle", "startup") and "start anew" in " ".join(found.evidence)
    assert "keep them alive" in found.remedy


def test_an_idle_gpu_names_the_mount_under_its_workers() -> None:
    stuck = feeders({"network": 100.0}, {"network": 100.0}, mount="/data/bucket")
    found = said(0.0, main_of(pipe=100.0), *stuck)
    assert (found.verdict, found.cause) == ("idle", "mount")
    assert any("on /data/bucket" in line for line in found.evidence) and "server" in found.remedy


def test_an_idle_gpu_says_that_workers_hang_at_a_lock_and_not_where_they_are_ahead() -> None:
    locked = feeders({"lock": 100.0}, {"lock": 100.0})
    found = said(0.0, main_of(pipe=100.0), *locked)
    assert (found.verdict, found.cause) == ("idle", "lock") and "for a lock" in " ".join(found.evidence)
    ahead = said(0.0, main_of(sleep=100.0), *locked)
    assert (ahead.verdict, ahead.cause) == ("idle", "sleep")


def test_a_cause_near_a_threshold_stays_and_a_clear_one_replaces_it() -> None:
    def mixed(main: float, cpu: float = 97.0) -> list[ProcessSample]:
        return [job("run 3", main=main), *feeders({"run": cpu, "network": 99.0 - cpu})]

    watch = Watch()
    watch.feed(snap(t, gpu(util=20.0, sm=15.0), mixed(50.0)) for t in range(90))
    for t in range(90, 330):
        # The main thread runs about as much as makes it the cause: to and fro, for 40 s each.
        watch.feed([snap(t, gpu(util=20.0, sm=15.0), mixed(57.0 if t // 40 % 2 else 66.0))])
    assert {d.verdict for at, d in watch.said if at > 60} == {"dataloader_cpu"}
    watch.feed(snap(t, gpu(util=20.0, sm=15.0), mixed(10.0, cpu=5.0)) for t in range(330, 400))
    assert watch.said[-1][1].verdict == "dataloader_io"


def test_an_end_and_a_recovery_wait_for_no_margin() -> None:
    slow = [job(), *feeders({"run": 95.0})]
    for util, sm, verdicts in ((0.0, 0.0, {"idle"}), (97.0, 92.0, {"healthy"})):
        watch = Watch()
        watch.feed(snap(t, gpu(util=30.0, sm=25.0), slow) for t in range(90))
        watch.feed(snap(t, gpu(util=util, sm=sm), [job()]) for t in range(90, 135))
        assert watch.said[-1][1].verdict in verdicts


@pytest.mark.parametrize(
    ("host", "wanted"),
    [
        ({"cpu_count": 2.0, "psi_cpu_pct": 5.0}, "num_workers=1"),
        ({"cpu_count": 64.0, "psi_cpu_pct": 97.0}, "no core is free"),
        ({"cpu_count": 64.0, "psi_cpu_pct": 2.0}, "num_workers=4–8"),
    ],
)
def test_a_remedy_knows_the_cores(host: dict[str, float], wanted: str) -> None:
    found = said(20.0, job("run 3", main=99.0), **host)
    assert found.verdict == "main_process" and wanted in found.remedy
    busy = said(20.0, job(), *feeders({"run": 98.0}), **host)
    assert ("raise num_workers" in busy.remedy) is (wanted == "num_workers=4–8")


def test_a_job_that_pauses_goes_on_being_judged() -> None:
    watch = Watch()
    for t in range(90):
        pauses = 26 <= t < 50
        p = job(age_s=float(t))
        util = 0.0 if t < 5 or pauses else 80.0
        watch.feed([snap(t, gpu(util=util, sm=0.6 * util), [p, *feeders({"run": 97.0})])])
    assert watch.first(lambda d: d.verdict in ("collecting", "startup"), after=30) is None


@pytest.mark.parametrize(
    ("util", "run", "sleep", "cause"),
    [(70.0, 33.0, 67.0, "cpu"), (70.0, 69.0, 31.0, "sleep"), (47.0, 60.0, 40.0, "unknown")],
)
def test_a_main_thread_that_waits_for_nobody_while_workers_idle_is_the_cause(
    util: float, run: float, sleep: float, cause: str
) -> None:
    # It may run, or sleep, until the GPU is done: which of them fills the idle time is said where that shows.
    found = said(util, main_of(run=run, sleep=sleep), *feeders(IDLE, IDLE, feed_by="no socket"))
    assert (found.verdict, found.cause, found.confidence) == ("main_process", cause, "medium")
    assert "waits for nobody" in found.evidence[0]
    # Where a worker works, or main waits for somebody, that is not so.
    working = said(util, main_of(run=2.0, sleep=sleep, pipe=98.0 - sleep), *feeders({"run": 99.0}))
    assert working.verdict == "dataloader_cpu"
    waiting = said(util, main_of(run=util, lock=100.0 - util), *feeders(IDLE, feed_by="no socket"))
    assert waiting.verdict == "starved_unattributed"


def test_an_evaluation_every_few_steps_is_the_main_threads_and_no_lock_of_workers_that_are_ahead() -> None:
    watch = Watch()
    full = feeders({"lock": 100.0}, {"lock": 100.0})
    for t in range(90):
        evaluates = t % 9 >= 4
        main = main_of(run=100.0) if evaluates else main_of(sleep=98.0)
        watch.feed([snap(t, gpu(util=0.0 if evaluates else 97.0, sm=0.0 if evaluates else 90.0), [main, *full])])
    assert {(d.verdict, d.cause) for t, d in watch.said if t >= 20} == {("main_process", "cpu")}
    # Pauses that are too short to fill half of the idle time still tell running from sleeping.
    short = Watch()
    for t in range(90):
        phase = t % 8
        util, run = (97.0, 1.0) if phase < 2 else (0.0, 100.0) if phase in (4, 5) else (50.0, 50.0)
        main = main_of(run=run, sleep=100.0 - run)
        short.feed([snap(t, gpu(util=util, sm=0.9 * util), [main, *full])])
    assert {(d.verdict, d.cause) for t, d in short.said if t >= 20} == {("main_process", "cpu")}
    # In a child of its own it is not seen what it does, but the workers wait for no lock either.
    child = said(50.0, main_of(sleep=49.0, other=51.0), *full)
    assert (child.verdict, child.cause) == ("starved_unattributed", "unknown")


def test_a_pause_between_the_first_kernels_and_training_is_part_of_starting_up() -> None:
    watch = Watch()
    for t in range(100):
        compiles = 4 <= t < 40
        util = 0.0 if t < 2 or compiles else 6.0 if t < 4 else 97.0
        watch.feed([snap(t, gpu(util=util, sm=0.9 * util), [replace(main_of(), age_s=float(t))])])
    assert {d.verdict for _, d in watch.said} <= {"collecting", "startup", "idle", "healthy", "working"}
    assert watch.said[-1][1].verdict == "healthy"


def _slow_steps(seconds: int, *processes: ProcessSample, util: float = 5.0, every: int = 3) -> Watch:
    """A job whose first step comes after five seconds, and then one every few seconds."""
    watch = Watch()
    for t in range(seconds):
        now = util if t >= 5 and t % every == 0 else 0.0
        watch.feed([snap(t, gpu(util=now, sm=now), [replace(p, age_s=float(t)) for p in processes])])
    return watch


def test_slow_steps_are_judged_before_a_minute_has_passed() -> None:
    fed = _slow_steps(60, main_of(poll=97.0), *feeders({"run": 98.0}, {"run": 97.0}))
    first = fed.first(lambda d: d.verdict == "dataloader_cpu")
    assert first is not None and first <= 5 + 20
    alone = _slow_steps(60, main_of(run=97.0))
    first = alone.first(lambda d: d.verdict == "main_process")
    assert first is not None and first <= 5 + 32
    # Kernels now and then while a model is loaded are no steps.
    loads = _slow_steps(58, main_of(disk=97.0), every=9)
    assert loads.first(lambda d: d.verdict not in ("collecting", "startup", "idle")) is None


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
    watch = Watch()
    for t in range(40):
        p = replace(main_of(5.0, **waits), main_looks=main_looks([("other", 6)]), age_s=float(t))
        watch.feed([snap(t, gpu(util=20.0 if t >= 5 else 0.0, sm=0.0), [p, *fed])])
    first = watch.first(lambda d: d.verdict == verdict)
    assert first is not None and first <= 5 + 8
    assert {(d.verdict, d.cause) for t, d in watch.said if t >= first} == {(verdict, cause)}


def test_a_warm_up_before_a_model_is_loaded_is_no_training() -> None:
    for warms_up_s in (1, 3, 5):
        watch = Watch()
        for t in range(40):
            warms_up = 5 <= t < 5 + warms_up_s
            p = replace(main_of(90.0) if warms_up else main_of(5.0, disk=94.0), age_s=float(t))
            watch.feed(
                [snap(t, gpu(util=60.0 if warms_up else 0.0), [replace(p, main_looks=main_looks([("run", 6)]))])]
            )
        assert {d.verdict for _, d in watch.said} <= {"collecting", "startup", "idle"}, warms_up_s


def test_the_polls_of_a_feeder_whose_sockets_are_seen_late_were_waits_for_the_network() -> None:
    watch = Watch()
    p = replace(main_of(5.0, pipe=80.0), main_looks=main_looks([("pipe", 6)]))
    for t in range(20):
        fed = feeders({"poll": 97.0}, feed_by="socket" if t >= 10 else None, net_rx_bytes_per_s=3e5)
        watch.feed([snap(t, gpu(util=20.0, sm=20.0), [p, *fed])])
    first = watch.first(lambda d: (d.verdict, d.cause) == ("dataloader_io", "network"))
    assert first is not None and first <= 10 + 4


def test_a_young_job_that_was_judged_is_not_said_to_start_again() -> None:
    watch = Watch()
    fed = [main_of(poll=97.0), *feeders({"run": 98.0})]
    for t in range(58):
        # Steps become rare: first every second sample has a kernel, then one of eleven.
        util = 5.0 if t in (*range(8, 22, 2), 29, 40, 51) else 0.0
        watch.feed([snap(t, gpu(util=util, sm=util), [replace(p, age_s=float(t)) for p in fed])])
    first = watch.first(lambda d: d.verdict == "dataloader_cpu")
    assert first is not None and {d.verdict for t, d in watch.said if t >= first} == {"dataloader_cpu"}


def test_a_thread_that_waits_at_a_lock_or_sleeps_proves_nothing() -> None:
    for state in ("lock", "sleep"):
        p = replace(main_of(20.0, lock=78.0), feeder_threads=3, feed=shares(**{state: 100.0}))
        found = said(20.0, p)
        assert (found.verdict, found.cause) == ("starved_unattributed", "unknown")


def test_short_steps_that_workers_hold_back_are_starved_and_not_idle() -> None:
    held = said(3.0, main_of(3.0, poll=97.0), *feeders({"run": 98.0}))
    assert (held.verdict, held.cause) == ("dataloader_cpu", "cpu")
    # Nobody works, or nothing runs: that is idle.
    assert said(3.0, main_of(3.0, poll=97.0), *feeders(IDLE, feed_by="no socket")).verdict == "idle"
    assert said(0.0, main_of(0.0, poll=97.0), *feeders({"run": 30.0})).verdict == "idle"


def test_an_engine_whose_parent_takes_requests_waits_for_demand_and_starves_of_nothing() -> None:
    engine = replace(main_of(30.0, pipe=68.0), feed_by=SERVED_BY_PARENT)
    found = said(30.0, engine)
    assert found.verdict == "low_demand" and "takes requests" in found.evidence[0]
    # Without such a parent nobody knows, and workers that work are the cause all the same.
    assert said(30.0, main_of(30.0, pipe=68.0)).verdict == "starved_unattributed"
    assert said(30.0, engine, *feeders({"run": 97.0})).verdict == "dataloader_cpu"


def test_a_main_thread_that_sleeps_between_looks_for_a_batch_is_not_the_cause_and_one_limited_by_a_timer_is() -> None:
    looks = said(11.0, main_of(run=20.0, sleep=80.0), *feeders({"run": 60.0, "queued": 30.0}, {"run": 85.0}))
    assert (looks.verdict, looks.cause) == ("dataloader_cpu", "cpu")
    # A worker with less to do than the main thread sleeps is ahead for the rest of its time.
    limited = said(5.0, main_of(run=1.0, sleep=97.0), *feeders({"run": 62.0, "lock": 37.0}))
    assert (limited.verdict, limited.cause) == ("main_process", "sleep")
