"""Write a host or GPU as text for a ticket. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from gputop.features.fleet.judge.fleet_frame import FleetFrame, GpuGroup
from gputop.features.fleet.judge.gpu_state import WORDS, Gpu
from gputop.features.fleet.show import fleet_host
from gputop.model.clean_text import terminal_safe
from gputop.model.durations import clock_time
from gputop.model.quantity import number


def ticket(frame: FleetFrame, group: GpuGroup, utc_offset_s: float) -> str:
    """Lines on a host, or on one of its GPUs: verdict, values, remedy and identities."""
    lines = [f"{fleet_host.title_of(group)}   {clock_time(frame.t, utc_offset_s)}"]
    lines.append(fleet_host.verdict_line(group))
    lines += [f"fault: {terminal_safe(text)}" for text in group.faults]
    if group.remedy:
        lines.append(f"to do: {group.remedy}")
    lines += [_gpu_line(gpu) for gpu in group.gpus]
    command = opening(frame.read.opens, group.name)
    if command:
        lines.append(f"its own screen: {command}")
    return "\n".join(lines)


def _gpu_line(gpu: Gpu) -> str:
    read = gpu.read
    values = f"util {number(read.util_pct)}, SM {number(read.sm_active_pct)}"
    parts = [f"GPU {read.gpu}", WORDS[gpu.state], values, read.uuid, read.job, read.user]
    return terminal_safe("   ".join(part for part in parts if part))


def opening(opens: Mapping[str, Sequence[str]], host: str) -> str:
    """The command that opens a host's own screen; empty where none is known."""
    return shlex.join(opens[host]) if host in opens else ""
