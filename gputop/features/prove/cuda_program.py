"""The program that uses CUDA: it runs the kernels that its parent requests.

It is a program of its own because a CUDA error is permanent for its process. A launch lasts 20 ms, so that nothing
stays on the GPU however the program ends.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Mapping
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p
from time import monotonic
from typing import Any

from gputop.features.prove.experiment import Beat, CudaFailed, Ready, Stage
from gputop.system.dialogue import read_messages, say

LIBRARY = "libcuda.so.1"
_TYPES: dict[str, Any] = {
    "int": c_int, "unsigned": c_uint, "size_t": c_size_t, "CUdeviceptr": c_uint64, "void*": c_void_p,
    "char*": c_char_p,
}  # fmt: skip
_ALWAYS = {"cuInit": "unsigned", "cuGetErrorName": "int, char**"}


class CudaError(Exception):
    """A call of the driver library that failed; ``code`` is its CUresult, None where the library lacks something."""

    def __init__(self, call: str, code: int | None, words: str) -> None:
        super().__init__(call, code, words)
        self.code = code

    def __str__(self) -> str:
        call, code, words = self.args
        return f"{call}: {words}" if code is None else f"{call}: {words} ({code})"


class CudaLibrary:
    """The calls of the CUDA driver library with these arguments as C types, by ctypes. No toolkit, no PyTorch."""

    def __init__(self, signatures: Mapping[str, str]) -> None:
        """Raises CudaError."""
        try:
            self._library = ctypes.CDLL(LIBRARY)
        except OSError:
            raise CudaError(LIBRARY, None, "not found: it comes with NVIDIA's driver") from None
        for name, types in {**_ALWAYS, **signatures}.items():
            function = getattr(self._library, name, None)
            if function is None:
                raise CudaError(name, None, "is not in this driver's libcuda")
            function.argtypes = [_TYPES.get(kind) or POINTER(_TYPES[kind[:-1]]) for kind in types.split(", ")]
            function.restype = c_int
        self.call("cuInit", 0)

    def call(self, name: str, *arguments: Any) -> None:
        """Raises CudaError."""
        code = getattr(self._library, name)(*arguments)
        if code:
            words = c_char_p()
            self._library.cuGetErrorName(code, byref(words))
            raise CudaError(name, code, (words.value or b"unknown error").decode(errors="replace"))

    def out(self, name: str, kind: Any, *arguments: Any) -> Any:
        """The value of that type that a call writes through its first argument. Raises CudaError."""
        value = kind()
        self.call(name, byref(value), *arguments)
        return value.value


# Kernels of known width on the one visible device.

MULTIPROCESSORS, SHARED_PER_BLOCK, SHARED_PER_BLOCK_OPTIN = 16, 8, 97
"""CUdevice_attribute of cuda.h."""
MOST_DYNAMIC_SHARED = 8
"""CUfunction_attribute of cuda.h."""
_OF_KERNELS = {
    "cuDriverGetVersion": "int*",
    "cuDeviceGet": "int*, int",
    "cuDeviceGetAttribute": "int*, int, int",
    "cuCtxCreate_v2": "void**, unsigned, int",
    "cuModuleLoadData": "void**, void*",
    "cuModuleGetFunction": "void**, void*, char*",
    "cuFuncSetAttribute": "void*, int, int",
    "cuStreamCreate": "void**, unsigned",
    "cuLaunchKernel": f"void*, {'unsigned, ' * 7}void*, void**, void**",
    "cuStreamSynchronize": "void*",
    "cuMemAlloc_v2": "CUdeviceptr*, size_t",
    "cuMemcpyDtoDAsync_v2": "CUdeviceptr, CUdeviceptr, size_t, void*",
}
_SCHEDULE_BLOCKING_SYNC = 4
"""CU_CTX_SCHED_BLOCKING_SYNC: waiting uses no CPU."""
_NON_BLOCKING = 1


class Cuda:
    """One context on the one visible device, with the kernels loaded."""

    def __init__(self, ptx: bytes) -> None:
        """Raises CudaError."""
        self._library = CudaLibrary(_OF_KERNELS)
        self.device = self._library.out("cuDeviceGet", c_int, 0)
        self.version = self._library.out("cuDriverGetVersion", c_int)
        self.multiprocessors = self._attribute(MULTIPROCESSORS)
        self.shared_bytes = max(self._attribute(SHARED_PER_BLOCK_OPTIN), self._attribute(SHARED_PER_BLOCK))
        self._context = self._library.out("cuCtxCreate_v2", c_void_p, _SCHEDULE_BLOCKING_SYNC, self.device)
        self._module = self._library.out("cuModuleLoadData", c_void_p, ctypes.cast(ctypes.c_char_p(ptx), c_void_p))
        self._stream = self._library.out("cuStreamCreate", c_void_p, _NON_BLOCKING)

    def function(self, name: bytes, shared_bytes: int = 0) -> int:
        """A kernel by name, allowed to use ``shared_bytes`` of dynamic shared memory."""
        function: int = self._library.out("cuModuleGetFunction", c_void_p, self._module, name)
        if shared_bytes:
            self._library.call("cuFuncSetAttribute", function, MOST_DYNAMIC_SHARED, shared_bytes)
        return function

    def launch(self, function: int, blocks: int, threads: int, shared_bytes: int = 0, *values: int) -> None:
        """Queue one launch; ``values`` are its parameters, 64 bits each."""
        parameters_held = [c_uint64(value) for value in values]
        parameters = (c_void_p * max(1, len(parameters_held)))(*(ctypes.addressof(value) for value in parameters_held))
        self._library.call(
            "cuLaunchKernel", function, blocks, 1, 1, threads, 1, 1, shared_bytes, self._stream, parameters, None
        )

    def allocate(self, size: int) -> int:
        """The device address of so many bytes. Raises CudaError."""
        address: int = self._library.out("cuMemAlloc_v2", c_uint64, size)
        return address

    def copy(self, to: int, source: int, size: int) -> None:
        """Queue a copy within the device's memory."""
        self._library.call("cuMemcpyDtoDAsync_v2", to, source, size, self._stream)

    def wait(self) -> None:
        """Wait until everything that was queued is done."""
        self._library.call("cuStreamSynchronize", self._stream)

    def _attribute(self, number: int) -> int:
        value: int = self._library.out("cuDeviceGetAttribute", c_int, number, self.device)
        return value


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
    buffers: list[int] = []
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


def _run_kernels() -> None:
    cuda = Cuda(KERNELS)
    say(Ready(cuda.multiprocessors, cuda.version))
    run(cuda, Stages())


def main() -> int:
    """Run the requested kernels until stdin ends. Returns the exit status where something fails."""
    try:
        _run_kernels()
    except CudaError as error:
        say(CudaFailed(str(error)))
        return 1
    # Contexts are left to the kernel, which frees them faster than libcuda does.
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
