"""Shares of each worker's time, and the worker that decides.

A worker is whatever can prepare the next batch: a loader process, a helper, or threads of the GPU's process. Batches
come in order, so the busiest worker decides, not the mean: one waiting worker of four starves the GPU with a mean of a
quarter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from gputop.diagnosis.window.host_activity import (
    FeederRow,
    address_of,
    name_and_pid,
    program_of,
)
from gputop.diagnosis.window.window import Second
from gputop.model.feeders import PIN_MEMORY_THREAD, Feeders, FeederShares, Via
from gputop.model.wait_shares import WaitShares, mean_of

Leading = Literal["cpu", "disk", "network"]
LEAST_SEEN = 5
"""A worker with fewer samples is not judged while others have more."""
HALF_AS_MUCH = 0.5
UNEVEN_FROM = 0.5
DOES_SOMETHING = 2.0
"""Percent of its time in which a process ran, or waited for data or a disk, from which on it counts [judged]."""
CLEARLY_AHEAD = 0.1
LEAST_TOLD = 0.005
"""A share that would be told as 0 % leads no longer, and is no evidence."""
OF_MOST = 0.2
"""A process that was waited for in so much less of the looks than another was a bystander then [judged]."""
MOST_ROWS = 16_384
"""Rows of workers that are averaged: five hundred workers over half a minute are more than any job has [judged]."""
BY_NAME = "name"
"""What resolved a wait for which nothing but the name of a process says whom it is for."""
PEER = "peer"
"""What resolved the wait of a worker for another process of this machine."""
TASK_QUEUE = "task queue"
"""What resolved the wait of a worker for orders of the main process."""
TOGETHER_TICKS = 200
"""Clock ticks, 10 ms each, within which workers that share one work are started [judged]."""
ASKED_KIND = "processes that the workers ask"
PIN_MEMORY_KIND = "pin_memory threads"
PROOFS = frozenset(("socket", "connections"))
"""What proves that polling waits for the network. A proof counts for the whole window."""
NEARLY = 0.1
"""A process is preferred to a thread unless the thread's useful share is larger by more than this."""
DIGITS = 9
"""Digits of a share that are compared: sums of floats err behind them, and equal workers must stay equal."""
LAST_SAMPLES = 3
"""The most workers of these samples is how many there are: at its end a job's workers go one after the other."""


class WorkerShares(Struct, frozen=True, gc=False):
    """One worker over the window: the mean shares of its time over its samples.

    Polls that were proven to be waits for the network are counted as such, for the sentence and for every count alike.
    """

    key: int
    rows: list[FeederRow]
    shares: WaitShares
    seen: int
    """Number of its samples, repeated ones once."""

    @property
    def useful(self) -> float:
        """Share of its time that goes into the next batch."""
        return round(self.shares.useful, DIGITS)

    @property
    def latest(self) -> FeederRow:
        """The last sample."""
        return self.rows[-1]


def worker_shares(seconds: Iterable[Second]) -> dict[int, WorkerShares]:
    """Shares of each worker by its key."""
    rows_of: dict[int, list[FeederRow]] = {}
    for second in seconds:
        for row in second.workers:
            rows_of.setdefault(row.key, []).append(row)
    return {key: _shares_of(key, rows) for key, rows in rows_of.items()}


def _shares_of(key: int, rows: list[FeederRow]) -> WorkerShares:
    """Shares of one worker, whose samples are ``rows``."""
    return WorkerShares(key, rows, _mean_shares(rows), len(set(map(id, rows))))


def _mean_shares(rows: Sequence[FeederRow]) -> WaitShares:
    """Mean shares of a worker over its samples.

    The first looks at sockets take a while: a fact proven now also held before the proof, and holds after it.
    """
    mean = mean_of([row.shares for row in rows])
    is_proven = any(row.resolved_by in PROOFS for row in rows)
    return polls_as_network(mean) if is_proven else mean


def polls_as_network(shares: WaitShares) -> WaitShares:
    """The shares where polling was proven to be a wait for the network."""
    network = shares.network + shares.poll + shares.unread
    return replace(shares, network=network, poll=0.0, unread=0.0)


def _few_enough(seconds: Sequence[Second]) -> Sequence[Second]:
    """Return the newest sample and as many evenly spaced ones before it as can be averaged in time."""
    rows = sum([len(second.workers) for second in seconds])
    step = -(-rows // MOST_ROWS)
    return seconds if step <= 1 else seconds[::-step][::-1]


def waited_for(seconds: Iterable[Second]) -> Counter[int]:
    """Percent of looks at which the main thread waited, by pid.

    Summed up over the window.
    """
    named = Counter[int]()
    for second in seconds:
        for end in second.waits_for:
            for pid in end.pids:
                named[pid] += round(end.pct)
    return named


def without_bystanders(
    keys: Iterable[int], named: Mapping[int, int], all_keys: Iterable[int]
) -> list[int]:
    """Keys of the workers that the main thread may wait for.

    A line of children has its parent's key. Where the main thread was not seen waiting for any process with a row of
    its own (``all_keys``), nobody is ruled out.
    """
    there = set(all_keys)
    named = {pid: n for pid, n in named.items() if n and (pid in there or -pid in there)}
    if not named:
        return list(keys)
    least, knows = OF_MOST * max(named.values()), not there.isdisjoint(named)
    return [key for key in keys if (key < 0 and not knows) or named.get(abs(key), 0) >= least]


def _via(seconds: Iterable[Second]) -> tuple[Via | None, bool]:
    """How the main thread mostly waits for others, and whether it does."""
    shares, elsewhere = Counter[Via](), 0.0
    for second in seconds:
        for end in second.waits_for:
            if end.pids:
                shares[end.via] += round(end.pct)
            elif end.via not in ("timer", "gpu"):
                elsewhere += end.pct
    return max(shares, key=lambda via: shares[via], default=None), shares.total() > elsewhere


def _is_pin_memory(seconds: Iterable[Second]) -> bool:
    """True if the main thread waits for the thread that pins memory."""
    threads = [end for second in seconds for end in second.waits_for if end.via == "thread"]
    pins = sum(end.pct for end in threads if end.detail.startswith(PIN_MEMORY_THREAD))
    return 2.0 * pins > sum(end.pct for end in threads)


def main_address(seconds: Iterable[Second]) -> str:
    """Address of the main thread's own connection, else empty."""
    shares = Counter[str]()
    for second in seconds:
        for end in second.waits_for:
            if end.via == "network" and end.detail:
                shares[end.detail] += round(end.pct)
    return max(shares, key=lambda address: shares[address], default="")


def feeders(seconds: Sequence[Second], before: Leading) -> Feeders | None:
    """The workers and the busiest of them, or None.

    None if no sample of the window knows any. ``before``: the state that led until now; another one leads only if it is
    clearly ahead.
    """
    shares, awaited = worker_shares(_few_enough(seconds)), waited_for(seconds)
    keys = without_bystanders(shares, awaited, shares)
    if not keys:
        return None
    least = min(LEAST_SEEN, max([shares[key].seen for key in keys]))
    judged = [shares[key] for key in keys if shares[key].seen >= least]
    processes, threads = [w for w in judged if w.key >= 0], [w for w in judged if w.key < 0]
    best = _busiest(processes or threads)
    if processes and threads:
        other = _busiest(threads)
        if other.useful > best.useful + NEARLY and other.useful >= HALF_AS_MUCH:
            best = other
    latest, is_process = best.latest, best.key >= 0
    what, kind, peers = latest.feeder_kind, latest.kind, [best]
    if is_process:
        # A dataloader's workers share its work even while they idle; others that did nothing are no workers at all.
        peers = [
            w
            for w in processes
            if w.latest.kind == kind
            and (w is best or what == "workers" or 100.0 * w.useful >= DOES_SOMETHING)
        ]
        if latest.resolved_by != PEER and any(w.latest.resolved_by == PEER for w in processes):
            # Others wait for it and share no work with it.
            peers, what, kind = (
                [w for w in peers if w.latest.resolved_by != PEER],
                "beside",
                ASKED_KIND,
            )
        if what == "workers":
            may_be_awaited = set(keys)
            others = [shares[key] for key in shares if key not in may_be_awaited]
            peers += _seldom_awaited(others, best, awaited, least)
    busiest = _mean([best])
    parts: dict[Leading, float] = {
        "cpu": busiest.cpu,
        "disk": busiest.disk,
        "network": busiest.network,
    }
    leading = max(parts, key=lambda name: parts[name])
    is_told = parts[before] >= LEAST_TOLD or parts[leading] < LEAST_TOLD
    if is_told and parts[leading] <= parts[before] + CLEARLY_AHEAD:
        leading = before
    most = parts[leading] if busiest.useful else busiest.poll
    working = sum([w.useful >= HALF_AS_MUCH * best.useful for w in peers])
    does_the_same = [_share_in(w.shares, leading if busiest.useful else "poll") for w in peers]
    active = sum([share >= HALF_AS_MUCH * most for share in does_the_same])
    peer_keys = {w.key for w in peers}
    last = sorted({second.t for second in seconds})[-LAST_SAMPLES:]
    newest = [second for second in seconds if second.t >= last[0]]
    rows = max(
        [[row for row in second.workers if row.key in peer_keys] for second in newest], key=len
    )
    n = max(1, len(rows)) if is_process else latest.count
    if not is_process and _is_pin_memory(seconds):
        n, kind = 1, PIN_MEMORY_KIND
    via, is_waited_for = _via(seconds)
    p = latest.process
    return Feeders(
        count=n,
        kind=kind,
        busiest=busiest,
        mean=_mean(peers),
        leading=leading,
        pid=abs(best.key),
        active=min(active, n) if is_process else n,
        uneven=is_process and n >= 2 and busiest.useful >= UNEVEN_FROM and 2 * min(working, n) <= n,
        any_disk=sum([second.most_disk for second in seconds]) / len(seconds),
        resolved_by=latest.resolved_by or (BY_NAME if via == "name" else None),
        rx_bytes_per_s=p.net_rx_bytes_per_s,
        why_blind=p.unavailable.get("feed_poll_pct") or p.unavailable.get("net_rx_bytes_per_s"),
        feeder_kind=what,
        any_unread=max([row.shares.unread for row in rows], default=0.0),
        mount=p.mount,
        address=next(
            (address for row in reversed(best.rows) if (address := address_of(row.process))), ""
        ),
        via=via if is_waited_for and via != "name" else None,
        cores=p.allowed_cores if is_process else None,
        name=program_of(p) if latest.feeder_kind in ("beside", "front") else "",
        beside=_named(peers) if what == "beside" else (),
    )


def _share_in(shares: WaitShares, state: Leading | Literal["poll"]) -> float:
    """The share in a state that leads, or in polling."""
    if state == "cpu":
        return shares.cpu
    if state == "disk":
        return shares.disk
    return shares.network if state == "network" else shares.poll


def _named(peers: Iterable[WorkerShares]) -> tuple[str, ...]:
    """Programs with their pids, the most useful first."""
    busiest_first = sorted(peers, key=lambda peer: -peer.useful)
    return tuple(name_and_pid(peer.latest.process) for peer in busiest_first)


def _seldom_awaited(
    others: Iterable[WorkerShares], best: WorkerShares, awaited: Mapping[int, int], least: int
) -> list[WorkerShares]:
    """Return workers that share the busiest worker's work.

    The main thread seldom or never waits for them. Those that were waited for at all do; so do those that were started
    with it and wait for orders, where several do: a single one may be a tracker.
    """
    alike = [
        w
        for w in others
        if w.latest.kind == best.latest.kind and w.seen >= least and w.latest.resolved_by != PEER
    ]
    named = [w for w in alike if awaited.get(w.key, 0) > 0]
    started = [
        w
        for w in alike
        if w not in named
        and w.latest.resolved_by == TASK_QUEUE
        and w.latest.group == best.latest.group
        and abs((w.latest.process.starttime or 0) - (best.latest.process.starttime or 0))
        <= TOGETHER_TICKS
    ]
    return [*named, *started] if named or len(started) > 1 else named


def _busiest(workers: list[WorkerShares]) -> WorkerShares:
    """Return the most useful worker.

    Ties: first a worker that asks nobody, then one that polls, then the lowest key.
    """
    nearly = max([w.useful for w in workers]) - 0.01
    return max(
        [w for w in workers if w.useful >= nearly],
        key=lambda w: (
            round(w.useful, 2),
            w.latest.resolved_by != PEER,
            round(round(w.shares.poll, DIGITS), 2),
            -abs(w.key),
        ),
    )


def _mean(peers: Sequence[WorkerShares]) -> FeederShares:
    """Mean of the shares of several workers.

    Sums of floats may err by a rounding.
    """
    mean = mean_of([worker.shares for worker in peers])
    return FeederShares(
        run=_clamped(mean.run),
        queued=_clamped(mean.queued),
        disk=_clamped(mean.disk),
        network=_clamped(mean.network),
        lock=_clamped(mean.lock),
        sleep=_clamped(mean.sleep),
        poll=_clamped(mean.poll),
        other=_clamped(mean.other),
        unread=_clamped(mean.unread),
    )


def _clamped(share: float) -> float:
    return min(1.0, max(0.0, share))
