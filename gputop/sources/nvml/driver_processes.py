"""The processes of one GPU as the driver lists them, with their memory and their share of GPU time.

Pids are the driver's (host pids); whether /proc knows them is for the /proc collector to find out.

NVML's lists want an array that is large enough. pynvml asks for the length first, then makes an array and an object a
row, at every read; here the arrays are kept, and a larger one is made when the driver says that one is too small.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ctypes import Array, Structure, byref, c_uint, c_ulonglong
from typing import Any

import pynvml

from gputop.sources.gpu_process import GpuProcess
from gputop.sources.nvml.handle import LOST_CODES, NEVER_CODES, RETRY_S, Handle, LostGpu, reason

FIRST_LOOK_BACK_S = 2.0
"""How far back the first query for utilisation samples reaches: the time between two lists."""
LARGEST_PID = 4194304
"""PID_MAX_LIMIT of 64-bit Linux: some drivers return rows of garbage when structures change size."""

_TRIES = 8
"""A list may grow between the query for its length and the list itself."""
_SPARE = 8
_FIRST_ROWS = 24
"""Room for the processes that compute on one GPU before it is known how many there are: mostly one driver call less."""
_MOST_ROWS = 1 << 16
"""No GPU has so many processes: a driver that says so is wrong, and no memory is allocated for it."""

_LISTS = (
    ("C", ("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2")),
    ("G", ("nvmlDeviceGetGraphicsRunningProcesses_v3", "nvmlDeviceGetGraphicsRunningProcesses_v2")),
    ("C", ("nvmlDeviceGetMPSComputeRunningProcesses_v3", "nvmlDeviceGetMPSComputeRunningProcesses_v2")),
)
_SAMPLES_INFO = "nvmlDeviceGetProcessesUtilizationInfo"
_NO_MEMORY = {"gpu_mem_bytes": "the driver does not say how much memory this process holds"}
COLLECTING = "collecting: asked at the second read"
NO_SAMPLES = "no utilisation samples of this GPU's processes at present"
SAMPLES = "nvmlDeviceGetProcessUtilization"
_UNKNOWN_BYTES = pynvml.NVML_VALUE_NOT_AVAILABLE_ulonglong.value
# Read past pynvml's own attribute access, which looks at every value for bytes to decode.
_pid_of = pynvml.c_nvmlProcessInfo_v2_t.pid.__get__
_used_of = pynvml.c_nvmlProcessInfo_v2_t.usedGpuMemory.__get__
_sample_pid_of = pynvml.c_nvmlProcessUtilizationSample_t.pid.__get__
_time_of = pynvml.c_nvmlProcessUtilizationSample_t.timeStamp.__get__
_share_of = pynvml.c_nvmlProcessUtilizationSample_t.smUtil.__get__


class DriverRows:
    """The array of one query. What ``read`` returns is valid until it is called again."""

    __slots__ = ("_array", "_count", "_row", "_rows")

    def __init__(self, row: type[Structure], first_rows: int = 0) -> None:
        """``first_rows`` is the length of the first array; without one the driver is asked how long it has to be."""
        self._row = row
        self._count = c_uint(0)
        self._array: Array[Any] | None = None
        self._rows: Sequence[Any] = ()
        if first_rows:
            self._make(first_rows)

    def read(self, ask: Callable[[Any, Any], int]) -> Sequence[Any]:
        """The rows that the driver writes now. ``ask`` takes the array, or None, and its length, and gives the code.

        Raises NVMLError.
        """
        count = self._count
        for _ in range(_TRIES):
            count.value = len(self._rows)
            code = ask(self._array, byref(count))
            # A full array may be a list that was cut off.
            if code == pynvml.NVML_SUCCESS and (count.value < len(self._rows) or count.value == 0):
                return self._rows[: count.value]
            if code not in (pynvml.NVML_SUCCESS, pynvml.NVML_ERROR_INSUFFICIENT_SIZE):
                raise pynvml.NVMLError(code)
            if count.value > _MOST_ROWS:
                break
            self._make(2 * max(count.value, len(self._rows)) + _SPARE)
        raise pynvml.NVMLError(pynvml.NVML_ERROR_INSUFFICIENT_SIZE)

    def _make(self, rows: int) -> None:
        self._array = (self._row * rows)()
        # Each is a view of its place in the array, made once.
        self._rows = list(self._array)


class ProcessList:
    """The processes of one kind on one GPU, by the newest form of the question that the driver knows."""

    __slots__ = ("_rows",)

    def __init__(self, first_rows: int) -> None:
        self._rows = DriverRows(pynvml.c_nvmlProcessInfo_v2_t, first_rows)

    def read(self, handle: Handle, name: str) -> list[tuple[int, int | None]]:
        """Pid and bytes of device memory of each, None where the driver does not say. Raises NVMLError."""
        rows = self._rows.read(lambda array, count: handle.call_library(name, count, array))
        found = []
        for row in rows:
            used = _used_of(row)
            found.append((_pid_of(row), None if used == _UNKNOWN_BYTES else used))
        return found


class UtilizationSamples:
    """The newest samples of the processes of one GPU."""

    __slots__ = ("_rows",)

    def __init__(self) -> None:
        self._rows = DriverRows(pynvml.c_nvmlProcessUtilizationSample_t)

    def read(self, handle: Handle, since_us: int) -> list[tuple[int, int, int]]:
        """Pid, time in us and percent of the GPU's time of each sample after ``since_us``. Raises NVMLError."""
        since = c_ulonglong(since_us)
        rows = self._rows.read(lambda array, count: handle.call_library(SAMPLES, array, count, since))
        return [(_sample_pid_of(row), _time_of(row), _share_of(row)) for row in rows]


class GpuProcesses:
    """Lists one GPU's processes. Remembers the newest utilisation sample between reads."""

    def __init__(self, handle: Handle, gpu: int) -> None:
        self._handle = handle
        self._gpu = gpu
        self._seen_us: int | None = None
        self._use_info = False
        # Only the first list is seldom empty.
        self._lists = tuple(
            (kind, names, ProcessList(0 if place else _FIRST_ROWS)) for place, (kind, names) in enumerate(_LISTS)
        )
        self._samples = UtilizationSamples()
        self.reason: str | None = None
        """Why the last read has no process list at all, or None."""
        self._drawn_from: tuple[object, ...] = ()
        self._listed: tuple[GpuProcess, ...] = ()
        """What the last read gave, and from which memory, types and shares: mostly the next one gives the same."""

    def read(self, now: float, t: float, util_pct: float | None, *, brief: bool = False) -> tuple[GpuProcess, ...]:
        """All processes with a context. ``now`` is monotonic, ``t`` Unix time. Raises LostGpu.

        ``brief`` asks only for those that compute, without shares: one driver call instead of four.
        """
        memory: dict[int, float | None] = {}
        types: dict[int, str] = {}
        self.reason = None
        handle = self._handle
        for kind, names, rows in self._lists[:1] if brief else self._lists:
            answer = handle.ask(names, (), now, run=lambda name, _raw, rows=rows: rows.read(handle, name))
            if isinstance(answer, str):
                if names is _LISTS[0][1]:
                    self.reason = answer
                continue
            for pid, used in answer:
                if not 0 < pid <= LARGEST_PID:
                    continue
                known = memory.get(pid)
                # A process in two lists is reported with the same memory in both: never add them up.
                memory[pid] = float(used) if used is not None and used >= (known or 0.0) else known
                types[pid] = kind if types.get(pid, kind) == kind else "X"
        shares: dict[int, int] | str = COLLECTING if brief else {}
        if memory and not brief:
            shares = self._shares(now, t, util_pct)
        drawn_from = memory, types, shares
        if drawn_from != self._drawn_from:
            self._drawn_from = drawn_from
            self._listed = tuple([self._process(pid, used, types[pid], shares) for pid, used in memory.items()])
        return self._listed

    def _process(self, pid: int, used: float | None, kind: str, shares: dict[int, int] | str) -> GpuProcess:
        missing = _NO_MEMORY if used is None else {}
        share: float | None = None
        if isinstance(shares, str):
            missing = {**missing, "gpu_time_pct": shares}
        else:
            # The driver leaves out processes that ran nothing during its sample period.
            share = float(shares.get(pid, 0))
        return GpuProcess(self._gpu, pid, used, kind, share, missing)

    def _shares(self, now: float, t: float, util_pct: float | None) -> dict[int, int] | str:
        """GPU time by pid in percent, from each one's newest sample, or why there is none."""
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
        since = self._seen_us if self._seen_us is not None else max(0, int((t - FIRST_LOOK_BACK_S) * 1e6))
        try:
            samples = self._samples.read(self._handle, since) if name == SAMPLES else self._asked_info(since)
        except pynvml.NVMLError as error:
            why = reason(error.value)
            if error.value in (pynvml.NVML_SUCCESS, pynvml.NVML_ERROR_NOT_FOUND):
                return NO_SAMPLES
            if error.value in LOST_CODES:
                raise LostGpu(why) from error
            # The list may grow between asking for its size and reading it: the next read has the new size.
            if error.value != pynvml.NVML_ERROR_INSUFFICIENT_SIZE:
                self._handle.refuse(name, why, float("inf") if error.value in NEVER_CODES else now + RETRY_S)
            return why
        newest: dict[int, tuple[int, int]] = {}
        for pid, when, share in samples:
            if share <= 100 and 0 < pid <= LARGEST_PID and when >= newest.get(pid, (0, 0))[0]:
                newest[pid] = (when, share)
        if not newest:
            return NO_SAMPLES
        if name == SAMPLES or self._use_info:
            self._seen_us = max(when for when, _ in newest.values())
        return {pid: share for pid, (_, share) in newest.items()}

    def _asked_info(self, since_us: int) -> list[tuple[int, int, int]]:
        rows = self._handle.run(_SAMPLES_INFO, since_us)
        return [(row.pid, row.timeStamp, row.smUtil) for row in rows]
