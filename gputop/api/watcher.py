"""Run the thread of a watch.

It reads the machine, feeds the session, announces steps and adds up for the summary. Any failure here becomes a reason
that can be read. The training thread appends the ends of its steps, and no more.
"""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING

from msgspec.structs import replace

from gputop.api.log_turn import LogTurn
from gputop.api.loop_steps import JobView, LoopSteps
from gputop.api.process_role import NO_RANK, Role, own_run, role_of, unwatched_child
from gputop.api.user_calls import UserCalls
from gputop.api.watch_cost import CostMeter
from gputop.api.watch_options import NOTICES, Options
from gputop.api.work import StepWork, rates_of
from gputop.model.clean_text import error_words
from gputop.model.source import SourceError, UsageError
from gputop.model.steps import StepRow
from gputop.sources.surroundings import check_library
from gputop.system.limits import NO_THREAD

if TYPE_CHECKING:
    from gputop.api.gpu_watch import Measuring
    from gputop.api.run_summary import Summary
    from gputop.model.redaction import Redactor
    from gputop.model.snapshot import Event, Snapshot
    from gputop.monitor import Frame


ROUND_S = 1.0
"""How often steps are worked out and announced."""
LATE_S = 0.15
"""How late a snapshot may be before steps are announced without it; listeners accept one datagram per 0.8 s."""
STOP_S, STRICT_WAIT_S = 1.0, 10.0
"""How long an orderly stop waits, as for a slow disk; and a start that must tell whether it can measure."""
NO_GPU_YET = 'no process of this job has used a GPU; gpus="all" watches all of them'


class Watcher:
    """The one watcher of a process: a thread between its steps and its GPUs.

    ``LoopSteps`` counts the steps of loops, ``Measuring`` reads the GPUs of the process; neither knows the other. A
    ``watch()`` starts it, and the last one that leaves stops it::

        watcher = Watcher(options)
        watcher.start()
        watcher.clock.end()  # at the end of each step
        watcher.stop()
        print(watcher.summary())

    Everything runs on its own thread, except ``start``, ``stop`` and the calls of the training thread.
    """

    def __init__(self, options: Options) -> None:
        self.options = options
        self.latest: Frame | None = None
        self.available = False
        """Whether the GPUs are measured now."""
        self.measured = False
        """Whether they ever were."""
        self.reason: str | None = "not started"
        self.begun = False
        """Whether it was started: it cannot be again."""
        self._end_reason = "ended"
        self.log = LogTurn(options)
        self.users = 0
        """How many watches share it."""
        self.failure: Exception | None = None
        self._pid = os.getpid()
        self.alive = False
        """Whether it runs, in this process."""
        self._ending, self._fresh = threading.Event(), threading.Event()
        self._has_first_frame = threading.Event()
        """Set once the source was started, or cannot be."""
        self._has_read = threading.Event()
        """Set once a reading of the GPUs has come, or none can."""
        self._thread: threading.Thread | None = None
        self._role = Role(None, None, False)
        self._measuring: Measuring | None = None
        self._redactor: Redactor | None = None
        self._run_name = options.name
        if options.redact:
            from gputop.model.redaction import Redactor

            self._redactor = Redactor()
            self._run_name = self._redactor.number("run", options.name)
        self._calls = UserCalls(options.on_frame, options.on_finding)
        self.steps = LoopSteps(options, self._run_name)
        self.clock, self.phases = self.steps.clock, self.steps.phases
        self.cost = CostMeter()
        self._worked_out = time.monotonic()
        self._begun = time.monotonic()

    def start(self) -> None:
        """Begin, and return at once. Raises only where ``strict`` was asked for."""
        self.begun = True
        why_not = unwatched_child(os.environ, children=self.options.children)
        if why_not is not None:
            self.reason = why_not
            if why_not == NO_RANK:
                NOTICES.warning("gputop: %s", why_not)
            return
        self._role = role_of(self.options.ranks, os.environ)
        self.reason = self._role.reason or "waiting for the driver"
        self.steps.begin(own_run(os.environ), self._role.rank)
        if self._role.samples:
            self._prepare()
        self._thread = threading.Thread(target=self._run, name="gputop-watch", daemon=True)
        try:
            self._thread.start()
            self.alive = True
        except RuntimeError:
            # Neither steps nor GPUs: nothing here runs on the training thread.
            self.steps.end()
            if self._measuring is not None:
                self._measuring.close()
            self._fail(SourceError(NO_THREAD))
        if self.options.strict:
            if self.alive:
                self._has_first_frame.wait(STRICT_WAIT_S)
            if self.failure is not None:
                self.stop()
                raise self.failure

    def wait_for_reading(self, most_s: float) -> None:
        """Wait for the first reading of the GPUs, at most ``most_s`` seconds.

        Returns at once where none can come: without a driver or devices, in a rank that does not sample, in a
        child, and after the end.
        """
        if self.alive and self._measuring is not None:
            self._has_read.wait(most_s)

    def stop(
        self, wait_s: float = STOP_S, *, tell_loggers: bool = True, reason: str = "ended"
    ) -> None:
        """End within ``wait_s``, even if something hangs.

        The last call of the loggers is on this thread. ``reason`` says from now on why nothing is measured.
        """
        if self._pid != os.getpid() or not self.alive:
            return
        self.alive = False
        self._end_reason = reason
        self.steps.end()
        self._ending.set()
        self._fresh.set()
        if self._thread is not None:
            self._thread.join(wait_s)
        self._measures_no_more()
        if tell_loggers and self.options.log_thread == "training":
            self.log_now()

    def _measures_no_more(self) -> None:
        """``available`` is true only while it is, whatever has ended the thread."""
        if self.available:
            self.available, self.reason = False, self.reason or self._end_reason

    def become_inert(self) -> None:
        """Do nothing more in a forked child.

        No thread survives there and locks may be held, so nothing of the parent's is touched again.
        """
        self.alive = self.available = False
        if self._measuring is not None:
            # A thread that does not exist here may hold it.
            self._measuring.lock = threading.Lock()
        self.steps.silence()
        self.log.silence()
        self.reason = "a forked child is not watched: its parent is"

    def log_now(self) -> None:
        """Call the loggers, on the calling thread."""
        self.log.log(self.clock.total)

    def say_work(self, work: StepWork) -> None:
        """Take over the work of each step from now on."""
        self.steps.work = work
        self.log.add(lambda means: setattr(means, "work", work))

    def metrics(self) -> dict[str, float]:
        """Means since the last call."""
        return self.log.read() if self.alive or self.latest is not None else {}

    def note(self, mark: Event) -> None:
        """Add a mark that did not come by the socket."""
        if self._measuring is not None:
            self._measuring.note(mark)

    def median_step_s(self) -> float | None:
        """The median step so far; None without one."""
        return self.steps.median_s()

    def summary(self) -> Summary:
        """The summary until now."""
        from gputop.api.run_summary import Summary
        from gputop.api.watch_cost import memory_of
        from gputop.report.job_report import ReportBuilder

        duration = time.monotonic() - self._begun
        own_gpus: tuple[str, ...] = ()
        if (measuring := self._measuring) is None:
            report = ReportBuilder().report(command=self._run_name, run_s=duration)
        else:
            report = measuring.report(self.options.price, self._run_name, duration)
            own_gpus = measuring.own_gpus
        # Steps are counted separately: they go on while the job uses no GPU yet, or none can be measured.
        report = replace(report, steps=self.steps.reports())
        unknown = self._role.reason if self.failure is None else str(self.failure)
        # One process makes the run's mean: both lines of the summary have the same figure.
        rates = rates_of(self.steps.work, self.steps.mean_s(report.steps), own_gpus, unknown)
        reason = None if self.latest else NO_GPU_YET if self.measured else self.reason
        return Summary(
            report=report,
            memory=memory_of(report),
            steps=self.steps.summary(),
            cost=self.cost.read(),
            available=self.measured,
            reason=reason,
            rates=rates,
            phases=self.steps.phase_summary(),
        )

    def _prepare(self) -> None:
        """Open source and recording on the caller's thread.

        Without a driver nothing is imported.
        """
        from gputop.recording.format import RecordingError

        try:
            if self.options.source is None:
                check_library()
            from gputop.api.gpu_watch import Measuring

            self._measuring = Measuring(
                self.options, self._role, self._redactor, self._fresh, self.steps.own_run
            )
        except (SourceError, UsageError, RecordingError, OSError) as error:
            self._fail(error)
        except RuntimeError:  # what threading raises, of the recorder's thread
            self._fail(SourceError(NO_THREAD))

    def _fail(self, error: Exception) -> None:
        self.failure, self._measuring = error, None
        self._has_read.set()
        self.reason = str(error)
        NOTICES.warning("gputop: the GPUs are not watched: %s", error)

    def _run(self) -> None:
        measuring = self._measuring
        try:
            if measuring is not None:
                self._begin_measuring(measuring)
            self._has_first_frame.set()
            while not self._ending.is_set():
                # A snapshot wakes this thread; without one, the steps go on.
                self._fresh.wait(ROUND_S if self._measuring is None else ROUND_S + LATE_S)
                self._fresh.clear()
                self._round()
            self._round(ending=True)
            if self._measuring is not None:
                others = self._add_others(self._measuring, self._measuring.last())
                self._measuring.record_last([*others, *self.steps.take_rows()])
            if self.options.log_thread == "own":
                self.log_now()
        except BaseException as error:  # noqa: BLE001 — the last frame of a thread inside of somebody's training
            self.reason = f"watching has failed: {error_words(error)}"
            NOTICES.warning("gputop: %s", self.reason)
        finally:
            self._measures_no_more()
            self._has_first_frame.set()
            self._has_read.set()
            self.cost.look()
            if measuring is not None:
                measuring.close()
            self.steps.close()

    def _begin_measuring(self, measuring: Measuring) -> None:
        """Start the source, and take what it has at once."""
        try:
            measuring.begin()
        except (SourceError, UsageError) as error:
            self._fail(error)
            return
        for snapshot in measuring.new():
            self._take(measuring, snapshot)
        if self.options.source is not None:
            # A program's own source may give nothing before the program goes on.
            self._has_read.set()

    def _round(self, *, ending: bool = False) -> None:
        begun, now = time.thread_time(), time.monotonic()
        if ending or now - self._worked_out >= ROUND_S - LATE_S:
            self._worked_out = now
            self.steps.work_out(self._job_view(), self.log)
            if self._measuring is None:
                # No frame will carry them.
                self.steps.take_rows()
        if self._measuring is not None:
            for snapshot in self._measuring.new():
                self._take(self._measuring, snapshot)
        self.cost.longest_s = max(self.cost.longest_s, time.thread_time() - begun)
        self.log.look(steps_are_used=self.clock.used, count=self.clock.total)

    def _job_view(self) -> JobView:
        """Return the job's GPUs as its steps need them."""
        measuring = self._measuring
        latest = None if self.latest is None else self.latest.snapshot
        if measuring is None:
            return JobView(latest=latest)
        return JobView(measuring.own_gpus, measuring.socket_path, latest)

    def _take(self, measuring: Measuring, snapshot: Snapshot) -> None:
        if any(gpu.lost_reason is None for gpu in snapshot.gpus):
            self.available = self.measured = True
            self.reason = None
        elif not self.available and snapshot.notices:
            self.reason = snapshot.notices[0]
        others = self._add_others(measuring, snapshot)
        snapshot = replace(snapshot, steps=(*others, *self.steps.take_rows()))
        for frame in measuring.take(snapshot):
            self._hand_out(frame, measuring.own_gpus)
        if snapshot.gpus:
            self._has_read.set()

    def _add_others(self, measuring: Measuring, snapshot: Snapshot | None) -> list[StepRow]:
        """Add the steps of this run's other ranks; return all others' steps.

        This process's own steps come from its clock: the socket may be missing, and would bring them twice.
        """
        if snapshot is None:
            return []
        others = [row for row in snapshot.steps if row.pid != self._pid]
        ranks = [row for row in others if row.run == self.steps.own_run]
        self.steps.add_ranks(snapshot, [(row, measuring.shown(row)) for row in ranks])
        return others

    def _hand_out(self, frame: Frame, own_gpus: tuple[str, ...]) -> None:
        self.log.add(lambda means: means.add(frame, own_gpus))
        self.log.add_verdicts(frame.diagnoses)
        self.latest = frame
        self._calls.tell(frame)
