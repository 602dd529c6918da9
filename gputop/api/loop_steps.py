"""Steps of a program's loops: counted, announced to listeners, and summed up."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from gputop.api.slow_steps import NO_SIGNS, MachineSigns, machine_signs
from gputop.api.step_clock import StepClock, row_of
from gputop.api.step_phases import MOST_KEPT, PhaseSampler, PhaseSummary, phase_summary
from gputop.api.step_tail import StepSummary, StepTail
from gputop.api.torch_hook import TorchHook
from gputop.api.watch_options import Options
from gputop.api.work import StepWork, claimed_mfu_pct
from gputop.model.step_pace import PhaseSeries, mean_phases
from gputop.model.steps import StepRow
from gputop.monitor import stepping_on
from gputop.report.run_account import RunAccount, StepReport, run_of_recording
from gputop.sources.step_datagrams import scoped_run
from gputop.sources.step_socket import StepSender

if TYPE_CHECKING:
    from gputop.api.log_turn import LogTurn
    from gputop.model.snapshot import Snapshot


class JobView(Struct, frozen=True):
    """The GPUs of the job as its steps need them.

    ``own_gpus`` are the names of those that the process computes on, ``socket_path`` is the listener that hears of the
    steps already, ``latest`` the newest snapshot.
    """

    own_gpus: tuple[str, ...] = ()
    socket_path: str | None = None
    latest: Snapshot | None = None


class LoopSteps:
    """Counts the steps of one process, and knows nothing of how GPUs are read.

    The training thread calls ``clock.end`` alone. Each second another thread works out the ended steps::

        steps.work_out(JobView(latest=frame.snapshot), log)
        rows = steps.take_rows()
        steps.add_ranks(snapshot, rows_of_other_ranks)
    """

    def __init__(self, options: Options, shown_name: str) -> None:
        self._options, self._shown_name = options, shown_name
        self._pid = os.getpid()
        self._rank: int | None = None
        self._run_id = ""
        self.own_run = ""
        """The run of this process as this machine's listeners know it."""
        self.clock = StepClock()
        self.phases = PhaseSampler()
        self.work: StepWork | None = None
        self._hook = TorchHook(self.clock.end_by_hook, self.phases if options.phases else None)
        self._sender = StepSender()
        self._lock = threading.Lock()
        self._tail = StepTail()
        self._account = RunAccount()
        self.kept_phases = PhaseSeries(MOST_KEPT)
        self._rows: list[StepRow] = []
        self._signs_before: Snapshot | None = None

    def begin(self, run_id: str, rank: int | None) -> None:
        """Take over the identity of the process; on the training thread."""
        self._run_id, self._rank = run_id, rank
        self.own_run = scoped_run(run_id, self._pid, os.geteuid())
        if self._wants_hook:
            self._hook.register(on_training_thread=True)

    def end(self) -> None:
        """Take the hooks back; on the training thread."""
        self._hook.remove()

    def close(self) -> None:
        """Announce nothing any more."""
        self._sender.close()

    def silence(self) -> None:
        """Count nothing any more in a forked child, where locks may be held."""
        self._lock = threading.Lock()
        self.clock.silence()

    @property
    def _wants_hook(self) -> bool:
        """Whether the optimizer's hook is of use.

        It counts steps that the loop does not count itself, and measures phases.
        """
        return self._options.steps and (self._options.phases or not self.clock.explicit)

    def work_out(self, job: JobView, log: LogTurn) -> None:
        """Work out the steps that have ended, announce them and keep their row."""
        if self._wants_hook and not self._hook.registered:
            self._hook.register(on_training_thread=False)
        self.phases.due = self._hook.registered and self._options.phases
        looked_at = [self.phases.taken.popleft() for _ in range(len(self.phases.taken))]
        log.add(lambda means: means.add_phases(looked_at))
        with self._lock:
            for phases in looked_at:
                self.kept_phases.add(phases)
        ended, work = self.clock.ended(), self.work
        row = row_of(
            ended,
            log.batch_size(work),
            None if work is None else work.tokens,
            pid=self._pid,
            rank=self._rank,
            name=self._options.name,
            run=self._run_id,
        )
        if row is None:
            return
        phase_values = {
            f"{phase}_s": float(f"{seconds:.6g}")
            for phase, seconds in mean_phases(looked_at).items()
        }
        mfu_pct = claimed_mfu_pct(work, row.sum_s / row.count, job.own_gpus)
        row = replace(row, mfu_pct=mfu_pct, **phase_values)
        # The frames of this process already have it.
        self._sender.send(row, job.socket_path)
        row = replace(row, run=self.own_run)
        shown = replace(row, name=self._shown_name)
        log.add(lambda means: means.add_steps(shown))
        with self._lock:
            self._tail.add(ended, self._signs(job.latest))
            if job.latest is None:
                self._account.add(time.time(), [(shown, ())])
            else:
                self._account.add(job.latest.t, [(shown, stepping_on(job.latest, row))])
        self._rows.append(row)

    def _signs(self, latest: Snapshot | None) -> MachineSigns:
        """Return what the machine did since the steps before."""
        if latest is None:
            return NO_SIGNS
        before, self._signs_before = self._signs_before, latest
        return machine_signs(before, latest, (self._pid,))

    def take_rows(self) -> list[StepRow]:
        """Return the rows that no frame has yet; they are not returned again."""
        rows, self._rows = self._rows, []
        return rows

    def add_ranks(self, snapshot: Snapshot, rows: Iterable[tuple[StepRow, StepRow]]) -> None:
        """Count steps of this run's other ranks, each as it came and as reports show it."""
        counted = [(shown, stepping_on(snapshot, row)) for row, shown in rows]
        with self._lock:
            self._account.add(snapshot.t, counted)

    def median_s(self) -> float | None:
        """Return the median step so far; None without one."""
        summary = self.summary()
        return None if summary is None or summary.p50_s <= 0.0 else summary.p50_s

    def summary(self) -> StepSummary | None:
        """Return the spread of this process's steps."""
        with self._lock:
            return self._tail.summary(self.clock.total)

    def phase_summary(self) -> PhaseSummary | None:
        """Return the host time of a step by phase, where the hooks could tell it."""
        with self._lock:
            return phase_summary(self.kept_phases)

    def reports(self) -> tuple[StepReport, ...]:
        """Return the steps of all ranks of this run, by attempt."""
        with self._lock:
            return self._account.report()

    def mean_s(self, reports: Sequence[StepReport]) -> float | None:
        """Return the mean step: the run's where this process is all of it, else the process's own."""
        own = run_of_recording(reports, self.own_run)
        if own is not None and own.ranks == 1:
            return own.mean_s
        summary = self.summary()
        return None if summary is None else summary.mean_s
