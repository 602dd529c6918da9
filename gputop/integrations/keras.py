"""Watch Keras: ``model.fit(…, callbacks=[GputopCallback()])``.

The GPUs' means are in Keras' logs at the end of each epoch.
"""

from __future__ import annotations

from math import nan
from typing import Any

import keras
from keras.callbacks import Callback, CallbackList

import gputop
from gputop.api.run_summary import Summary
from gputop.integrations.shared import BatchWait, VerdictTexts, calling, ended


class GputopCallback(Callback):  # type: ignore[misc]
    """Watches a training; arguments go to ``gputop.watch``.

    ``summary`` is of the newest training, and is printed unless ``print_summary`` is False. The wait of a step for its
    batch is known only with PyTorch as the backend: the others fetch it between the hooks of one batch.
    """

    def __init__(self, *, print_summary: bool = True, **watch: Any) -> None:
        super().__init__()
        self._watch = gputop.watch(**watch)
        self._print = print_summary
        self.summary: Summary | None = None
        self._begin()

    def _begin(self) -> None:
        self.summary = None
        self._steps = self._epochs = 0
        self._keys: dict[str, None] = {}
        """The names of all means so far, in the order of their first epoch."""
        self._wait, self._texts = BatchWait(), VerdictTexts()
        self._reporters: list[Any] = []

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        # One that was ended by an error still runs.
        self._watch.stop()
        self._begin()
        self._watch.start()
        callbacks = calling(CallbackList)
        if callbacks is not None:
            self._reporters = [call for call in callbacks.callbacks if not isinstance(call, _Fetch)]
            if keras.backend.backend() == "torch":
                fetch = _Fetch(self._wait)
                callbacks.callbacks = [fetch, *self._reporters, fetch]

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        self._steps += 1
        self._watch.step(self._steps, data_wait_s=self._wait.take())

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        if logs is None:
            return
        means = self._watch.metrics()
        history = getattr(getattr(self.model, "history", None), "history", {})
        for key in means.keys() - self._keys.keys():
            # Every list of the history has an entry for each epoch.
            history.setdefault(key, [nan] * self._epochs)
        self._keys.update(dict.fromkeys(means))
        logs.update({key: means.get(key, nan) for key in self._keys})
        # Keras' own callbacks can only handle numbers in the logs.
        for name, words in self._texts.put(self._watch, self._reporters, self._steps).items():
            history.setdefault(name, [""] * self._epochs).append(words)
        self._epochs += 1

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        self._watch.stop()
        self.summary = ended(self._watch, prints=self._print)


class _Fetch(Callback):  # type: ignore[misc]
    """Both the first and the last callback of a list: batches are fetched in between."""

    def __init__(self, wait: BatchWait) -> None:
        super().__init__()
        self._wait = wait

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._wait.begin()

    def on_train_batch_begin(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        self._wait.end()

    on_train_batch_end = on_epoch_begin
