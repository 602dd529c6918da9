"""Call the loggers with means and changed verdicts.

They are called every ``log_every`` seconds, on the training thread where it steps.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from gputop.api.frame_means import FrameMeans
from gputop.api.loggers import loggers_of
from gputop.api.watch_options import Options
from gputop.api.work import StepWork
from gputop.diagnosis.verdict.summary import head_of

if TYPE_CHECKING:
    from gputop.diagnosis.types import GpuDiagnosis


class LogTurn:
    """Decides when the loggers are called.

    ``due`` is set by the watcher's thread and checked by each step; the step that finds it set calls ``log``.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._lock = threading.Lock()
        self._loggers = loggers_of(options.log)
        self._means, self._means_to_read = FrameMeans(options.metrics), FrameMeans(options.metrics)
        """One for the loggers, one for ``read``."""
        self._texts: dict[str, str] = {}
        self._verdicts: dict[str, str] = {}
        self._logged_at = time.monotonic()
        self.due = False
        self.number: int | None = None
        """The loop's own number of its last step."""
        self.scalars: Mapping[str, object] = {}
        """The scalars of the loop's last step, as they were given."""

    def add(self, add_to: Callable[[FrameMeans], object]) -> None:
        """Add to the means of loggers and readers."""
        with self._lock:
            add_to(self._means)
            add_to(self._means_to_read)

    def add_verdicts(self, diagnoses: Iterable[GpuDiagnosis]) -> None:
        """Log changed verdicts as texts with the next call."""
        with self._lock:
            texts = verdict_texts(diagnoses)
            self._texts |= dict(texts.items() - self._verdicts.items())
            self._verdicts |= texts

    def read(self) -> dict[str, float]:
        """Return the means since the last call of this method."""
        with self._lock:
            return self._means_to_read.take()

    def batch_size(self, work: StepWork | None) -> float | None:
        """Return the samples of a step, if known.

        ``work`` names them, else the last ``step``.
        """
        if work is not None and work.samples is not None:
            return work.samples
        size = self.scalars.get("batch_size")
        return float(size) if isinstance(size, (int, float)) and 0 < size < float("inf") else None

    def look(self, *, steps_are_used: bool, count: int) -> None:
        """Check the time, on the watcher's thread.

        Without steps, or with ``log_thread="own"``, the loggers are called here.
        """
        if not self._loggers or time.monotonic() - self._logged_at < self._options.log_every:
            return
        if self._options.log_thread == "own" or not steps_are_used:
            self.log(count)
        else:
            self.due = True

    def log(self, count: int) -> None:
        """Call the loggers on the calling thread, after ``count`` steps."""
        self.due = False
        self._logged_at = time.monotonic()
        if not self._loggers:
            return
        with self._lock:
            numbers, texts, self._texts = self._means.take(), self._texts, {}
        numbers.update(_numbers(self.scalars))
        for logger in self._loggers:
            logger.log(numbers, texts, count if self.number is None else self.number)

    def silence(self) -> None:
        """Call no logger in a forked child.

        Its parent's lock may be held for ever.
        """
        self._lock = threading.Lock()
        self._loggers = []
        self.due = False


def _numbers(scalars: Mapping[str, object]) -> dict[str, float]:
    """Return the scalars that are numbers.

    Tensors and arrays of one value are numbers, too.
    """
    numbers = {}
    for key, given in scalars.items():
        with suppress(Exception):
            numbers[key] = float(given)  # type: ignore[arg-type]
    return numbers


def verdict_texts(diagnoses: Iterable[GpuDiagnosis]) -> dict[str, str]:
    """Return each GPU's verdict in words, by the loggers' names."""
    return {f"gputop/gpu{d.index}/verdict": head_of(d).words for d in diagnoses}
