"""Arrays into which the driver writes rows, kept from read to read: how a list of processes is asked for.

NVML's lists want an array that is large enough. pynvml asks for the length first, makes an array and then an object a
row, at every read; here the length is asked for once, and again when the array has become too small.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ctypes import Array, Structure, byref, c_uint, c_ulonglong
from typing import Any

import pynvml

from gputop.sources.nvml.handle import Handle

_TRIES = 4
"""A list may grow between the question for its length and the list itself."""
_SPARE = 8


class DriverRows:
    """The array of one question. What ``read`` gives holds until it is called again."""

    __slots__ = ("_array", "_count", "_row", "_rows")

    def __init__(self, row: type[Structure]) -> None:
        self._row = row
        self._count = c_uint(0)
        self._array: Array[Any] | None = None
        self._rows: Sequence[Any] = ()

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
            self._grow(max(count.value, len(self._rows)))
        raise pynvml.NVMLError(pynvml.NVML_ERROR_INSUFFICIENT_SIZE)

    def _grow(self, rows: int) -> None:
        self._array = (self._row * (2 * rows + _SPARE))()
        # Each of them is a view of its place in the array, made once.
        self._rows = list(self._array)


class ProcessList:
    """The processes of one kind on one GPU, by the newest form of the question that the driver knows."""

    __slots__ = ("_rows",)

    def __init__(self) -> None:
        self._rows = DriverRows(pynvml.c_nvmlProcessInfo_v2_t)

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


SAMPLES = "nvmlDeviceGetProcessUtilization"
_UNKNOWN_BYTES = pynvml.NVML_VALUE_NOT_AVAILABLE_ulonglong.value
# Read past pynvml's own attribute access, which looks at every value for bytes to decode.
_pid_of = pynvml.c_nvmlProcessInfo_v2_t.pid.__get__
_used_of = pynvml.c_nvmlProcessInfo_v2_t.usedGpuMemory.__get__
_sample_pid_of = pynvml.c_nvmlProcessUtilizationSample_t.pid.__get__
_time_of = pynvml.c_nvmlProcessUtilizationSample_t.timeStamp.__get__
_share_of = pynvml.c_nvmlProcessUtilizationSample_t.smUtil.__get__
