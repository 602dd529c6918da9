"""One setting measured in a fork of the process that has the dataset, so that a crash costs one row.

This side samples the fork's processes at the same time: their memory, and what the workers do.
"""

from __future__ import annotations

import signal
import time

from gputop.features.loader_bench.bench_report import BenchRow, LoaderSetting
from gputop.features.loader_bench.job_process import Event, JobEndedError, JobProcess
from gputop.features.loader_bench.job_side import BatchTiming
from gputop.features.loader_bench.process_tree_meter import ProcessTreeMeter
from gputop.model.clean_text import clean_text
from gputop.model.quantity import GIB
from gputop.system.children import how_it_ended

SAMPLE_S = 0.25
MAX_REASON_CHARS = 200


def measure_setting(
    job: JobProcess,
    setting: LoaderSetting,
    seed: int,
    *,
    limit_s: float,
    max_bytes: float | None,
) -> BenchRow:
    """Measure one setting, which is ended after ``limit_s`` or beyond ``max_bytes`` of memory."""
    follower = _Follower(job, limit_s, max_bytes)
    job.ask(setting, seed)
    try:
        timing = follower.timing()
        job.stop()
    except JobEndedError as ended:
        timing = f"the process with the dataset {ended}"
    finally:
        follower.close()
    if isinstance(timing, str):
        return BenchRow(setting, failed=timing)
    meter = follower.meter
    if meter is None:
        return BenchRow(setting, failed="its process was never seen")
    return BenchRow(
        setting,
        1000.0 * timing.batch_s,
        timing.error_pct,
        timing.first_s,
        timing.batches,
        meter.memory_bytes,
        meter.read_bytes_per_s,
        meter.shares(),
    )


class _Follower:
    """Events of one measurement, with samples of its processes between them."""

    def __init__(self, job: JobProcess, limit_s: float, max_bytes: float | None) -> None:
        self._job, self._limit_s, self._max_bytes = job, limit_s, max_bytes
        self.meter: ProcessTreeMeter | None = None

    def timing(self) -> BatchTiming | str:
        """Return the result, or the reason why there is none. Raises JobEndedError."""
        until = time.monotonic() + self._limit_s
        while time.monotonic() < until:
            event = self._job.next_event(SAMPLE_S)
            if event is None:
                if self._takes_too_much():
                    return self._memory_words()
                continue
            answer = self._answer(event)
            if answer is not None:
                return answer
        return f"stopped: no answer within {self._limit_s:.0f} s"

    def close(self) -> None:
        if self.meter is not None:
            self.meter.close()

    def _answer(self, event: Event) -> BatchTiming | str | None:
        """Return what an event says of the result; None for a step on the way."""
        kind = event["event"]
        if kind == "started":
            self.meter = ProcessTreeMeter(event["pid"])
        elif kind == "drained" and self.meter is not None:
            self.meter.begin()
        elif kind == "timed":
            if self.meter is not None:
                # Not before: reading the memory of processes slows them down.
                self.meter.sample(None)
                self.meter.measure_memory()
            return BatchTiming(
                event["first_s"], event["batch_s"], event["error_pct"], event["batches"]
            )
        elif kind == "failed":
            return reason_of(event)
        elif kind == "ended":
            return _end_words(event["status"])
        return None

    def _takes_too_much(self) -> bool:
        if self.meter is None:
            return False
        self.meter.sample(self._max_bytes)
        memory_bytes = self.meter.memory_bytes
        if self._max_bytes is None or memory_bytes is None:
            return False
        return memory_bytes > self._max_bytes

    def _memory_words(self) -> str:
        gib = (self._max_bytes or 0.0) / GIB
        return f"stopped: it took more than the {gib:.1f} GiB of the free memory that it may have"


def _end_words(status: int) -> str:
    words = f"its process {how_it_ended(status)}"
    if status == -signal.SIGKILL:
        words += ", as the system does when memory runs out"
    return words


def reason_of(event: Event) -> str:
    """Return the words for an error in the dataset."""
    kind, first, last = event["kind"], event["first"], event["last"]
    if event["no_shm"]:
        return (
            "shared memory ran out: enlarge /dev/shm (docker run --shm-size=8g), or fewer workers"
        )
    # A worker's error is a traceback as text, whose last line names the error.
    line = last if first.startswith("Caught") else first
    return error_words(kind, line, MAX_REASON_CHARS)


def error_words(kind: str, line: str, most: int) -> str:
    """Return an error's type and a line of its text as one clean line."""
    parts = [part for part in (kind, line) if part]
    return clean_text(": ".join(parts))[:most]
