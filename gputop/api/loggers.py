"""What a job's own code is given, and how: its loggers (W&B, MLflow, TensorBoard, Lightning, or any call), and its
``on_frame`` and ``on_finding``."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from gputop.api.watch_options import NOTICES, Metrics, Options
from gputop.api.work import Rates, StepWork, rates_of
from gputop.diagnosis.summary import head_of
from gputop.model.quantity import clean_text, error_words
from gputop.model.snapshot import value
from gputop.model.steps import Phase, StepRow

if TYPE_CHECKING:
    from gputop.diagnosis.types import Finding, GpuDiagnosis
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
    text = _text_way(target)
    if (run := _wandb_run(target)) is not None:
        return _WandbRow(run).log, text
    if isinstance(getattr(target, "trackers", None), (list, tuple)) and callable(getattr(target, "log", None)):
        return _Trackers(target).log, _no_text
    if callable(add := getattr(target, "add_scalar", None)):
        return lambda numbers, step: [add(key, value, step) for key, value in numbers.items()], text
    if callable(log := getattr(target, "log_metrics", None) or getattr(target, "log", None)):
        of_run = {} if (run_id := _mlflow_run(target)) is None else {"run_id": run_id}
        return lambda numbers, step: log(numbers, step=step, **of_run), text
    if callable(target):
        return target, text
    raise TypeError(f"cannot log to {_name(target)}: it has no log, log_metrics or add_scalar, and is not callable")


def _text_way(target: Any) -> _Text:
    """How a logger takes a text: TensorBoard as text, MLflow as a tag, W&B in the run's summary, a Lightning logger as
    what it wraps; others not at all."""
    if (run := _wandb_run(target)) is not None:
        return lambda key, text, _step: run.summary.__setitem__(key, text)
    if callable(add := getattr(target, "add_text", None)):
        return add  # type: ignore[no-any-return]
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
    if run_id is None or not callable(tag := getattr(inner, "set_tag", None)):
        return _text_way(inner)
    # MLflow's client, which is told the run.
    return lambda key, text, _step: tag(run_id, _tag_name(key), text)


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

FEW = ("util_pct", "sm_active_pct", "mem_used_bytes", "power_w", "temp_c", "dram_active_pct")
"""The metrics of each GPU; with ``efficiency_pct`` and ``busy_not_working`` they are eight."""
FLAGS = {None: 0.0, "B": 1.0, "A": 2.0, "C": 2.0}
"""``busy_not_working`` as a number: 0 no, 1 probably (B), 2 certainly (A, and C where kernels hardly reach the SMs)."""


class FrameMeans:
    """Adds up frames; ``take`` returns the means and starts over."""

    def __init__(self, metrics: Metrics) -> None:
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

    def add_steps(self, row: StepRow) -> None:
        """Add this process's own steps."""
        self._add("gputop/step_ms", 1000.0 * row.sum_s, row.count)
        self._add("gputop/steps_per_s", row.count, row.sum_s)
        self._add("gputop/samples_per_s", row.samples, row.sum_s)
        for key, waited_s in (("wait", row.wait_s), ("data_wait", row.data_wait_s)):
            if waited_s is not None:
                self._add(f"gputop/step_{key}_ms", 1000.0 * waited_s, row.count)

    def add_phases(self, taken: Iterable[Mapping[Phase, float]]) -> None:
        """Add what was found of this process's own steps."""
        for phases in taken:
            for phase, seconds in phases.items():
                self._add(f"gputop/step_{phase}_ms", 1000.0 * seconds)

    def take(self) -> dict[str, float]:
        """The means since the last call. What was not measured is absent."""
        means = {key: total / of for key, (total, of) in self._sums.items() if of > 0.0} | self._last
        if (step_ms := means.get("gputop/step_ms")) is not None:
            rates = rates_of(self.work, step_ms / 1000.0, self.own_gpus) or Rates()
            own = {"gputop/tokens_per_s": rates.tokens_per_s, "gputop/mfu_pct": rates.mfu_pct}
            means |= {key: rate for key, rate in own.items() if rate is not None}
        self._sums.clear()
        self._last.clear()
        return means

    def _add(self, key: str, value: object, of: float = 1.0) -> None:
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            sums = self._sums.setdefault(key, [0.0, 0.0])
            sums[0] += value
            sums[1] += of


# The program's own calls, ``on_frame`` and ``on_finding``, which must not end the watching.

MOST_FINDINGS_KNOWN = 1024


class UserCalls:
    """Calls those given; one that raises is reported once and not called again."""

    def __init__(
        self, on_frame: Callable[[Frame], object] | None, on_finding: Callable[[Finding], object] | None
    ) -> None:
        self._on_frame, self._on_finding = on_frame, on_finding
        self._called_findings: deque[object] = deque(maxlen=MOST_FINDINGS_KNOWN)
        self._broken: set[str] = set()

    def tell(self, frame: Frame) -> None:
        """Pass on one more frame, and its findings that were not reported yet."""
        self._call("on_frame", self._on_frame, frame)
        if self._on_finding is None:
            return
        for finding in frame.findings:
            key = (finding.t, finding.gpu, finding.kind, finding.id)
            if key not in self._called_findings:
                self._called_findings.append(key)
                self._call("on_finding", self._on_finding, finding)

    def _call(self, name: str, call: Callable[..., object] | None, argument: object) -> None:
        """The user's own call, which must not end the watching."""
        if call is None or name in self._broken:
            return
        error = error_of(lambda: call(argument))
        if error is not None:
            self._broken.add(name)
            NOTICES.warning("gputop: %s raised %s; it is not called again", name, error_words(error))


# When the loggers are called and with what: means and changes of verdicts, on the training thread where it steps.


class LogTurn:
    """``due`` is set by the watcher's thread and checked by each step; the step that finds it set calls ``log``."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._lock = threading.Lock()
        self._loggers = loggers_of(options.log)
        self._means, self._means_to_read = FrameMeans(options.metrics), FrameMeans(options.metrics)
        """For the loggers, and for ``read``."""
        self._texts: dict[str, str] = {}
        self._verdicts: dict[int, str] = {}
        self._logged_at = time.monotonic()
        self.due = False
        self.number: int | None = None
        """The loop's own number of its last step."""
        self.scalars: Mapping[str, object] = {}
        """The scalars of the loop's last step, as they were given."""

    def add(self, add_to: Callable[[FrameMeans], object]) -> None:
        """Add something to the means of both."""
        with self._lock:
            add_to(self._means)
            add_to(self._means_to_read)

    def add_verdicts(self, diagnoses: Iterable[GpuDiagnosis]) -> None:
        """Verdicts that have changed are logged as texts."""
        with self._lock:
            for d in diagnoses:
                words = head_of(d).words
                if self._verdicts.get(d.index) != words:
                    self._verdicts[d.index] = self._texts[f"gputop/gpu{d.index}/verdict"] = words

    def read(self) -> dict[str, float]:
        """The means since the last call of this."""
        with self._lock:
            return self._means_to_read.take()

    def batch_size(self, work: StepWork | None) -> float | None:
        """Samples a step, as ``work`` or else the last ``step`` has named them."""
        if work is not None and work.samples is not None:
            return work.samples
        size = self.scalars.get("batch_size")
        return float(size) if isinstance(size, (int, float)) and 0 < size < float("inf") else None

    def look(self, *, steps_are_used: bool, count: int) -> None:
        """On the watcher's thread: see whether it is time. Without steps, or where that was asked for, log here."""
        if not self._loggers or time.monotonic() - self._logged_at < self._options.log_every:
            return
        if self._options.log_thread == "own" or not steps_are_used:
            self.log(count)
        else:
            self.due = True

    def log(self, count: int) -> None:
        """Call the loggers, on the calling thread. ``count`` is how many steps there were."""
        self.due = False
        self._logged_at = time.monotonic()
        if not self._loggers:
            return
        with self._lock:
            numbers, texts = self._means.take(), self._texts
            self._texts = {}
        numbers.update(_numbers(self.scalars))
        for logger in self._loggers:
            logger.log(numbers, texts, count if self.number is None else self.number)

    def silence(self) -> None:
        """In a forked child: no logger is called, and a lock that may be held is not waited for."""
        self._lock = threading.Lock()
        self._loggers = []
        self.due = False


def _numbers(scalars: Mapping[str, object]) -> dict[str, float]:
    """Those that are numbers, also as tensors or arrays of one value; the others are dropped."""
    numbers = {}
    for key, given in scalars.items():
        with suppress(Exception):
            numbers[key] = float(given)  # type: ignore[arg-type]
    return numbers
