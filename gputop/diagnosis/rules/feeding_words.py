"""Words of the rules of starvation: the main thread, its workers and their cores."""

from __future__ import annotations

from gputop.diagnosis.host.workers import BY_NAME
from gputop.diagnosis.rules.feeding import (
    LEAST_QUEUED,
    LEAST_TAKEN,
    OUTSIDERS_OF_CORES,
    QUEUED,
    has_read_waits,
    takers_of_cores,
)
from gputop.diagnosis.signals import HostSide, Signals
from gputop.diagnosis.why_idle import MOST_NAMED
from gputop.model.feeders import Feeders, FeederShares, Outsider
from gputop.model.quantity import count, share

WORTH_SAYING = 0.05
IDLE = "idle"
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


def kind_of(f: Feeders) -> str:
    """Feeders in words, one or more: ``worker``, ``host threads``."""
    if f.count != 1:
        return f.kind
    return (
        f.kind.replace("processes", "process")
        if "processes" in f.kind
        else f.kind.removesuffix("s")
    )


def workers_words(f: Feeders) -> str:
    """``4 of 4 workers``, ``6 host threads``."""
    if f.feeder_kind == "threads":
        return f"{f.count} {kind_of(f)}"
    if f.feeder_kind == "beside" and f.count == 1:
        return f"{f.name or kind_of(f)} (pid {f.pid}, this host)"
    if f.feeder_kind == "beside":
        named = ", ".join(f.beside[:MOST_NAMED]) + ", …" * (len(f.beside) > MOST_NAMED)
        return (
            f"{f.active} of {f.count} {f.kind}, {named},"
            if named
            else f"{f.active} of {f.count} {f.kind}"
        )
    if f.uneven:
        return f"{f.active} of {f.count} {f.kind} (pid {f.pid})"
    alone = f" (pid {f.pid})" if f.count == 1 and f.feeder_kind == "helpers" else ""
    return f"{f.active} of {f.count} {kind_of(f)}{alone}"


def loaders_words(s: Signals) -> str:
    """``1 worker is busy 97 %``, ``8 workers are busy 97 %``."""
    are = "is" if s.host.loaders == 1 else "are"
    return f"{count(s.host.loaders, 'worker')} {are} busy {share(s.host.mean.workers)}"


def active_workers(f: Feeders) -> int:
    """Number of workers that ``workers_words`` names."""
    return f.count if f.feeder_kind == "threads" else f.active


def feeder_words(shares: FeederShares) -> str:
    """The two largest states of a feeder: ``network 61 %, run 12 %``."""
    parts = [(getattr(shares, name), name) for name in FeederShares.__struct_fields__]
    largest = [(x, name) for x, name in sorted(parts, key=lambda p: -p[0]) if x >= WORTH_SAYING][:2]
    return ", ".join(f"{name} {share(x)}" for x, name in largest) or IDLE


UNMEASURED = "not measured"
"""Said of what nobody has looked at, as in recordings of other programs."""


def main_words(s: Signals) -> str:
    """The two largest classes of the main thread: ``lock 96 %, run 3 %``."""
    waits, run = s.host.waits, s.host.mean.main
    parts = [(run or 0.0, "run")]
    if waits is not None:
        parts += [(getattr(waits, name), word) for name, word in _WAIT_WORDS.items()]
    largest = [(x, name) for x, name in sorted(parts, key=lambda p: -p[0]) if x >= WORTH_SAYING][:2]
    words = ", ".join(f"{name} {share(x)}" for x, name in largest)
    if has_read_waits(s):
        return words or "nothing that can be seen"
    if run is None:
        return words or UNMEASURED
    return f"{words or f'run {share(run)}'}, waits {UNMEASURED}"


_VIA_WORDS = {"pipe": "a pipe", "socket": "a socket", "child": "their end", "thread": "a lock"}


def both_words(s: Signals) -> str:
    """Main thread and workers in words, for every evidence of starvation."""
    f = s.host.feeders
    by = None if f is None else _VIA_WORDS.get(f.via or "")
    words = main_words(s)
    is_plain = words.startswith("run ") or words == UNMEASURED
    main = "main thread" if is_plain else "main thread waits"
    line = (
        f"{main}{'' if f is None or by is None else f' for {f.count} {kind_of(f)} ({by})'}: {words}"
    )
    if f is None:
        return line
    words = feeder_words(f.busiest)
    return (
        f"{line}; {kind_of(f)}: "
        f"{'waits not seen' if words == IDLE and f.why_blind is not None else words}"
    )


def proof(f: Feeders) -> str | None:
    """How it is known what a feeder waited for, in words.

    None where that was plain.
    """
    if f.feeder_kind == "children":
        return "by what its children do"
    return {
        "child": f"waits for its own child process{f.child and ' '}{f.child}, which works",
        "peer": "waits for another process of the job, by a local socket",
        BY_NAME: "by name: who is at the other end cannot be seen",
        "socket": "its sockets receive data",
        "connections": "opens connections again and again",
        "thread": "by its threads",
        "pipe": "reads a pipe from outside the job",
    }.get(f.resolved_by or "")


def taken_by(host: HostSide) -> str | None:
    """Other users of the cores in words, with the total if larger."""
    named = takers_of_cores(host)
    words = [f"{_outsider(o)} {o.cpu_pct / 100.0:.1f} cores" for o in named]
    total = host.outsider_cores or 0.0
    named_cores = sum(o.cpu_pct for o in named if o.gpu is None) / 100.0
    if (
        total >= max(LEAST_TAKEN, OUTSIDERS_OF_CORES * (host.cores or 0.0))
        and total - named_cores >= LEAST_TAKEN
    ):
        words.append(f"all programs outside the GPU jobs {total:.1f} cores")
    return ", ".join(words) or None


def _outsider(o: Outsider) -> str:
    """``stress (ann)``, and of another GPU's job ``python on GPU 3 (bob, pid 4711)``."""
    return (
        f"{o.name} ({o.user})"
        if o.gpu is None
        else f"{o.name} on GPU {o.gpu} ({o.user}, pid {o.pid})"
    )


def cores_note(s: Signals, queued: float | None) -> tuple[str, ...]:
    """Note on the users of cores that the job queues for."""
    if queued is None or queued < LEAST_QUEUED:
        return ()
    others = taken_by(s.host)
    if others is not None:
        return (f"the cores are taken by {others}",)
    if queued < QUEUED:
        return ()
    if s.host.mean.tree is not None and s.host.cores and s.host.mean.tree >= 0.6 * s.host.cores:
        return (
            f"the cores are taken by the job's own threads: {s.host.mean.tree:.2g} of {s.host.cores:.3g}",
        )
    return ()
