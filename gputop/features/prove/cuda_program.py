"""The program that uses CUDA: it runs the kernels that its parent requests.

It is a program of its own because a CUDA error is permanent for its process. A launch lasts 20 ms, so that nothing
stays on the GPU however the program ends.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p
from time import monotonic
from typing import Any

from gputop.features.prove.experiment import Beat, CudaFailed, Ready, Stage
from gputop.system.dialogue import read_messages, say

LIBRARY = "libcuda.so.1"
MULTIPROCESSORS, SHARED_PER_BLOCK, SHARED_PER_BLOCK_OPTIN = 16, 8, 97
"""CUdevice_attribute of cuda.h."""
MOST_DYNAMIC_SHARED = 8
"""CUfunction_attribute of cuda.h."""
_SCHEDULE_BLOCKING_SYNC = 4
"""CU_CTX_SCHED_BLOCKING_SYNC: waiting uses no CPU."""
_NON_BLOCKING = 1
_INT, _POINTER, _ADDRESS = POINTER(c_int), POINTER(c_void_p), c_uint64
_ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "cuInit": (c_uint,),
    "cuGetErrorName": (c_int, POINTER(c_char_p)),
    "cuDriverGetVersion": (_INT,),
    "cuDeviceGet": (_INT, c_int),
    "cuDeviceGetAttribute": (_INT, c_int, c_int),
    "cuCtxCreate_v2": (_POINTER, c_uint, c_int),
    "cuModuleLoadData": (_POINTER, c_void_p),
    "cuModuleGetFunction": (_POINTER, c_void_p, c_char_p),
    "cuFuncSetAttribute": (c_void_p, c_int, c_int),
    "cuStreamCreate": (_POINTER, c_uint),
    "cuLaunchKernel": (c_void_p, *[c_uint] * 7, c_void_p, _POINTER, _POINTER),
    "cuStreamSynchronize": (c_void_p,),
    "cuMemAlloc_v2": (POINTER(_ADDRESS), c_size_t),
    "cuMemcpyDtoDAsync_v2": (_ADDRESS, _ADDRESS, c_size_t, c_void_p),
}


class CudaError(Exception):
    """A call of the driver library that failed, in one line."""


class Cuda:
    """One context on the one visible device, with the kernels loaded: by ctypes, without a toolkit or PyTorch."""

    def __init__(self, ptx: bytes) -> None:
        """Raises CudaError."""
        try:
            self._library = ctypes.CDLL(LIBRARY)
        except OSError:
            raise CudaError(f"{LIBRARY}: not found: it comes with NVIDIA's driver") from None
        for name, types in _ARGUMENTS.items():
            function = getattr(self._library, name, None)
            if function is None:
                raise CudaError(f"{name}: is not in this driver's libcuda")
            function.argtypes = types
        self._call("cuInit", 0)
        self._device = self._out("cuDeviceGet", c_int, 0)
        self.version = self._out("cuDriverGetVersion", c_int)
        self.multiprocessors = self._attribute(MULTIPROCESSORS)
        self.shared_bytes = max(
            self._attribute(SHARED_PER_BLOCK_OPTIN), self._attribute(SHARED_PER_BLOCK)
        )
        self._context = self._out("cuCtxCreate_v2", c_void_p, _SCHEDULE_BLOCKING_SYNC, self._device)
        self._module = self._out("cuModuleLoadData", c_void_p, ctypes.cast(c_char_p(ptx), c_void_p))
        self._stream = self._out("cuStreamCreate", c_void_p, _NON_BLOCKING)

    def _call(self, name: str, *arguments: Any) -> None:
        """Raises CudaError."""
        code = getattr(self._library, name)(*arguments)
        if code:
            words = c_char_p()
            self._library.cuGetErrorName(code, byref(words))
            raise CudaError(
                f"{name}: {(words.value or b'unknown error').decode(errors='replace')} ({code})"
            )

    def _out(self, name: str, kind: Any, *arguments: Any) -> Any:
        """The value of that type that a call writes through its first argument. Raises CudaError."""
        value = kind()
        self._call(name, byref(value), *arguments)
        return value.value

    def _attribute(self, number: int) -> Any:
        return self._out("cuDeviceGetAttribute", c_int, number, self._device)

    def function(self, name: bytes, shared_bytes: int = 0) -> Any:
        """A kernel by name, allowed to use ``shared_bytes`` of dynamic shared memory."""
        function = self._out("cuModuleGetFunction", c_void_p, self._module, name)
        if shared_bytes:
            self._call("cuFuncSetAttribute", function, MOST_DYNAMIC_SHARED, shared_bytes)
        return function

    def launch(
        self, function: Any, blocks: int, threads: int, shared_bytes: int = 0, *values: int
    ) -> None:
        """Queue one launch; ``values`` are its parameters, 64 bits each."""
        held = [c_uint64(value) for value in values]
        parameters = (c_void_p * max(1, len(held)))(*map(ctypes.addressof, held))
        self._call(
            "cuLaunchKernel",
            function,
            blocks,
            1,
            1,
            threads,
            1,
            1,
            shared_bytes,
            self._stream,
            parameters,
            None,
        )

    def allocate(self, size: int) -> Any:
        """The device address of so many bytes. Raises CudaError."""
        return self._out("cuMemAlloc_v2", _ADDRESS, size)

    def copy(self, to: Any, source: Any, size: int) -> None:
        """Queue a copy within the device's memory."""
        self._call("cuMemcpyDtoDAsync_v2", to, source, size, self._stream)

    def wait(self) -> None:
        """Wait until everything that was queued is done."""
        self._call("cuStreamSynchronize", self._stream)


# The kernels, as PTX text: for sm_50 and PTX 6.0, so that every driver since 2017 compiles it for its own GPU.
SPIN, TINY = b"spin", b"tiny"
KERNELS = b"""
.version 6.0
.target sm_50
.address_size 64

.visible .entry spin(.param .u64 nanoseconds, .param .u64 most_cycles)
{
    .reg .pred %over;
    .reg .u64 %begin, %first, %now, %spent, %length, %most;
    ld.param.u64 %length, [nanoseconds];
    ld.param.u64 %most, [most_cycles];
    mov.u64 %begin, %globaltimer;
    mov.u64 %first, %clock64;
AGAIN:
    mov.u64 %now, %globaltimer;
    sub.u64 %spent, %now, %begin;
    setp.ge.u64 %over, %spent, %length;
    @%over bra DONE;
    mov.u64 %now, %clock64;
    sub.u64 %spent, %now, %first;
    setp.lt.u64 %over, %spent, %most;
    @%over bra AGAIN;
DONE:
    ret;
}

.visible .entry tiny()
{
    ret;
}
\0"""
"""``spin`` keeps each of its blocks busy for a time by two clocks: whichever is over first ends it, so that no launch
outlasts its time even where one of them stands still."""


SPIN_NS = 20_000_000
MOST_CYCLES = 100_000_000
"""50 ms at 2 GHz: the second clock that ends a launch."""
QUEUED = 2
"""Launches queued ahead: the GPU never waits for this program, and never has more than 40 ms of work."""
TINY_QUEUED = 256
THREADS = 1024
COPIED_BYTES = 128 << 20
COPIES_QUEUED = 8
BEAT_S = 0.5


class Stages:
    """The stage to run now, as last read by the reading thread. None: the end."""

    def __init__(self) -> None:
        self.changed = threading.Event()
        self.wanted: Stage | None = Stage("idle", 0, "", None)
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        for self.wanted in read_messages(Stage):
            self.changed.set()
        self.wanted = None
        self.changed.set()


def run(cuda: Cuda, stages: Stages) -> None:
    """Run the wanted stages until the end. Raises CudaError."""
    spin, tiny = cuda.function(SPIN, cuda.shared_bytes), cuda.function(TINY)
    buffers: list[Any] = []
    said_at = float("-inf")
    while (stage := stages.wanted) is not None:
        if monotonic() - said_at >= BEAT_S:
            said_at = monotonic()
            say(Beat())
        if stage.kind == "spin":
            for _ in range(QUEUED):
                cuda.launch(spin, stage.blocks, THREADS, cuda.shared_bytes, SPIN_NS, MOST_CYCLES)
        elif stage.kind == "tiny":
            for _ in range(TINY_QUEUED):
                cuda.launch(tiny, 1, 32)
        elif stage.kind == "copy":
            buffers = buffers or [cuda.allocate(COPIED_BYTES), cuda.allocate(COPIED_BYTES)]
            for _ in range(COPIES_QUEUED):
                cuda.copy(buffers[0], buffers[1], COPIED_BYTES)
        else:
            stages.changed.wait(BEAT_S)
            stages.changed.clear()
            continue
        cuda.wait()


def main() -> int:
    """Run the requested kernels until stdin ends. Returns the exit status where something fails."""
    try:
        cuda = Cuda(KERNELS)
        say(Ready(cuda.multiprocessors, cuda.version))
        run(cuda, Stages())
    except CudaError as error:
        say(CudaFailed(str(error)))
        return 1
    # Contexts are left to the kernel, which frees them faster than libcuda does.
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
