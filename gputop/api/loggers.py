"""Log numbers and texts to the loggers of a job.

W&B, MLflow, TensorBoard, Lightning, Accelerate and any call differ by their attributes, so that none is imported. A
logger that raises, or takes more than a second three times, is reported once and left out. One that never returns
cannot be stopped.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from msgspec import Struct

from gputop.api.user_calls import error_of
from gputop.api.watch_options import NOTICES
from gputop.model.clean_text import clean_text, error_words

SLOW_S = 1.0
MOST_SLOW = 3
MOST_WAITING_ROWS = 3
"""How many times numbers may replace others in an open W&B row, or find no run, until that is reported."""
STEP = "gputop/step"
"""The loop's own number in W&B, which is given no step of its own."""
Numbers = Mapping[str, float]
Texts = Mapping[str, str]


class Sink(Struct, frozen=True):
    """One way to log; its calls raise whatever the logger raises.

    ``is_ready`` says whether there is anything to log to; texts wait until there is.
    """

    put_numbers: Callable[[Numbers, int], object]
    put_texts: Callable[[Texts, int], object] = lambda _texts, _step: None
    is_ready: Callable[[], bool] = lambda: True


class Logger:
    """One logger of a watch."""

    def __init__(self, target: Any, clock: Callable[[], float] = time.monotonic) -> None:
        self._target, self._clock = target, clock
        self._sink = sink_of(target)
        self._slow = 0
        self._texts: dict[str, str] = {}
        """Texts that wait for a run to log to."""
        self._texts_broken = False
        self.broken = False

    def log(self, numbers: Numbers, texts: Texts, step: int) -> None:
        """Log once, numbers first. Raises nothing but Ctrl+C.

        A text that fails costs the texts alone.
        """
        self._texts.update(texts)
        if self.broken or not (numbers or self._texts):
            return
        begun = self._clock()
        error = error_of(lambda: self._log(numbers, step))
        if error is not None:
            self.broken = True
            self._report(f"raised {error_words(error)}; it is left out")
        elif self._clock() - begun > SLOW_S:
            self._slow += 1
            if self._slow >= MOST_SLOW:
                self.broken = True
                self._report(f"took more than {SLOW_S:g} s {MOST_SLOW} times; it is left out")

    def _log(self, numbers: Numbers, step: int) -> None:
        if not self._sink.is_ready():
            return
        if numbers:
            self._sink.put_numbers(numbers, step)
        texts, self._texts = self._texts, {}
        if texts and not self._texts_broken:
            error = error_of(lambda: self._sink.put_texts(texts, step))
            if error is not None:
                self._texts_broken = True
                self._report(f"raised {error_words(error)} for a text; it gets numbers only")

    def _report(self, words: str) -> None:
        name = str(getattr(self._target, "__qualname__", None) or type(self._target).__name__)
        NOTICES.warning("gputop: the logger %s %s", clean_text(name), clean_text(words))


def loggers_of(log: object) -> list[Logger]:
    """Return the loggers that ``log=`` names. Raises TypeError."""
    return [Logger(target) for target in targets_of(log)]


def targets_of(log: object) -> Iterable[Any]:
    """Return what ``log=`` names."""
    return log if isinstance(log, (list, tuple)) else () if log is None else (log,)


def sink_of(target: Any) -> Sink:
    """Return the way to log to a target. Raises TypeError."""
    if (find_run := _wandb_run(target)) is not None:
        run = WandbRun(find_run)
        return Sink(run.put_numbers, run.put_texts, run.is_ready)
    if isinstance(getattr(target, "trackers", None), (list, tuple)) and callable(
        getattr(target, "log", None)
    ):
        trackers = Trackers(target)
        return Sink(trackers.put_numbers, trackers.put_texts, lambda: bool(target.trackers))
    if callable(getattr(target, "add_scalar", None)):
        return Sink(partial(_scalars_to, target), partial(texts_to, target))
    if hasattr(target, "MlflowClient") and callable(getattr(target, "active_run", None)):
        mlflow = Mlflow(target)
        return Sink(mlflow.put_numbers, mlflow.put_texts, mlflow.is_ready)
    if callable(log := getattr(target, "log_metrics", None) or getattr(target, "log", None)):
        return Sink(
            lambda numbers, step: log(dict(numbers), step=step), partial(_texts_to_logger, target)
        )
    if callable(target):
        return Sink(lambda numbers, step: target(dict(numbers), step))
    raise TypeError(
        f"cannot log to {type(target).__name__}: it has no log, log_metrics or add_scalar, and is not callable"
    )


def _scalars_to(writer: Any, numbers: Numbers, step: int) -> None:
    """Log numbers to a SummaryWriter of TensorBoard, or a logger with its methods."""
    for key, value in numbers.items():
        writer.add_scalar(key, value, step)


def _texts_to_logger(target: Any, texts: Texts, step: int) -> None:
    """Log texts to a logger as Lightning's, or to the run, writer or client that it wraps."""
    if callable(log_texts := getattr(target, "log_texts", None)):
        log_texts(dict(texts), step)
    elif callable(set_tag := getattr(target, "set_tag", None)):
        for key, text in texts.items():
            set_tag(_tag_name(key), text)
    elif hasattr(type(target), "experiment"):
        # Asked for when there is a text: that begins a run.
        texts_to(target.experiment, texts, step, getattr(target, "run_id", None))


class Mlflow:
    """The module of MLflow.

    Each thread has an active run of its own, and begins one when it logs without. Before the first step the watch's own
    thread logs: it uses the run that was active on another thread, or waits.
    """

    def __init__(self, module: Any) -> None:
        self._module = module
        self._run_id = self._active()

    def is_ready(self) -> bool:
        self._run_id = self._active() or self._run_id
        return self._run_id is not None or threading.current_thread() is threading.main_thread()

    def put_numbers(self, numbers: Numbers, step: int) -> None:
        run = {} if self._run_id is None else {"run_id": self._run_id}
        self._module.log_metrics(dict(numbers), step=step, **run)

    def put_texts(self, texts: Texts, step: int) -> None:
        run_id = self._run_id or self._active()
        if run_id is not None:
            texts_to(self._module.MlflowClient(), texts, step, run_id)

    def _active(self) -> str | None:
        run = self._module.active_run()
        return None if run is None else str(run.info.run_id)


class WandbRun:
    """A run of W&B that may begin after the watch and end before it.

    A run counts its rows and drops rows of a smaller step, so a row that gputop ends moves the loop's own axis. Numbers
    go into the row that the loop's ``log`` ends next, without a step; the charts are drawn over the loop's number. Only
    where the loop hands its own numbers to ``step`` and logs nothing itself does gputop end the rows.
    """

    def __init__(self, find_run: Callable[[], Any]) -> None:
        self._find_run = find_run
        self._run: Any = None
        self._row: object = None
        """The run's count when numbers were put into its row last."""
        self._replaced = self._missed = 0

    def is_ready(self) -> bool:
        if (run := self._find_run()) is None:
            self._missed += self._run is None
            if self._missed == MOST_WAITING_ROWS:
                NOTICES.warning(
                    "gputop: W&B has no run yet, so nothing is logged: call wandb.init()"
                )
            return False
        if run is not self._run:
            self._run, self._row = run, None
            run.define_metric("gputop/*", step_metric=STEP)
        try:
            # Raises at once on a finished run, for whose count W&B would wait for 30 s.
            run.log({}, commit=False)
        except Exception as error:
            if type(error).__name__ != "UsageError":
                raise
            return False
        return True

    def put_numbers(self, numbers: Numbers, step: int) -> None:
        row = getattr(self._run, "step", None)
        if row is not None and row == self._row:
            row = self._end_row(numbers, row)
        self._row = row
        self._run.log({**numbers, STEP: step}, commit=False)

    def _end_row(self, numbers: Numbers, row: Any) -> Any:
        """Make room for new numbers where the loop has ended no row.

        Returns the run's count.
        """
        if any(not key.startswith("gputop/") and key != "batch_size" for key in numbers):
            self._run.log({}, commit=True)
            return row + 1
        self._replaced += 1
        if self._replaced == MOST_WAITING_ROWS:
            NOTICES.warning(
                "gputop: the loop has logged nothing to the W&B run for a while, and only the newest numbers go into "
                "its next row: log the loss in the loop, or give it to step(loss=…)"
            )
        return row

    def put_texts(self, texts: Texts, step: int) -> None:
        texts_to(self._run, texts, step)


class Trackers:
    """The trackers of an Accelerator, which may come after the watch."""

    def __init__(self, accelerator: Any) -> None:
        self._accelerator = accelerator
        self._wandb: dict[int, WandbRun] = {}

    def put_numbers(self, numbers: Numbers, step: int) -> None:
        for tracker in self._accelerator.trackers:
            run = getattr(tracker, "tracker", None)
            if not _is_wandb(type(run)):
                tracker.log(dict(numbers), step=step)
                continue
            sink = self._wandb.setdefault(id(run), WandbRun(lambda run=run: run))  # type: ignore[misc]
            if sink.is_ready():
                sink.put_numbers(numbers, step)

    def put_texts(self, texts: Texts, step: int) -> None:
        for tracker in self._accelerator.trackers:
            texts_to(getattr(tracker, "tracker", None), texts, step)


def texts_to(inner: Any, texts: Texts, step: int, run_id: str | None = None) -> None:
    """Log texts to W&B's summary, TensorBoard's texts or MLflow's tags.

    ``inner`` is the run, writer or client that a logger wraps; any other gets no texts.
    """
    if _is_wandb(type(inner)):
        for key, text in texts.items():
            inner.summary[key] = text
    elif callable(getattr(inner, "add_text", None)):
        for key, text in texts.items():
            inner.add_text(key, text, step)
    elif run_id is not None and callable(getattr(inner, "set_tag", None)):
        for key, text in texts.items():
            inner.set_tag(run_id, _tag_name(key), text)
    elif (mlflow := sys.modules.get("mlflow")) is not None and hasattr(
        getattr(inner, "info", None), "run_id"
    ):
        texts_to(mlflow.MlflowClient(), texts, step, inner.info.run_id)


def _wandb_run(target: Any) -> Callable[[], Any] | None:
    """Return a function that finds the run of W&B that is meant.

    A run, its ``log`` and the module mean one; anything else gives None. Before ``wandb.init()`` the module's ``log``
    is a function that only raises: it means the run to come.
    """
    for run in (target, getattr(target, "__self__", None)):
        if _is_wandb(type(run)) and callable(getattr(run, "log", None)):
            return lambda: run
    if getattr(target, "__name__", None) == "wandb" or (_is_wandb(target) and callable(target)):
        return lambda: getattr(sys.modules.get("wandb"), "run", None)
    return None


def _is_wandb(item: Any) -> bool:
    return (getattr(item, "__module__", None) or "").partition(".")[0] == "wandb"


def _tag_name(key: str) -> str:
    """Return a name without a slash, which MLflow forbids in tags."""
    return key.replace("/", ".")
