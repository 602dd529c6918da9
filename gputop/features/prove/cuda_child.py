"""What the programs that use CUDA share: the driver's library, and how they end.

Programs of their own, because a CUDA error is permanent for its process.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Mapping
from ctypes import POINTER, byref, c_char_p, c_int, c_uint
from typing import Any

from gputop.features.prove.experiment import CudaFailed
from gputop.system.dialogue import say

LIBRARY = "libcuda.so.1"
_ALWAYS: Mapping[str, tuple[Any, ...]] = {"cuInit": (c_uint,), "cuGetErrorName": (c_int, POINTER(c_char_p))}


class CudaError(Exception):
    """A call of the driver library that failed; ``code`` is its CUresult, None where the library lacks something."""

    def __init__(self, call: str, code: int | None, words: str) -> None:
        super().__init__(f"{call}: {words}" if code is None else f"{call}: {words} ({code})")
        self.code = code
        self._arguments = (call, code, words)

    def __reduce__(self) -> tuple[Any, ...]:
        # Pickle and copy would call the constructor with the finished words alone.
        return type(self), self._arguments


class CudaLibrary:
    """The calls of the CUDA driver library with these signatures, by ctypes. No toolkit, no PyTorch."""

    def __init__(self, signatures: Mapping[str, tuple[Any, ...]]) -> None:
        """Raises CudaError."""
        try:
            self._library = ctypes.CDLL(LIBRARY)
        except OSError:
            raise CudaError(LIBRARY, None, "not found: it comes with NVIDIA's driver") from None
        for name, types in {**_ALWAYS, **signatures}.items():
            function = getattr(self._library, name, None)
            if function is None:
                raise CudaError(name, None, "is not in this driver's libcuda")
            function.argtypes, function.restype = types, c_int
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


def run_child(work: Callable[[], None]) -> int:
    """Work until that ends, as a program. Returns its exit status where something fails."""
    try:
        work()
    except CudaError as error:
        say(CudaFailed(str(error)))
        return 1
    # Contexts are left to the kernel, which frees them faster than libcuda does.
    os._exit(0)
