"""Loggers told apart by what they have, so that none is imported: W&B, MLflow, TensorBoard, Lightning, any call.

A logger must not hurt the training: one that raises, or takes more than a second three times, is reported once and left
out. One that never returns cannot be stopped.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from gputop.api.work import Work, rates_of
from gputop.model.quantity import clean_text
from gputop.model.steps import StepRow

if TYPE_CHECKING:
    from gputop.monitor import Frame


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


# What a logger is given: means over the time since its last call, under the catalogue's names.
#
# Single samples miss what lies between them, which is why W&B's and Lightning's own figures jump.

Metrics = Literal["few", "all"]
METRICS: tuple[Metrics, ...] = ("few", "all")
FEW = ("util_pct", "sm_active_pct", "mem_used_bytes", "power_w", "temp_c", "dram_active_pct")
"""The metrics of each GPU; with ``efficiency_pct`` and ``busy_not_working`` they are eight."""
FLAGS = {None: 0.0, "B": 1.0, "A": 2.0}
"""``busy_not_working`` as a number: 0 no, 1 probably (B), 2 certainly (A)."""


class Means:
    """Adds up frames; ``take`` gives the means and begins anew."""

    def __init__(self, metrics: Metrics) -> None:
        if metrics not in METRICS:
            raise ValueError(f"metrics must be one of {', '.join(map(repr, METRICS))}, not {metrics!r}")
        self._gpu_keys: Sequence[str] = FEW
        self._host_keys: Sequence[str] = ("cpu_pct",)
        if metrics == "all":
            from gputop.model.metrics import GPU_METRICS, HOST_METRICS

            self._gpu_keys, self._host_keys = tuple(GPU_METRICS), tuple(HOST_METRICS)
        self._sums: dict[str, list[float]] = {}
        self._last: dict[str, float] = {}
        self._starved = [0.0, 0]
        self._steps = [0.0, 0]
        self._samples = [0.0, 0.0]
        self._waits = [0.0, 0]
        self._data_waits = [0.0, 0]
        self.work: Work | None = None
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
                    self._add(place + key, getattr(gpu, key))
                self._add(place + "efficiency_pct", diagnosis.efficiency_pct)
                self._last[place + "busy_not_working"] = FLAGS[diagnosis.busy_not_working]
                if diagnosis.state != "unmeasured":
                    self._starved[0] += diagnosis.state == "starved"
                    self._starved[1] += 1
        if "proc" not in snapshot.repeats:
            for key in self._host_keys:
                self._add(f"gputop/{key}", getattr(snapshot.host, key))

    def add_steps(self, rows: Iterable[StepRow]) -> None:
        """Add this process's own steps."""
        for row in rows:
            self._steps[0] += row.sum_s
            self._steps[1] += row.count
            if row.samples is not None:
                self._samples[0] += row.samples
                self._samples[1] += row.sum_s
            if row.wait_s is not None:
                self._waits[0] += row.wait_s
                self._waits[1] += row.count
            if row.data_wait_s is not None:
                self._data_waits[0] += row.data_wait_s
                self._data_waits[1] += row.count

    def take(self) -> dict[str, float]:
        """The means since the last call. What was not measured is absent."""
        found = {key: total / n for key, (total, n) in self._sums.items()}
        found.update(self._last)
        if self._starved[1]:
            found["gputop/starved_pct"] = 100.0 * self._starved[0] / self._starved[1]
        seconds, steps = self._steps
        if steps and seconds > 0.0:
            found["gputop/step_ms"] = 1000.0 * seconds / steps
            found["gputop/steps_per_s"] = steps / seconds
            rates = rates_of(self.work, seconds / steps, self.own_gpus)
            if rates is not None and rates.tokens_per_s is not None:
                found["gputop/tokens_per_s"] = rates.tokens_per_s
            if rates is not None and rates.mfu_pct is not None:
                found["gputop/mfu_pct"] = rates.mfu_pct
        if self._samples[1] > 0.0:
            found["gputop/samples_per_s"] = self._samples[0] / self._samples[1]
        if self._waits[1]:
            found["gputop/step_wait_ms"] = 1000.0 * self._waits[0] / self._waits[1]
        if self._data_waits[1]:
            found["gputop/step_data_wait_ms"] = 1000.0 * self._data_waits[0] / self._data_waits[1]
        self._sums.clear()
        self._last.clear()
        self._starved, self._steps, self._samples = [0.0, 0], [0.0, 0], [0.0, 0.0]
        self._waits, self._data_waits = [0.0, 0], [0.0, 0]
        return found

    def _add(self, key: str, value: object) -> None:
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            total = self._sums.setdefault(key, [0.0, 0.0])
            total[0] += value
            total[1] += 1.0
