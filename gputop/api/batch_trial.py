"""One try of a batch size, in a fresh process: nothing of a failed one is left behind.

Only what the process itself needs is imported here, so that a try begins soon.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from msgspec import Struct

CHILD_NAME = "gputop-max-batch"
UNGUARDED = 97
"""Exit status of a fresh process that comes to the same call of max_batch while it imports the program."""
_MEMORY_WORDS = (
    "out of memory",
    "out_of_memory",
    "resource_exhausted",
    "cudnn_status_alloc_failed",
    "std::bad_alloc",
    "can't allocate memory",
    "cannot allocate memory",
)
"""Words for out of memory of PyTorch, CUDA, TensorFlow and JAX, cuDNN, C++, PyTorch on the CPU, and Linux."""
_LONGEST_REASON = 200


class TrialResult(Struct, frozen=True):
    """Outcome of one size in its process.

    ``problem`` is empty where it fits, else ``memory`` or ``error`` with its ``reason``. ``memory_bytes`` is the peak:
    of the GPU where the step used one (``memory_of`` is ``GPU``), else of the process (``host``); ``room_bytes`` is
    what it could have had, None if unknown. ``step_s`` is the mean without the first step.
    """

    problem: str = ""
    reason: str = ""
    step_s: float | None = None
    memory_bytes: float | None = None
    memory_of: str = "host"
    room_bytes: float | None = None


def try_size(
    theirs: Connection, step: Callable[[int], object], size: int, steps: int, parent: int
) -> None:
    """Run the steps and send a TrialResult; its session is its own, so that all of it can be killed."""
    with suppress(OSError):
        os.setsid()
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    with suppress(OSError):
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
    try:
        result = _run(step, size, steps)
    except BaseException as error:  # noqa: BLE001 - somebody else's training: whatever it raises is the answer
        problem = "memory" if is_out_of_memory(error) else "error"
        result = TrialResult(problem, _reason(error))
    theirs.send(result)


def _run(step: Callable[[int], object], size: int, steps: int) -> TrialResult:
    """Run one step to settle and ``steps`` more. Raises whatever the training raises."""
    settled = _timed(lambda: step(size))
    following = settled.value if callable(settled.value) else None
    if following is not None:
        # The first call has built model and optimizer; its answer is the step.
        _timed(following)
    seconds = 0.0
    for _ in range(steps):
        seconds += _timed(following or (lambda: step(size))).seconds
    memory_bytes, memory_of, room_bytes = _memory()
    return TrialResult("", "", seconds / steps, memory_bytes, memory_of, room_bytes)


class _Timed(Struct, frozen=True):
    value: Any
    seconds: float


def _timed(call: Callable[[], object]) -> _Timed:
    begun = time.perf_counter()
    value = call()
    torch = _torch_on_gpu()
    if torch is not None:
        # A kernel's errors are only raised then.
        torch.cuda.synchronize()
    return _Timed(value, time.perf_counter() - begun)


def _memory() -> tuple[float | None, str, float | None]:
    """Return the peak in bytes, whose memory it is, and how much there could have been."""
    torch = _torch_on_gpu()
    if torch is not None:
        return _torch_memory(torch)
    card = _card_memory()
    if card is not None:
        free, total = card
        return total - free, "GPU", total
    with suppress(OSError, ValueError, IndexError), open("/proc/self/status", "rb") as status:
        for line in status:
            if line.startswith(b"VmHWM:"):
                return 1024.0 * int(line.split()[1]), "host", None
    return None, "host", None


def _torch_memory(torch: Any) -> tuple[float, str, float]:
    """Return PyTorch's peak on its fullest GPU, and what that GPU can give it."""
    fullest, room = 0.0, 0.0
    for device in range(torch.cuda.device_count()):
        reserved = float(torch.cuda.max_memory_reserved(device))
        if reserved > fullest:
            free, _ = torch.cuda.mem_get_info(device)
            fullest, room = reserved, free + float(torch.cuda.memory_reserved(device))
    return fullest, "GPU", room


def _card_memory() -> tuple[float, float] | None:
    """Return the free and all memory of the GPU in use; None without a CUDA context in this thread."""
    with suppress(OSError, AttributeError), open("/proc/self/maps", "rb") as maps:
        if b"libcuda.so" not in maps.read():
            return None
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        get_info = ctypes.CDLL("libcuda.so.1").cuMemGetInfo_v2
        if get_info(ctypes.byref(free), ctypes.byref(total)) == 0:
            return float(free.value), float(total.value)
    return None


def torch_gpu_bytes() -> int:
    """Return the GPU memory that PyTorch holds in this process."""
    torch = _torch_on_gpu()
    if torch is None:
        return 0
    return sum(torch.cuda.memory_reserved(device) for device in range(torch.cuda.device_count()))


def _torch_on_gpu() -> Any:
    """Return PyTorch if it uses a GPU in this process, else None."""
    torch: Any = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return None
    return torch


def is_out_of_memory(error: BaseException) -> bool:
    """True if a framework's error says that memory ran out."""
    if isinstance(error, MemoryError) or "OutOfMemory" in type(error).__name__:
        return True
    words = _text(error).lower()
    return any(known in words for known in _MEMORY_WORDS)


def _reason(error: BaseException) -> str:
    first_line, _, _ = _text(error).partition("\n")
    name = type(error).__name__
    return (f"{name}: {first_line}" if first_line else name)[:_LONGEST_REASON]


def _text(error: BaseException) -> str:
    try:
        return str(error).strip()
    except BaseException:  # noqa: BLE001 - the text is somebody else's code
        return ""
