"""``model.fit(…, callbacks=[GputopCallback()])``: the GPUs' means in Keras' logs at the end of each epoch."""

from __future__ import annotations

import sys
from typing import Any

import keras
from keras.callbacks import Callback

import gputop
from gputop.api.run_summary import Summary
from gputop.api.step_clock import BatchWait


class GputopCallback(Callback):  # type: ignore[misc]
    """Arguments go to ``gputop.watch``. ``summary`` is that of the newest training, and is printed unless
    ``print_summary`` is False. The wait of a step for its batch is known only with PyTorch as the backend: the
    others fetch it between the hooks of one batch."""

    def __init__(self, *, print_summary: bool = True, **watch: Any) -> None:
        super().__init__()
        self._watch = gputop.watch(**watch)
        self._print = print_summary
        self._steps = 0
        self._wait = BatchWait()
        self.summary: Summary | None = None

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        # One that was ended by an error still runs.
        self._watch.stop()
        self.summary, self._steps, self._wait = None, 0, BatchWait()
        self._watch.start()

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._await_batch()

    def on_train_batch_begin(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        self._wait.end()

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        self._steps += 1
        self._watch.step(self._steps, data_wait_s=self._wait.take())
        self._await_batch()

    def _await_batch(self) -> None:
        if keras.backend.backend() == "torch":
            self._wait.begin()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        if logs is not None:
            logs.update(self._watch.metrics())

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        self._watch.stop()
        self.summary = self._watch.summary()
        if self._print:
            sys.stderr.write(f"\n{self.summary}")
