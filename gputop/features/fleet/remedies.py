"""What may be done about a fleet's worst, as commands: set a node aside whose GPU fails. Pure: what, not whether.

A node is set aside only for what no job can be blamed for, a GPU that is lost and memory errors that could not be
corrected. A verdict is never a reason to act.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Literal

from msgspec import Struct

from gputop.features.fleet.fleet_frame import FleetFrame, Gpu, GpuGroup
from gputop.features.fleet.fleet_reading import Grounds
from gputop.features.fleet.judge import ABSENT
from gputop.model.quantity import count

By = Literal["slurm", "kubernetes"]
LONGEST_REASON = 120
_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}", re.ASCII)
_EVERY_NODE = ("all", "default")
"""What Slurm takes for every node, or for those to come, in any case of letters."""


class Remedy(Struct, frozen=True):
    """One command about one node. ``keys`` are what it answers: each loss of a GPU once, each rise of a count once."""

    node: str
    keys: tuple[str, ...]
    command: tuple[str, ...]
    text: str


def remedies(frame: FleetFrame, on: Grounds, by: By) -> tuple[list[Remedy], list[str]]:
    """The commands, by node, and lines on what cannot be acted on."""
    in_sight = {group.name for group in frame.hosts}
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
        if host not in in_sight or _NODE.fullmatch(host) is None or host.lower() in _EVERY_NODE:
            odd.append(f"no scheduler has one node of the name {host}")
            continue
        reason = "gputop: " + ", ".join(text for text, _ in rows)
        keys = tuple(key for _, key in rows)
        drain = ("scontrol", "update", f"NodeName={host}", "State=DRAIN", f"Reason={_plain(reason)}")
        command = drain if by == "slurm" else ("kubectl", "cordon", host)
        found_remedies.append(Remedy(host, keys, command, reason))
    return found_remedies, odd


def _is_surely_lost(gpu: Gpu, group: GpuGroup) -> bool:
    """Whether a GPU gave no value for five minutes, and it is not its exporter that gives none.

    gputop's exporter says itself that it cannot read a GPU. Of others a host without any GPU is one whose exporter was
    set up anew, or without a metric, as likely as one that lost them all.
    """
    if gpu.read.util_pct is not None:
        return False
    return gpu.read.names == "gputop" or any(other.state not in ABSENT for other in group.gpus)


def _plain(text: str) -> str:
    """A text without what a scheduler's own syntax means something by."""
    return re.sub(r"[^A-Za-z0-9 :,./+-]", "_", text)[:LONGEST_REASON]


def due(proposed: Sequence[Remedy], done: Mapping[str, float]) -> list[Remedy]:
    """Those that answer something new: a node is set aside once for each rise, even if it was taken back in between."""
    return [remedy for remedy in proposed if any(key not in done for key in remedy.keys)]


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
