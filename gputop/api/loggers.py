"""Loggers told apart by what they have, so that none is imported: W&B, MLflow, TensorBoard, Lightning, any call.

A logger must not hurt the training: one that raises, or takes more than a second three times, is reported once and left
out. One that never returns cannot be stopped.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from gputop.model.text import clean_text

SLOW_S = 1.0
MOST_SLOW = 3
NOTICES = logging.getLogger("gputop")
"""Where a watch reports trouble: once, as a warning."""


class Logger:
    """One logger. ``log`` gives it numbers and texts; ``step`` is the loop's own number, or None."""

    def __init__(self, target: Any, clock: Callable[[], float] = time.monotonic) -> None:
        self._target = target
        self._clock = clock
        self._slow = 0
        self._numbers, self._text = _ways(target)
        self.broken = False

    def log(self, numbers: Mapping[str, float], texts: Mapping[str, str], step: int | None, count: int) -> None:
        """Log once. ``count`` is how many steps there were, for loggers that need a number. Never raises."""
        if self.broken or not (numbers or texts):
            return
        begun = self._clock()
        try:
            for key, text in texts.items():
                self._text(key, text, count if step is None else step)
            if numbers:
                self._numbers(dict(numbers), step, count)
        except Exception as error:  # noqa: BLE001 — somebody else's code inside of a training that must go on
            self._leave_out(f"raised {type(error).__name__}: {error}")
            return
        if self._clock() - begun > SLOW_S:
            self._slow += 1
            if self._slow >= MOST_SLOW:
                self._leave_out(f"took more than {SLOW_S:g} s {MOST_SLOW} times")

    def _leave_out(self, why: str) -> None:
        self.broken = True
        NOTICES.warning("gputop: the logger %s %s; it is left out", clean_text(_name(self._target)), clean_text(why))


def loggers_of(log: object) -> list[Logger]:
    """The loggers that ``log=`` names: one, several, or none. Raises TypeError for what cannot log."""
    if log is None:
        return []
    targets: Iterable[Any] = log if isinstance(log, (list, tuple)) else (log,)
    return [Logger(target) for target in targets]


_Numbers = Callable[[dict[str, float], "int | None", int], object]
_Text = Callable[[str, str, int], object]


def _ways(target: Any) -> tuple[_Numbers, _Text]:
    """How a logger takes numbers, and how texts."""
    text = _text_way(target)
    if callable(add := getattr(target, "add_scalar", None)):

        def scalars(numbers: dict[str, float], step: int | None, count: int) -> None:
            for key, value in numbers.items():
                add(key, value, count if step is None else step)

        return scalars, text
    if callable(metrics := getattr(target, "log_metrics", None)):
        if (run_id := _mlflow_run(target)) is not None:
            metrics = partial(metrics, run_id=run_id)
        return lambda numbers, step, count: metrics(numbers, step=count if step is None else step), text
    if callable(log := getattr(target, "log", None)):
        return lambda numbers, step, count: log(numbers, step=_step_for(log, step, count)), text
    if callable(target):
        return lambda numbers, step, count: target(numbers, _step_for(target, step, count)), text
    raise TypeError(f"cannot log to {_name(target)}: it has no log, log_metrics or add_scalar, and is not callable")


def _mlflow_run(target: Any) -> str | None:
    """The run active on this thread, if the logger is MLflow: before the first step another thread logs, and MLflow
    would begin a new run there."""
    if not (callable(active := getattr(target, "active_run", None)) and hasattr(target, "MlflowClient")):
        return None
    run = active()
    return None if run is None else str(run.info.run_id)


def _step_for(call: Any, step: int | None, count: int) -> int | None:
    """W&B drops steps smaller than its current one, so it gets only a number that the loop itself has given."""
    return step if step is not None or _is_wandb(call) else count


def _is_wandb(call: Any) -> bool:
    return (getattr(call, "__module__", None) or "").partition(".")[0] == "wandb"


def _text_way(target: Any) -> _Text:
    """How a logger takes a text: TensorBoard as text, MLflow as a tag, W&B in the run's summary; others not at all."""
    if callable(add := getattr(target, "add_text", None)):
        return lambda key, text, step: add(key, text, step)
    if callable(told := getattr(target, "log_text", None)) and not callable(getattr(target, "set_tag", None)):
        return lambda key, text, step: told({key: text}, step)
    if callable(tag := getattr(target, "set_tag", None)):
        if (run_id := _mlflow_run(target)) is not None:
            tag = partial(target.MlflowClient().set_tag, run_id)
        # MLflow allows letters, digits and these marks in the name of a tag.
        return lambda key, text, _step: tag(key.replace("/", "."), text)
    run = target if _is_wandb(type(target)) else getattr(target, "__self__", None)
    if run is not None and _is_wandb(type(run)):
        return lambda key, text, _step: run.summary.__setitem__(key, text)
    return lambda _key, _text, _step: None


def _name(target: Any) -> str:
    return str(getattr(target, "__qualname__", None) or type(target).__name__)
