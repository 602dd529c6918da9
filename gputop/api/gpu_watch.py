"""Read, record and report the GPUs of a watch.

This module is loaded only where there is a driver.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence

from msgspec.structs import replace

from gputop.api.job_gpus import JobGpus
from gputop.api.process_role import Role
from gputop.api.watch_options import NOTICES, Options
from gputop.model.redaction import Redactor
from gputop.model.sm import SmOptions
from gputop.model.snapshot import Event, Snapshot
from gputop.model.steps import StepRow
from gputop.monitor import Frame, Monitor
from gputop.recording.format import RecordingError, RunFacts
from gputop.recording.recorder import Recorder
from gputop.report.job_report import JobReport, ReportBuilder
from gputop.session.arrivals import Arrivals
from gputop.session.session import Session
from gputop.sources.local import LocalSource
from gputop.sources.marked import Marked
from gputop.sources.selection import MachineOptions


def opened(options: Options, role: Role) -> tuple[Marked, JobGpus | None]:
    """Open the source of a watch, and what selects the job's GPUs.

    The source is not started. The selection is None where all GPUs are shown. Everything that a source imports later is
    imported here, on the caller's thread: a fork while another thread imports leaves the child with a lock that is
    never released.
    """
    if options.source is not None:
        return Marked(options.source, at_once=True), None
    import gputop.sources.host  # noqa: F401

    mine = options.gpus == "mine"
    # Each rank on a node may see another GPU: the one that samples takes the whole job's.
    visible = mine and role.local_rank is None and "CUDA_VISIBLE_DEVICES" in os.environ
    chosen = None if options.gpus in ("mine", "all") else options.gpus
    sm = SmOptions(options.dcgm_url)
    machine = MachineOptions(interval_s=options.interval, gpus=chosen, visible=visible, sm=sm)
    source = LocalSource(machine, own_process=False)
    cuts = JobGpus(alone=options.ranks == "all") if mine else None
    return Marked(source, at_once=True), cuts


class Measuring:
    """Turns snapshots into frames, a recording and a report.

    ``begin``, ``new``, ``last`` and ``close`` belong to the watcher's thread. Raises UsageError for options that the
    machine cannot fulfil, and RecordingError where ``strict`` was asked for.
    """

    def __init__(
        self,
        options: Options,
        role: Role,
        redactor: Redactor | None,
        wake: threading.Event,
        run: str = "",
    ) -> None:
        self._source, gpus = opened(options, role)
        self._cuts: Callable[[Snapshot], list[Snapshot]] = (
            (lambda whole: [whole]) if gpus is None else gpus.take
        )
        self._redactor = redactor
        self._redacted: Callable[[Snapshot], Snapshot] = (
            (lambda cut: cut) if redactor is None else redactor.snapshot
        )
        # These frames are never drawn, and charts are a third of the work.
        self._session = Session(Monitor(options.interval, charts=False))
        self._builder = ReportBuilder()
        self._recorder: Recorder | None = None
        self._arrivals = Arrivals(self._source, wake)
        self.lock = threading.Lock()
        self._pid, self._mine = os.getpid(), options.gpus == "mine"
        self._run_name = options.name if redactor is None else redactor.number("run", options.name)
        self._run, self._begun, self._is_named = run, time.monotonic(), False
        self.own_gpus: tuple[str, ...] = ()
        """The names of the GPUs that this process computes on, as far as the driver tells."""
        if options.record is not None:
            try:
                self._recorder = Recorder(options.record)
                self._session.record(self._recorder)
            except RecordingError as error:
                if options.strict:
                    raise
                NOTICES.warning("gputop: nothing is recorded: %s", error)

    def begin(self) -> None:
        """Start the source, which sets ``wake`` at every snapshot.

        Raises SourceError and UsageError.
        """
        self._arrivals.start()

    def new(self) -> Iterator[Snapshot]:
        """Return new snapshots of the whole machine. Never waits."""
        return self._arrivals.new()

    @property
    def socket_path(self) -> str | None:
        """The address of this watch's listener; None where it has none."""
        return self._source.socket_path

    def shown(self, row: StepRow) -> StepRow:
        """A row of another process as reports show it."""
        return (
            row
            if self._redactor is None
            else replace(row, name=self._redactor.number("run", row.name))
        )

    def take(self, snapshot: Snapshot) -> list[Frame]:
        """Return the frames of the job's GPUs.

        There is none until the job uses a GPU, and there are several when it first does.
        """
        frames: list[Frame] = []
        gpu_indices = {p.gpu for p in snapshot.processes if p.pid == self._pid and p.role == "gpu"}
        if gpu_indices:
            self.own_gpus = tuple(
                gpu.static.name for gpu in snapshot.gpus if gpu.static.index in gpu_indices
            )
        for cut in self._cuts(snapshot):
            frame = self._session.take(self._redacted(cut))
            if self._recorder is not None and not frames and not self._is_named:
                self._is_named = True
                self._recorder.name_run(RunFacts(self._run_name, 0.0, run=self._run))
            if not self.own_gpus and self._mine and len(cut.gpus) == 1:
                # In a container the driver lists pids of another namespace, and shows only the GPUs given to it.
                self.own_gpus = (cut.gpus[0].static.name,)
            with self.lock:
                self._builder.add(frame)
            frames.append(frame)
        return frames

    def last(self) -> Snapshot | None:
        """End the source; return a snapshot with late steps of others.

        None where nobody announced steps after the newest snapshot.
        """
        self._source.close()
        return next(iter(deque(self.new(), maxlen=1)), None)

    def record_last(self, steps: Sequence[StepRow]) -> None:
        """Record steps that ended after the newest snapshot.

        Their frame repeats that snapshot.
        """
        last = None if self._recorder is None else self._source.repeated(steps)
        for cut in () if last is None else self._cuts(last):
            self._session.take(self._redacted(cut))

    def _redacted_mark(self, mark: Event) -> Event:
        return mark if self._redactor is None else self._redactor.event(mark)

    def note(self, mark: Event) -> None:
        """Add a mark that did not come by the socket."""
        if self._source.listening:
            return
        mark = self._redacted_mark(mark)
        with self.lock:
            self._session.note(mark)
            self._builder.add_event(mark)

    def report(self, price: float | None, command: str, duration_s: float) -> JobReport:
        """The report on the GPUs' time until now."""
        notes = (
            [] if self._recorder is None or self._recorder.error is None else [self._recorder.error]
        )
        with self.lock:
            return self._builder.report(price=price, command=command, run_s=duration_s, notes=notes)

    def close(self) -> None:
        """End the source and its run, then the recording."""
        self._source.close()
        # A program's own source may be watched again, and what it gives then belongs to that watch.
        self._arrivals.end_run()
        for mark in self._source.late:
            self._session.note(self._redacted_mark(mark))
        if self._recorder is not None:
            self._recorder.ran = RunFacts(
                self._run_name, time.monotonic() - self._begun, run=self._run
            )
            self._recorder.close()
