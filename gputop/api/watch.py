"""Watch GPUs, verdicts and step times beside a training loop.

``gputop.watch`` never raises into the loop unless ``strict`` was asked for, never touches CUDA, imports no framework,
and is inert in children.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from gputop.api.run_summary import Summary
from gputop.api.watch_cost import WatchCost
from gputop.api.watch_options import (
    NOTICES,
    LogThread,
    Metrics,
    Options,
    Ranks,
    checked_interval,
    checked_log_every,
    checked_words,
    configured,
    gpus_text,
    recording_target,
)
from gputop.api.watcher import Watcher
from gputop.api.work import StepWork, checked_work
from gputop.diagnosis.types import Finding, GpuDiagnosis
from gputop.model.clean_text import clean_text
from gputop.model.snapshot import Event
from gputop.model.source import CLOSE_S, Source
from gputop.model.steps import MOST_NAME
from gputop.monitor import Frame
from gputop.sources.marks import send_mark

FIRST_READING_S = 2.0
"""How long entering a watch waits for the first reading: two readings take 0.3 s, a slow driver a second."""


class Watch:
    """A watch: a context manager, or ``start`` and ``stop``.

    All methods may be called from any thread. A watch inside another one shares its thread; one that is started while
    another runs without ``with``, as in the next cell of a notebook, takes its place.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._watcher = Watcher(options)
        self._entered = False
        self._work: StepWork | None = None
        self._end_step = self._watcher.clock.end

    def start(self) -> Watch:
        """Begin to watch; returns at once.

        A watch that was stopped starts over: counts, means and summary begin anew.
        """
        self._begin(scoped=False)
        return self

    def stop(self) -> None:
        """End. Waits a second at most; calling it again does nothing."""
        if self._entered:
            self._entered = False
            _ONE.leave(self._watcher)

    def __enter__(self) -> Watch:
        """Begin to watch; wait for the first reading, at most ``FIRST_READING_S``.

        Without a driver, or without devices, there is nothing to wait for.
        """
        self._begin(scoped=True)
        self._watcher.wait_for_reading(FIRST_READING_S)
        return self

    def _begin(self, *, scoped: bool) -> None:
        if self._entered:
            return
        self._entered = True
        if self._watcher.begun:
            self._watcher = Watcher(self._options)
            if self._work is not None:
                self._watcher.say_work(self._work)
        self._watcher = _ONE.join(self._watcher, scoped=scoped)
        self._end_step = self._watcher.clock.end

    def __exit__(self, *_: object) -> None:
        self.stop()

    def step(
        self,
        n: int | None = None,
        *,
        wait_s: float | None = None,
        data_wait_s: float | None = None,
        **scalars: float,
    ) -> None:
        """End one step of the loop.

        It takes a few hundred nanoseconds and no system call, but for the first step after ``log_every``, on which the
        loggers are called.

        ``n`` is the loop's own number. ``scalars`` are logged beside the GPUs' numbers; ``batch_size`` also gives
        samples/s. ``wait_s`` is how many seconds of this step the process waited for others, as the program has
        measured it, say in a barrier: it separates a slow rank from the ranks that wait. ``data_wait_s`` is how many
        seconds of it the loop waited for its batch.
        """
        self._end_step(wait_s, data_wait_s)
        watcher = self._watcher
        log = watcher.log
        if n is not None:
            log.number = n
        if scalars:
            log.scalars = {
                key: value if isinstance(value, (float, int)) else _detached(value)
                for key, value in scalars.items()
            }
        if log.due:
            watcher.log_now()

    def work(
        self,
        *,
        samples: float | None = None,
        tokens: float | None = None,
        parameters: float | None = None,
        flops: float | None = None,
        precision: str = "bf16",
        peak_flops: float | None = None,
    ) -> None:
        """Describe the work of one step of this process from now on.

        It gives samples/s, tokens/s and MFU. MFU takes ``flops`` a step, or 6 · ``parameters`` · ``tokens``, which
        holds for dense transformers; the peak is the data sheet's for ``precision`` (``fp32 tf32 fp16 bf16 fp8``), or
        ``peak_flops`` of one GPU, in FLOP/s. Raises ValueError for impossible numbers.
        """
        self._work = checked_work(samples, tokens, parameters, flops, precision, peak_flops)
        self._watcher.say_work(self._work)

    def mark(self, text: str) -> None:
        """Set a mark in this user's watches, recorders and screens."""
        t = time.time()
        if self._watcher.alive:
            self._watcher.note(Event(t, "mark", clean_text(str(text))))
            send_mark(str(text), t)

    def metrics(self) -> dict[str, float]:
        """Return the means since the last call, by the loggers' names.

        Empty where nothing was measured.
        """
        return self._watcher.metrics()

    def verdicts(self) -> list[GpuDiagnosis]:
        """Return the current verdict on each GPU."""
        frame = self._watcher.latest
        return [] if frame is None else list(frame.diagnoses)

    def summary(self) -> Summary:
        """The summary until now; also after the end."""
        return self._watcher.summary()

    @property
    def latest(self) -> Frame | None:
        """The newest frame; None before the first."""
        return self._watcher.latest

    @property
    def available(self) -> bool:
        """Whether the GPUs are measured now.

        False before the first frame and after the end.
        """
        return self._watcher.available

    @property
    def reason(self) -> str | None:
        """Why they are not, with what to do about it."""
        return self._watcher.reason

    @property
    def cost(self) -> WatchCost:
        """The cost of the watch for this process."""
        return self._watcher.cost.read()


def watch(
    interval: float = 1.0,
    *,
    gpus: str | int | Iterable[int | str] = "mine",
    record: str | os.PathLike[str] | None = None,
    log: Any = (),
    log_every: float = 10.0,
    metrics: Metrics = "few",
    steps: bool = True,
    ranks: Ranks = "node",
    strict: bool = False,
    price: float | None = None,
    name: str | None = None,
    on_frame: Callable[[Frame], object] | None = None,
    on_finding: Callable[[Finding], object] | None = None,
    source: Source | None = None,
    log_thread: LogThread = "training",
    redact: bool | None = None,
    children: bool = False,
    phases: bool = True,
) -> Watch:
    """Watch this program's GPUs while it runs.

    Raises ValueError for words that mean nothing, TypeError for what cannot log.

    - ``interval``: seconds between two readings.
    - ``gpus``: ``"mine"``, on which this job holds a context, among the GPUs of CUDA_VISIBLE_DEVICES where that is
      set; ``"all"``; or indices and UUIDs.
    - ``record``: a file or folder for a recording.
    - ``log``: one or more of: a call of (numbers, step), an object with ``log``, ``log_metrics`` or ``add_scalar``.
      Each gets means every ``log_every`` seconds, ``metrics`` ``"few"`` or ``"all"`` of them, on the training thread,
      or with ``log_thread="own"`` on the watcher's.
    - ``steps``: PyTorch's optimizer hook counts steps where the loop does not. ``phases``: hooks of PyTorch also
      measure the host time of about one step a second: forward, backward, optimizer, between steps.
    - ``ranks``: one process a ``"node"`` samples, ``"0"`` only rank 0, ``"all"`` each its own GPUs.
    - ``strict``: raise where nothing can be measured.
    - ``name``: the run's. ``price``: per GPU-hour, 0 for none.
    - ``on_frame``, ``on_finding``: called on the watcher's thread.
    - ``source``: replaces this machine, for tests.
    - ``redact``: replace users, hosts, jobs, paths and names by numbers in frames, recording and summary, as ``gputop
      record --redact`` does.
    - ``children``: also watch in a process that multiprocessing has started; otherwise only in a rank, which has RANK
      or LOCAL_RANK or a process group, and never in a loader's worker.

    Where ``price`` or ``redact`` is None the setting holds, from the environment (``GPUTOP_REDACT``) or the
    configuration file, and so does ``dcgm_url``.
    """
    checked_words(metrics, ranks, log_thread)
    settings = configured(os.environ)
    return Watch(
        Options(
            interval=checked_interval(interval, strict=strict),
            gpus=gpus_text(gpus),
            record=None if record is None else recording_target(os.fspath(record)),
            log=log,
            log_every=checked_log_every(log_every),
            metrics=metrics,
            steps=steps,
            ranks=ranks,
            strict=strict,
            price=(settings.price if price is None else price) or None,
            name=clean_text(name or os.path.basename(sys.argv[0] or "") or "python")[:MOST_NAME],
            on_frame=on_frame,
            on_finding=on_finding,
            source=source,
            log_thread=log_thread,
            redact=settings.redact if redact is None else redact,
            dcgm_url=settings.dcgm_url,
            children=bool(children),
            phases=bool(phases),
        )
    )


def _detached(value: Any) -> Any:
    """Return a tensor without its graph; anything else as it is.

    The graph would stay alive until the next step.
    """
    try:
        return value.detach() if hasattr(value, "detach") else value
    except Exception:  # noqa: BLE001 — somebody else's value, on the training thread
        return None


class _One:
    """Keeps the one watcher of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: Watcher | None = None
        self._scoped = False

    def join(self, watcher: Watcher, *, scoped: bool) -> Watcher:
        """Return the watcher to use, started.

        A watch inside of a ``with`` uses the running one.
        """
        with self._lock:
            running = self.running
            if running is not None and self._scoped:
                running.users += 1
                return running
            if running is not None:
                NOTICES.warning("gputop: a new watch takes the place of the one that was running")
                running.stop(reason="another watch has taken its place")
            watcher.users = 1
            watcher.start()
            self._running, self._scoped = watcher, scoped
            return watcher

    def leave(self, watcher: Watcher) -> None:
        """End it when its last user leaves."""
        with self._lock:
            watcher.users -= 1
            if watcher.users <= 0:
                watcher.stop()

    def end(self) -> None:
        """End the running watcher at the end of the program.

        It waits only as long as a hung driver may take, and calls no logger: they may have ended.
        """
        if self._running is not None:
            self._running.stop(CLOSE_S, tell_loggers=False)

    @property
    def running(self) -> Watcher | None:
        """The one that runs now, if one does."""
        return self._running if self._running is not None and self._running.alive else None

    def forked(self) -> None:
        """Make a forked child's watcher inert."""
        self._lock = threading.Lock()
        if self._running is not None:
            self._running.become_inert()


def running_step_s() -> float | None:
    """Return the median step of the running watch, in seconds.

    None without a watch, or without steps.
    """
    running = _ONE.running
    return None if running is None else running.median_step_s()


def backward_ended() -> None:
    """Note the end of a backward pass, for a framework's callback.

    Its optimizer itself calls forward and backward.
    """
    running = _ONE.running
    if running is not None:
        running.phases.backward_ended()


_ONE = _One()
os.register_at_fork(after_in_child=_ONE.forked)
atexit.register(_ONE.end)
