"""Watch Lightning: ``Trainer(callbacks=[GputopCallback()])``.

The GPUs' numbers are beside Lightning's own metrics, in the trainer's own loggers.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

try:
    from lightning.pytorch.callbacks import Callback
except ImportError:
    from pytorch_lightning.callbacks import Callback

import gputop
from gputop.api.loggers import targets_of
from gputop.api.run_summary import Summary
from gputop.api.watch import backward_ended
from gputop.integrations.shared import BatchWait, ended

FETCH = "[_TrainingEpochLoop].train_dataloader_next"
"""The name under which Lightning tells its profiler that it fetches a batch."""


class GputopCallback(Callback):  # type: ignore[misc]
    """Watches a fit; arguments go to ``gputop.watch``.

    ``log_every`` is in seconds. ``summary`` is of the newest fit, in the process that has trained, and rank 0 prints it
    unless ``print_summary`` is False.
    """

    def __init__(
        self, log_every: float = 10.0, *, print_summary: bool = True, **watch: Any
    ) -> None:
        super().__init__()
        self._options = {"log_every": log_every, **watch}
        self._print = print_summary
        self._watch: Any = None
        self._wait = BatchWait()
        self._forget_profiler: Callable[[], None] | None = None
        self.summary: Summary | None = None

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        self._stop()
        self.summary, self._wait = None, BatchWait()
        loggers = [*(trainer.loggers or ()), *targets_of(self._options.get("log"))]
        self._watch = gputop.watch(**{**self._options, "log": loggers}).start()
        self._forget_profiler = _time_fetches(trainer.profiler, self._wait)

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self._watch.step(trainer.global_step, data_wait_s=self._wait.take())

    def on_after_backward(self, trainer: Any, pl_module: Any) -> None:
        # Lightning's optimizers call forward and backward themselves, in a closure.
        backward_ended()

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        self._end(trainer)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self._end(trainer)

    def _stop(self) -> Any:
        """Stop the watch of a fit; return it, or None where none runs."""
        watch, self._watch = self._watch, None
        forget, self._forget_profiler = self._forget_profiler, None
        if forget is not None:
            forget()
        if watch is not None:
            watch.stop()
        return watch

    def _end(self, trainer: Any) -> None:
        watch = self._stop()
        if watch is not None:
            self.summary = ended(watch, prints=self._print and trainer.is_global_zero)


def _time_fetches(profiler: Any, wait: BatchWait) -> Callable[[], None]:
    """Time the loader's own calls; return a function that ends it.

    Lightning tells its profiler of each.
    """
    start, stop = profiler.start, profiler.stop

    def timed_start(name: str) -> None:
        start(name)
        if name == FETCH:
            wait.begin()

    def timed_stop(name: str) -> None:
        if name == FETCH:
            wait.end()
        stop(name)

    def forget() -> None:
        if profiler.start is timed_start:
            with suppress(AttributeError):
                del profiler.start, profiler.stop

    profiler.start, profiler.stop = timed_start, timed_stop
    return forget
