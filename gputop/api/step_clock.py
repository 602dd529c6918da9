"""Steps as they end: one append each, worked out once a second on another thread."""

from __future__ import annotations

import sys
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from math import inf
from time import perf_counter
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from gputop.api.step_phases import PhaseSampler
from gputop.diagnosis.thresholds import NOTICED_WAIT, SLOW_APART, SLOW_STEP, WARM_UP_FACTOR
from gputop.model.quantity import step_time
from gputop.model.snapshot import value
from gputop.model.steps import StepRow

if TYPE_CHECKING:
    from gputop.model.snapshot import HostSample


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
        ended = [waiting.popleft() for _ in range(len(waiting))]
        self.wait_s = self.data_wait_s = None
        if not ended:
            return []
        ends = [end[0] if isinstance(end, tuple) else end for end in ended]
        self.count += len(ends)
        begins = ends[:-1] if last is None else [last, *ends[:-1]]
        if self.explicit:
            self._last = ends[-1]
        else:
            self._hooked_last = ends[-1]
        # Steps may end on several threads, slightly out of order.
        lengths = [max(0.0, end - begin) for begin, end in zip(begins, ends[len(ends) - len(begins) :], strict=True)]
        with_waits = [end for end in ended[len(ends) - len(begins) :] if isinstance(end, tuple)]
        if with_waits and len(with_waits) == len(lengths):
            self.wait_s = _sum_of([wait for _, wait, _ in with_waits], lengths)
            self.data_wait_s = _sum_of([wait for _, _, wait in with_waits], lengths)
        return lengths


def _time(seconds: object) -> float | None:
    """Seconds that a program has measured; None for what is not a time."""
    try:
        value = float(seconds)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError, RuntimeError):
        return None
    return value if 0.0 <= value < inf else None


def _sum_of(waits: list[float | None], lengths: list[float]) -> float | None:
    """The waits of steps of these lengths; None unless each is known. A wait is cut to the
    length of its steps, since both clocks may differ slightly."""
    measured = [wait for wait in waits if wait is not None]
    if len(measured) < len(lengths):
        return None
    return sum(min(wait, length) for wait, length in zip(measured, lengths, strict=True))


def row_of(
    lengths: list[float],
    pid: int,
    rank: int | None,
    name: str,
    samples: float | None = None,
    wait_s: float | None = None,
    data_wait_s: float | None = None,
    tokens: float | None = None,
    run: str | None = None,
) -> StepRow | None:
    """The row that announces these steps of a run, each of so many ``samples`` and ``tokens``, the waits all together;
    None without any that took time."""
    if not lengths or sum(lengths) <= 0.0:
        return None
    # The numbers as the datagram carries them, so that all listeners get the same.
    ordered = [float(f"{length:.6g}") for length in sorted(lengths)]
    middle = ordered[(len(ordered) - 1) // 2]
    late = ordered[min(len(ordered) - 1, int(QUANTILE_P99 * len(ordered)))]
    total = float(f"{sum(ordered):.6g}")
    taken, step_tokens = (
        None if amount is None else float(f"{amount * len(ordered):.6g}") for amount in (samples, tokens)
    )
    waited, data = (None if wait is None else min(total, float(f"{wait:.6g}")) for wait in (wait_s, data_wait_s))
    return StepRow(
        pid,
        rank,
        None,
        name,
        len(ordered),
        total,
        ordered[0],
        ordered[-1],
        middle,
        late,
        taken,
        waited,
        data,
        step_tokens,
        run=run,
    )


# The spread of a process's steps, and what the machine did while the slow ones ran.

MOST_KEPT = 20_000
"""Step lengths kept; beyond that every second one is dropped, so that the whole run stays represented."""
LEAST_STEPS = 100
WARM_UP = 30
"""Steps among which the warm-up is looked for."""
_SIGNS = (
    ("psi_cpu_pct", "tasks waited for a core", "%"),
    ("psi_io_pct", "tasks waited for the disk", "%"),
    ("psi_mem_pct", "tasks waited for memory", "%"),
    ("cpu_pct", "the cores were busy", "%"),
)


class StepSummary(Struct, frozen=True):
    """The steps of this process: how many, and their mean, median and 99th percentile in seconds, the warm-up left out.

    ``slow_words`` says what the machine did in the slow ones, where that differs. ``data_wait_s`` is the mean wait for
    a batch and ``data_wait_pct`` its share of the steps, ``wait_s`` and ``wait_pct`` are those for other ranks; all
    None where the program does not say it.
    """

    count: int
    mean_s: float
    p50_s: float
    p99_s: float
    slow_words: str = ""
    data_wait_s: float | None = None
    data_wait_pct: float | None = None
    wait_s: float | None = None
    wait_pct: float | None = None

    @property
    def wait_words(self) -> str:
        """The wait for other ranks; empty where it is not known."""
        if self.wait_s is None or self.wait_pct is None:
            return ""
        return f"waits {step_time(self.wait_s)} of each step for others ({self.wait_pct:.0f} %)"

    @property
    def data_words(self) -> str:
        """The wait for batches; empty where it is not known."""
        if self.data_wait_s is None or self.data_wait_pct is None:
            return ""
        text = f"waits {step_time(self.data_wait_s)} of each step for its batch ({self.data_wait_pct:.0f} %)"
        remedy = "; gputop loader finds how many workers it takes"
        return text + (remedy if self.data_wait_pct >= 100.0 * NOTICED_WAIT else "")


class StepTail:
    """Takes the lengths of steps with what the host showed about then."""

    def __init__(self) -> None:
        self._steps: list[tuple[float, tuple[float | None, ...]]] = []
        self._every = 1
        self._count = 0
        self._waits = [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]
        """Over the steps whose waits for batches, and for others, are known: seconds waited, seconds in all, number of
        steps."""

    def add(
        self,
        lengths: Sequence[float],
        host: HostSample | None,
        data_wait_s: float | None = None,
        wait_s: float | None = None,
    ) -> None:
        """The steps of about a second, the host's newest sample, and how long they waited for batches and for others
        in all."""
        for sums, waited_s in zip(self._waits, (data_wait_s, wait_s), strict=True):
            if waited_s is not None:
                for place, amount in enumerate((waited_s, sum(lengths), len(lengths))):
                    sums[place] += amount
        signs = tuple(None if host is None else value(host, key) for key, _, _ in _SIGNS)
        for length in lengths:
            self._count += 1
            if self._count % self._every == 0:
                self._steps.append((length, signs))
        if len(self._steps) > MOST_KEPT:
            self._steps = self._steps[::2]
            self._every *= 2

    def summary(self, count: int) -> StepSummary | None:
        """Mean, median and 99th percentile without the warm-up; None without steps. ``count`` is how many ended."""
        steps = self._warm()
        if not steps:
            return None
        from statistics import median

        lengths = sorted(length for length, _ in steps)
        p50 = median(lengths)
        p99 = lengths[min(len(lengths) - 1, int(0.99 * len(lengths)))]
        words = self._slow_words(steps, p50, p99) if len(steps) >= LEAST_STEPS and p99 > SLOW_STEP * p50 else ""
        waited: list[float | None] = []
        for wait_s, of_s, told in self._waits:
            waited += (wait_s / told, 100.0 * wait_s / of_s) if told and of_s > 0.0 else (None, None)
        return StepSummary(count, sum(lengths) / len(lengths), p50, p99, words, *waited)

    def _warm(self) -> list[tuple[float, tuple[float | None, ...]]]:
        early = self._steps[:WARM_UP]
        if not early:
            return []
        from statistics import median

        usual = median(length for length, _ in early)
        first = next((i for i, (length, _) in enumerate(early) if length <= WARM_UP_FACTOR * usual), 0)
        return self._steps[first:]

    def _slow_words(self, steps: Sequence[tuple[float, tuple[float | None, ...]]], p50: float, p99: float) -> str:
        text = f"slow steps: the 99th percentile is {step_time(p99)}, {p99 / p50:.1f} × the median"
        signs_found = []
        for place, (_, words, unit) in enumerate(_SIGNS):
            slow = [signs[place] for length, signs in steps if length > SLOW_STEP * p50]
            rest = [signs[place] for length, signs in steps if length <= SLOW_STEP * p50]
            of_slow, of_rest = _mean(slow), _mean(rest)
            if of_slow is not None and of_rest is not None and of_slow - of_rest >= SLOW_APART:
                signs_found.append(f"{words} {of_slow:.0f} {unit} ({of_rest:.0f} {unit} otherwise)")
        return (
            f"{text}; in them {', '.join(signs_found)}"
            if signs_found
            else f"{text}; the machine looked no different in them"
        )


def _mean(values: Sequence[float | None]) -> float | None:
    measured = [value for value in values if value is not None]
    return sum(measured) / len(measured) if measured else None


# Steps of a PyTorch loop without a line in it: torch's own hook after any optimizer's step. torch is never imported
# here, and nothing of it is patched.

_MODULE = "torch.optim.optimizer"
_AFTER = "register_optimizer_step_post_hook", "_global_optimizer_post_hooks"
_BEFORE = "register_optimizer_step_pre_hook", "_global_optimizer_pre_hooks"
"""How each kind of hook is registered, and torch's table of those that are."""


class TorchHook:
    """Calls ``ended`` after each step of the optimizer that steps first; others are accumulation or a second model."""

    def __init__(self, ended: Callable[[], None], phases: PhaseSampler | None = None) -> None:
        self._ended = ended
        self._phases = phases
        self._first: weakref.ref[Any] | None = None
        self._handles: list[Any] = []

    @property
    def registered(self) -> bool:
        return bool(self._handles)

    def register(self, *, on_training_thread: bool) -> bool:
        """Register with torch where it is imported; True where that is done.

        From another thread only while torch has no such hook: it goes through its hooks without a lock, and a new one
        would end that loop with an error in the training. Going through none is a single step of the interpreter.
        """
        module: Any = sys.modules.get(_MODULE)
        hooks = [(self._hook, *_AFTER)] if self._phases is None else [(self._hook, *_AFTER), (self._begins, *_BEFORE)]
        registrations = [(hook, getattr(module, register, None), table) for hook, register, table in hooks]
        if self._handles or not all(callable(register) for _, register, _ in registrations):
            return self.registered
        if not on_training_thread and any(getattr(module, table, True) for _, _, table in registrations):
            return False
        self._handles = [register(hook) for hook, register, _ in registrations if register is not None]
        return True

    def remove(self) -> None:
        """Remove the hooks; on the training thread."""
        handles, self._handles = self._handles, []
        for handle in handles:
            handle.remove()
        if self._phases is not None:
            self._phases.stop()

    def _begins(self, optimizer: Any, _args: object, _kwargs: object) -> None:
        if self._phases is not None and self._first is not None and self._first() is optimizer and not is_compiling():
            self._phases.optimizer_begins()

    def _hook(self, optimizer: Any, _args: object, _kwargs: object) -> None:
        if is_compiling():
            # torch.compile would break its graph for the clock, and warn of it: such steps are not counted here.
            return
        first = self._first() if self._first is not None else None
        if first is None:
            self._first = weakref.ref(optimizer)
        elif first is not optimizer:
            return
        self._ended()
        if self._phases is not None:
            self._phases.optimizer_ended()


def is_compiling() -> bool:
    """Whether torch.compile traces this very call; torch folds the answer into what it compiles."""
    compiler = sys.modules.get("torch.compiler")
    return compiler is not None and bool(compiler.is_compiling())


# How long a framework's loop waits for its batches, by the hooks that it calls before and after it fetches one.


class BatchWait:
    """Measures from the last hook before a fetch to the first one after it. What other callbacks and loggers do in
    between is included; what is known to take long, such as writing a checkpoint, makes the wait unknown."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._waited_s: float | None = None

    def begin(self) -> None:
        """A hook after which the next batch is fetched; the last one counts."""
        self._since = perf_counter()

    def forget(self) -> None:
        """Something else takes time before the next batch: the wait becomes unknown."""
        self._since = None

    def end(self) -> None:
        """The batch is there."""
        self._waited_s = None if self._since is None else perf_counter() - self._since
        self._since = None

    def take(self) -> float | None:
        """The wait for the newest batch, in seconds, once; None where it is not known."""
        waited_s, self._waited_s = self._waited_s, None
        return waited_s
