"""Options of a machine to watch, and its chosen GPUs."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from gputop.model.foreign_values import text_of, whole_number
from gputop.model.quantity import numbers
from gputop.model.sm import NO_OPTIONS, SmOptions
from gputop.model.snapshot import GpuStatic, Snapshot
from gputop.model.source import UsageError

HUNG_S = 2.0
LOOK_S = 10.0


class MachineOptions(Struct, frozen=True, kw_only=True):
    """The watched GPUs, the interval, and the places of files."""

    interval_s: float = 1.0
    gpus: str | None = None
    """The value of ``--gpus``."""
    visible: bool = False
    """Whether CUDA_VISIBLE_DEVICES is honoured."""
    sm: SmOptions = NO_OPTIONS
    """What was asked of the sources of SM activity."""
    lets_sleep: bool = False
    """Whether the driver is closed after five minutes without a program on any GPU, where those can sleep."""
    is_quick: bool = False
    """Whether it is measured four times a second for some seconds after the start, and after a job's first kernels."""
    pair_s: float = 0.0
    """The least distance of the two readings of a command that reads once; GPM has its own."""
    hung_s: float = HUNG_S
    """After so long a driver call counts as hung, and its GPU is set aside."""
    look_s: float = LOOK_S
    """How often the list of GPUs is refreshed: one call, and one more a GPU that could be split."""
    clock: Callable[[], float] = time.time
    """Unix time."""
    proc: str = "/proc"
    sys: str = "/sys"


LONGEST_WORD = 80
"""Characters of a word that a message repeats: a UUID has 40."""
_RANGE = re.compile(r"(\d{1,4})-(\d{1,4})", re.ASCII)


def choose(
    gpus: Sequence[GpuStatic],
    spec: str | None,
    cuda_visible: str | None,
    where: str = "this machine",
) -> tuple[int, ...]:
    """Return the positions in ``gpus`` to watch, in order.

    ``spec`` is the value of ``--gpus`` (None: all); ``cuda_visible`` is CUDA_VISIBLE_DEVICES when ``--visible`` was
    given (None: not given, or unset). Raises UsageError for a GPU that does not exist.
    """
    chosen = range(len(gpus)) if cuda_visible is None else _cuda_visible(gpus, cuda_visible)
    if spec is not None:
        named = _named(gpus, spec, where)
        chosen = [i for i in chosen if i in named]
        if not chosen:
            raise UsageError(
                f"--gpus {text_of(spec, LONGEST_WORD)}: CUDA_VISIBLE_DEVICES="
                f"{text_of(cuda_visible, LONGEST_WORD)} hides these GPUs: drop one of the two"
            )
    return tuple(sorted(set(chosen)))


def with_gpus(snapshot: Snapshot, uuids: frozenset[str]) -> Snapshot:
    """Return the snapshot with these GPUs, their processes and events.

    Descendants of the processes stay, too.
    """
    gpus = tuple(gpu for gpu in snapshot.gpus if gpu.static.uuid in uuids)
    indices = {gpu.static.index for gpu in gpus}
    pids = {p.pid for p in snapshot.processes if p.gpu in indices}
    count = 0
    while count != len(pids):
        count = len(pids)
        pids |= {p.pid for p in snapshot.processes if p.gpu is None and p.ppid in pids}
    return replace(
        snapshot,
        gpus=gpus,
        processes=tuple(
            p for p in snapshot.processes if (p.pid in pids if p.gpu is None else p.gpu in indices)
        ),
        events=tuple(e for e in snapshot.events if e.gpu is None or e.gpu in indices),
    )


def _named(gpus: Sequence[GpuStatic], spec: str, where: str) -> set[int]:
    """Return positions from a list of indices (``0-3`` too) and UUIDs.

    A parent brings its MIG instances.
    """
    words = [word.strip() for word in spec.split(",") if word.strip()]
    if not words:
        raise UsageError("--gpus: name at least one GPU, like --gpus 0,2 or --gpus GPU-3f2c")
    positions: set[int] = set()
    for word in words:
        told = text_of(word, LONGEST_WORD)
        if ends := _RANGE.fullmatch(word):
            first, last = int(ends[1]), int(ends[2])
            matches = [
                i
                for i, gpu in enumerate(gpus)
                if gpu.index is not None and first <= gpu.index <= last
            ]
            if not first <= last or not {first, last} <= {gpus[i].index for i in matches}:
                raise UsageError(f"--gpus {told}: no such GPUs: {where} has {_existing(gpus)}")
        elif word.isascii() and word.isdigit():
            matches = _of_index(gpus, word)
        else:
            matches = [i for i, gpu in enumerate(gpus) if gpu.uuid.lower().startswith(word.lower())]
            if len(matches) > 1:
                raise UsageError(f"--gpus {told}: fits {len(matches)} GPUs: give more of the UUID")
        if not matches:
            raise UsageError(f"--gpus {told}: no such GPU: {where} has {_existing(gpus)}")
        positions.update(matches)
    parents = {gpus[i].uuid for i in positions}
    positions.update(i for i, gpu in enumerate(gpus) if gpu.mig_parent in parents)
    return positions


def _of_index(gpus: Sequence[GpuStatic], word: str) -> list[int]:
    """Return the positions of the GPUs with an index given as digits, of any number."""
    index = whole_number(word)
    if index is None:
        return []
    return [i for i, gpu in enumerate(gpus) if gpu.index == index]


def _existing(gpus: Sequence[GpuStatic]) -> str:
    whole = [gpu.index for gpu in gpus if gpu.mig_parent is None]
    split = [gpu.index for gpu in gpus if gpu.mig_parent is not None]
    if not whole:
        return "none"
    text = f"GPU{'s' * (len(whole) > 1)} {numbers(whole)}"
    return f"{text} and MIG instances {numbers(split)}" if split else text


def _cuda_visible(gpus: Sequence[GpuStatic], value: str) -> list[int]:
    """Return the GPUs that CUDA would see.

    Entries count in order up to the first invalid one, as the CUDA programming guide says.
    """
    positions: list[int] = []
    for entry in value.split(","):
        word = entry.strip()
        if word.isascii() and word.isdigit():
            matches = [i for i in _of_index(gpus, word) if gpus[i].mig_parent is None]
        elif word.startswith(("GPU-", "MIG-")):
            matches = [i for i, gpu in enumerate(gpus) if gpu.uuid.startswith(word)]
        else:
            break
        if len(matches) != 1 or matches[0] in positions:
            break
        positions.append(matches[0])
    visible = {gpus[i].uuid for i in positions}
    return positions + [
        i for i, gpu in enumerate(gpus) if gpu.mig_parent in visible and i not in positions
    ]
