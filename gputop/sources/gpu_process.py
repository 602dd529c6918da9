"""A GPU process as the driver reports it.

The NVML session hands it to the /proc collector. No /proc facts and no I/O.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

from msgspec import Struct

from gputop.model.feeders import rank_among_owners
from gputop.model.metrics import PROCESS_METRICS
from gputop.model.snapshot import NOTHING_MISSING, ProcessSample, ProcessStatic


class GpuProcess(Struct, frozen=True):
    """One process holding a context on one GPU.

    ``gpu`` is the index of the GPU's sample. ``pid`` is a host pid: inside a container without the host PID namespace
    it names no process in /proc, or a wrong one. ``type`` is C (compute), G (graphics) or X (both). ``gpu_time_pct``
    is the share of time in which the process had a kernel running, not SM activity. ``unavailable`` says by key
    (``gpu_mem_bytes``, ``gpu_time_pct``) why a value is None.
    """

    gpu: int
    pid: int
    gpu_mem_bytes: float | None = None
    type: str | None = None
    gpu_time_pct: float | None = None
    gpu_mem_time_pct: float | None = None
    gpu_encoder_pct: float | None = None
    gpu_decoder_pct: float | None = None
    unavailable: Mapping[str, str] = NOTHING_MISSING


NOT_ON_A_GPU = GpuProcess(-1, -1)
"""In place of a process that the driver does not list."""


def largest_owners(gpu_processes: Sequence[GpuProcess]) -> set[int]:
    """Return each GPU's process whose main thread its verdict uses."""
    # Of each GPU the highest comes last.
    return set(
        {
            process.gpu: process.pid for process in sorted(gpu_processes, key=rank_among_owners)
        }.values()
    )


OF_ENGINES = ("gpu_time_pct", "gpu_mem_time_pct", "gpu_encoder_pct", "gpu_decoder_pct")
"""What the driver samples of each process's use of the GPU's engines."""
_FROM_DRIVER = frozenset(("pid", "role", "gpu", "gpu_mem_bytes", *OF_ENGINES, "type"))
_IN_WORDS = {"main_waits": "main_looks", "held_up_by": "waits_for"}
"""What the catalogue has in words, by the field that it is made of."""
_FROM_PROC = tuple(_IN_WORDS.get(key, key) for key in PROCESS_METRICS if key not in _FROM_DRIVER)
"""What a process's sample takes from /proc, and so lacks when /proc does not show the process."""
_NOTHING_KNOWN = ProcessStatic()


def unseen(
    process: GpuProcess,
    reason: str,
    starttime: int | None = None,
    static: ProcessStatic = _NOTHING_KNOWN,
) -> ProcessSample:
    """Return a process that the driver lists and /proc does not show."""
    return ProcessSample(
        pid=process.pid,
        starttime=starttime,
        role="gpu",
        gpu=process.gpu,
        gpu_mem_bytes=process.gpu_mem_bytes,
        gpu_time_pct=process.gpu_time_pct,
        gpu_mem_time_pct=process.gpu_mem_time_pct,
        gpu_encoder_pct=process.gpu_encoder_pct,
        gpu_decoder_pct=process.gpu_decoder_pct,
        type=process.type,
        static=static,
        unavailable={**_all_lack(reason), **process.unavailable}
        if process.unavailable
        else _all_lack(reason),
    )


@cache
def _all_lack(reason: str) -> Mapping[str, str]:
    """Return one shared mapping of missing keys for all processes.

    A node may have thousands of processes.
    """
    return dict.fromkeys(_FROM_PROC, reason)
