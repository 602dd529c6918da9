"""``Trainer(…, callbacks=[GputopCallback()])``: the GPUs' means in every log line of a Hugging Face Trainer, and so in
whatever it reports to."""

from __future__ import annotations

import sys
from inspect import currentframe
from typing import Any

from transformers import TrainerCallback, __version__
from transformers.trainer_callback import CallbackHandler

import gputop
from gputop.api.run_summary import Summary
from gputop.api.step_clock import BatchWait
from gputop.api.watch_options import NOTICES

_FETCHES_FIRST = tuple(map(int, __version__.split(".")[:2])) >= (4, 46)
"""Whether all batches of a step are fetched before it begins, and not in between (``Trainer.get_batch_samples``)."""


class GputopCallback(TrainerCallback):  # type: ignore[misc]
    """Arguments go to ``gputop.watch``. ``summary`` is that of the newest training, and rank 0 prints it unless
    ``print_summary`` is False.

    A Trainer calls what it reports to before the callbacks that it is given, with the same line of numbers: this one
    goes before them when the training begins, or with ``attach``.
    """

    def __init__(self, *, print_summary: bool = True, **watch: Any) -> None:
        self._watch = gputop.watch(**watch)
        self._print = print_summary
        self._wait = BatchWait()
        self._leads = False
        self.summary: Summary | None = None

    def attach(self, trainer: Any) -> GputopCallback:
        """Register with a trainer, in place of ``callbacks=[…]``."""
        trainer.add_callback(self)
        self._lead(trainer.callback_handler)
        return self

    def _lead(self, handler: CallbackHandler) -> None:
        """Stand before all that read a line of numbers, which they then find in it."""
        others = [callback for callback in handler.callbacks if callback is not self]
        readers = [callback for callback in others if type(callback).on_log is not TrainerCallback.on_log]
        handler.callbacks = [*(callback for callback in others if callback not in readers), self, *readers]
        self._leads = True

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        # One that was ended by an error still runs.
        self._watch.stop()
        self.summary, self._wait = None, BatchWait()
        self._watch.start()
        # A step of the trainer is one of the optimizer: as many batches as are accumulated. The last one of an epoch
        # may be smaller.
        self._watch.work(samples=args.train_batch_size * args.gradient_accumulation_steps)
        handler = _calling_handler()
        if handler is not None:
            self._lead(handler)
        elif not self._leads and state.is_world_process_zero:
            NOTICES.warning("gputop: what this trainer reports to gets none of these numbers; use "
                            "GputopCallback().attach(trainer) in place of callbacks=[...]")  # fmt: skip

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._wait.begin()

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._wait.end()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        waited_s = self._wait.take()
        wait_is_known = _FETCHES_FIRST or args.gradient_accumulation_steps == 1
        self._watch.step(state.global_step, data_wait_s=waited_s if wait_is_known else None)
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


def _calling_handler() -> CallbackHandler | None:
    """The trainer's list of callbacks, which is calling and is given to no hook; None where something else calls."""
    frame = currentframe()
    while frame is not None and not isinstance(frame.f_locals.get("self"), CallbackHandler):
        frame = frame.f_back
    return None if frame is None else frame.f_locals["self"]
