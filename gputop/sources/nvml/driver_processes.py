"""Lists the processes of one GPU as the driver reports them.

Pids are the driver's (host pids); the /proc collector finds out whether /proc knows them.
"""

from __future__ import annotations

from typing import Any

import pynvml

from gputop.sources.gpu_process import GpuProcess
from gputop.sources.nvml.handle import Handle

FIRST_LOOK_BACK_S = 2.0
"""How far back the first query for utilisation samples reaches: the time between two lists."""
LARGEST_PID = 4194304
"""PID_MAX_LIMIT of 64-bit Linux: some drivers return rows of garbage when structures change size."""

_TRIES = 3
"""A list may grow between pynvml's question for its length and the list itself."""
TOO_LONG = "the driver names more processes than fit into memory"

_LISTS = (
    ("C", ("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2")),
    ("G", ("nvmlDeviceGetGraphicsRunningProcesses_v3", "nvmlDeviceGetGraphicsRunningProcesses_v2")),
    (
        "C",
        (
            "nvmlDeviceGetMPSComputeRunningProcesses_v3",
            "nvmlDeviceGetMPSComputeRunningProcesses_v2",
        ),
    ),
)
_SAMPLES_INFO = "nvmlDeviceGetProcessesUtilizationInfo"
_NO_MEMORY = {"gpu_mem_bytes": "the driver does not say how much memory this process holds"}
COLLECTING = "collecting: asked at the second read"
NO_SAMPLES = "no utilisation samples of this GPU's processes at present"
SAMPLES = "nvmlDeviceGetProcessUtilization"
_NONE_NOW = (pynvml.NVML_SUCCESS, pynvml.NVML_ERROR_NOT_FOUND, pynvml.NVML_ERROR_INSUFFICIENT_SIZE)
"""There are none, or they outgrew the array again: the next read asks for the new size."""


class GpuProcesses:
    """Lists one GPU's processes; keeps the newest utilisation sample."""

    def __init__(self, handle: Handle, gpu: int) -> None:
        self._handle = handle
        self._gpu = gpu
        self._seen_us: int | None = None
        self._use_info = False
        self.reason: str | None = None
        """Why the last read has no process list at all, or None."""
        self._drawn_from: tuple[object, ...] = ()
        self._listed: tuple[GpuProcess, ...] = ()
        """What the last read gave, and from which memory, types and shares: mostly the next one gives the same."""

    def read(
        self, now: float, t: float, util_pct: float | None, *, brief: bool = False
    ) -> tuple[GpuProcess, ...]:
        """Return all processes with a context.

        ``now`` is monotonic, ``t`` Unix time. ``brief`` asks only for compute processes, without shares: one driver
        call instead of four. Raises LostGpu.
        """
        memory: dict[int, float | None] = {}
        types: dict[int, str] = {}
        self.reason = None
        for kind, names in _LISTS[:1] if brief else _LISTS:
            try:
                answer = self._handle.ask(names, (), now, run=self._whole)
            except (MemoryError, OverflowError):
                answer = TOO_LONG
            if isinstance(answer, str):
                if names is _LISTS[0][1]:
                    self.reason = answer
                continue
            for row in answer:
                pid, used = row.pid, row.usedGpuMemory
                if not 0 < pid <= LARGEST_PID:
                    continue
                memory_bytes = memory.get(pid)
                # A process in two lists is reported with the same memory in both: never add them up.
                memory[pid] = (
                    float(used)
                    if used is not None and used >= (memory_bytes or 0.0)
                    else memory_bytes
                )
                types[pid] = kind if types.get(pid, kind) == kind else "X"
        shares: dict[int, int] | str = COLLECTING if brief else {}
        if memory and not brief:
            shares = self._shares(now, t, util_pct)
        drawn_from = memory, types, shares
        if drawn_from != self._drawn_from:
            self._drawn_from = drawn_from
            self._listed = tuple(
                [self._process(pid, used, types[pid], shares) for pid, used in memory.items()]
            )
        return self._listed

    def _whole(self, name: str, raw: Any, *arguments: Any) -> Any:
        """Return one list; ask again if it has outgrown pynvml's array.

        Raises NVMLError.
        """
        for _ in range(_TRIES - 1):
            try:
                return self._handle.run_bare(name, raw, *arguments)
            except pynvml.NVMLError as error:
                if error.value != pynvml.NVML_ERROR_INSUFFICIENT_SIZE:
                    raise
        return self._handle.run_bare(name, raw, *arguments)

    def _process(
        self, pid: int, used: float | None, kind: str, shares: dict[int, int] | str
    ) -> GpuProcess:
        missing = _NO_MEMORY if used is None else {}
        if isinstance(shares, str):
            return GpuProcess(self._gpu, pid, used, kind, None, {**missing, "gpu_time_pct": shares})
        # The driver leaves out processes that ran nothing during its sample period.
        return GpuProcess(self._gpu, pid, used, kind, float(shares.get(pid, 0)), missing)

    def _shares(self, now: float, t: float, util_pct: float | None) -> dict[int, int] | str:
        """Return GPU time by pid in percent, or a reason.

        Of each process the newest sample counts.
        """
        if self._use_info:
            return self._ask(_SAMPLES_INFO, now, t)
        shares = self._ask(SAMPLES, now, t)
        idle = isinstance(shares, str) or not any(shares.values())
        if idle and util_pct:
            # On some Blackwell GPUs the older call answers 0 for all: use the newer one if it knows more.
            newer = self._ask(_SAMPLES_INFO, now, t)
            if not isinstance(newer, str) and any(newer.values()):
                self._use_info = True
                return newer
        return shares

    def _ask(self, name: str, now: float, t: float) -> dict[int, int] | str:
        refused = self._handle.refusal(name, now)
        if refused is not None:
            return refused
        if self._seen_us is not None and self._seen_us > (t + FIRST_LOOK_BACK_S) * 1e6:
            # The clock was set back: no newer samples would come for a long time.
            self._seen_us = None
        since = (
            self._seen_us
            if self._seen_us is not None
            else max(0, int((t - FIRST_LOOK_BACK_S) * 1e6))
        )
        try:
            samples = self._whole(name, self._handle.raw, since)
        except (MemoryError, OverflowError):
            return TOO_LONG
        except pynvml.NVMLError as error:
            if error.value in _NONE_NOW:
                return NO_SAMPLES
            return self._handle.refused(name, error.value, now)
        self._handle.note_answer(name)
        newest: dict[int, tuple[int, int]] = {}
        for sample in samples:
            pid, when, share = sample.pid, sample.timeStamp, sample.smUtil
            if share <= 100 and 0 < pid <= LARGEST_PID and when >= newest.get(pid, (0, 0))[0]:
                newest[pid] = (when, share)
        if newest and (name == SAMPLES or self._use_info):
            self._seen_us = max(when for when, _ in newest.values())
        return {pid: share for pid, (_, share) in newest.items()} or NO_SAMPLES
