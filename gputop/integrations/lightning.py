"""``Trainer(callbacks=[GputopCallback()])``: the GPUs beside Lightning's own metrics, in the trainer's own loggers."""

from __future__ import annotations

import sys
from inspect import signature
from typing import Any

try:
    from lightning.pytorch.callbacks import Callback
except ImportError:
    from pytorch_lightning.callbacks import Callback

import gputop
from gputop.api.run_summary import Summary
from gputop.api.step_clock import BatchWait
from gputop.api.watch import backward_ended


class GputopCallback(Callback):  # type: ignore[misc]
    """``log_every`` is in seconds; everything else goes to ``gputop.watch``. ``summary`` is that of the newest fit, in
    the process that has trained, and rank 0 prints it unless ``print_summary`` is False."""

    def __init__(self, log_every: float = 10.0, *, print_summary: bool = True, **watch: Any) -> None:
        super().__init__()
        self._options = {"log_every": log_every, **watch}
        self._print = print_summary
        self._watch: Any = None
        self._wait = BatchWait()
        self._fetches_itself = False
        self.summary: Summary | None = None

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        if self._watch is not None:
            self._watch.stop()
        self.summary, self._wait = None, BatchWait()
        log = self._options.get("log")
        loggers = [
            *(trainer.loggers or ()),
            *(log if isinstance(log, (list, tuple)) else () if log is None else (log,)),
        ]
        self._watch = gputop.watch(**{**self._options, "log": loggers}).start()
        self._fetches_itself = _takes_iterator(pl_module)

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        self._wait.begin()

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        self._wait.end()

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        waited_s = self._wait.take()
        self._watch.step(trainer.global_step, data_wait_s=None if self._fetches_itself else waited_s)
        self._wait.begin()

    def on_after_backward(self, trainer: Any, pl_module: Any) -> None:
        # Lightning's optimizers call forward and backward themselves, in a closure.
        backward_ended()

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        self._wait.begin()

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: Any) -> None:
        # No hook tells when it is written.
        self._wait.forget()

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        self._end(trainer)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self._end(trainer)

    def _end(self, trainer: Any) -> None:
        if self._watch is None:
            return
        watch, self._watch = self._watch, None
        watch.stop()
        self.summary = watch.summary()
        if self._print and trainer.is_global_zero:
            sys.stderr.write(f"\n{self.summary}")


def _takes_iterator(pl_module: Any) -> bool:
    """Whether its step is given the iterator: it then fetches batches unseen by any hook."""
    try:
        return "dataloader_iter" in signature(pl_module.training_step).parameters
    except (AttributeError, TypeError, ValueError):
        return True
