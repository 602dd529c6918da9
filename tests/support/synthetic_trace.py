"""Traces as torch.profiler writes them, made of nothing: each with one cause of idle or wasted GPU time planted.

Times are whole microseconds, so that a timeline with one cell a microsecond is an exact oracle.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

BASE_NS = 1_780_000_000_000_000_000
MAIN = 4000
STEP_US = 20_000


class TraceMaker:
    """Collects events; ``t`` is the host's time, ``free`` when the GPU's stream is free, in microseconds."""

    def __init__(self, *, device: int = 0, sms: int = 132, stream: int = 7) -> None:
        self.events: list[dict[str, Any]] = []
        self.device, self.sms, self.stream = device, sms, stream
        self.t = 1000
        self.free = 0
        self._correlation = 100 + 1_000_000 * device

    def _event(
        self, cat: str, name: str, pid: int, tid: int, begin: int, length: int, **more: Any
    ) -> None:
        self.events.append(
            {
                "ph": "X",
                "cat": cat,
                "name": name,
                "pid": pid,
                "tid": tid,
                "ts": begin,
                "dur": length,
                **more,
            }
        )

    def span(self, name: str, begin: int, end: int, cat: str = "cpu_op", tid: int = MAIN) -> None:
        self._event(cat, name, 4000, tid, begin, end - begin)

    def steps(
        self, many: int, name: str = "ProfilerStep#{}", ahead: int | None = None
    ) -> Iterator[int]:
        """A range around each turn of a loop. ``ahead`` is how much sooner than the GPU the host ends a step."""
        for step in range(many):
            begin = self.t
            yield step
            if ahead is not None:
                self.t = max(self.t, self.free - ahead)
            self.span(name.format(step), begin, self.t, "user_annotation")

    def call(
        self, name: str, begin: int, end: int, correlation: int | None = None, tid: int = MAIN
    ) -> None:
        args = {} if correlation is None else {"cbid": 211, "correlation": correlation}
        self._event("cuda_runtime", name, 4000, tid, begin, end - begin, args=args)

    def work(
        self,
        name: str,
        begin: int,
        length: int,
        correlation: int,
        *,
        cat: str = "kernel",
        blocks: float = 2.0,
        **more: Any,
    ) -> None:
        stream = more.pop("stream", self.stream)
        args: dict[str, Any] = {"device": self.device, "stream": stream, "correlation": correlation}
        if cat == "kernel":
            args |= {
                "blocks per SM": blocks,
                "warps per SM": blocks * 8,
                "grid": [round(blocks * self.sms), 1, 1],
            }
            args |= {"est. achieved occupancy %": 40}
        self._event(cat, name, self.device, self.stream, begin, length, args=args | more)

    def launch(
        self, name: str = "void at::native::add_kernel<float>(int)", length: int = 100, **more: Any
    ) -> None:
        """One launch of 4 µs (or ``inside``) within its operator, and the kernel when the stream is free.

        That is ``latency`` (5 µs) after the launch began at the earliest.
        """
        self._correlation += 1
        host = 5 if "latency" not in more else more.pop("latency")
        inside = more.pop("inside", 4)
        op = more.pop("op", "aten::add")
        self.span(op, self.t, self.t + 6)
        call = "cudaMemcpyAsync" if more.get("cat") == "gpu_memcpy" else "cudaLaunchKernel"
        self.call(call, self.t + 1, self.t + 1 + inside, self._correlation)
        begin = max(self.t + 1 + host, self.free)
        self.work(name, begin, length, self._correlation, **more)
        self.free = begin + length
        self.t += 2 + inside

    def wait(self, op: str | None = "aten::item") -> None:
        """The host waits until the GPU is done."""
        begin = self.t
        end = max(self.t + 3, self.free + 1)
        if op:
            self.span(op, begin, end + 1)
        self.call("cudaStreamSynchronize", begin + 1, end, None)
        self.t = end + 1

    def document(self, **beside: Any) -> dict[str, Any]:
        return {
            "schemaVersion": 1,
            "deviceProperties": [
                {
                    "id": self.device,
                    "name": "NVIDIA H100 80GB HBM3",
                    "numSms": self.sms,
                    "computeMajor": 9,
                }
            ],
            **beside,
            "traceEvents": self.events,
            "traceName": "synthetic",
            "baseTimeNanoseconds": BASE_NS,
        }


Body = Callable[[TraceMaker, int], None]


def _queued(maker: TraceMaker, until: int, **kernel: Any) -> None:
    """Launches far ahead of the GPU until the stream is full up to a time."""
    maker.free = max(maker.free, maker.t + 20)
    while maker.free < until:
        maker.launch(**kernel)


def _compute(maker: TraceMaker, end: int) -> None:
    _queued(maker, end, length=500)


def _loading(maker: TraceMaker, end: int, iterator: str = "_SingleProcessDataLoaderIter") -> None:
    maker.wait(None)
    begin = maker.t
    maker.span("aten::stack", begin + 2000, begin + 7000)
    maker.span(f"enumerate(DataLoader)#{iterator}.__next__", begin, begin + 8000, "user_annotation")
    maker.t = begin + 8000
    _queued(maker, end, length=500)


def _launch_bound(maker: TraceMaker, end: int) -> None:
    while maker.t < end - 60:
        maker.launch(length=8)
        maker.t += 14


def _sync_points(maker: TraceMaker, end: int) -> None:
    while maker.t < end - 1500:
        maker.launch(length=500)
        maker.wait()
        maker.t += 400


def _allocator(maker: TraceMaker, end: int) -> None:
    while maker.t < end - 1000:
        maker.call("cudaMalloc", maker.t, maker.t + 600)
        maker.t += 600
        maker.launch(length=300)


def _copies(maker: TraceMaker, end: int) -> None:
    while maker.free < end - 1200:
        maker.launch(
            "Memcpy HtoD (Pageable -> Device)",
            600,
            cat="gpu_memcpy",
            op="aten::copy_",
            bytes=10_000_000,
        )
        maker.launch(length=500)


def _communication(maker: TraceMaker, end: int) -> None:
    seq = 0
    maker.free = max(maker.free, maker.t + 20)
    while maker.free < end - 500:
        seq += 1
        maker.launch(length=200)
        collective = {
            "Collective name": "allreduce",
            "Process Group Name": "0",
            "Seq": end * 100 + seq,
        }
        maker.launch(
            "ncclDevKernel_AllReduce_Sum_f16_RING_LL(ncclDevKernelArgs)",
            800,
            blocks=0.02,
            **collective,
        )


def _small_kernels(maker: TraceMaker, end: int) -> None:
    # Launched from graphs: no launch a kernel, so that the host is not late.
    maker._correlation += 1
    maker.call("cudaGraphLaunch", maker.t, maker.t + 20, maker._correlation)
    begin = max(maker.t + 30, maker.free)
    maker.t += 40
    while begin < end - 10:
        maker.work("void tiny_kernel<float>(int)", begin, 9, maker._correlation, blocks=0.1)
        begin += 10
    maker.free = begin


def _low_sm(maker: TraceMaker, end: int) -> None:
    _queued(maker, end, length=500, blocks=0.1, name="void serial_scan<float>(int)")


CAUSES: dict[str, tuple[Body, str]] = {
    "single_process": (_loading, "main_process"),
    "workers": (partial(_loading, iterator="_MultiProcessingDataLoaderIter"), "dataloader_wait"),
    "launch_bound": (_launch_bound, "main_process"),
    "sync_points": (_sync_points, "main_process"),
    "allocator": (_allocator, "main_process"),
    "copies": (_copies, "pcie_transfer"),
    "communication": (_communication, "communication"),
    "small_kernels": (_small_kernels, "small_kernels"),
    "low_sm": (_low_sm, "low_sm"),
    "busy": (_compute, "no_bottleneck_seen"),
}
"""Cause → what plants it in a step, and the verdict that it must get."""


def planted(cause: str, *, steps: int = 6, device: int = 0, **beside: Any) -> dict[str, Any]:
    """A trace of a job with one cause, as the file's object."""
    maker = TraceMaker(device=device)
    body, _ = CAUSES[cause]
    for _ in maker.steps(steps):
        begin = maker.t
        body(maker, max(begin, maker.free) + STEP_US)
        # A launch waits where the queue is full, without a call that says so.
        maker.t = max(maker.t, begin + 100, maker.free - 2000)
    return maker.document(**beside)


def written(path: Path, document: Any) -> Path:
    """The file of an object; gzip by its suffix."""
    text = json.dumps(document).encode()
    path.write_bytes(gzip.compress(text, 1) if path.suffix == ".gz" else text)
    return path
