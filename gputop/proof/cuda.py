"""The few calls of the CUDA driver library that the experiment needs, by ctypes. No toolkit, no PyTorch.

Used only in the child: a CUDA error is permanent for its process.
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p
from typing import Any

LIBRARY = "libcuda.so.1"
MULTIPROCESSORS, SHARED_PER_BLOCK, SHARED_PER_BLOCK_OPTIN = 16, 8, 97
"""CUdevice_attribute of cuda.h."""
MOST_DYNAMIC_SHARED = 8
"""CUfunction_attribute of cuda.h."""
_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "cuInit": (c_uint,),
    "cuDriverGetVersion": (POINTER(c_int),),
    "cuDeviceGet": (POINTER(c_int), c_int),
    "cuDeviceGetAttribute": (POINTER(c_int), c_int, c_int),
    "cuCtxCreate_v2": (POINTER(c_void_p), c_uint, c_int),
    "cuModuleLoadData": (POINTER(c_void_p), c_void_p),
    "cuModuleGetFunction": (POINTER(c_void_p), c_void_p, c_char_p),
    "cuFuncSetAttribute": (c_void_p, c_int, c_int),
    "cuStreamCreate": (POINTER(c_void_p), c_uint),
    "cuLaunchKernel": (
        c_void_p, *(c_uint,) * 6, c_uint, c_void_p, POINTER(c_void_p), POINTER(c_void_p),
    ),
    "cuStreamSynchronize": (c_void_p,),
    "cuMemAlloc_v2": (POINTER(c_uint64), c_size_t),
    "cuMemcpyDtoDAsync_v2": (c_uint64, c_uint64, c_size_t, c_void_p),
    "cuGetErrorName": (c_int, POINTER(c_char_p)),
}  # fmt: skip
_SCHEDULE_BLOCKING_SYNC = 4
"""CU_CTX_SCHED_BLOCKING_SYNC: waiting uses no CPU."""
_NON_BLOCKING = 1


class CudaError(Exception):
    """A call of the driver library that failed; ``code`` is its CUresult, None where the library lacks something."""

    def __init__(self, call: str, code: int | None, words: str) -> None:
        super().__init__(f"{call}: {words}" if code is None else f"{call}: {words} ({code})")
        self.code = code
        self._given = (call, code, words)

    def __reduce__(self) -> tuple[Any, ...]:
        # Pickle and copy would call the constructor with the finished words alone.
        return type(self), self._given


class Cuda:
    """One context on the one visible device, with the kernels loaded."""

    def __init__(self, ptx: bytes) -> None:
        """Raises CudaError."""
        try:
            self._library = ctypes.CDLL(LIBRARY)
        except OSError:
            raise CudaError(LIBRARY, None, "not found: it comes with NVIDIA's driver") from None
        for name, types in _SIGNATURES.items():
            function = getattr(self._library, name, None)
            if function is None:
                raise CudaError(name, None, "is not in this driver's libcuda")
            function.argtypes, function.restype = types, c_int
        self._call("cuInit", 0)
        self.device = self._out("cuDeviceGet", c_int, 0)
        self.version = self._out("cuDriverGetVersion", c_int)
        self.multiprocessors = self._attribute(MULTIPROCESSORS)
        shared = max(self._attribute(SHARED_PER_BLOCK_OPTIN), self._attribute(SHARED_PER_BLOCK))
        self._context = self._out("cuCtxCreate_v2", c_void_p, _SCHEDULE_BLOCKING_SYNC, self.device)
        self._module = self._out("cuModuleLoadData", c_void_p, ctypes.cast(ctypes.c_char_p(ptx), c_void_p))
        self._stream = self._out("cuStreamCreate", c_void_p, _NON_BLOCKING)
        self.shared_bytes = shared

    def function(self, name: bytes, shared_bytes: int = 0) -> int:
        """A kernel by name, allowed to use ``shared_bytes`` of dynamic shared memory."""
        function: int = self._out("cuModuleGetFunction", c_void_p, self._module, name)
        if shared_bytes:
            self._call("cuFuncSetAttribute", function, MOST_DYNAMIC_SHARED, shared_bytes)
        return function

    def launch(self, function: int, blocks: int, threads: int, shared_bytes: int = 0, *values: int) -> None:
        """Queue one launch; ``values`` are its parameters, 64 bits each."""
        held = [c_uint64(value) for value in values]
        parameters = (c_void_p * max(1, len(held)))(*(ctypes.addressof(value) for value in held))
        self._call(
            "cuLaunchKernel", function, blocks, 1, 1, threads, 1, 1, shared_bytes, self._stream, parameters, None
        )

    def allocate(self, size: int) -> int:
        """The device address of so many bytes. Raises CudaError."""
        address: int = self._out("cuMemAlloc_v2", c_uint64, size)
        return address

    def copy(self, to: int, source: int, size: int) -> None:
        """Queue a copy within the device's memory."""
        self._call("cuMemcpyDtoDAsync_v2", to, source, size, self._stream)

    def wait(self) -> None:
        """Wait until everything that was queued is done."""
        self._call("cuStreamSynchronize", self._stream)

    def _attribute(self, number: int) -> int:
        value: int = self._out("cuDeviceGetAttribute", c_int, number, self.device)
        return value

    def _out(self, name: str, kind: Any, *arguments: Any) -> Any:
        value = kind()
        self._call(name, byref(value), *arguments)
        return value.value

    def _call(self, name: str, *arguments: Any) -> None:
        code = getattr(self._library, name)(*arguments)
        if code:
            words = c_char_p()
            self._library.cuGetErrorName(code, byref(words))
            raise CudaError(name, code, (words.value or b"unknown error").decode(errors="replace"))
