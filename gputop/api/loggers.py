"""What a job's own loggers are given, and how: W&B, MLflow, TensorBoard, Lightning, or any call."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from gputop.api.work import StepWork, rates_of
from gputop.model.quantity import clean_text, error_words
from gputop.model.snapshot import value
from gputop.model.steps import Phase, StepRow

if TYPE_CHECKING:
    from gputop.monitor import Frame

# Calls into code that is not ours, in a process that must go on whatever that code raises.


def error_of(call: Callable[[], object]) -> BaseException | None:
    """Call it, and return what it raised: SystemExit or a test framework's outcome must end neither the training nor
    gputop's thread. Ctrl+C is meant for the program, and Python raises it on its main thread alone: there it passes.
    """
    try:
        call()
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
            raise
        return error
    return None


# Loggers told apart by what they have, so that none is imported: W&B, MLflow, TensorBoard, Lightning, any call.
#
# A logger must not hurt the training: one that raises, or takes more than a second three times, is reported once and
# left out. One that never returns cannot be stopped.

SLOW_S = 1.0
MOST_SLOW = 3
MOST_WAITING_ROWS = 3
"""How many times numbers may replace others in a W&B row that is still open before that is reported."""
STEP = "gputop/step"
"""The loop's own number in W&B, which is given no step of its own."""
NOTICES = logging.getLogger("gputop")
"""Where a watch reports trouble: once, as a warning."""


class Logger:
    """One logger, which is given numbers and texts."""

    def __init__(self, target: Any, clock: Callable[[], float] = time.monotonic) -> None:
        self._target = target
        self._clock = clock
        self._slow = 0
        self._numbers, self._text = _ways(target)
        self.broken = False
        self._texts_broken = False

    def log(self, numbers: Mapping[str, float], texts: Mapping[str, str], step: int) -> None:
        """Log once, numbers first: a text that fails costs the texts alone. Raises nothing but Ctrl+C."""
        if self.broken or not (numbers or texts):
            return
        begun = self._clock()
        if numbers:
            error = error_of(lambda: self._numbers(dict(numbers), step))
            if error is not None:
                self.broken = True
                self._report(f"raised {error_words(error)}; it is left out")
                return
        if texts and not self._texts_broken:
            error = error_of(lambda: [self._text(key, text, step) for key, text in texts.items()])
            if error is not None:
                self._texts_broken = True
                self._report(f"raised {error_words(error)} for a text; it gets numbers only")
        if self._clock() - begun > SLOW_S:
            self._slow += 1
            if self._slow >= MOST_SLOW:
                self.broken = True
                self._report(f"took more than {SLOW_S:g} s {MOST_SLOW} times; it is left out")

    def _report(self, words: str) -> None:
        NOTICES.warning("gputop: the logger %s %s", clean_text(_name(self._target)), clean_text(words))


def loggers_of(log: object) -> list[Logger]:
    """The loggers that ``log=`` names: one, several, or none. Raises TypeError for what cannot log."""
    if log is None:
        return []
    targets: Iterable[Any] = log if isinstance(log, (list, tuple)) else (log,)
    return [Logger(target) for target in targets]


_Numbers = Callable[[dict[str, float], int], object]
_Text = Callable[[str, str, int], object]


def _ways(target: Any) -> tuple[_Numbers, _Text]:
    """How a logger takes numbers, and how texts, each with the step."""
    if (run := _wandb_run(target)) is not None:
        return _WandbRow(run).log, _to_summary(run)
    if isinstance(getattr(target, "trackers", None), (list, tuple)) and callable(getattr(target, "log", None)):
        return _Trackers(target).log, _no_text
    text = _text_way(target)
    if callable(add := getattr(target, "add_scalar", None)):
        return lambda numbers, step: [add(key, value, step) for key, value in numbers.items()], text
    if callable(metrics := getattr(target, "log_metrics", None)):
        if (run_id := _mlflow_run(target)) is not None:
            metrics = partial(metrics, run_id=run_id)
        return lambda numbers, step: metrics(numbers, step=step), text
    if callable(log := getattr(target, "log", None)):
        return lambda numbers, step: log(numbers, step=step), text
    if callable(target):
        return target, text
    raise TypeError(f"cannot log to {_name(target)}: it has no log, log_metrics or add_scalar, and is not callable")


class _WandbRow:
    """Puts numbers into the row that the loop's own ``wandb.log`` ends next.

    A run counts its rows, drops those of a smaller step, and each row that gputop ended would move the loop's own axis
    by one, or lose its rows where it numbers them itself. So no row is ended here, and no step is given: the loop's
    number is a value of its own, which the charts of these numbers are drawn over.
    """

    def __init__(self, run: Any) -> None:
        self._run = run
        self._axis_said = False
        self._at: object = None
        """The run's count when numbers were put into its row last."""
        self._replaced = 0

    def log(self, numbers: dict[str, float], step: int) -> None:
        if not self._axis_said:
            self._axis_said = True
            self._run.define_metric("gputop/*", step_metric=STEP)
        at = getattr(self._run, "step", None)
        if at is not None and at == self._at:
            self._replaced += 1
            if self._replaced == MOST_WAITING_ROWS:
                NOTICES.warning(
                    "gputop: the loop has logged nothing to the W&B run for a while, and only the newest numbers go "
                    "into its next row; where the loop never logs: log=lambda numbers, step: run.log(numbers)"
                )
        self._at = at
        self._run.log({**numbers, STEP: step}, commit=False)


class _Trackers:
    """An Accelerator: each of its trackers, as they are at the time, since they come after it was made."""

    def __init__(self, accelerator: Any) -> None:
        self._accelerator = accelerator
        self._rows: dict[int, _WandbRow] = {}

    def log(self, numbers: dict[str, float], step: int) -> None:
        for tracker in self._accelerator.trackers:
            run = _wandb_run(getattr(tracker, "tracker", None))
            if run is not None:
                self._rows.setdefault(id(run), _WandbRow(run)).log(numbers, step)
            else:
                tracker.log(numbers, step=step)


def _mlflow_run(target: Any) -> str | None:
    """The run active on this thread, if the logger is MLflow: before the first step another thread logs, and MLflow
    would begin a new run there."""
    if not (callable(active := getattr(target, "active_run", None)) and hasattr(target, "MlflowClient")):
        return None
    run = active()
    return None if run is None else str(run.info.run_id)


def _wandb_run(target: Any) -> Any:
    """The run of W&B that is meant by a run, by its ``log``, or by the module; None for anything else."""
    if _is_wandb(type(target)) and callable(getattr(target, "log", None)):
        return target
    owner = getattr(target, "__self__", None)
    if owner is not None and _is_wandb(type(owner)):
        return owner
    if getattr(target, "__name__", None) == "wandb" and getattr(target, "run", None) is not None:
        return target.run
    return None


def _is_wandb(call: Any) -> bool:
    return (getattr(call, "__module__", None) or "").partition(".")[0] == "wandb"


def _to_summary(run: Any) -> _Text:
    return lambda key, text, _step: run.summary.__setitem__(key, text)


def _text_way(target: Any) -> _Text:
    """How a logger takes a text: TensorBoard as text, MLflow as a tag, W&B in the run's summary, a Lightning logger as
    what it wraps; others not at all."""
    if callable(add := getattr(target, "add_text", None)):
        return lambda key, text, step: add(key, text, step)
    if callable(log_texts := getattr(target, "log_texts", None)):
        return lambda key, text, step: log_texts({key: text}, step)
    if callable(tag := getattr(target, "set_tag", None)):
        if (run_id := _mlflow_run(target)) is not None:
            tag = partial(target.MlflowClient().set_tag, run_id)
        return lambda key, text, _step: tag(_tag_name(key), text)
    if hasattr(type(target), "experiment"):
        # Asked for when there is a text: that begins a run.
        return lambda key, text, step: _text_way_of_wrapped(target)(key, text, step)
    return _no_text


def _text_way_of_wrapped(logger: Any) -> _Text:
    """Of a logger of Lightning's, whose ``experiment`` is the run, writer or client itself."""
    inner, run_id = logger.experiment, getattr(logger, "run_id", None)
    if (run := _wandb_run(inner)) is not None:
        return _to_summary(run)
    if callable(add := getattr(inner, "add_text", None)):
        return lambda key, text, step: add(key, text, step)
    # MLflow's client, which is told the run.
    if run_id is not None and callable(tag := getattr(inner, "set_tag", None)):
        return lambda key, text, _step: tag(run_id, _tag_name(key), text)
    return _no_text


def _tag_name(key: str) -> str:
    """MLflow allows letters, digits and some marks in the name of a tag, and no slash."""
    return key.replace("/", ".")


def _no_text(_key: str, _text: str, _step: int) -> None:
    """For a logger that takes numbers only."""


def _name(target: Any) -> str:
    return str(getattr(target, "__qualname__", None) or type(target).__name__)


# What a logger is given: means over the time since its last call, under the catalogue's names.
#
# Single samples miss what lies between them, which is why W&B's and Lightning's own figures jump.

Metrics = Literal["few", "all"]
METRICS: tuple[Metrics, ...] = ("few", "all")
FEW = ("util_pct", "sm_active_pct", "mem_used_bytes", "power_w", "temp_c", "dram_active_pct")
"""The metrics of each GPU; with ``efficiency_pct`` and ``busy_not_working`` they are eight."""
FLAGS = {None: 0.0, "B": 1.0, "A": 2.0, "C": 2.0}
"""``busy_not_working`` as a number: 0 no, 1 probably (B), 2 certainly (A, and C where kernels hardly reach the SMs)."""


class FrameMeans:
    """Adds up frames; ``take`` returns the means and starts over."""

    def __init__(self, metrics: Metrics) -> None:
        if metrics not in METRICS:
            raise ValueError(f"metrics must be one of {', '.join(map(repr, METRICS))}, not {metrics!r}")
        self._gpu_keys: Sequence[str] = FEW
        self._host_keys: Sequence[str] = ("cpu_pct",)
        if metrics == "all":
            from gputop.model.metrics import GPU_METRICS, HOST_METRICS

            self._gpu_keys, self._host_keys = tuple(GPU_METRICS), tuple(HOST_METRICS)
        self._sums: dict[str, list[float]] = {}
        """Of each key what is divided, and by what."""
        self._last: dict[str, float] = {}
        self.work: StepWork | None = None
        """What a step does, where the program has said it."""
        self.own_gpus: tuple[str, ...] = ()
        """The names of the GPUs that this process computes on."""

    def add(self, frame: Frame) -> None:
        """Add what is new in a frame: repeated values were not measured again."""
        snapshot = frame.snapshot
        if "nvml" not in snapshot.repeats:
            for gpu, diagnosis in zip(snapshot.gpus, frame.diagnoses, strict=False):
                place = f"gputop/gpu{gpu.static.index}/"
                for key in self._gpu_keys:
                    self._add(place + key, value(gpu, key))
                self._add(place + "efficiency_pct", diagnosis.efficiency_pct)
                self._last[place + "busy_not_working"] = FLAGS[diagnosis.busy_not_working]
                if diagnosis.state != "unmeasured":
                    self._add("gputop/starved_pct", 100.0 * (diagnosis.state == "starved"))
        if "proc" not in snapshot.repeats:
            for key in self._host_keys:
                self._add(f"gputop/{key}", value(snapshot.host, key))

    def add_steps(self, rows: Iterable[StepRow]) -> None:
        """Add this process's own steps."""
        for row in rows:
            self._add("gputop/step_ms", 1000.0 * row.sum_s, row.count)
            self._add("gputop/steps_per_s", row.count, row.sum_s)
            self._add("gputop/samples_per_s", row.samples, row.sum_s)
            self._add("gputop/step_wait_ms", _ms(row.wait_s), row.count)
            self._add("gputop/step_data_wait_ms", _ms(row.data_wait_s), row.count)

    def add_phases(self, taken: Iterable[Mapping[Phase, float]]) -> None:
        """Add what was found of this process's own steps."""
        for phases in taken:
            for phase, seconds in phases.items():
                self._add(f"gputop/step_{phase}_ms", 1000.0 * seconds)

    def take(self) -> dict[str, float]:
        """The means since the last call. What was not measured is absent."""
        means = {key: total / of for key, (total, of) in self._sums.items() if of > 0.0} | self._last
        if (step_ms := means.get("gputop/step_ms")) is not None:
            rates = rates_of(self.work, step_ms / 1000.0, self.own_gpus)
            if rates is not None and rates.tokens_per_s is not None:
                means["gputop/tokens_per_s"] = rates.tokens_per_s
            if rates is not None and rates.mfu_pct is not None:
                means["gputop/mfu_pct"] = rates.mfu_pct
        self._sums.clear()
        self._last.clear()
        return means

    def _add(self, key: str, value: object, of: float = 1.0) -> None:
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            sums = self._sums.setdefault(key, [0.0, 0.0])
            sums[0] += value
            sums[1] += of


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else 1000.0 * seconds
