"""The least used GPUs, by UUID for CUDA_VISIBLE_DEVICES."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence

from msgspec import Struct

from gputop.command_line.shared_options import redactor_of, size_bytes, wait_of, waiting
from gputop.config import Settings
from gputop.model.derived import (
    HARDWARE_SLOWDOWN,
    POWER_BRAKE,
    THERMAL,
    WORDS,
)
from gputop.model.foreign_values import quoted, whole_number
from gputop.model.quantity import count, memory
from gputop.model.sm import SM_SOURCES
from gputop.model.snapshot import GpuSample, ProcessSample, Snapshot
from gputop.model.source import UsageError
from gputop.output.messages import NOTHING_READ, say

IDLE_PCT = 5.0
"""Utilisation below which a GPU is idle, as in a fleet's states (decisions.md 3)."""
PAIR_S = 0.3
"""Distance of the two readings: utilisation is of the last sixth of a second (NVML), and may be 0 between two kernels
of a GPU at work."""
HELD_BYTES = float(1 << 30)
"""Memory that no visible process holds, from which on it is somebody's. A driver before R510 counts its own reserve of
some 600 MB as used."""
WORKS_POWER = 0.35
"""Share of the power limit that no idle GPU draws [judged]: an H100 with a context 0.17, an L40S idle in P0 0.28."""
WORKS_SM_PCT = 5.0
"""SM activity beside a util of 0 from which on the util is not believed, as in ``sanity.SOME_WORK``."""
SLOWED = HARDWARE_SLOWDOWN | POWER_BRAKE | THERMAL
"""Reasons of a low clock that an idle GPU does not have either while it is well."""
NOT_ENOUGH = 1
MOST_GPUS = 1024


class Choice(Struct, frozen=True):
    """A GPU that may be picked, with what speaks against it."""

    gpu: GpuSample
    is_used: bool
    util_pct: float
    concerns: tuple[str, ...]
    is_idle: bool


def arguments(command: argparse.ArgumentParser) -> None:
    add = command.add_argument
    add("-n", "--count", metavar="N", help="how many GPUs (default 1)")
    add("--free", metavar="MEM", help="only GPUs with at least so much free memory, such as 20G")
    text = f"only GPUs below {IDLE_PCT:.0f} percent utilisation that no process uses"
    add("--idle", action="store_true", help=text)
    add("--index", action="store_true", help="print NVML's indices instead of UUIDs")
    waiting(command)


def run(args: argparse.Namespace, settings: Settings) -> int:
    wanted = _count(args.count)
    free_bytes = 0 if args.free is None else size_bytes(args.free, "--free")
    wait_s = wait_of(args)
    if redactor_of(settings) is not None:
        raise UsageError("--redact hides the names that `gputop pick` prints: leave it out")
    from gputop.sources.local import open_local

    source = open_local(settings, pair_s=PAIR_S)
    try:
        first = source.look(wait_s, say)
        reading = source.read_once(wait_s, say)
    finally:
        source.close()
    if not reading.has_measured:
        say("; ".join(reading.snapshot.notices) or "no GPU could be read")
        return NOTHING_READ
    choices = usable(reading.snapshot, free_bytes, first=first)
    fitting = [choice for choice in choices if choice.is_idle or not args.idle]
    picked = fitting[:wanted]
    for line in passed_over(choices, picked):
        say(line)
    if len(picked) < wanted:
        asked = "" if args.free is None else f" with {args.free.strip()} free"
        say(
            f"{count(len(picked), 'idle GPU' if args.idle else 'GPU')}{asked} of the {wanted} asked for"
        )
        return NOT_ENOUGH
    statics = [choice.gpu.static for choice in picked]
    if args.index and any(static.mig_parent is not None for static in statics):
        raise UsageError("a MIG instance has no index for CUDA: leave --index out")
    if args.index:
        say("these are NVML's indices: set CUDA_DEVICE_ORDER=PCI_BUS_ID for CUDA to count alike")
    names = [str(static.index) if args.index else static.uuid for static in statics]
    sys.stdout.write(",".join(names) + "\n")
    return 0


def least_used(
    snapshot: Snapshot, free_bytes: int = 0, *, idle: bool = False, first: Snapshot | None = None
) -> list[GpuSample]:
    """Return the GPUs that CUDA can use, best first."""
    choices = usable(snapshot, free_bytes, first=first)
    return [choice.gpu for choice in choices if choice.is_idle or not idle]


def usable(
    snapshot: Snapshot, free_bytes: int = 0, *, first: Snapshot | None = None
) -> list[Choice]:
    """Return the GPUs that CUDA can use, best first.

    GPUs with concerns come last; then in order of processes, utilisation and used memory. ``first`` is an earlier
    reading of the same GPUs: of both the higher utilisation counts.
    """
    earlier = {} if first is None else {gpu.static.uuid: gpu for gpu in first.gpus}
    choices = [
        _choice(gpu, earlier.get(gpu.static.uuid), snapshot.processes)
        for gpu in snapshot.gpus
        if _can_be_used(gpu, free_bytes)
    ]

    def rank(choice: Choice) -> tuple[bool, bool, float, float, int]:
        gpu = choice.gpu
        used_bytes = gpu.mem_used_bytes or 0.0
        return bool(choice.concerns), choice.is_used, choice.util_pct, used_bytes, gpu.static.index

    return sorted(choices, key=rank)


def passed_over(choices: Sequence[Choice], picked: Sequence[Choice]) -> Iterator[str]:
    """Yield a line for each GPU with concerns, picked or not."""
    for choice in choices:
        if not choice.concerns:
            continue
        verb = "picked all the same" if choice in picked else "passed over"
        yield f"GPU {choice.gpu.static.index} {verb}: {'; '.join(choice.concerns)}"


def _can_be_used(gpu: GpuSample, free_bytes: int) -> bool:
    """Whether CUDA sees a GPU, and enough of its memory is free."""
    if gpu.lost_reason is not None or gpu.static.is_split:
        return False
    if not free_bytes:
        return True
    return (gpu.mem_total_bytes or 0.0) - (gpu.mem_used_bytes or 0.0) >= free_bytes


def _choice(gpu: GpuSample, before: GpuSample | None, processes: Sequence[ProcessSample]) -> Choice:
    samples = [gpu] if before is None else [before, gpu]
    own = [p for p in processes if p.gpu == gpu.static.index and p.role == "gpu"]
    util = _util_of(samples)
    held = _held(gpu, own)
    doubt = None if own else _util_doubt(samples)
    concerns = [*_hardware_concerns(samples), *(text for text in (held, doubt) if text)]
    is_idle = not own and held is None and doubt is None and util < IDLE_PCT
    return Choice(gpu, bool(own), util, tuple(concerns), is_idle)


def _util_of(samples: Sequence[GpuSample]) -> float:
    """Return the highest utilisation of the readings.

    A GPU that sleeps is not read: it does nothing. One whose utilisation is not known comes last.
    """
    if samples[-1].asleep:
        return 0.0
    known_pct = [gpu.util_pct for gpu in samples if gpu.util_pct is not None]
    return max(known_pct, default=101.0)


def _hardware_concerns(samples: Sequence[GpuSample]) -> Iterator[str]:
    """Yield the faults of a GPU's memory and cooling."""
    newest = samples[-1]
    errors = max(newest.ecc_uncorrected or 0, newest.ecc_uncorrected_volatile or 0)
    if errors:
        yield count(errors, "uncorrected ECC error")
    if newest.remap_failed:
        yield "a row of its memory could not be remapped"
    if newest.retired_pending:
        yield "a page of its memory waits for a reset to be retired"
    if newest.recovery_action:
        yield f"the driver asks for recovery: {newest.recovery}"
    if newest.remap_pending:
        yield "a row of its memory waits for a reset to be remapped"
    reasons = 0
    for gpu in samples:
        reasons |= (gpu.throttle_reasons or 0) & SLOWED
    if reasons:
        yield "slowed down: " + ", ".join(word for bit, word in WORDS.items() if reasons & bit)
    limit_c = newest.temp_slowdown_c
    if newest.temp_c is not None and limit_c is not None and newest.temp_c >= limit_c:
        yield f"{newest.temp_c:.0f} °C, and it slows down from {limit_c:.0f} °C on"


def _held(gpu: GpuSample, own: Sequence[ProcessSample]) -> str | None:
    """Return words for memory that no visible process holds, or None."""
    if gpu.mem_used_bytes is None or gpu.static.unified_memory:
        return None
    held_bytes = [process.gpu_mem_bytes for process in own]
    if None in held_bytes:
        return None
    rest = gpu.mem_used_bytes - sum(size for size in held_bytes if size is not None)
    if rest < HELD_BYTES:
        return None
    return f"{memory(rest)} of its memory are held by processes that are not visible here"


def _util_doubt(samples: Sequence[GpuSample]) -> str | None:
    """Return why a low utilisation is not believed, or None."""
    gpu = samples[-1]
    util = _util_of(samples)
    if gpu.asleep or util >= IDLE_PCT:
        return None
    power, limit, sm = gpu.power_w, gpu.power_limit_w, gpu.sm_active_pct
    if power is not None and limit and power >= WORKS_POWER * limit:
        return f"utilisation {util:.0f} % is doubtful: it draws {power:.0f} of {limit:.0f} W"
    is_current = not SM_SOURCES[gpu.sm_source].slow
    if sm is not None and sm > WORKS_SM_PCT and is_current:
        return f"utilisation {util:.0f} % is doubtful: its SMs are active {sm:.0f} % of the time"
    return None


def _count(text: str | None) -> int:
    if text is None:
        return 1
    number = whole_number(text, 1, MOST_GPUS)
    if number is None:
        raise UsageError(f"--count must be a number of GPUs from 1 on, not {quoted(text)}")
    return number
