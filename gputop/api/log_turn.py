"""When the loggers are called and with what: means and changes of verdicts, on the training thread where it steps."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from gputop.api.loggers import Logger, loggers_of
from gputop.api.means import Means
from gputop.api.options import Options
from gputop.api.work import Work
from gputop.diagnosis.types import full_title
from gputop.model.steps import StepRow

if TYPE_CHECKING:
    from gputop.monitor import Frame


class LogTurn:
    """``due`` is set by the watcher's thread and checked by each step; the step that finds it set calls ``log``."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._lock = threading.Lock()
        self._loggers: list[Logger] = loggers_of(options.log)
        self._means = Means(options.metrics)
        self._texts: dict[str, str] = {}
        self._verdicts: dict[int, str] = {}
        self._logged_at = time.monotonic()
        self.due = False
        self.number: int | None = None
        """The loop's own number of its last step."""
        self.scalars: Mapping[str, float] = {}
        """The scalars of the loop's last step."""

    def say_work(self, work: Work) -> None:
        """What each step does from now on."""
        with self._lock:
            self._means.work = work

    def batch_size(self, work: Work | None) -> float | None:
        """Samples a step, as ``work`` or else the last ``step`` has named them."""
        if work is not None and work.samples is not None:
            return work.samples
        size = self.scalars.get("batch_size")
        return float(size) if isinstance(size, (int, float)) and 0 < size < float("inf") else None

    def add_frame(self, frame: Frame, own_gpus: tuple[str, ...] = ()) -> None:
        """Add one frame; ``own_gpus`` are the names of those that this process computes on."""
        if not self._loggers:
            return
        with self._lock:
            self._means.add(frame)
            self._means.own_gpus = own_gpus
            for d in frame.diagnoses:
                words = full_title(d.title, d.busy_not_working)
                if self._verdicts.get(d.index) != words:
                    self._verdicts[d.index] = self._texts[f"gputop/gpu{d.index}/verdict"] = words

    def add_steps(self, rows: Iterable[StepRow]) -> None:
        """Add this process's steps."""
        with self._lock:
            self._means.add_steps(rows)

    def look(self, *, steps_are_used: bool, count: int) -> None:
        """On the watcher's thread: see whether it is time. Without steps, or where that was asked for, log here."""
        if not self._loggers or time.monotonic() - self._logged_at < self._options.log_every:
            return
        if self._options.log_thread == "own" or not steps_are_used:
            self.log(count)
        else:
            self.due = True

    def log(self, count: int) -> None:
        """Call the loggers, on the calling thread. ``count`` is how many steps there were."""
        self.due = False
        self._logged_at = time.monotonic()
        if not self._loggers:
            return
        with self._lock:
            numbers, texts = self._means.take(), self._texts
            self._texts = {}
        numbers.update(self.scalars)
        for logger in self._loggers:
            logger.log(numbers, texts, self.number, count)

    def silence(self) -> None:
        """In a forked child: no logger is called, and a lock that may be held is not waited for."""
        self._lock = threading.Lock()
        self._loggers = []
        self.due = False
