"""The program that runs the kernels: `python -m gputop.proof.child`; stdin says which stage to run.

A JSON line of stdin names a stage: ``{"kind": "spin", "blocks": 33}``, or kind ``idle``, ``tiny``, ``copy``. It answers
with ``ready`` once, ``beat`` as long as it lives, and ``error``. The end of stdin ends it, and so does its parent's
death. Each launch lasts 20 ms, so that nothing stays on the GPU however it ends.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import threading
from time import monotonic

from gputop.proof.cuda import Cuda, CudaError
from gputop.proof.ptx import KERNELS, SPIN, TINY

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
        self.wanted: dict[str, object] | None = {"kind": "idle"}
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        for line in sys.stdin.buffer:
            try:
                self.wanted = json.loads(line)
            except ValueError:
                continue
            self.changed.set()
        self.wanted = None
        self.changed.set()


def say(what: str, **more: object) -> None:
    """Write one JSON line to stdout. If the reader has gone, this process ends."""
    try:
        os.write(1, json.dumps({"t": what, **more}).encode() + b"\n")
    except OSError:
        os._exit(0)


def run(cuda: Cuda, stages: Stages) -> None:
    """Run the wanted stages until the end. Raises CudaError."""
    spin, tiny = cuda.function(SPIN, cuda.shared_bytes), cuda.function(TINY)
    buffers: list[int] = []
    said_at = float("-inf")
    while (stage := stages.wanted) is not None:
        kind = stage.get("kind")
        if monotonic() - said_at >= BEAT_S:
            said_at = monotonic()
            say("beat", kind=kind)
        if kind == "spin":
            for _ in range(QUEUED):
                cuda.launch(spin, int(str(stage["blocks"])), THREADS, cuda.shared_bytes, SPIN_NS, MOST_CYCLES)
        elif kind == "tiny":
            for _ in range(TINY_QUEUED):
                cuda.launch(tiny, 1, 32)
        elif kind == "copy":
            buffers = buffers or [cuda.allocate(COPIED_BYTES), cuda.allocate(COPIED_BYTES)]
            for _ in range(COPIES_QUEUED):
                cuda.copy(buffers[0], buffers[1], COPIED_BYTES)
        else:
            stages.changed.wait(BEAT_S)
            stages.changed.clear()
            continue
        cuda.wait()


def main() -> int:
    parent = os.getppid()
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    if os.getppid() != parent:
        return 1
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        cuda = Cuda(KERNELS)
        say("ready", multiprocessors=cuda.multiprocessors, cuda=cuda.version, memory_bytes=2 * COPIED_BYTES)
        run(cuda, Stages())
    except CudaError as error:
        say("error", why=str(error), code=error.code)
        return 1
    # The context is left to the kernel, which frees it faster than libcuda does.
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
