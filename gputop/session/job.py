"""Runs a command with a recording and a report of its GPUs.

The command comes first: a failure to measure becomes a note in the report and never ends it.
"""

from __future__ import annotations

import os
import shlex
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from gputop.model.inspection import Relatives
from gputop.model.quantity import count
from gputop.model.secrets import masked_words
from gputop.model.snapshot import Event, ProcessSample, Snapshot
from gputop.model.source import MarkedSource, SourceError, UsageError, unexpected
from gputop.monitor import Monitor, stepping_on
from gputop.recording.format import RecordingError, RunFacts
from gputop.recording.recorder import Recorder
from gputop.report.job_report import JobReport, ReportBuilder
from gputop.report.run_account import RunAccount
from gputop.session.arrivals import Arrivals
from gputop.session.foreground_job import NOT_EXECUTABLE, NOT_FOUND, ForegroundJob
from gputop.session.job_gpus import OwnGpus
from gputop.session.session import RunWatcher, Session

if TYPE_CHECKING:
    from gputop.model.redaction import Redactor


_WAKE_S = 0.25
_MOST_ANCESTORS = 64
MOST_MEMBERS = 4096
"""How many processes of a job are remembered at most."""
RelativesOf = Callable[[int], Relatives | None]
"""The parent, the process group and the start of a pid; None once it has ended."""


class JobResult(Struct, frozen=True):
    """Result of a run; ``path`` is its recording, None without one."""

    exit_code: int
    report: JobReport
    path: str | None


def run_job(
    command: Sequence[str],
    source: MarkedSource,
    *,
    relatives_of: RelativesOf,
    target: str | None = None,
    price: float | None = None,
    redactor: Redactor | None = None,
    alerts: RunWatcher | None = None,
) -> JobResult:
    """Run a command to its end and report on the GPUs it used.

    ``target`` is the recording, None for none. ``alerts`` are judged on the job's GPUs, then closed; their messages
    become notes of the report. ``relatives_of`` gives a process's parent and process group. ``source`` must already be
    redacted where there is a ``redactor``, which is for the command line.

    Call it from the main thread, before any other thread is started. The exit code is the command's, 128 + N after
    signal N, 127 without such a command, 126 when it cannot be executed. Raises RecordingError, before the command is
    started, when ``target`` cannot be written.
    """
    wake = threading.Event()
    begun = time.monotonic()
    shown = _shown(command, redactor)
    target_problem = None if target is None else _check_target(target)
    if target_problem is not None:
        raise RecordingError(target_problem)
    try:
        job = ForegroundJob(command, wake.set)
    except OSError as error:
        code = NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE
        note = f"{shlex.split(shown)[0]}: {error.strerror or error}"
        return JobResult(
            code, ReportBuilder().report(command=shown, exit_code=code, notes=[note]), None
        )
    watch, arrivals = _Watch(job.pid, target, relatives_of, alerts), Arrivals(source, wake)
    try:
        watch.start(arrivals)
        while not job.take_changes():
            for snapshot in arrivals.wait(_WAKE_S):
                watch.take(snapshot)
    finally:
        job.finish()
        source.close()
        for snapshot in arrivals.new():
            watch.take(snapshot)
        watch.close(source.late, RunFacts(shown, time.monotonic() - begun, job.exit_code))
    code = job.exit_code if job.exit_code is not None else NOT_EXECUTABLE
    report = watch.builder.report(
        price=price,
        command=shown,
        exit_code=code,
        run_s=time.monotonic() - begun,
        notes=watch.notes(),
    )
    # Steps are counted even where the job uses no GPU.
    return JobResult(code, replace(report, steps=watch.steps.report()), watch.path())


def _shown(command: Sequence[str], redactor: Redactor | None) -> str:
    """Return the command for the report, masked or redacted."""
    words = masked_words(command)
    return shlex.join(words) if redactor is None else redactor.command(words[0])


def _check_target(target: str) -> str | None:
    """Return why a recording cannot be written there, else None."""
    if target.endswith(os.sep) or os.path.isdir(target):
        return None
    if os.path.lexists(target):
        return f"{target}: exists already; a recording never overwrites a file, choose another name"
    folder = os.path.dirname(target) or "."
    return None if os.access(folder, os.W_OK | os.X_OK) else f"{folder}: cannot be written"


class _Watch:
    """Restricts snapshots to one job's GPUs, records and reports them."""

    def __init__(
        self,
        root: int,
        target: str | None,
        relatives_of: RelativesOf,
        alerts: RunWatcher | None = None,
    ) -> None:
        self._root = root
        self._alerts = alerts
        self._target = target
        self._relatives_of = relatives_of
        self._members: dict[int, int] = {}
        """The start of each process of the job that is known, by its pid."""
        self._own_gpus = OwnGpus(self._is_member, self._descends)
        self._recorder: Recorder | None = None
        self._session: Session | None = None
        self._problems: list[str] = []
        self._foreign = 0
        self._has_failed = False
        self._interval_s = 1.0
        self.builder = ReportBuilder()
        self.steps = RunAccount()

    def start(self, arrivals: Arrivals) -> None:
        """Begin to measure; a source that cannot becomes a note."""
        self._interval_s = arrivals.source.interval_s
        try:
            arrivals.start()
        except (SourceError, UsageError) as error:
            self._problems.append(f"nothing was measured: {error}")

    def close(self, late: Iterable[Event], ran: RunFacts) -> None:
        """End the recording.

        ``late`` are the marks that came after the last frame.
        """
        for mark in late:
            self.builder.add_event(mark)
            if self._session is not None:
                self._session.note(mark)
        if self._recorder is not None:
            self._recorder.ran = ran
            self._recorder.close()
        if self._alerts is not None:
            self._alerts.close()

    def path(self) -> str | None:
        """Return the recording's path, None without one."""
        return None if self._recorder is None else self._recorder.path

    def notes(self) -> list[str]:
        """Return the report's notes: problems, alerts, dropped frames."""
        notes = [*self._problems, *(self._alerts.messages if self._alerts is not None else ())]
        if self._recorder is not None and self._recorder.error is not None:
            notes.append(self._recorder.error)
        if self._recorder is not None and self._recorder.dropped:
            notes.append(
                f"not recorded because the disk was too slow: {count(self._recorder.dropped, 'frame')}"
            )
        if not self._own_gpus.any and not self._problems:
            unwritten = (
                f": nothing was recorded in {self._target}" if self._target is not None else ""
            )
            notes.append(f"the job used no GPU{unwritten}")
            if self._foreign:
                notes.append(
                    "GPU processes were seen that this PID namespace cannot tell from the job's"
                )
        return notes

    def take(self, snapshot: Snapshot) -> None:
        """Take a snapshot; an error here never ends the command."""
        if self._has_failed:
            return
        try:
            self._take(snapshot)
        except Exception as error:  # noqa: BLE001
            self._has_failed = True
            self._problems.append(f"nothing more was measured: {unexpected(error)}")

    def _take(self, snapshot: Snapshot) -> None:
        if len(self._members) > MOST_MEMBERS:
            # A job of weeks restarts its workers in every epoch. The living ones are kept; a forgotten one that
            # descends from the job is found again when it is asked about.
            living = {process.pid for process in snapshot.processes}
            self._members = {pid: start for pid, start in self._members.items() if pid in living}
        own_rows = [row for row in snapshot.steps if self._descends(row.pid)]
        self.steps.add(snapshot.t, [(row, stepping_on(snapshot, row)) for row in own_rows])
        for cut in self._own_gpus.take(snapshot):
            self._feed(cut)

    def _feed(self, snapshot: Snapshot) -> None:
        if self._session is None:
            self._session = Session(Monitor(self._interval_s, charts=False))
            self._session.alerts = self._alerts
            if self._target is not None:
                try:
                    self._recorder = Recorder(self._target)
                    self._session.record(self._recorder)
                except RecordingError as error:
                    self._problems.append(f"nothing was recorded: {error}")
        self.builder.add(self._session.take(snapshot))

    def _is_member(self, process: ProcessSample) -> bool:
        """Whether a process descends from the job or is in its group."""
        if process.starttime is None:
            self._foreign += 1
            return False
        return self._members.get(process.pid) == process.starttime or self._descends(process.pid)

    def _descends(self, pid: int) -> bool:
        """Whether a pid belongs to the job, or did when it ended."""
        chain: dict[int, int] = {}
        for _ in range(_MOST_ANCESTORS):
            relatives = self._relatives_of(pid)
            if relatives is None:
                return pid == self._root or pid in self._members
            if (
                pid == self._root
                or relatives.group == self._root
                or self._members.get(pid) == relatives.starttime
            ):
                self._members.update({**chain, pid: relatives.starttime})
                return True
            if relatives.parent <= 1:
                return False
            chain[pid] = relatives.starttime
            pid = relatives.parent
        return False
