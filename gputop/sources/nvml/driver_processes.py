"""Lists the processes of one GPU as the driver reports them.

Pids are the driver's (host pids); the /proc collector finds out whether /proc knows them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pynvml

from gputop.sources.gpu_process import OF_ENGINES, GpuProcess
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


class EngineShares(NamedTuple):
    """One sample of a process: use of the engines in percent, and when (Unix time in µs)."""

    when_us: int
    sm: int
    memory: int
    encoder: int
    decoder: int


IDLE = EngineShares(0, 0, 0, 0, 0)


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
        shares: dict[int, EngineShares] | str = COLLECTING if brief else {}
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
        self, pid: int, used: float | None, kind: str, shares: dict[int, EngineShares] | str
    ) -> GpuProcess:
        missing = _NO_MEMORY if used is None else {}
        if isinstance(shares, str):
            missing = {**missing, **dict.fromkeys(OF_ENGINES, shares)}
            return GpuProcess(self._gpu, pid, used, kind, unavailable=missing)
        # The driver leaves out processes that ran nothing during its sample period.
        share = shares.get(pid, IDLE)
        return GpuProcess(
            self._gpu,
            pid,
            used,
            kind,
            gpu_time_pct=float(share.sm),
            gpu_mem_time_pct=float(share.memory),
            gpu_encoder_pct=float(share.encoder),
            gpu_decoder_pct=float(share.decoder),
            unavailable=missing,
        )

    def _shares(
        self, now: float, t: float, util_pct: float | None
    ) -> dict[int, EngineShares] | str:
        """Return each process's use of the engines by pid, or a reason.

        Of each process the newest sample counts.
        """
        if self._use_info:
            return self._ask(_SAMPLES_INFO, now, t)
        shares = self._ask(SAMPLES, now, t)
        if util_pct and _are_idle(shares):
            # On some Blackwell GPUs the older call answers 0 for all: use the newer one if it knows more.
            newer = self._ask(_SAMPLES_INFO, now, t)
            if not _are_idle(newer):
                self._use_info = True
                return newer
        return shares

    def _ask(self, name: str, now: float, t: float) -> dict[int, EngineShares] | str:
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
        newest: dict[int, EngineShares] = {}
        for sample in samples:
            pid = sample.pid
            share = EngineShares(
                sample.timeStamp,
                sample.smUtil,
                _percent(sample.memUtil),
                _percent(sample.encUtil),
                _percent(sample.decUtil),
            )
            if share.sm > 100 or not 0 < pid <= LARGEST_PID:
                continue
            if share.when_us >= newest.get(pid, IDLE).when_us:
                newest[pid] = share
        if newest and (name == SAMPLES or self._use_info):
            self._seen_us = max(share.when_us for share in newest.values())
        return newest or NO_SAMPLES


def _percent(value: int) -> int:
    """Return a share in percent; 0 for garbage of drivers whose structures have another size."""
    return value if 0 <= value <= 100 else 0


def _are_idle(shares: dict[int, EngineShares] | str) -> bool:
    """Whether no process is said to have run a kernel."""
    return isinstance(shares, str) or not any(share.sm for share in shares.values())
