"""``gputop.max_batch``: the largest batch that trains, found by trying in fresh processes."""

from __future__ import annotations

import math
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Literal

from msgspec import Struct, to_builtins

from gputop.api.batch_trial import (
    CHILD_NAME,
    UNGUARDED,
    TrialResult,
    torch_gpu_bytes,
    try_size,
)
from gputop.model.clean_text import clean_text
from gputop.model.quantity import NOT_MEASURED, memory_size
from gputop.system.children import how_it_ended

Limit = Literal["memory", "time", "error", "high"]
"""Reason why no larger size was found; ``high`` is the caller's own bound."""
LIMIT_WORDS: dict[str, str] = {
    "memory": "memory ran out",
    "time": "there was no time",
    "error": "the step failed",
    "high": "it was the largest that you asked for",
}


class TriedSize(Struct, frozen=True):
    """Outcome of one batch size; ``limit`` is None where it fits.

    ``memory_bytes`` is the peak of the GPU (``memory_of``: ``GPU``) or of the process (``host``), ``step_s`` the mean
    step without the first; both are None where it does not fit.
    """

    size: int
    limit: Limit | None
    reason: str = ""
    step_s: float | None = None
    memory_bytes: float | None = None
    memory_of: str = "host"
    room_bytes: float | None = None


class BatchReport(Struct, frozen=True):
    """The largest batch that trains, the one to use, and the price of one more.

    ``best`` is the largest that ran, ``advised`` the largest that leaves ``headroom`` of the memory free; None is none.
    ``limit`` says what stopped the next size, ``reason`` in whose words. ``bytes_per_sample`` is the price of one more
    sample and ``next_bytes`` the need of the next size, from the measured sizes (None with fewer than two).
    ``print(report)`` shows them all.
    """

    best: int | None
    advised: int | None
    limit: Limit
    reason: str
    headroom: float
    next_size: int | None
    next_bytes: float | None
    bytes_per_sample: float | None
    tried: tuple[TriedSize, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON object, schema 1."""
        return {"schema": 1, **to_builtins(self)}

    def __str__(self) -> str:
        lines = [f"{'batch':>8}  {'memory':>9}  ms a step"]
        lines += [_line(tried) for tried in self.tried]
        if self.best is None:
            return "\n".join([*lines, f"no size trains: {self._stopped_words()}"]) + "\n"
        free = f"{100.0 * self.headroom:.0f} % of the memory free"
        advice = f"none leaves {free}" if self.advised is None else f"use {self.advised} ({free})"
        lines.append(f"largest batch that trains: {self.best}; {advice}")
        lines.append(f"stopped by {self.limit}: {self._stopped_words()}")
        if self.next_bytes is not None and self.next_size is not None:
            each = _size(self.bytes_per_sample)
            lines.append(
                f"{self.next_size} would take {_size(self.next_bytes)}: {each} for each sample"
            )
        return "\n".join(lines) + "\n"

    def _stopped_words(self) -> str:
        words = LIMIT_WORDS[self.limit]
        return f"{words} ({self.reason})" if self.reason else words


def _size(value: float | None) -> str:
    return NOT_MEASURED if value is None else memory_size(value)


def _line(tried: TriedSize) -> str:
    if tried.limit is not None:
        return f"{tried.size:>8}  {tried.limit}: {tried.reason or LIMIT_WORDS[tried.limit]}"
    step_ms = 1000.0 * (tried.step_s or 0.0)
    return f"{tried.size:>8}  {_size(tried.memory_bytes):>9}  {step_ms:.1f}"


def max_batch(
    step: Callable[[int], object],
    low: int = 1,
    high: int = 4096,
    *,
    multiple_of: int = 1,
    steps: int = 3,
    headroom: float = 0.1,
    timeout_s: float = 120.0,
    budget_s: float = 1800.0,
) -> BatchReport:
    """Find the largest batch from ``low`` to ``high`` that trains, by binary search.

    ``step(batch_size)`` runs a whole training step, backward and optimizer included; or it builds model and optimizer
    and returns a function without arguments that does. Each size runs ``steps`` of them, after one to settle, in a
    fresh process: an out-of-memory error never harms yours. ``step`` must be a function of a module. A size may take
    ``timeout_s``, the search ``budget_s``; ``headroom`` of the memory is left free in the advice::

        if __name__ == "__main__":
            print(gputop.max_batch(train.step, 8, 512, multiple_of=8))

    Raises ValueError for what makes no sense, RuntimeError where this process holds GPU memory.
    """
    _leave_if_fresh()
    sizes = _sizes(low, high, multiple_of)
    if steps < 1 or not 0.0 <= headroom < 1.0 or timeout_s <= 0.0 or budget_s <= 0.0:
        raise ValueError("steps must be 1 or more, headroom 0 to below 1, times above 0")
    _check_importable(step)
    held = torch_gpu_bytes()
    if held:
        raise RuntimeError(
            f"this process holds {memory_size(held)} of GPU memory, which every size would lack: "
            "run max_batch in a program of its own"
        )
    until = time.monotonic() + budget_s

    def tried(size: int) -> TriedSize:
        left_s = until - time.monotonic()
        if left_s <= 0.0:
            return TriedSize(size, "time", f"the budget of {budget_s:g} s is spent")
        return _tried_in_a_process(step, size, steps, min(timeout_s, left_s))

    return report_of(search(sizes, tried), headroom, sizes)


def _sizes(low: int, high: int, multiple_of: int) -> range:
    """Return the sizes to search. Raises ValueError."""
    if not 1 <= low <= high or multiple_of < 1:
        raise ValueError("low must be 1 or more and not above high, multiple_of 1 or more")
    first = multiple_of * math.ceil(low / multiple_of)
    if first > high:
        raise ValueError(f"there is no multiple of {multiple_of} from {low} to {high}")
    return range(first, high + 1, multiple_of)


def search(sizes: range, tried: Callable[[int], TriedSize]) -> list[TriedSize]:
    """Try sizes by halves and return the outcomes, smallest size first.

    The smallest comes first: an error of every size is found in a moment. What stops one size stops all larger ones.
    """
    smallest = tried(sizes.start)
    outcomes = [smallest]
    if smallest.limit is not None:
        return outcomes
    fitting, failing = 0, len(sizes)
    while failing - fitting > 1:
        middle = (fitting + failing) // 2
        outcome = tried(sizes[middle])
        outcomes.append(outcome)
        if outcome.limit is None:
            fitting = middle
        else:
            failing = middle
    return sorted(outcomes, key=_size_of)


def report_of(outcomes: list[TriedSize], headroom: float, sizes: range) -> BatchReport:
    """Return the report on these outcomes, which come smallest size first."""
    fitting = [outcome for outcome in outcomes if outcome.limit is None]
    failing = [outcome for outcome in outcomes if outcome.limit is not None]
    limit: Limit = "high"
    reason = ""
    next_size = None
    if failing:
        stopped = min(failing, key=_size_of)
        limit, reason, next_size = stopped.limit or "error", stopped.reason, stopped.size
    line = memory_line(fitting)
    best = max(fitting, key=_size_of).size if fitting else None
    if next_size is None and best is not None:
        next_size = best + sizes.step
    next_bytes = None
    if line is not None and next_size is not None:
        next_bytes = line.at_size(next_size)
    return BatchReport(
        best=best,
        advised=_advised(fitting, line, headroom, sizes),
        limit=limit,
        reason=reason,
        headroom=headroom,
        next_size=next_size,
        next_bytes=next_bytes,
        bytes_per_sample=None if line is None else line.per_sample,
        tried=tuple(outcomes),
    )


class MemoryLine(Struct, frozen=True):
    """Memory as a straight line over the batch size, in bytes."""

    fixed: float
    per_sample: float

    def at_size(self, size: int) -> float:
        return self.fixed + self.per_sample * size


def memory_line(fitting: Sequence[TriedSize]) -> MemoryLine | None:
    """Return the line through the smallest and the largest measured size; None with fewer than two."""
    measured = [outcome for outcome in fitting if outcome.memory_bytes is not None]
    if len(measured) < 2:
        return None
    first, last = min(measured, key=_size_of), max(measured, key=_size_of)
    grown = (last.memory_bytes or 0.0) - (first.memory_bytes or 0.0)
    per_sample = grown / (last.size - first.size)
    if per_sample <= 0.0:
        return None
    return MemoryLine((first.memory_bytes or 0.0) - per_sample * first.size, per_sample)


def _advised(
    fitting: Sequence[TriedSize], line: MemoryLine | None, headroom: float, sizes: range
) -> int | None:
    """Return the largest size that leaves the headroom: of the GPU's memory, else of what the best size took."""
    if not fitting:
        return None
    best = max(fitting, key=_size_of)
    if line is None:
        most = (1.0 - headroom) * best.size
    else:
        room = best.room_bytes or line.at_size(best.size)
        most = ((1.0 - headroom) * room - line.fixed) / line.per_sample
    size = min(best.size, math.floor(most))
    if size < sizes.start:
        return None
    return size - (size - sizes.start) % sizes.step


def _size_of(outcome: TriedSize) -> int:
    return outcome.size


def _leave_if_fresh() -> None:
    """End a fresh process that imports the program's file, where nothing guards the call."""
    from multiprocessing.process import current_process

    if current_process().name == CHILD_NAME:
        os._exit(UNGUARDED)


def _check_importable(step: object) -> None:
    """Raise ValueError for a function that a fresh process cannot import."""
    from multiprocessing.reduction import ForkingPickler

    try:
        ForkingPickler.dumps(step)
    except Exception as error:
        raise ValueError(
            f"step must be a function of a module: a fresh process imports it ({type(error).__name__}: {error})"
        ) from error
    is_in_main = getattr(step, "__module__", None) == "__main__"
    if is_in_main and not hasattr(sys.modules["__main__"], "__file__"):
        raise ValueError(
            "step must be in a file: a fresh process cannot import what was typed at a prompt"
        )


def _tried_in_a_process(
    step: Callable[[int], object], size: int, steps: int, limit_s: float
) -> TriedSize:
    """Try one size in a fresh process. Raises RuntimeError where that comes to max_batch itself."""
    import multiprocessing

    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(
        target=try_size, args=(theirs, step, size, steps, os.getpid()), name=CHILD_NAME
    )
    child.start()
    theirs.close()
    try:
        if not ours.poll(limit_s):
            return TriedSize(size, "time", f"no answer within {limit_s:g} s")
        return _outcome(size, ours.recv())
    except EOFError:
        child.join(5.0)
        return _ended(size, child.exitcode or 0)
    finally:
        _kill(child)
        ours.close()


def _outcome(size: int, result: TrialResult) -> TriedSize:
    limit: Limit | None = None
    if result.problem:
        limit = "memory" if result.problem == "memory" else "error"
    return TriedSize(
        size,
        limit,
        clean_text(result.reason),
        result.step_s,
        result.memory_bytes,
        result.memory_of,
        result.room_bytes,
    )


def _ended(size: int, status: int) -> TriedSize:
    """Return the outcome of a process that ended without a word. Raises RuntimeError."""
    if status == UNGUARDED:
        raise RuntimeError(
            'put the call of max_batch under `if __name__ == "__main__":`, because the fresh process for each size '
            "imports this file"
        )
    if status == -signal.SIGKILL:
        return TriedSize(size, "memory", "killed, as by the system when memory runs out")
    return TriedSize(size, "error", f"its process {how_it_ended(status)}")


def _kill(child: Any) -> None:
    """End a try with all that it has started."""
    with suppress(OSError):
        if os.getpgid(child.pid) == child.pid:
            os.killpg(child.pid, signal.SIGKILL)
    child.kill()
    child.join(5.0)
