"""Watch Hugging Face: ``Trainer(…, callbacks=[GputopCallback()])``.

The GPUs' means are in every log line, and so in whatever the trainer reports to.
"""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback, __version__
from transformers.trainer_callback import CallbackHandler

import gputop
from gputop.api.run_summary import Summary
from gputop.api.watch_options import NOTICES
from gputop.integrations.shared import BatchWait, VerdictTexts, calling, ended

_FETCHES_FIRST = tuple(map(int, __version__.split(".")[:2])) >= (4, 46)
"""Whether all batches of a step are fetched before it begins, and not in between (``Trainer.get_batch_samples``)."""


class GputopCallback(TrainerCallback):  # type: ignore[misc]
    """Watches a training; arguments go to ``gputop.watch``.

    ``summary`` is of the newest training, and rank 0 prints it unless ``print_summary`` is False. A Trainer calls its
    reporters before the callbacks that it is given, with the same line of numbers: this one goes before them when the
    training begins, or with ``attach``.
    """

    def __init__(self, *, print_summary: bool = True, **watch: Any) -> None:
        self._watch = gputop.watch(**watch)
        self._print = print_summary
        self._wait, self._texts = BatchWait(), VerdictTexts()
        self._reporters: list[Any] = []
        self._leads = self._knows_wait = False
        self.summary: Summary | None = None

    def attach(self, trainer: Any) -> GputopCallback:
        """Register with a trainer, in place of ``callbacks=[…]``."""
        trainer.add_callback(self)
        self._lead(trainer.callback_handler)
        return self

    def _lead(self, handler: CallbackHandler) -> None:
        """Move before all reporters, and around the fetch of a batch."""
        others = [
            call for call in handler.callbacks if call is not self and not isinstance(call, _Fetch)
        ]
        self._reporters = [
            call for call in others if type(call).on_log is not TrainerCallback.on_log
        ]
        rest = [call for call in others if call not in self._reporters]
        fetch = _Fetch(self._wait)
        handler.callbacks = [fetch, *rest, self, *self._reporters, fetch]
        self._leads = True

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        # One that was ended by an error still runs.
        self._watch.stop()
        self.summary, self._wait, self._texts = None, BatchWait(), VerdictTexts()
        self._watch.start()
        # A step of the trainer is one of the optimizer: as many batches as are accumulated. The last one of an epoch
        # may be smaller.
        self._watch.work(samples=args.train_batch_size * args.gradient_accumulation_steps)
        # Between several ranks the trainer also counts tokens, and waits for the others, before the step begins.
        asks_others = getattr(args, "average_tokens_across_devices", False) and args.world_size > 1
        self._knows_wait = (
            _FETCHES_FIRST or args.gradient_accumulation_steps == 1
        ) and not asks_others
        handler = calling(CallbackHandler)
        if handler is not None:
            self._lead(handler)
        elif not self._leads and state.is_world_process_zero:
            NOTICES.warning(
                "gputop: what this trainer reports to gets none of these numbers; use "
                "GputopCallback().attach(trainer) in place of callbacks=[...]"
            )

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        waited_s = self._wait.take()
        self._watch.step(state.global_step, data_wait_s=waited_s if self._knows_wait else None)

    def on_log(
        self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any
    ) -> None:
        if logs is None:
            return
        # The order of callbacks is the order of their registration: those after this one see these numbers too.
        measured = self._watch.metrics()
        logs.update(measured)
        reporters = self._reporters if state.is_world_process_zero else []
        texts = self._texts.put(self._watch, reporters, state.global_step)
        # The history holds a copy of the line, made before the callbacks are called.
        if state.log_history and state.log_history[-1].get("step") == state.global_step:
            state.log_history[-1].update({**measured, **texts})

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._watch.stop()
        self.summary = ended(self._watch, prints=self._print and state.is_world_process_zero)


class _Fetch(TrainerCallback):  # type: ignore[misc]
    """Both the first and the last callback of a list: batches are fetched in between."""

    def __init__(self, wait: BatchWait) -> None:
        self._wait = wait

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._wait.begin()

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._wait.end()

    on_step_end = on_log = on_evaluate = on_save = on_epoch_begin
