"""What may be done about a fleet's worst, as commands: set a node aside whose GPU fails, requeue a job that hangs, tell
the owner of a GPU that idles. Pure: what, not whether.

A node is set aside only for what no job can be blamed for, a GPU that is lost and memory errors that could not be
corrected; a job is requeued only where its own steps say that it stands. A verdict is never a reason to act.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Literal

from msgspec import Struct

from gputop.features.fleet.fleet_frame import FleetFrame
from gputop.features.fleet.gpu_group import Gpu, GpuGroup
from gputop.features.fleet.judge import ABSENT
from gputop.features.fleet.remedy_grounds import Grounds, IdleGpu, JobOwner
from gputop.model.quantity import count, duration

By = Literal["slurm", "kubernetes"]
What = Literal["set-aside", "requeue", "tell"]
KINDS: tuple[What, ...] = ("set-aside", "requeue", "tell")
TOLD_AGAIN_S = 86400.0
"""An owner is told once a day."""
MOST_NAMED = 8
"""Hosts named to an owner; the rest are counted."""
_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}", re.ASCII)


class Remedy(Struct, frozen=True):
    """One command about a node, a job or an owner. ``keys`` are what it answers: each loss of a GPU once, each rise of
    a count once, each job once; what was answered ``again_s`` ago is answered again, None for never. ``owner`` is who
    is told ``text``; ``last_step_t`` is when the job that hangs was last heard of, Unix time."""

    what: What
    about: str
    keys: tuple[str, ...]
    command: tuple[str, ...]
    text: str = ""
    hosts: tuple[str, ...] = ()
    owner: JobOwner | None = None
    last_step_t: float | None = None
    again_s: float | None = None


def remedies(frame: FleetFrame, on: Grounds, by: By) -> tuple[list[Remedy], list[str]]:
    """The commands, nodes first, and lines on what cannot be acted on."""
    nodes, odd = _nodes(frame, on, by)
    silent = set(frame.read.down)
    requeues = [
        Remedy(
            "requeue", f"job {job.job_id}", (f"requeue {job.job_id}",),
            # What has ended in the meantime must not be started again.
            ("scontrol", "requeue", "incomplete", job.job_id),
            f"no step on {count(job.gpus, 'GPU')} for {duration(job.silent_s)}",
            job.hosts, last_step_t=job.last_t,
        )
        for job in on.silent
        if by == "slurm" and not silent.intersection(job.hosts)
    ]  # fmt: skip
    return [*nodes, *requeues, *_tell_owners(on.idle, by)], odd


def _nodes(frame: FleetFrame, on: Grounds, by: By) -> tuple[list[Remedy], list[str]]:
    reasons: dict[str, list[tuple[str, str]]] = {}
    odd: list[str] = []
    for group in frame.hosts:
        lost = [gpu for gpu in group.gpus if gpu.state == "lost"]
        sure = [gpu for gpu in lost if _is_surely_lost(gpu, group)]
        for gpu in sure:
            key = f"lost {gpu.read.uuid or f'{group.name} {gpu.read.gpu}'}"
            reasons.setdefault(group.name, []).append((f"GPU {gpu.read.gpu} lost", key))
        if len(sure) < len(lost):
            # The line is for people alone; what it is about may come back by itself.
            odd.append(f"{group.name}: no value of {count(len(lost) - len(sure), 'GPU')}, and maybe no fault of theirs")
    for (host, number), (uuid, errors) in on.risen.items():
        text = f"GPU {number} counts {errors} uncorrected memory errors"
        reasons.setdefault(host, []).append((text, f"ecc {uuid or f'{host} {number}'} {errors}"))
    found_remedies = []
    for host, rows in sorted(reasons.items()):
        if _NODE.fullmatch(host) is None:
            odd.append(f"no scheduler has a node of the name {host}")
            continue
        reason = "gputop: " + ", ".join(text for text, _ in rows)
        keys = tuple(key for _, key in rows)
        found_remedies.append(Remedy("set-aside", host, keys, _set_aside(host, reason, by), reason, (host,)))
    return found_remedies, odd


def _is_surely_lost(gpu: Gpu, group: GpuGroup) -> bool:
    """Whether a GPU gave no value for five minutes, and it is not its exporter that gives none.

    gputop's exporter says itself that it cannot read a GPU. Of others a host without any GPU is one whose exporter was
    set up anew, or without a metric, as likely as one that lost them all.
    """
    if gpu.read.util_pct is not None:
        return False
    return gpu.read.names == "gputop" or any(other.state not in ABSENT for other in group.gpus)


def _set_aside(host: str, reason: str, by: By) -> tuple[str, ...]:
    if by == "slurm":
        return ("scontrol", "update", f"NodeName={host}", "State=DRAIN", f"Reason={_plain(reason)}")
    return ("kubectl", "cordon", host)


def _plain(text: str, limit: int = 120) -> str:
    """A text without what a scheduler's own syntax means something by."""
    return re.sub(r"[^A-Za-z0-9 :,./+-]", "_", text)[:limit]


def _tell_owners(idle: Sequence[IdleGpu], by: By) -> list[Remedy]:
    by_owner: dict[JobOwner, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for idle_gpu in idle:
        if bool(idle_gpu.owner.job_id) == (by == "slurm"):
            by_owner[idle_gpu.owner][idle_gpu.host].append(idle_gpu.gpu)
    found_remedies = []
    for owner, hosts in sorted(by_owner.items(), key=lambda pair: str(pair[0])):
        gpus = sum(len(numbers) for numbers in hosts.values())
        named = ", ".join(
            f"{host} GPU {'+'.join(sorted(numbers))}" for host, numbers in sorted(hosts.items())[:MOST_NAMED]
        )
        others = f", and on {len(hosts) - MOST_NAMED} more hosts" if len(hosts) > MOST_NAMED else ""
        text = (
            f"gputop: {count(gpus, 'GPU')} of this {str(owner).split()[0]} did nothing for 30 minutes: {named}{others}"
        )
        text = _plain(text, 600)
        command = (
            ("scontrol", "notify", owner.job_id, text)
            if by == "slurm"
            else ("kubectl", "create", "--namespace", owner.namespace, "--validate=ignore", "--filename=-")
        )
        found_remedies.append(
            Remedy("tell", str(owner), (f"told {owner}",), command, text, tuple(hosts), owner, again_s=TOLD_AGAIN_S)
        )
    return found_remedies


def due(proposed: Sequence[Remedy], done: Mapping[str, float], now: float) -> list[Remedy]:
    """Those that answer something new: a node is set aside once for each rise, even if it was taken back in between."""

    def is_open(remedy: Remedy, key: str) -> bool:
        at = done.get(key)
        return at is None or (remedy.again_s is not None and now - at >= remedy.again_s)

    return [remedy for remedy in proposed if any(is_open(remedy, key) for key in remedy.keys)]


def forget(done: MutableMapping[str, float], frame: FleetFrame, on: Grounds) -> None:
    """Forget what is over, so that it is answered when it comes again: GPUs that are back, and counts that started over
    with their driver."""
    back = {
        gpu.read.uuid or f"{host.name} {gpu.read.gpu}"
        for host in frame.hosts
        for gpu in host.gpus
        if gpu.state not in ABSENT
    }
    for key in list(done):
        kind, _, rest = key.partition(" ")
        uuid, _, errors = rest.rpartition(" ")
        if (kind == "lost" and rest in back) or (
            kind == "ecc" and errors.isdecimal() and on.counts.get(uuid, int(errors)) < int(errors)
        ):
            del done[key]
