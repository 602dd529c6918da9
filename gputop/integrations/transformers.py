"""``Trainer(…, callbacks=[GputopCallback()])``: the GPUs' means in every log line of a Hugging Face Trainer, and so in
whatever it reports to."""

from __future__ import annotations

import sys
from typing import Any

from transformers import TrainerCallback, __version__

import gputop
from gputop.api.run_summary import Summary
from gputop.api.step_clock import BatchWait

_FETCHES_FIRST = tuple(map(int, __version__.split(".")[:2])) >= (4, 46)
"""Whether all batches of a step are fetched before it begins, and not in between (``Trainer.get_batch_samples``)."""


class GputopCallback(TrainerCallback):  # type: ignore[misc]
    """Arguments go to ``gputop.watch``. ``summary`` is there after the training, and rank 0 prints it unless
    ``print_summary`` is False."""

    def __init__(self, *, print_summary: bool = True, **watch: Any) -> None:
        self._watch = gputop.watch(**watch)
        self._print = print_summary
        self._wait = BatchWait()
        self.summary: Summary | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._watch.start()
        # A step of the trainer is one of the optimizer: as many batches as are accumulated. The last one of an epoch
        # may be smaller.
        self._watch.work(samples=args.train_batch_size * args.gradient_accumulation_steps)

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._wait.begin()

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._wait.end()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        waited_s = self._wait.take()
        known = _FETCHES_FIRST or args.gradient_accumulation_steps == 1
        self._watch.step(state.global_step, data_wait_s=waited_s if known else None)
        self._wait.begin()

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._wait.begin()

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._wait.begin()

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any) -> None:
        self._wait.begin()
        if logs is None:
            return
        # The order of callbacks is the order of their registration: those after this one see these numbers too.
        measured = self._watch.metrics()
        logs.update(measured)
        # The history holds a copy of the line, made before the callbacks are called.
        if state.log_history and state.log_history[-1].get("step") == state.global_step:
            state.log_history[-1].update(measured)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._watch.stop()
        self.summary = self._watch.summary()
        if self._print and state.is_world_process_zero:
            sys.stderr.write(f"\n{self.summary}")
