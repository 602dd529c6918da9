"""The thread behind a watch: reads the machine, feeds the session, announces steps, adds up what is asked of it later.

Whatever fails here becomes a reason that can be read. The training thread appends the ends of its steps, and no more.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable

from msgspec.structs import replace

from gputop.api.cost import CostMeter, OwnCost
from gputop.api.log_turn import LogTurn
from gputop.api.loggers import NOTICES
from gputop.api.means import Means
from gputop.api.members import JobGpus
from gputop.api.memory import MemoryWatch
from gputop.api.opening import opened
from gputop.api.options import Options
from gputop.api.ranks import Role, is_multiprocessing_child, role_of
from gputop.api.step_clock import StepClock, row_of
from gputop.api.step_tail import StepTail
from gputop.api.summary import Summary
from gputop.api.torch_hook import TorchHook
from gputop.model.snapshot import Event, Snapshot
from gputop.model.source import MarkedSource, SourceError, UsageError
from gputop.model.steps import StepRow
from gputop.monitor import Frame, Monitor
from gputop.recording.format import RecordingError
from gputop.recording.recorder import Recorder
from gputop.report.job_report import ReportBuilder
from gputop.report.step_account import StepAccount
from gputop.session.session import Session
from gputop.sources.marked import Marked
from gputop.sources.steps import StepSender

ROUND_S = 1.0
"""How often steps are worked out and announced."""
STOP_S, STRICT_WAIT_S = 1.0, 10.0
"""How long a stop in order waits, as for a slow disk; and a start that must say whether it can measure."""
NO_GPU_YET = 'no process of this job has used a GPU; gpus="all" watches all of them'
MOST_FINDINGS_KNOWN = 1024


class Watcher:
    """One a process. Everything but ``start``, ``stop`` and what the training thread calls runs on its own thread."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.latest: Frame | None = None
        self.available = False
        self.reason: str | None = "not started"
        self.clock = StepClock()
        self.log = LogTurn(options)
        self.users = 0
        """How many watches share it."""
        self.failure: Exception | None = None
        self._pid = os.getpid()
        self._alive = False
        self._lock = threading.Lock()
        self._ending, self._fresh, self._told = threading.Event(), threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self._source: MarkedSource | None = None
        self._role = Role(None, None, False)
        self._gpus: JobGpus | None = None
        self._session = Session(Monitor(options.interval))
        self._recorder: Recorder | None = None
        self._builder = ReportBuilder()
        self._asked = Means(options.metrics)
        self._known_findings: deque[object] = deque(maxlen=MOST_FINDINGS_KNOWN)
        self._memory = MemoryWatch()
        self._steps = StepAccount()
        self._tail = StepTail()
        self._hook = TorchHook(self.clock.end_by_hook)
        self._sender = StepSender()
        self._cost = CostMeter()
        self._rows: list[StepRow] = []
        self._worked_out = time.monotonic()
        self._wall_began = time.monotonic()
        self._broken_calls: set[str] = set()

    @property
    def alive(self) -> bool:
        """Whether it runs, in this process."""
        return self._alive

    def start(self) -> None:
        """Begin, and return at once. Raises only where ``strict`` was asked for."""
        options = self.options
        if is_multiprocessing_child():
            self.reason = "a child of multiprocessing is not watched: watch in the program that starts it"
            return
        self._role = role_of(options.ranks, os.environ)
        self._alive = True
        self.reason = self._role.why or "waiting for the driver"
        if options.steps:
            self._hook.register(on_training_thread=True)
        try:
            if self._role.samples:
                self._prepare()
        except (SourceError, UsageError, RecordingError, OSError) as error:
            self._fail(error)
        self._thread = threading.Thread(target=self._run, name="gputop-watch", daemon=True)
        self._thread.start()
        if options.strict:
            self._told.wait(STRICT_WAIT_S)
            if self.failure is not None:
                self.stop()
                raise self.failure

    def stop(self, wait_s: float = STOP_S, *, tell_loggers: bool = True) -> None:
        """End: at most ``wait_s``, whatever hangs. What is logged last goes out on this thread."""
        if self._pid != os.getpid() or not self._alive:
            return
        self._alive = False
        self._hook.remove()
        self._ending.set()
        self._fresh.set()
        if self._thread is not None:
            self._thread.join(wait_s)
        if tell_loggers and self.options.log_thread == "training":
            self.log_now()

    def become_inert(self) -> None:
        """In a forked child: no thread survives and locks may be held, so nothing of the parent's is touched again."""
        self._alive = self.available = False
        self._lock = threading.Lock()
        self.clock.silence()
        self.log.silence()
        self.reason = "a forked child is not watched: its parent is"

    def log_now(self) -> None:
        """Give the loggers what there is; on the thread that calls."""
        self.log.log(self.clock.total)

    def metrics(self) -> dict[str, float]:
        """Means since the last call."""
        with self._lock:
            return self._asked.take() if self._alive or self._builder.has_frames else {}

    def note(self, mark: Event) -> bool:
        """Take a mark that no socket brings; False where its own listener brings it."""
        listening = isinstance(self._source, Marked) and self._source.listening
        if not listening and self._role.samples:
            with self._lock:
                self._session.note(mark)
                self._builder.add_event(mark)
        return not listening

    def cost(self) -> OwnCost:
        return self._cost.read()

    def median_step_s(self) -> float | None:
        """The median step so far; None without one."""
        with self._lock:
            found = self._tail.summary(self.clock.total)
        return None if found is None or found.p50_s <= 0.0 else found.p50_s

    def summary(self) -> Summary:
        """What it came to until now."""
        frame = self.latest
        with self._lock:
            notes = [] if self._recorder is None or self._recorder.error is None else [self._recorder.error]
            duration = time.monotonic() - self._wall_began
            report = self._builder.report(
                price=self.options.price, command=self.options.name, duration_s=duration, notes=notes
            )
            found = (self._memory.report(gpu) for gpu in report.gpus)
            memory = tuple(each for each in found if each is not None)
            steps = self._tail.summary(self.clock.total)
            # Steps are counted apart: they go on while no GPU is the job's yet, or none can be measured.
            report = replace(report, steps=self._steps.report())
        reason = None if frame else self.reason or NO_GPU_YET
        return Summary(report, memory, steps, self._cost.read(), self.available, reason)

    def _prepare(self) -> None:
        """Open what is watched and what is written, on the caller's thread."""
        options = self.options
        self._source, self._gpus = opened(options, self._role)
        if options.record is not None:
            try:
                self._recorder = Recorder(options.record)
                self._session.record(self._recorder)
            except RecordingError as error:
                if options.strict:
                    raise
                NOTICES.warning("gputop: nothing is recorded: %s", error)

    def _fail(self, error: Exception) -> None:
        self.failure, self._source = error, None
        self.reason = str(error)
        NOTICES.warning("gputop: the GPUs are not watched: %s", error)

    def _run(self) -> None:
        source = self._source
        try:
            if source is not None:
                try:
                    source.start(self._fresh.set)
                except (SourceError, UsageError) as error:
                    self._fail(error)
            self._told.set()
            while not self._ending.is_set():
                self._fresh.wait(min(ROUND_S, self.options.interval))
                self._fresh.clear()
                self._round()
            self._round(ending=True)
            if self.options.log_thread == "own":
                self.log_now()
        except Exception as error:  # noqa: BLE001 — the last frame of a thread inside of somebody's training
            self.available = False
            self.reason = f"watching has failed: {type(error).__name__}: {error}"
            NOTICES.warning("gputop: %s", self.reason)
        finally:
            self._told.set()
            self._close(source)

    def _close(self, source: MarkedSource | None) -> None:
        self._cost.look()
        if source is not None:
            source.close()
            for mark in source.late:
                self._session.note(mark)
        if self._recorder is not None:
            self._recorder.close()
        self._sender.close()

    def _round(self, *, ending: bool = False) -> None:
        begun, now = time.thread_time(), time.monotonic()
        if ending or now - self._worked_out >= ROUND_S:
            self._worked_out = now
            self._work_out_steps()
        if self._source is not None:
            while (snapshot := self._source.poll()) is not None:
                self._take(snapshot)
        spent = time.thread_time() - begun
        self._cost.longest_s = max(self._cost.longest_s, spent)
        self.log.look(steps_are_used=self.clock.used, count=self.clock.total)

    def _work_out_steps(self) -> None:
        if self.options.steps and not self._hook.registered and not self.clock.explicit:
            self._hook.register(on_training_thread=False)
        row = row_of(lengths := self.clock.lengths(), self._pid, self._role.rank, self.options.name)
        if row is None:
            return
        self._sender.send(row)
        self.log.add_steps([row])
        with self._lock:
            host = self.latest.snapshot.host if self.latest is not None else None
            self._tail.add(lengths, host)
            self._asked.add_steps([row])
            self._steps.add([row])
        if self._source is not None:
            self._rows.append(row)

    def _take(self, snapshot: Snapshot) -> None:
        if any(gpu.lost_reason is None for gpu in snapshot.gpus):
            self.available, self.reason = True, None
        elif not self.available and snapshot.notices:
            self.reason = snapshot.notices[0]
        # Its own steps come from its own clock: the socket may be missing, and would bring them again.
        others = tuple(row for row in snapshot.steps if row.pid != self._pid)
        with self._lock:
            self._steps.add(row for row in others if self._gpus is None or self._gpus.is_member(row.pid))
        snapshot = replace(snapshot, steps=(*others, *self._rows))
        self._rows = []
        for cut in [snapshot] if self._gpus is None else self._gpus.take(snapshot):
            self._feed(cut)

    def _feed(self, snapshot: Snapshot) -> None:
        frame = self._session.take(snapshot)
        size = self.log.scalars.get("batch_size")
        self.log.add_frame(frame)
        with self._lock:
            self._memory.batch_size = size if isinstance(size, (int, float)) and size > 0 else None
            self._memory.add(frame)
            self._builder.add(frame)
            self._asked.add(frame)
        self.latest = frame
        self._call("on_frame", self.options.on_frame, frame)
        if self.options.on_finding is not None:
            for finding in frame.findings:
                key = (finding.t, finding.gpu, finding.kind, finding.id)
                if key not in self._known_findings:
                    self._known_findings.append(key)
                    self._call("on_finding", self.options.on_finding, finding)

    def _call(self, name: str, call: Callable[..., object] | None, given: object) -> None:
        """The user's own call, which must not end the watching."""
        if call is None or name in self._broken_calls:
            return
        try:
            call(given)
        except Exception as error:  # noqa: BLE001 — somebody else's code
            self._broken_calls.add(name)
            NOTICES.warning("gputop: %s raised %s: %s; it is not called again", name, type(error).__name__, error)
