"""``gputop run -- CMD``: a command with a recording and a report of the GPUs that it used.

The command comes first: whatever goes wrong with measuring becomes a note in the report, never its end.
"""

from __future__ import annotations

import os
import queue
import shlex
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from types import FrameType
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
from gputop.session.session import Arrivals, OwnGpus, RunWatcher, Session
from gputop.system.children import in_our_place
from gputop.system.worker import once

if TYPE_CHECKING:
    from gputop.model.redaction import Redactor


# A command run in a process group of its own, as a shell runs a job: terminal, signals, stops and exit code.
#
# The command keeps our standard input, output and error. At a terminal its group becomes the foreground group, so that
# Ctrl-C and Ctrl-Z reach it once and not us; without one, signals that we get are passed on.

FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
NOT_FOUND, NOT_EXECUTABLE = 127, 126


class ForegroundJob:
    """One running command. ``start`` and ``finish`` belong to the main thread; ``changed`` is called from another one.

    Raises OSError when the command cannot be started.
    """

    def __init__(self, command: Sequence[str], changed: Callable[[], None]) -> None:
        self._changed = changed
        self._statuses: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._terminal = _terminal()
        self._handlers: dict[int, Callable[[int, FrameType | None], object] | int | None] = {}
        self.exit_code: int | None = None
        terminal, own_group = self._terminal, os.getpgrp()

        def become_job() -> None:
            """In the child, before the command: so no instant passes in which a key could reach the wrong group."""
            os.setpgid(0, 0)
            if terminal is not None:
                signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})
                with suppress(OSError):
                    os.tcsetpgrp(terminal, os.getpid())
                signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTTOU})

        self._own_group = own_group
        # With SIGCHLD ignored, which a parent may have passed on, the kernel keeps no exit code.
        self._handlers[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._process = in_our_place(command, become_job)
        self.pid = self._process.pid
        if terminal is not None:
            # A background process that changes its terminal's settings is stopped by this signal.
            self._handlers[signal.SIGTTOU] = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        for number in FORWARDED:
            self._handlers[number] = signal.signal(number, self._forward)
        once("job", self._watch)

    def take_changes(self) -> bool:
        """Handle what has happened to the job since the last call; True when it has ended."""
        while self.exit_code is None:
            try:
                status = self._statuses.get_nowait()
            except queue.Empty:
                return False
            if os.WIFSTOPPED(status):
                self._stop_with_it()
            else:
                self.exit_code = 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
                # Popen must not wait for a process that is gone.
                self._process.returncode = self.exit_code
        return True

    def finish(self) -> None:
        """Give the terminal and the signals back."""
        self._give_terminal(self.pid, self._own_group)
        for number, handler in self._handlers.items():
            if handler is not None:
                signal.signal(number, handler)
        self._handlers.clear()

    def _watch(self) -> None:
        """Wait for the job on a thread, because waiting in the main thread would block everything else."""
        while True:
            try:
                _, status = os.waitpid(self.pid, os.WUNTRACED)
            except ChildProcessError:
                # The exit code was collected elsewhere in this process.
                status = NOT_EXECUTABLE << 8
            self._statuses.put(status)
            self._changed()
            if not os.WIFSTOPPED(status):
                return

    def _forward(self, number: int, _frame: FrameType | None) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def _stop_with_it(self) -> None:
        """The job was stopped by a key: stop too, so that the shell gets its prompt, and go on together."""
        if self._terminal is None:
            return
        self._give_terminal(self.pid, self._own_group)
        os.kill(os.getpid(), signal.SIGSTOP)
        # In the background (bg) the terminal is the shell's, and stays it.
        self._give_terminal(self._own_group, self.pid)
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGCONT)

    def _give_terminal(self, holder: int, group: int) -> None:
        """Make a group the foreground group, if ``holder`` is it now."""
        terminal = self._terminal
        if terminal is not None:
            # The terminal may have gone with its window.
            with suppress(OSError):
                if os.tcgetpgrp(terminal) == holder:
                    os.tcsetpgrp(terminal, group)


def _terminal() -> int | None:
    """The file descriptor of our terminal, if we are in its foreground."""
    try:
        fd = sys.stdin.fileno()
        return fd if os.isatty(fd) and os.tcgetpgrp(fd) == os.getpgrp() else None
    except (OSError, ValueError, AttributeError):
        return None


_WAKE_S = 0.25
_MOST_ANCESTORS = 64
MOST_MEMBERS = 4096
"""How many processes of a job are remembered at most."""
RelativesOf = Callable[[int], Relatives | None]
"""The parent, the process group and the start of a pid; None once it has ended."""


class JobResult(Struct, frozen=True):
    """How a run ended. ``path`` is its recording, None when nothing was recorded."""

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
    """Run a command to its end; record the GPUs that its processes use to ``target``, if given, and report on them.

    ``alerts`` are judged on the GPUs that the job uses, and closed; what came of them becomes notes of the report.
    ``relatives_of`` tells whose child a process is, and in which process group.

    Call it from the main thread, before any other thread is started. The exit code is the command's, 128 + N after
    signal N, 127 when there is no such command, 126 when it cannot be executed. Raises RecordingError, before the
    command is started, when ``target`` cannot be written. ``source`` is redacted already where there is a
    ``redactor``; it is for the command.
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
        return JobResult(code, ReportBuilder().report(command=shown, exit_code=code, notes=[note]), None)
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
        price=price, command=shown, exit_code=code, run_s=time.monotonic() - begun, notes=watch.notes()
    )
    # Steps are counted even where the job uses no GPU.
    return JobResult(code, replace(report, steps=watch.steps.report()), watch.path())


def _shown(command: Sequence[str], redactor: Redactor | None) -> str:
    """The command as the report gives it: secrets masked, or redacted to the program's name."""
    words = masked_words(command)
    return shlex.join(words) if redactor is None else redactor.command(words[0])


def _check_target(target: str) -> str | None:
    """Why a recording cannot be written there, found out before the job is started."""
    if target.endswith(os.sep) or os.path.isdir(target):
        return None
    if os.path.lexists(target):
        return f"{target}: exists already; a recording never overwrites a file, choose another name"
    folder = os.path.dirname(target) or "."
    return None if os.access(folder, os.W_OK | os.X_OK) else f"{folder}: cannot be written"


class _Watch:
    """Cuts each snapshot down to the GPUs of one job, then records and reports what is left."""

    def __init__(
        self, root: int, target: str | None, relatives_of: RelativesOf, alerts: RunWatcher | None = None
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
        """Begin to measure. A source that cannot becomes a note."""
        self._interval_s = arrivals.source.interval_s
        try:
            arrivals.start()
        except (SourceError, UsageError) as error:
            self._problems.append(f"nothing was measured: {error}")

    def close(self, late: Iterable[Event], ran: RunFacts) -> None:
        """End the recording. ``late`` are the marks that came after the last frame."""
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
        return None if self._recorder is None else self._recorder.path

    def notes(self) -> list[str]:
        notes = [*self._problems, *(self._alerts.messages if self._alerts is not None else ())]
        if self._recorder is not None and self._recorder.error is not None:
            notes.append(self._recorder.error)
        if self._recorder is not None and self._recorder.dropped:
            notes.append(f"not recorded because the disk was too slow: {count(self._recorder.dropped, 'frame')}")
        if not self._own_gpus.any and not self._problems:
            unwritten = f": nothing was recorded in {self._target}" if self._target is not None else ""
            notes.append(f"the job used no GPU{unwritten}")
            if self._foreign:
                notes.append("GPU processes were seen that this PID namespace cannot tell from the job's")
        return notes

    def take(self, snapshot: Snapshot) -> None:
        """Whatever goes wrong here, the command runs on, and is waited for."""
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
        """Whether a process descends from the job, or is in its process group."""
        if process.starttime is None:
            self._foreign += 1
            return False
        return self._members.get(process.pid) == process.starttime or self._descends(process.pid)

    def _descends(self, pid: int) -> bool:
        """Whether a pid is one of the job's now, or was when its process ended."""
        chain: dict[int, int] = {}
        for _ in range(_MOST_ANCESTORS):
            relatives = self._relatives_of(pid)
            if relatives is None:
                return pid == self._root or pid in self._members
            if pid == self._root or relatives.group == self._root or self._members.get(pid) == relatives.starttime:
                self._members.update({**chain, pid: relatives.starttime})
                return True
            if relatives.parent <= 1:
                return False
            chain[pid] = relatives.starttime
            pid = relatives.parent
        return False
