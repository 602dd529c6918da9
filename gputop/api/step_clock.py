"""Count and time the steps of a loop.

The training thread appends the end of each step; the rest happens once a second on another thread.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from itertools import pairwise
from math import inf
from time import perf_counter
from typing import Any

from msgspec import Struct

from gputop.model.steps import StepRow

MOST_WAITING = 1 << 18
"""Ends of steps waiting to be worked out; a loop with more per second loses the oldest."""
QUANTILE_P99 = 0.99
_End = tuple[float, object, object]
"""When a step ended, and how long it waited for others and for its batch, as the program says."""


class EndedSteps(Struct, frozen=True):
    """Steps that have ended, by their lengths in seconds.

    ``wait_s`` and ``data_wait_s`` are how long they waited for others and for their batches in all; None unless each
    step has said so.
    """

    lengths: list[float]
    wait_s: float | None = None
    data_wait_s: float | None = None


class StepClock:
    """Takes the ends of steps from the training thread.

    A step lasts from one end to the next, so the first has no length. The loop calls ``end``, an optimizer's hook calls
    ``end_by_hook``; once the loop calls the former, only that counts.
    """

    def __init__(self) -> None:
        self._ends: deque[_End] = deque(maxlen=MOST_WAITING)
        self._hooked: deque[_End] = deque(maxlen=MOST_WAITING)
        self._last: dict[bool, float] = {}
        """The end of the last step that was worked out, of the loop's and of the hook's."""
        self.append_end = self._ends.append
        self.append_hooked = self._hooked.append
        self.explicit = False
        """Whether the loop counts its steps itself."""
        self.count = 0
        """Steps that were worked out, the first included."""

    def silence(self) -> None:
        """Count nothing any more: a forked child's steps are not the parent's."""
        self.append_end = self.append_hooked = lambda _end: None

    @property
    def used(self) -> bool:
        """Whether any step has ended yet."""
        return self.explicit or bool(self._hooked) or self.count > 0

    @property
    def total(self) -> int:
        """Steps that have ended until now."""
        return self.count + len(self._ends if self.explicit else self._hooked)

    def end(self, wait_s: float | None = None, data_wait_s: float | None = None) -> None:
        """End one step of the loop, with its waits.

        ``wait_s`` is for others, ``data_wait_s`` for its batch, in seconds; any other value is ignored.
        """
        self.explicit = True
        self.append_end((perf_counter(), wait_s, data_wait_s))

    def end_by_hook(self) -> None:
        """One step has ended; for the optimizer's hook."""
        if not self.explicit:
            self.append_hooked((perf_counter(), None, None))

    def ended(self) -> EndedSteps:
        """The steps that have ended since the last call."""
        waiting = self._ends if self.explicit else self._hooked
        if self.explicit and self._hooked:
            # What the hook counted before the loop began to: the same steps.
            self._hooked.clear()
            self.count = 0
        if not (ends := [waiting.popleft() for _ in range(len(waiting))]):
            return EndedSteps([])
        self.count += len(ends)
        before = self._last.get(self.explicit)
        self._last[self.explicit] = ends[-1][0]
        if before is None:
            before = ends.pop(0)[0]
        # Steps may end on several threads, slightly out of order.
        lengths = [
            max(0.0, end - begin) for begin, end in pairwise([before, *(end for end, _, _ in ends)])
        ]
        waits = ([wait for _, wait, _ in ends], [wait for _, _, wait in ends])
        return EndedSteps(lengths, *(_sum_of(list(map(_time, told)), lengths) for told in waits))


def _time(seconds: object) -> float | None:
    """Return seconds that a program has measured; None for nonsense."""
    with suppress(TypeError, ValueError, OverflowError, RuntimeError):
        if 0.0 <= (value := float(seconds)) < inf:  # type: ignore[arg-type]
            return value
    return None


def _sum_of(waits: list[float | None], lengths: list[float]) -> float | None:
    """Return the sum of waits; None unless each is known.

    A wait is cut to the length of its step, since both clocks may differ slightly.
    """
    measured = [
        min(wait, length) for wait, length in zip(waits, lengths, strict=True) if wait is not None
    ]
    return sum(measured) if measured and len(measured) == len(lengths) else None


def row_of(
    ended: EndedSteps, samples: float | None = None, tokens: float | None = None, **who: Any
) -> StepRow | None:
    """Return the row that announces these steps.

    Each step has so many ``samples`` and ``tokens``. ``who`` are the row's ``pid``, ``rank``, ``name`` and ``run``.
    None without a step that took time.
    """
    if sum(ended.lengths) <= 0.0:
        return None
    # The numbers as the datagram carries them, so that all listeners get the same.
    ordered = [_short(length) for length in sorted(ended.lengths)]
    many, total = len(ordered), _short(sum(ordered))
    wait_s, data_wait_s = (
        None if waited is None else min(total, _short(waited))
        for waited in (ended.wait_s, ended.data_wait_s)
    )
    return StepRow(
        gpu=None,
        count=many,
        sum_s=total,
        min_s=ordered[0],
        max_s=ordered[-1],
        p50_s=ordered[(many - 1) // 2],
        p99_s=ordered[min(many - 1, int(QUANTILE_P99 * many))],
        samples=None if samples is None else _short(samples * many),
        wait_s=wait_s,
        data_wait_s=data_wait_s,
        tokens=None if tokens is None else _short(tokens * many),
        **who,
    )


def _short(value: float) -> float:
    return float(f"{value:.6g}")
