"""What may be done to a node whose GPU fails: set it aside, so that no further job gets it. Pure: what, not whether.

Only for what no job can be blamed for: a GPU that is lost, and memory errors that could not be corrected. A verdict on
a job is never a reason to act on it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec import Struct

from gputop.features.fleet.fleet_frame import FleetFrame

By = Literal["slurm", "kubernetes"]
_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}", re.ASCII)
Errors = Mapping[tuple[str, str], tuple[str, int]]
"""Host and GPU → its UUID, and the uncorrected memory errors that it counts, of those whose count rose."""


class Remedy(Struct, frozen=True):
    """One command. ``keys`` are what it answers: each GPU that is lost once, each rise of a count once."""

    host: str
    reason: str
    keys: tuple[str, ...]
    command: tuple[str, ...]


def remedies(frame: FleetFrame, errors: Errors, by: By) -> tuple[list[Remedy], list[str]]:
    """The commands, one a host, and hosts that cannot be named to the scheduler."""
    reasons: dict[str, list[tuple[str, str]]] = {}
    for group in frame.hosts:
        for gpu in group.gpus:
            if gpu.state == "lost":
                key = f"lost {gpu.read.uuid or f'{group.name} {gpu.read.gpu}'}"
                reasons.setdefault(group.name, []).append((f"GPU {gpu.read.gpu} lost", key))
    for (host, number), (uuid, count) in errors.items():
        text = f"GPU {number} counts {count} uncorrected memory errors"
        reasons.setdefault(host, []).append((text, f"ecc {uuid or f'{host} {number}'} {count}"))
    found, odd = [], []
    for host, rows in sorted(reasons.items()):
        if _NODE.fullmatch(host) is None:
            odd.append(host)
            continue
        reason = "gputop: " + ", ".join(text for text, _ in rows)
        found.append(Remedy(host, reason, tuple(key for _, key in rows), _command(host, reason, by)))
    return found, odd


def _command(host: str, reason: str, by: By) -> tuple[str, ...]:
    if by == "slurm":
        return ("scontrol", "update", f"NodeName={host}", "State=DRAIN", f"Reason={_plain(reason)}")
    return ("kubectl", "cordon", host)


def _plain(text: str) -> str:
    """A reason without what a scheduler's own syntax means something by."""
    return re.sub(r"[^A-Za-z0-9 :,.-]", "_", text)[:120]


def due(found: Sequence[Remedy], done: Mapping[str, float]) -> list[Remedy]:
    """Those that answer something new: a node is set aside once for each rise, whoever took it back meanwhile."""
    return [one for one in found if any(key not in done for key in one.keys)]
