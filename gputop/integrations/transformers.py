"""``Trainer(…, callbacks=[GputopCallback()])``: the GPUs' means in every log line of a Hugging Face Trainer, and so in
whatever it reports to."""

from __future__ import annotations

import sys
from typing import Any

from transformers import TrainerCallback, __version__

import gputop
from gputop.api.loggers import NOTICES, Logger
from gputop.api.run_summary import Summary
from gputop.api.step_clock import BatchWait

_FETCHES_FIRST = tuple(map(int, __version__.split(".")[:2])) >= (4, 46)
"""Whether all batches of a step are fetched before it begins, and not in between (``Trainer.get_batch_samples``)."""
_SERVED = ("wandb", "mlflow")
"""What is given the numbers here, although it is called before."""


class GputopCallback(TrainerCallback):  # type: ignore[misc]
    """Arguments go to ``gputop.watch``. ``summary`` is that of the newest training, and rank 0 prints it unless
    ``print_summary`` is False.

    A Trainer calls what it reports to before the callbacks it is given, with the same line of numbers. So W&B and
    MLflow are also given these here, and ``attach`` is for all others.
    """

    def __init__(self, *, print_summary: bool = True, **watch: Any) -> None:
        self._watch = gputop.watch(**watch)
        self._print = print_summary
        self._wait = BatchWait()
        self._leads = False
        self._reports: dict[str, Logger] = {}
        self.summary: Summary | None = None

    def attach(self, trainer: Any) -> GputopCallback:
        """Register with a trainer before all that it reports to, which then has these numbers in its own lines; in
        place of ``callbacks=[…]``."""
        others = [callback for callback in trainer.callback_handler.callbacks if _reads_lines(callback)]
        for callback in others:
            trainer.remove_callback(callback)
        for callback in (self, *(callback for callback in others if callback is not self)):
            trainer.add_callback(callback)
        self._leads = True
        return self

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        # One that was ended by an error still runs.
        self._watch.stop()
        self.summary, self._wait = None, BatchWait()
        self._watch.start()
        # A step of the trainer is one of the optimizer: as many batches as are accumulated. The last one of an epoch
        # may be smaller.
        self._watch.work(samples=args.train_batch_size * args.gradient_accumulation_steps)
        missed = [] if self._leads else [name for name in _reporters(args) if name not in _SERVED]
        if missed and state.is_world_process_zero:
            NOTICES.warning(
                "gputop: %s gets none of these numbers, because it is called first; GputopCallback().attach(trainer) "
                "instead of callbacks=[...] changes that",
                ", ".join(missed),
            )

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
        if measured and not self._leads and state.is_world_process_zero:
            for run, target in _targets(args).items():
                if run not in self._reports:
                    self._reports[run] = Logger(target)
                self._reports[run].log(measured, {}, state.global_step, state.global_step)
        # The history holds a copy of the line, made before the callbacks are called.
        if state.log_history and state.log_history[-1].get("step") == state.global_step:
            state.log_history[-1].update(measured)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._watch.stop()
        self.summary = self._watch.summary()
        if self._print and state.is_world_process_zero:
            sys.stderr.write(f"\n{self.summary}")


def _reads_lines(callback: Any) -> bool:
    return type(callback).on_log is not TrainerCallback.on_log


def _reporters(args: Any) -> list[str]:
    """The names that ``report_to`` holds once the arguments are made."""
    names = [args.report_to] if isinstance(args.report_to, str) else list(args.report_to or ())
    return [name for name in names if name != "none"]


def _targets(args: Any) -> dict[str, Any]:
    """What the trainer's own reporters of W&B and MLflow log to, by run: those of this process, by their public
    names."""
    wandb, mlflow = sys.modules.get("wandb"), sys.modules.get("mlflow")
    names, targets = _reporters(args), {}
    if "wandb" in names and (run := getattr(wandb, "run", None)) is not None:
        targets[f"wandb {run.id}"] = run
    if "mlflow" in names and mlflow is not None and (active := mlflow.active_run()) is not None:
        targets[f"mlflow {active.info.run_id}"] = mlflow
    return targets
