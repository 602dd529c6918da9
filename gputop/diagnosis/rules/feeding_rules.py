"""What the rules of starvation share: what the main thread waits for, what feeders do, and both in words."""

from __future__ import annotations

from math import sqrt
from typing import Protocol

from gputop.diagnosis.attribution import IDLE_PCT, MOSTLY, at_least
from gputop.diagnosis.signals import WINDOW_S, Signals
from gputop.model.feeders import Cause, Feeders, FeederShares, Outsider
from gputop.model.quantity import share

OWN_WAIT = 0.4
"""Share of the idle time that the main thread waits for something of its own from which on that is the cause."""
FOR_BATCH = 0.6
"""Share of the idle time that the main thread may spend waiting for a batch: a lock, a queue or a pipe [judged]."""
SECOND = 0.3
"""The second state of a feeder is mentioned from this share on."""
WORTH_SAYING = 0.05
IDLE = "idle"
LEAST_RX = 1000.0
"""Bytes a second that are data and no heartbeat [judged]."""
_WAIT_WORDS = {
    "disk": "disk",
    "network": "network",
    "lock": "lock",
    "sleep": "sleep",
    "poll": "poll",
    "pipe": "pipe",
    "write": "writing a pipe",
    "other": "other",
    "unread": "not seen",
}
PURE_WAIT = 0.8
"""Share of the idle time in which the main thread waits for what can never be the GPU from which on that is the cause,
whatever the bounds allow [judged]."""
CLOSER = 0.1
"""Of two states of the main thread the one nearer to the idle time, by so much of the window, filled it [judged]."""
STEPS_S = 5.0
"""Seconds of the last fifteen with a kernel from which on a job takes its steps, however short they are [judged]."""
SURELY = 0.3
"""Where a main thread that waits for no other process must have run in so much of the idle time, it ran in the rest as
well [judged]."""
OUTSIDERS_OF_CORES = 0.25
LEAST_TAKEN = 0.5
"""A program that takes a quarter of the cores or more is named, and another GPU's job from half a core on [judged]."""
RESTARTING = 0.5
"""Share of the idle time that lies in pauses beside the birth of all loaders from which on it is theirs."""


def least(x: float, s: Signals, looks: int = 1) -> float:
    """L of a share that was sampled, not counted: one standard error below it, so that few samples are not enough for a
    verdict.

    ``looks``: how many times each sample looked.
    """
    return at_least(max(0.0, x - sqrt(max(0.0, x * (1.0 - x)) / max(1, looks * s.n))), s.u)


def main_least(s: Signals) -> float:
    """L of the main thread's runnable time: by the means over the window, or by the pauses, where no kernel ran."""
    idle_s = s.idle / 100.0 * min(WINDOW_S, s.covered_s)
    paused = min(1.0, s.host.paused_main_s / idle_s) if idle_s > 0.0 else 0.0
    return max(at_least(s.host.mean.main or 0.0, s.u), paused)


def main_runs(s: Signals) -> bool:
    """Whether the main thread must have been runnable in most of the idle time."""
    return s.host.mean.main is not None and main_least(s) >= MOSTLY


def own_wait(s: Signals) -> tuple[Cause, float] | None:
    """(cause, share of the window) where the main thread waits for something of its own, not for a batch."""
    waits = s.host.waits
    if (s.host.feeders is None and not s.tick.knows_feeders) or waits is None or s.idle < IDLE_PCT:
        return None
    candidates: list[tuple[Cause, float]] = [
        ("disk", waits.disk),
        ("network", waits.network),
        ("pipe", waits.write),
        ("sleep", waits.sleep),
    ]
    f = s.host.feeders
    feeds = works(f, s)
    if f is not None and feeds and least_of(f.busiest, s) >= least(waits.sleep, s, s.host.looks):
        # It looks for the batch again and again, and sleeps between: joblib does, and many a loop of one's own.
        candidates.pop()
    if _polls_own_socket(s) and not s.host.mean.listens and not feeds:
        candidates[1] = ("network", waits.network + waits.poll)
    # These can never be a wait for the GPU: they need no bound, only that no other cause is possible.
    cause, x = max(candidates[:3], key=lambda pair: pair[1])
    if not feeds and x >= PURE_WAIT * s.idle / 100.0 and not _may_still_feed(s):
        return cause, x
    cause, x = max(candidates, key=lambda pair: pair[1])
    # A thread that sleeps while the GPU computes does so in the busy time: only what is beyond it counts.
    return (cause, x) if least(x, s, s.host.looks) >= OWN_WAIT else None


def main_alone(s: Signals) -> Cause | None:
    """What the main thread does where it must have spent most of the idle time running or in waits of its own.

    Which of them lay in the idle time is not known: it may run, or sleep, until the GPU is done. But it waited for no
    other process, and no feeder worked. ``unknown`` where running and sleeping would fit the idle time alike.
    """
    host = s.host.mean
    waits, idle = s.host.waits, s.idle / 100.0
    if waits is None or host.main is None or not s.tick.knows_feeders or s.idle < IDLE_PCT:
        return None
    if works(s.host.feeders, s) or _may_still_feed(s):
        return None
    own_waits = waits.disk + waits.network + waits.write
    if least(min(1.0, host.main + own_waits + waits.sleep), s, s.host.looks) < MOSTLY:
        return None
    ran, slept = abs(host.main - (idle - own_waits)), abs(waits.sleep - (idle - own_waits))
    surely = main_least(s) >= SURELY
    if abs(ran - slept) < CLOSER and not surely:
        return "unknown"
    return (
        "sleep" if slept < ran and not surely else "queued" if 2.0 * (host.main_queued or 0.0) >= host.main else "cpu"
    )


def _polls_own_socket(s: Signals) -> bool:
    """Whether the main thread polls while its own process receives data: then it is no batch that it waits for."""
    return s.host.fetches or (not s.host.loaders and (s.host.rx or 0.0) >= LEAST_RX)


def _may_still_feed(s: Signals) -> bool:
    """Whether a feeder waits for what has not been seen yet."""
    f = s.host.feeders
    return f is not None and f.what != "threads" and max(f.any_unread, f.busiest.unread) >= SECOND


def waits_for_batch(s: Signals, *, surely: bool = False) -> bool:
    """Whether the main thread may have waited for another process in most of the idle time, and not for something of
    its own.

    ``surely``: waits that no table knows, for a child of its own among them, do not count.
    """
    waits = s.host.waits
    if waits is None or main_runs(s) or s.host.fetches or own_wait(s) is not None:
        return False
    others = 0.0 if surely else waits.other
    return waits.lock + waits.poll + waits.pipe + others >= FOR_BATCH * s.idle / 100.0


def is_fed(s: Signals) -> bool:
    """Whether steps come, each after a wait for workers that make its batch: a slow job, neither idle nor starting."""
    f = s.host.feeders
    return s.kernels_s >= STEPS_S and f is not None and f.what == "workers" and works(f, s) and waits_for_batch(s)


def restarts(s: Signals) -> bool:
    """Whether most of the idle time lies beside the births of all loaders: whoever runs then, it is starting them."""
    return s.host.restart_s > 0.0 and s.host.restart_s >= RESTARTING * s.idle / 100.0 * min(WINDOW_S, s.covered_s)


def works(f: Feeders | None, s: Signals) -> bool:
    """Whether the busiest feeder must have worked in most of the idle time."""
    return f is not None and least_of(f.busiest, s) >= MOSTLY


def least_of(shares: FeederShares, s: Signals, other_waits: float = 0.0) -> float:
    """L of a feeder's useful time, and of ``other_waits``. Runnable time is counted, so only waits can err."""
    rest = 1.0 - shares.cpu
    waits = min(rest, shares.disk + shares.network + other_waits)
    if rest <= 0.0:
        return at_least(shares.cpu, s.u)
    x = waits / rest
    error = rest * sqrt(max(0.0, x * (1.0 - x)) / max(1, s.n))
    return at_least(max(shares.cpu, shares.cpu + waits - error), s.u)


def main_cause(f: Feeders) -> Cause:
    """What most of the busiest feeder's useful time goes to."""
    if f.leading == "disk" or f.leading == "network":
        return f.leading
    return "queued" if f.busiest.queued > f.busiest.run else "cpu"


def kind_of(f: Feeders) -> str:
    """Feeders in words, one or more: ``worker``, ``host threads``."""
    if f.n != 1:
        return f.kind
    return f.kind.replace("processes", "process") if "processes" in f.kind else f.kind.removesuffix("s")


def who(f: Feeders) -> str:
    """``1 of 4 workers``, ``4/4 workers``, ``6 host threads``."""
    if f.what == "threads":
        return f"{f.n} {kind_of(f)}"
    return f"{f.active} of {f.n} {f.kind}" if f.uneven else f"{f.active}/{f.n} {kind_of(f)}"


def feeder_words(shares: FeederShares) -> str:
    """The two largest states of a feeder: ``network 61 %, run 12 %``."""
    parts = [(getattr(shares, name), name) for name in FeederShares.__struct_fields__]
    largest = [(x, name) for x, name in sorted(parts, key=lambda p: -p[0]) if x >= WORTH_SAYING][:2]
    return ", ".join(f"{name} {share(x)}" for x, name in largest) or IDLE


def main_words(s: Signals) -> str:
    """The two largest classes of the main thread: ``lock 96 %, run 3 %``."""
    waits = s.host.waits
    parts = [(s.host.mean.main or 0.0, "run")]
    if waits is not None:
        parts += [(getattr(waits, name), word) for name, word in _WAIT_WORDS.items()]
    largest = [(x, name) for x, name in sorted(parts, key=lambda p: -p[0]) if x >= WORTH_SAYING][:2]
    return ", ".join(f"{name} {share(x)}" for x, name in largest) or "nothing that can be seen"


def both_words(s: Signals) -> str:
    """What main and feeders did: part of every evidence of starvation."""
    line = f"main waits: {main_words(s)}"
    f = s.host.feeders
    if f is None:
        return line
    words = feeder_words(f.busiest)
    return f"{line}; {kind_of(f)}: {'waits not seen' if words == IDLE and f.why_blind is not None else words}"


def proof(f: Feeders) -> str | None:
    """How it is known what a feeder waited for, in words; None where that was plain."""
    if f.what == "children":
        return "by the time of children that have ended"
    return {
        "child": "waits for its own child process, which works",
        "peer": "waits for another process of the job, by a local socket",
        "kinship": "by kinship: its pipes cannot be seen",
        "socket": "its sockets receive data",
        "connections": "opens connections again and again",
        "thread": "by its threads",
        "pipe": "reads a pipe from outside the job",
    }.get(f.by or "")


class CoresTaken(Protocol):
    """Who else uses the cores: signals, or an attribution made of them."""

    @property
    def outsiders(self) -> tuple[Outsider, ...]: ...
    @property
    def outsider_cores(self) -> float | None: ...
    @property
    def cores(self) -> float | None: ...


def takers_of_cores(s: CoresTaken) -> tuple[Outsider, ...]:
    """Other GPU jobs, and the programs of a user that take a quarter of the cores, of half a core at least."""
    least_pct = max(100.0 * LEAST_TAKEN, 100.0 * OUTSIDERS_OF_CORES * (s.cores or 0.0))
    jobs = [o for o in s.outsiders if o.gpu is not None and o.cpu_pct >= 100.0 * LEAST_TAKEN]
    return tuple([*jobs, *[o for o in s.outsiders if o.gpu is None and o.cpu_pct >= least_pct]][:3])


def taken_by(s: CoresTaken) -> str | None:
    """Who else is using the cores, in words, and how many all outside the GPU jobs use where that is more."""
    named = takers_of_cores(s)
    words = [f"{_outsider(o)} {o.cpu_pct / 100.0:.1f} cores" for o in named]
    total = s.outsider_cores or 0.0
    named_cores = sum(o.cpu_pct for o in named if o.gpu is None) / 100.0
    if total >= max(LEAST_TAKEN, OUTSIDERS_OF_CORES * (s.cores or 0.0)) and total - named_cores >= LEAST_TAKEN:
        words.append(f"all programs outside the GPU jobs {total:.1f} cores")
    return ", ".join(words) or None


def _outsider(o: Outsider) -> str:
    """``stress (ann)``, and of another GPU's job ``python on GPU 3 (bob, pid 4711)``."""
    return f"{o.name} ({o.user})" if o.gpu is None else f"{o.name} on GPU {o.gpu} ({o.user}, pid {o.pid})"


def cores_note(s: Signals, queued: float | None) -> tuple[str, ...]:
    """Who takes the cores that the job queues for: others by name, or the job itself."""
    if queued is None or queued < 0.3:
        return ()
    others = taken_by(s.host)
    if others is not None:
        return (f"the cores are taken by {others}",)
    if s.host.mean.tree is not None and s.host.cores and s.host.mean.tree >= 0.6 * s.host.cores:
        return (f"the cores are taken by the job's own threads: {s.host.mean.tree:.1f} of {s.host.cores:.0f}",)
    return ()


QUEUED = 0.3
"""Share of the runnable time spent queued for a core from which more workers make it worse [measured]."""
THROTTLED = 0.1
"""Share of scheduling periods cut short by the cgroup's CPU limit."""
