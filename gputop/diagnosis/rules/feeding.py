"""Conditions that the rules of starvation share: waits of the main thread, and work of its workers."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from gputop.diagnosis.host.idle_attribution import MOSTLY
from gputop.diagnosis.host.workers import LEAST_TOLD
from gputop.diagnosis.signals import HostSide, Signals
from gputop.diagnosis.thresholds import IDLE_PCT
from gputop.model.feeders import Cause, Feeders, Outsider

FOR_BATCH = 0.6
"""Share of the idle time that the main thread may spend waiting for a batch: a lock, a queue or a pipe [judged]."""
SECOND = 0.3
"""The second state of a feeder is mentioned from this share on."""
LEAST_RX = 1000.0
"""Bytes a second that are data and no heartbeat [judged]."""
ALL_COMPUTE, MAIN_BUSY = 0.8, 0.5
"""Workers that run so much of the time feed the GPU too slowly, unless the main thread runs so much [judged]."""
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


def main_runs(s: Signals) -> bool:
    """Whether the main thread must have been runnable in most of the idle time."""
    return s.host.mean.main is not None and "main_run" in s.host.named


def main_leads(s: Signals) -> bool:
    """Whether it runs in no less of the idle time than the feeders work."""
    return main_runs(s) and s.host.attribution.main_run >= max(
        s.host.attribution.useful, s.host.attribution.any_useful
    )


_OWN: dict[Cause, str] = {
    "disk": "main_disk",
    "network": "main_network",
    "pipe": "main_write",
    "sleep": "main_sleep",
}


class OwnWait(Struct, frozen=True):
    """A wait of the main thread for nobody else; ``share`` of the time, 0 to 1."""

    cause: Cause
    share: float


def own_wait(s: Signals) -> OwnWait | None:
    """The main thread's own wait, or None."""
    waits, found, mostly = s.host.waits, s.host.attribution, s.host.named
    if waits is None or s.idle < IDLE_PCT:
        return None
    feeds = works(s)
    shares: dict[Cause, float] = {
        "disk": waits.disk, "network": waits.network, "pipe": waits.write, "sleep": waits.sleep,
    }  # fmt: skip
    least = {cause: getattr(found, name) for cause, name in _OWN.items() if name in mostly}
    if feeds and found.useful >= found.main_sleep:
        # It looks for the batch again and again, and sleeps between: joblib does, and many a loop of one's own.
        least.pop("sleep", None)
    if _polls_own_socket(s) and not s.host.mean.listens and not feeds and "main_fetch" in mostly:
        shares["network"], least["network"] = waits.network + waits.poll, found.main_fetch
    if not feeds and not _may_still_feed(s):
        # These can never be a wait for the GPU: they need no bound, only that no other cause is possible.
        most: dict[Cause, float] = {
            "disk": found.most_disk,
            "network": found.most_network,
            "pipe": found.most_write,
        }
        if _polls_own_socket(s) and not s.host.mean.listens:
            # A socket with a timeout (requests, boto3) polls.
            most["network"], shares["network"] = found.most_fetch, waits.network + waits.poll
        cause = max(most, key=lambda name: most[name])
        if most[cause] >= PURE_WAIT:
            return OwnWait(cause, shares[cause])
    cause = max(least, key=lambda name: least[name], default="unknown")
    return OwnWait(cause, shares[cause]) if least else None


def main_alone(s: Signals) -> OwnWait | None:
    """Cause in the main thread if it waited for no other process.

    Which of them lay in the idle time is not known: it may run, or sleep, until the GPU is done. But it waited for no
    other process, and no feeder worked. Where a disk, the network and full pipes, which are never the GPU, fill half
    of the idle time, the largest of them is it, however near the rest is to running or sleeping. ``unknown`` where
    running and sleeping would fit the idle time alike.
    """
    host = s.host.mean
    waits, idle = s.host.waits, s.idle / 100.0
    if waits is None or host.main is None or s.idle < IDLE_PCT or not s.tick.knows_feeders:
        return None
    if works(s) or _may_still_feed(s) or "main_alone" not in s.host.named:
        return None
    own = (
        OwnWait("disk", waits.disk),
        OwnWait("network", waits.network),
        OwnWait("pipe", waits.write),
    )
    own_waits = sum(wait.share for wait in own)
    if own_waits >= MOSTLY * idle:
        return max(own, key=lambda wait: wait.share)
    ran, slept = abs(host.main - (idle - own_waits)), abs(waits.sleep - (idle - own_waits))
    surely = s.host.attribution.main_run >= SURELY
    if abs(ran - slept) < CLOSER and not surely:
        return OwnWait("unknown", waits.sleep)
    if slept < ran and not surely:
        return OwnWait("sleep", waits.sleep)
    is_queued = 2.0 * (host.main_queued or 0.0) >= host.main
    return OwnWait("queued" if is_queued else "cpu", host.main)


def _polls_own_socket(s: Signals) -> bool:
    """True if the main thread polls while its own process receives data."""
    return s.host.fetches or (not s.host.loaders and (s.host.rx or 0.0) >= LEAST_RX)


def _may_still_feed(s: Signals) -> bool:
    """True if a worker's wait has not been seen yet."""
    f = s.host.feeders
    return (
        f is not None
        and f.feeder_kind != "threads"
        and max(f.any_unread, f.busiest.unread) >= SECOND
    )


def waits_for_batch(s: Signals, *, surely: bool = False) -> bool:
    """True if the main thread may wait for another process mostly.

    In most of the idle time, and not for something of its own.

    ``surely``: waits that no table knows, for a child of its own among them, do not count.
    """
    waits = s.host.waits
    if waits is None or main_runs(s) or s.host.fetches or own_wait(s) is not None:
        return False
    others = 0.0 if surely else waits.other
    return waits.lock + waits.poll + waits.pipe + others >= FOR_BATCH * s.idle / 100.0


def is_fed(s: Signals) -> bool:
    """True if steps come slowly, each after a wait for workers."""
    f = s.host.feeders
    return (
        s.kernels_s >= STEPS_S
        and f is not None
        and f.feeder_kind == "workers"
        and works(s)
        and waits_for_batch(s)
    )


COMPILES = 0.5
"""Share of the idle time in which compilers run from which on it is theirs [judged]."""


def compiles(s: Signals) -> bool:
    """Whether compilers ran in most of the idle time."""
    share_of_time = s.host.mean.compiling or 0.0
    return share_of_time > 0.0 and share_of_time >= COMPILES * s.idle / 100.0


def front_computes(s: Signals) -> bool:
    """Whether the process that takes an inference server's requests must have worked in most of the idle time."""
    f = s.host.feeders
    return f is not None and f.feeder_kind == "front" and "useful" in s.host.named


def works(s: Signals) -> bool:
    """True if a worker must have worked in most idle time.

    The busiest one, or several in turn.
    """
    f, mostly = s.host.feeders, s.host.named
    if f is None or f.busiest.useful < LEAST_TOLD:
        # Idle time may be explained by intervals older than the window; then nobody works now.
        return False
    return "useful" in mostly or ("any_useful" in mostly and f.feeder_kind == "workers")


def take_turns(s: Signals) -> bool:
    """True if workers take turns at a lock: together they work, and none of them mostly."""
    f = s.host.feeders
    return (
        f is not None
        and works(s)
        and "useful" not in s.host.named
        and f.count > 1
        and f.mean.lock >= SECOND
    )


def computes_unread(s: Signals) -> bool:
    """True if all workers compute while main's waits were not read.

    Weaker than attribution: the workers' means over the window, which need no looks.
    """
    means, f = s.host.mean, s.host.feeders
    return (
        f is not None
        and f.feeder_kind != "threads"
        and s.host.loaders > 0
        and not has_read_waits(s)
        and (means.main or 0.0) < MAIN_BUSY
        and (means.workers or 0.0) >= ALL_COMPUTE
        and f.busiest.disk + f.busiest.network < SECOND
    )


def has_read_waits(s: Signals) -> bool:
    """True if it was read what the main thread waits for."""
    return s.host.mean.main_poll is not None


def main_cause(s: Signals, f: Feeders) -> Cause:
    """Main cause of the busiest worker's useful time.

    Where several take turns, what most of theirs does.
    """
    leading = f.leading
    if "useful" not in s.host.named:
        found = s.host.attribution
        of_any: dict[Literal["cpu", "disk", "network"], float] = {
            "disk": found.any_disk, "network": found.any_network, "cpu": found.any_cpu,
        }  # fmt: skip
        leading = max(of_any, key=lambda name: of_any[name])
    if leading != "cpu":
        return leading
    return "queued" if f.busiest.queued > f.busiest.run else "cpu"


def takers_of_cores(host: HostSide) -> tuple[Outsider, ...]:
    """Main users of the cores.

    Other GPU jobs, and the programs of a user that take a quarter of the cores, of half a core at least.
    """
    least_pct = max(100.0 * LEAST_TAKEN, 100.0 * OUTSIDERS_OF_CORES * (host.cores or 0.0))
    jobs = [o for o in host.outsiders if o.gpu is not None and o.cpu_pct >= 100.0 * LEAST_TAKEN]
    return tuple(
        [*jobs, *[o for o in host.outsiders if o.gpu is None and o.cpu_pct >= least_pct]][:3]
    )


LEAST_QUEUED = 0.15
"""Share of the runnable time spent queued from which on others that take a good part of the cores are named: it is
little, but it is theirs [judged]."""
QUEUED = 0.3
"""Share of the runnable time spent queued for a core from which more workers make it worse [measured]."""
THROTTLED = 0.1
"""Share of scheduling periods cut short by the cgroup's CPU limit."""
