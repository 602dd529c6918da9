"""The least used GPUs, by UUID for CUDA_VISIBLE_DEVICES."""

from __future__ import annotations

import argparse
import sys

from gputop.commands.shared_options import redactor_of, size_bytes, wait_of, waiting
from gputop.config import Settings
from gputop.model.quantity import count, file_size
from gputop.model.snapshot import GpuSample, Snapshot
from gputop.model.source import UsageError
from gputop.output.messages import NOTHING_READ, say

IDLE_PCT = 5.0
"""Utilisation below which a GPU is idle, as in a fleet's states (decisions.md 3)."""
NOT_ENOUGH = 1


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

    source = open_local(settings)
    try:
        source.look(wait_s, say)
        reading = source.read_once(wait_s, say)
    finally:
        source.close()
    if not reading.has_measured:
        say("; ".join(reading.snapshot.notices) or "no GPU could be read")
        return NOTHING_READ
    gpus = least_used(reading.snapshot, free_bytes, idle=args.idle)
    if len(gpus) < wanted:
        asked = f" with {file_size(free_bytes)} free" if free_bytes else ""
        say(
            f"{count(len(gpus), 'idle GPU' if args.idle else 'GPU')}{asked} of the {wanted} asked for"
        )
        return NOT_ENOUGH
    if args.index and any(gpu.static.mig_parent is not None for gpu in gpus[:wanted]):
        raise UsageError("a MIG instance has no index for CUDA: leave --index out")
    if args.index:
        say("these are NVML's indices: set CUDA_DEVICE_ORDER=PCI_BUS_ID for CUDA to count alike")
    names = [str(gpu.static.index) if args.index else gpu.static.uuid for gpu in gpus[:wanted]]
    sys.stdout.write(",".join(names) + "\n")
    return 0


def least_used(snapshot: Snapshot, free_bytes: int = 0, *, idle: bool = False) -> list[GpuSample]:
    """Return the GPUs that CUDA can use, least used first.

    In order of processes, utilisation and used memory.
    """
    processes = {gpu.static.index: 0 for gpu in snapshot.gpus}
    for process in snapshot.processes:
        if process.gpu in processes and process.role == "gpu":
            processes[process.gpu] += 1

    def use(gpu: GpuSample) -> tuple[bool, float, float, int]:
        # A GPU that sleeps is not read: it does nothing. One whose utilisation is not known comes last.
        util = 0.0 if gpu.asleep else 101.0 if gpu.util_pct is None else gpu.util_pct
        return processes[gpu.static.index] > 0, util, gpu.mem_used_bytes or 0.0, gpu.static.index

    def fits(gpu: GpuSample) -> bool:
        if gpu.lost_reason is not None or gpu.static.is_split:
            return False
        if free_bytes and (gpu.mem_total_bytes or 0.0) - (gpu.mem_used_bytes or 0.0) < free_bytes:
            return False
        is_used, util, _, _ = use(gpu)
        return not idle or (not is_used and util < IDLE_PCT)

    return sorted(filter(fits, snapshot.gpus), key=use)


def _count(text: str | None) -> int:
    if text is None:
        return 1
    if not text.isdecimal() or not 1 <= int(text) <= 1024:
        raise UsageError(f"--count must be a number of GPUs from 1 on, not {text!r}")
    return int(text)
