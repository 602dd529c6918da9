"""Steps as they end: one append each, worked out once a second on another thread."""

from __future__ import annotations

from collections import deque
from math import inf
from time import perf_counter

from gputop.model.steps import StepRow

MOST_WAITING = 1 << 18
"""Ends of steps waiting to be worked out; a loop with more per second loses the oldest."""
QUANTILE_P99 = 0.99


class StepClock:
    """Takes the ends of steps from the training thread. A step lasts from one end to the next: the first has no length.

    ``end`` is what the loop calls, ``end_by_hook`` what an optimizer's hook calls; once the
    loop calls the former, only that counts.
    """

    def __init__(self) -> None:
        self._ends: deque[float | tuple[float, float | None, float | None]] = deque(maxlen=MOST_WAITING)
        self._hooked: deque[float] = deque(maxlen=MOST_WAITING)
        self._last: float | None = None
        self.wait_s: float | None = None
        """How long the steps that ``lengths`` gave last waited for others; None unless each has said so."""
        self.data_wait_s: float | None = None
        """The same for their batches."""
        self._hooked_last: float | None = None
        self.append_end = self._ends.append
        self.append_hooked = self._hooked.append
        self.explicit = False
        """Whether the loop counts its steps itself."""
        self.count = 0
        """Steps that were worked out, the first included."""

    def silence(self) -> None:
        """Count nothing any more: a forked child's steps are not the parent's."""
        self.append_end = lambda _end: None
        self.append_hooked = lambda _end: None

    @property
    def used(self) -> bool:
        """Whether any step has ended yet."""
        return self.explicit or bool(self._hooked) or self.count > 0

    @property
    def total(self) -> int:
        """Steps that have ended until now."""
        return self.count + len(self._ends if self.explicit else self._hooked)

    def end(self) -> None:
        """One step has ended; for the loop."""
        self.explicit = True
        self.append_end(perf_counter())

    def end_with_waits(self, wait_s: float | None, data_wait_s: float | None) -> None:
        """One step has ended, with its waits for others and for its batch; values that are not times are ignored."""
        self.explicit = True
        self.append_end((perf_counter(), _time(wait_s), _time(data_wait_s)))

    def end_by_hook(self) -> None:
        """One step has ended; for the optimizer's hook."""
        if not self.explicit:
            self.append_hooked(perf_counter())

    def lengths(self) -> list[float]:
        """The lengths of the steps that have ended since the last call, in seconds."""
        waiting, last = (self._ends, self._last) if self.explicit else (self._hooked, self._hooked_last)
        if self.explicit and self._hooked:
            # What the hook counted before the loop began to: the same steps.
            self._hooked.clear()
            self.count = 0
        given = [waiting.popleft() for _ in range(len(waiting))]
        self.wait_s = self.data_wait_s = None
        if not given:
            return []
        ends = [end[0] if isinstance(end, tuple) else end for end in given]
        self.count += len(ends)
        begins = ends[:-1] if last is None else [last, *ends[:-1]]
        if self.explicit:
            self._last = ends[-1]
        else:
            self._hooked_last = ends[-1]
        # Steps may end on several threads, slightly out of order.
        lengths = [max(0.0, end - begin) for begin, end in zip(begins, ends[len(ends) - len(begins) :], strict=True)]
        told = [end for end in given[len(ends) - len(begins) :] if isinstance(end, tuple)]
        if told and len(told) == len(lengths):
            self.wait_s = _sum_of([wait for _, wait, _ in told], lengths)
            self.data_wait_s = _sum_of([wait for _, _, wait in told], lengths)
        return lengths


def _time(seconds: float | None) -> float | None:
    """Seconds that a program has measured; None for what is not a time."""
    return float(seconds) if seconds is not None and 0.0 <= seconds < inf else None


def _sum_of(waits: list[float | None], lengths: list[float]) -> float | None:
    """The waits of steps of these lengths; None unless each is known. A wait is cut to the
    length of its steps, since both clocks may differ slightly."""
    known = [wait for wait in waits if wait is not None]
    if len(known) < len(lengths):
        return None
    return sum(min(wait, length) for wait, length in zip(known, lengths, strict=True))


def row_of(
    lengths: list[float],
    pid: int,
    rank: int | None,
    name: str,
    samples: float | None = None,
    wait_s: float | None = None,
    data_wait_s: float | None = None,
) -> StepRow | None:
    """The row that announces these steps, each of so many ``samples``, the waits all together; None without any that
    took time."""
    if not lengths or sum(lengths) <= 0.0:
        return None
    # The numbers as the datagram carries them, so that all listeners get the same.
    ordered = [float(f"{length:.6g}") for length in sorted(lengths)]
    middle = ordered[(len(ordered) - 1) // 2]
    late = ordered[min(len(ordered) - 1, int(QUANTILE_P99 * len(ordered)))]
    total = float(f"{sum(ordered):.6g}")
    taken = None if samples is None else float(f"{samples * len(ordered):.6g}")
    waited, data = (None if wait is None else min(total, float(f"{wait:.6g}")) for wait in (wait_s, data_wait_s))
    return StepRow(
        pid, rank, None, name, len(ordered), total, ordered[0], ordered[-1], middle, late, taken, waited, data
    )
