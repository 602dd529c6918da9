"""The program that copies: each visible GPU from and to the host, and to each other GPU, timed by CUDA's own events.

It says ``Copied`` of each link as soon as it is measured. Copies are of 64 MiB, so that nothing stays queued for long
however it ends.
"""

from __future__ import annotations

import sys
from ctypes import POINTER, c_float, c_int, c_size_t, c_uint, c_uint64, c_void_p
from statistics import median
from typing import Any

from gputop.features.prove.cuda_child import CudaError, CudaLibrary, run_child
from gputop.features.prove.experiment import AllCopied, Copied, Ready
from gputop.system.dialogue import say

_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "cuDeviceGetCount": (POINTER(c_int),),
    "cuDeviceGet": (POINTER(c_int), c_int),
    "cuDeviceCanAccessPeer": (POINTER(c_int), c_int, c_int),
    "cuCtxCreate_v2": (POINTER(c_void_p), c_uint, c_int),
    "cuCtxSetCurrent": (c_void_p,),
    "cuCtxEnablePeerAccess": (c_void_p, c_uint),
    "cuMemAlloc_v2": (POINTER(c_uint64), c_size_t),
    "cuMemAllocHost_v2": (POINTER(c_void_p), c_size_t),
    "cuMemcpyHtoDAsync_v2": (c_uint64, c_void_p, c_size_t, c_void_p),
    "cuMemcpyDtoHAsync_v2": (c_void_p, c_uint64, c_size_t, c_void_p),
    "cuMemcpyPeerAsync": (c_uint64, c_void_p, c_uint64, c_void_p, c_size_t, c_void_p),
    "cuStreamCreate": (POINTER(c_void_p), c_uint),
    "cuEventCreate": (POINTER(c_void_p), c_uint),
    "cuEventRecord": (c_void_p, c_void_p),
    "cuEventSynchronize": (c_void_p,),
    "cuEventElapsedTime": (POINTER(c_float), c_void_p, c_void_p),
}
COPIED_BYTES = 64 << 20
COPIES, BATCHES = 4, 3
"""A batch is timed as one; of the batches the median counts, after one that warms up."""
_PEER_ALREADY = 704
_BLOCKING_SYNC = 1


class _Device:
    """A GPU's context with one buffer and what times its copies."""

    def __init__(self, number: int, context: Any, stream: Any, buffer: int, events: tuple[Any, Any]) -> None:
        self.number, self.context, self.stream, self.buffer, self.events = number, context, stream, buffer, events


class Copier:
    """Every visible GPU, ready to copy. Raises CudaError."""

    def __init__(self) -> None:
        self._library = CudaLibrary(_SIGNATURES)
        self.devices = [self._device(number) for number in range(self._library.out("cuDeviceGetCount", c_int))]
        self._host = self._library.out("cuMemAllocHost_v2", c_void_p, COPIED_BYTES)

    def to_host(self, device: _Device) -> float:
        """Bytes a second from a GPU into the host's pinned memory."""
        return self._timed(device, "cuMemcpyDtoHAsync_v2", self._host, device.buffer, COPIED_BYTES, device.stream)

    def from_host(self, device: _Device) -> float:
        """Bytes a second from the host's pinned memory into a GPU."""
        return self._timed(device, "cuMemcpyHtoDAsync_v2", device.buffer, self._host, COPIED_BYTES, device.stream)

    def between(self, source: _Device, target: _Device) -> tuple[float, bool]:
        """Bytes a second from one GPU into another, and whether they reach each other directly."""
        direct = bool(self._library.out("cuDeviceCanAccessPeer", c_int, source.number, target.number))
        if direct:
            self._library.call("cuCtxSetCurrent", source.context)
            try:
                self._library.call("cuCtxEnablePeerAccess", target.context, 0)
            except CudaError as error:
                if error.code != _PEER_ALREADY:
                    raise
        rate = self._timed(
            source, "cuMemcpyPeerAsync", target.buffer, target.context, source.buffer, source.context, COPIED_BYTES,
            source.stream,
        )  # fmt: skip
        return rate, direct

    def _device(self, number: int) -> _Device:
        device = self._library.out("cuDeviceGet", c_int, number)
        context = self._library.out("cuCtxCreate_v2", c_void_p, 4, device)
        stream = self._library.out("cuStreamCreate", c_void_p, 1)
        buffer = self._library.out("cuMemAlloc_v2", c_uint64, COPIED_BYTES)
        events = tuple(self._library.out("cuEventCreate", c_void_p, _BLOCKING_SYNC) for _ in range(2))
        return _Device(device, context, stream, buffer, (events[0], events[1]))

    def _timed(self, device: _Device, name: str, *arguments: Any) -> float:
        self._library.call("cuCtxSetCurrent", device.context)
        begun, ended = device.events
        rates = []
        for _ in range(1 + BATCHES):
            self._library.call("cuEventRecord", begun, device.stream)
            for _ in range(COPIES):
                self._library.call(name, *arguments)
            self._library.call("cuEventRecord", ended, device.stream)
            self._library.call("cuEventSynchronize", ended)
            spent_ms = self._library.out("cuEventElapsedTime", c_float, begun, ended)
            rates.append(COPIES * COPIED_BYTES / max(1e-6, spent_ms / 1e3))
        return float(median(rates[1:]))


def _copies() -> None:
    copier = Copier()
    say(Ready())
    for at, device in enumerate(copier.devices):
        say(Copied(None, at, copier.from_host(device), True))
        say(Copied(at, None, copier.to_host(device), True))
    for at, source in enumerate(copier.devices):
        for to, target in enumerate(copier.devices):
            if to != at:
                rate, direct = copier.between(source, target)
                say(Copied(at, to, rate, direct))
    say(AllCopied())
    # Until what was said is read: an end of its own would look like a failure.
    sys.stdin.buffer.read()


def main() -> int:
    return run_child(_copies)


if __name__ == "__main__":
    sys.exit(main())
